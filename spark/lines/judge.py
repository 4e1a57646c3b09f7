"""Converts lines of audit files to events in Arrow columns. schemas/audit_event.json validates each line.

The compiled schema file (jsonschema-rs) is the only definition of an event. Blocks of lines that spark.lines.quick can
prove valid as a whole skip this.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import jsonschema_rs
import orjson
import pyarrow as pa

import schemas

# A longer line is not parsed. Stops a file that an attacker put into the folder from taking the parser's memory. The
# longest event that the router can write is under 150 kB (tests/audit).
MAX_LINE_BYTES = 256 * 1024
# Characters of a line, and of a member name in a reason, that the quarantine keeps.
MAX_QUARANTINED_CHARS = 4096
_MAX_SHOWN_CHARS = 100
# Limit of lines per call for which all faults are listed. Stops a file of `{}` from taking a hundred times as long as a
# trail.
MAX_EXPLAINED = 1000
NOT_AN_EVENT = "not an audit event"

NOT_ONE_OBJECT = "not one whole JSON object"
_NO_MOMENT = "time: no such moment"

_SCALARS: Mapping[str, pa.DataType] = {"string": pa.string(), "integer": pa.int64(), "boolean": pa.bool_()}
_MOMENT = pa.timestamp("us", tz="UTC")
_INT64 = range(-(2**63), 2**63)
# The keywords of one member, in the order in which a reader sees them.
_ORDER = ("type", "enum", "const", "pattern", "maxLength", "minimum", "maximum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The result for some lines.

    events   columns of `members()`, a row for each valid line, in order
    places   the index of each event's line
    faults   index of an invalid line -> why, with "; " between several reasons
    """

    events: pa.RecordBatch
    places: Sequence[int]
    faults: Mapping[int, str]


@cache
def members() -> pa.Schema:
    """Returns the columns of events: the schema's members in order, with `time` a timestamp."""
    fields = _text_members()
    return fields.set(fields.get_field_index("time"), pa.field("time", _MOMENT))


@cache
def _text_members() -> pa.Schema:
    return pa.schema(list(_struct(schemas.load("audit_event"))))


def _struct(spec: Mapping[str, Any]) -> pa.StructType:
    return pa.struct([(name, arrow_type(inner)) for name, inner in spec["properties"].items()])


def arrow_type(spec: Mapping[str, Any]) -> pa.DataType:
    """Returns the Arrow type of a member's JSON Schema. Errors: KeyError for a type that audit events do not use."""
    kinds = [kind for kind in kinds_of(spec) if kind != "null"]
    return _struct(spec) if kinds == ["object"] else _SCALARS["+".join(kinds)]


def kinds_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns JSON Schema's `type`, always as a tuple."""
    kinds = spec["type"]
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def judge(lines: Sequence[bytes]) -> Judged:
    """Validates lines.

    lines  without their line feeds, of any bytes
    """
    is_valid = _validator().is_valid
    valid: list[dict[str, Any]] = []
    places: list[int] = []
    faults: dict[int, str] = {}
    explained = 0
    for place, line in enumerate(lines):
        if len(line) > MAX_LINE_BYTES:
            faults[place] = f"longer than {MAX_LINE_BYTES} bytes"
            continue
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            faults[place] = NOT_ONE_OBJECT if _is_utf8(line) else "not UTF-8"
            continue
        if type(event) is not dict or not _has_each_member_once(event, line):
            faults[place] = NOT_ONE_OBJECT
        elif is_valid(event) and _is_moment(event["time"]):
            valid.append(event)
            places.append(place)
        else:
            explained += 1
            faults[place] = "; ".join(_reasons(event)) if explained <= MAX_EXPLAINED else NOT_AN_EVENT
    return Judged(events=columns(valid), places=places, faults=faults)


def as_moments(texts: pa.Array) -> pa.Array:
    """Converts times of valid form to timestamps. Errors: pa.ArrowInvalid if one does not exist."""
    return texts.cast(_MOMENT)


@cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(schemas.load("audit_event"))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _has_each_member_once(event: Mapping[str, Any], line: bytes) -> bool:
    """Returns whether no member is repeated. Parsers keep the last of two equal members; an event must be unambiguous.

    Every quote before a colon ends a member's name, except in strings, where a backslash precedes it.
    """
    held = len(event) + sum(len(inner) for inner in event.values() if type(inner) is dict)
    if held == line.count(b'":') - line.count(b'\\":'):
        return True
    try:
        json.loads(line, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        return False
    return True


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        raise ValueError("a member stands twice")
    return held


def _is_moment(text: str) -> bool:
    """Returns whether a time of valid form exists.

    It excludes the 30th of February, and 24:00, which some versions of Python accept.
    """
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return text[11:13] < "24" and len(text) == len("2026-01-31T08:00:00.000000Z")


def columns(events: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Converts events whose `time` is text to columns. Missing members become null."""
    arrays = _arrays(events, _text_members())
    at = members().get_field_index("time")
    arrays[at] = as_moments(arrays[at])
    return pa.RecordBatch.from_arrays(arrays, schema=members())


def _arrays(rows: Sequence[Mapping[str, Any]], fields: Iterable[pa.Field]) -> list[pa.Array]:
    arrays: list[pa.Array] = []
    for field in fields:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_struct(field.type):
            mask = pa.array([value is None for value in values], pa.bool_())
            inner = _arrays([value or {} for value in values], field.type)
            arrays.append(pa.StructArray.from_arrays(inner, fields=list(field.type), mask=mask))
        else:
            arrays.append(pa.array(values, field.type))
    return arrays


def _reasons(event: dict[str, Any]) -> Iterable[str]:
    """Returns all faults of an object that is not an event, in the order of the schema's members."""
    spec = schemas.load("audit_event")
    found: dict[tuple[Any, ...], str] = {}
    for error in _validator().iter_errors(event):
        for text, order in _explained(spec, event, error):
            found.setdefault(order, text)
    time = event.get("time")
    if isinstance(time, str) and not _is_moment(time):
        found[(len(spec["properties"]), _NO_MOMENT)] = _NO_MOMENT
    return [found[order] for order in sorted(found, key=_sortable)]


def _sortable(order: tuple[Any, ...]) -> list[tuple[int, str]]:
    return [(part, "") if isinstance(part, int) else (-1, part) for part in order]


def _explained(spec: Mapping[str, Any], event: Any, error: Any) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """Yields the texts of one validator error, each with its sort order.

    The order: for each member on the path its number in the schema; -1 before all; after them the rules between
    members;
    then the keyword's number.
    """
    path, keyword = [str(step) for step in error.instance_path], str(error.schema_path[-1])
    name = "".join(f"{step}." for step in path)
    inner, value, order = spec, event, []
    for step in path:
        order.append(list(inner["properties"]).index(step))
        inner, value = inner["properties"][step], value[step]
    past = len(inner.get("properties", ()))
    if error.schema_path[0] == "allOf":
        yield from _between(spec, error, past)
    elif keyword == "additionalProperties":
        strange = ", ".join(one for one in value if one not in inner["properties"])
        yield f"{name}no such member: {strange[:_MAX_SHOWN_CHARS]}", (*order, -1)
    elif keyword == "required":
        for place, one in enumerate(inner["properties"]):
            if one in inner["required"] and one not in value:
                yield f"{name}{one}: missing", (*order, place, -1)
    else:
        told = name.removesuffix(".")
        is_too_large = keyword in ("minimum", "maximum") and isinstance(value, int) and value not in _INT64
        keyword = "type" if is_too_large else keyword
        rank = _ORDER.index("minimum" if keyword == "maximum" else keyword)
        yield f"{told}: {_broken(keyword, inner, value)}", (*order, rank)


def _between(spec: Mapping[str, Any], error: Any, past: int) -> Iterable[tuple[str, tuple[Any, ...]]]:
    """Yields the texts for the rules between members (allOf: if, then, else)."""
    number = int(error.schema_path[1])
    rule = spec["allOf"][number]
    branch = "then" if "then" in error.schema_path else "else"
    for one in rule.get(branch, {}).get("required", ()):
        if f'"{one}"' in error.message:
            text = f"{one}: missing" if "properties" in rule["if"] else f"{_only(rule)}: only with {one}"
            yield text, (past, number, list(spec["properties"]).index(one))
    for one in rule.get(branch, {}).get("properties", {}):
        yield f"{one}: only {_only(rule)}", (past, number, list(spec["properties"]).index(one))


def _only(rule: Mapping[str, Any]) -> str:
    """Returns in words when a rule's `if` holds."""
    if "required" in rule["if"]:
        return " and ".join(rule["if"]["required"])
    (member, said), *_ = rule["if"]["properties"].items()
    if "enum" in said:
        return "for shadow decisions" if member == "decision" else f"for some values of {member}"
    return f"at {member} {said['const']}" if member == "stage" else f"for {member} {said.get('const')}"


def _broken(keyword: str, spec: Mapping[str, Any], value: object) -> str:
    match keyword:
        case "type":
            return f"must be {' or '.join(kinds_of(spec))}, is {_kind(value)}"
        case "enum":
            return "not one of the values it may have"
        case "const":
            return f"must be {spec['const']}"
        case "pattern":
            return "not of the form it must have"
        case "maxLength":
            return f"longer than {spec['maxLength']} characters"
        case _:
            return f"less than {spec['minimum']}, or too large"


def _kind(value: object) -> str:
    """Returns a JSON value's type, in Spark's terms, which users of the table know."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "bigint" if value in _INT64 else "decimal"
    names = {type(None): "void", bool: "boolean", float: "decimal", str: "string", list: "array", dict: "object"}
    return names[type(value)]
