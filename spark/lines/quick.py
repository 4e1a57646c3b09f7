"""Proves a whole block of lines valid and converts it to columns at once, by Arrow's own parser.

Validation line by line (spark.lines.judge) costs twice as much. The router's output is nearly always valid, so a block
is first tried as columns. The tests come from the schema file. On an unknown rule or any doubt the block is validated
line by line. So every block accepted here is valid for the validator too.

Arrow's parser is less strict than JSON. What it would accept, and the check against it here:
  two objects on a line, one on two lines      each line begins with { and ends with }, as many rows as lines
  a member that is missing                     the names in the block are counted, and must be as many as the rows need
  an optional member that is null              is unknown at first; in the second try its name is counted by itself
  half a surrogate pair, bytes beyond ASCII    not tried
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

import schemas
from spark.lines.judge import MAX_LINE_BYTES, arrow_type, as_moments, kinds_of, members

Places = np.ndarray[Any, np.dtype[np.int64]]

_RULES = {"type", "enum", "const", "pattern", "maxLength", "minimum", "maximum", "description"}
_OBJECT_RULES = {"type", "additionalProperties", "required", "properties", "description"}
_TOP_RULES = {*_OBJECT_RULES, "$schema", "$id", "title", "allOf"}
# Bytes of a block that are read to find which members it has: some lines.
_HEAD_BYTES = 16 * 1024
_OPEN, _CLOSE, _LINE_FEED, _BACKSLASH, _QUOTE, _COLON, _U = b'{}\n\\":u'
_SURROGATE = tuple(b"dD")
_QUOTE_AND_COLON = int.from_bytes(b'":', sys.byteorder)


class _UnknownRuleError(Exception):
    """A JSON Schema keyword without a test here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    """The schema, prepared for the tests.

    spec    the schema
    fields  its members as Arrow columns, times still text
    always  members without which a block is not tried
    rare    objects that have optional members themselves: a block with such an object is not tried
    """

    spec: Mapping[str, Any]
    fields: pa.Schema
    always: frozenset[str]
    rare: frozenset[str]


def columns(block: bytes, starts: Places, ends: Places) -> pa.RecordBatch | None:
    """Returns the events of a block if all its lines are valid. None if that is not certain.

    block         whole lines, each with its line feed
    starts, ends  its `bounds`
    """
    known = _known()
    if known is None or not block.isascii():
        return None
    letters = np.frombuffer(block, np.uint8)
    lengths = ends - starts
    if lengths.min() < 2 or lengths.max() > MAX_LINE_BYTES:
        return None
    if not ((letters[starts] == _OPEN).all() and (letters[ends - 1] == _CLOSE).all()):
        return None
    # Each line ends with a brace and a line feed, so two bytes follow every backslash.
    backslashes = np.flatnonzero(letters == _BACKSLASH)
    first, second = letters[backslashes + 1], letters[backslashes + 2]
    if ((first == _U) & np.isin(second, _SURROGATE)).any():
        return None
    named = _pairs(block, _QUOTE_AND_COLON) - int(np.count_nonzero((first == _QUOTE) & (second == _COLON)))
    # Fewer members are read faster, so the members of the first lines are tried first.
    head = block[:_HEAD_BYTES]
    names = [field for field in known.fields if field.name in known.always or b'"%s":' % field.name.encode() in head]
    lines = len(starts)
    return _columns(known, pa.schema(names), block, lines, named) or _columns(known, known.fields, block, lines, named)


def _columns(known: _Spec, fields: pa.Schema, block: bytes, lines: int, named: int) -> pa.RecordBatch | None:
    """Returns the same for a block whose lines have exactly these members.

    named  how many members its lines have, including those of objects in them
    """
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=fields, newlines_in_values=False, unexpected_field_behavior="error"
            ),
        )
        batches = table.combine_chunks().to_batches()
        if len(batches) != 1 or batches[0].num_rows != lines or not _is_valid(known, batches[0], block, named):
            return None
        return _whole(known, batches[0])
    except pa.ArrowInvalid:
        return None


def bounds(block: bytes) -> tuple[Places, Places]:
    """Returns where each line of a block begins, and where its line feed is."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    return starts, ends


def _pairs(block: bytes, pair: int) -> int:
    """Counts a pair of neighbouring bytes: ten times as fast as bytes.count if the pair is frequent.

    pair  the two as a number in this machine's byte order
    """
    return sum(
        int(np.count_nonzero(np.frombuffer(block, np.uint16, (len(block) - offset) // 2, offset) == pair))
        for offset in (0, 1)
    )


@cache
def _known() -> _Spec | None:
    spec = schemas.load("audit_event")
    try:
        _check_known(spec, _TOP_RULES)
        for rule in spec["allOf"]:
            _check_rule(rule)
    except _UnknownRuleError:
        return None
    fields = pa.schema([(name, arrow_type(inner)) for name, inner in spec["properties"].items()])
    nullable = {name for name, inner in spec["properties"].items() if "null" in kinds_of(inner)}
    rare = {
        name
        for name, inner in spec["properties"].items()
        if "properties" in inner and set(inner["required"]) != set(inner["properties"])
    }
    return _Spec(spec=spec, fields=fields, always=frozenset({*spec["required"], *nullable}), rare=frozenset(rare))


def _check_known(spec: Mapping[str, Any], rules: set[str]) -> None:
    """Checks that all rules of a schema have tests here. Errors: _UnknownRuleError."""
    if set(spec) - rules or spec["additionalProperties"] is not False:
        raise _UnknownRuleError
    for inner in spec["properties"].values():
        if "object" in kinds_of(inner):
            _check_known(inner, _OBJECT_RULES)
        elif set(inner) - _RULES:
            raise _UnknownRuleError


def _check_rule(rule: Mapping[str, Any]) -> None:
    if set(rule) - {"if", "then", "else"}:
        raise _UnknownRuleError
    branches = [rule[name] for name in ("then", "else") if name in rule]
    if any(set(branch) - {"required", "properties"} for branch in [*branches, rule["if"]]):
        raise _UnknownRuleError
    if any(said is not False for branch in branches for said in branch.get("properties", {}).values()):
        raise _UnknownRuleError
    if any(set(said) - {"const", "enum", "minimum"} for said in rule["if"].get("properties", {}).values()):
        raise _UnknownRuleError


def _is_valid(known: _Spec, rows: pa.RecordBatch, block: bytes, named: int) -> bool:
    held = {name: spec for name, spec in known.spec["properties"].items() if name in rows.schema.names}
    required = known.spec["required"]
    return (
        _has_its_members(known, held, rows, block, named)
        and all(_keeps(spec, rows.column(name), name not in required) for name, spec in held.items())
        and all(_keeps_rule(rule, rows) for rule in known.spec["allOf"])
    )


def _has_its_members(known: _Spec, held: Mapping[str, Any], rows: pa.RecordBatch, block: bytes, named: int) -> bool:
    """Returns whether every row has every required member, and no optional member has a forbidden null.

    No string contains a quote without a backslash before it. So a member's name with its quotes and colon only occurs
    as a name. The parser refuses a line with a repeated member.
    """
    expected = rows.num_rows * len(known.spec["required"])
    counts = {name: rows.num_rows - rows.column(name).null_count for name in held}
    if any(counts[name] for name in held if name in known.rare):
        return False
    expected += sum(counts[name] * len(spec["properties"]) for name, spec in held.items() if "properties" in spec)
    for name, spec in held.items():
        if name in known.spec["required"]:
            continue
        found = counts[name]
        if found < rows.num_rows:
            found = block.count(b'"%s":' % name.encode())
            found -= sum(counts[outer] for outer, one in held.items() if name in one.get("properties", ()))
            if found != counts[name] and "null" not in kinds_of(spec):
                return False
        expected += found
    return bool(named == expected)


def _keeps(spec: Mapping[str, Any], values: pa.Array, is_optional: bool) -> bool:
    """Returns whether all values obey the rules of their member. Nulls count as missing, if that is allowed."""
    kinds = kinds_of(spec)
    if values.null_count == len(values):
        return is_optional or "null" in kinds
    if values.null_count and not is_optional and "null" not in kinds:
        return False
    if "object" in kinds:
        present = values.drop_null()
        return all(
            _keeps(inner, present.field(place), False) for place, inner in enumerate(spec["properties"].values())
        )
    return all(_all(kept) for kept in _kept(spec, values))


def _kept(spec: Mapping[str, Any], values: pa.Array) -> Iterator[pa.Array]:
    """Yields one array of booleans for each rule, with null for null values."""
    if "enum" in spec:
        yield pc.is_in(values, pa.array(spec["enum"], values.type))
    if "const" in spec:
        yield pc.equal(values, pa.scalar(spec["const"], values.type))
    if "pattern" in spec:
        yield pc.match_substring_regex(values, spec["pattern"])
    if "maxLength" in spec:
        yield pc.less_equal(pc.utf8_length(values), spec["maxLength"])
    if "minimum" in spec:
        yield pc.greater_equal(values, spec["minimum"])
    if "maximum" in spec:
        yield pc.less_equal(values, spec["maximum"])


def _keeps_rule(rule: Mapping[str, Any], rows: pa.RecordBatch) -> bool:
    """Returns whether all rows obey an if, then and else."""
    holds = _holds(rule["if"], rows)
    for branch, applies in ((rule.get("then", {}), holds), (rule.get("else", {}), pc.invert(holds))):
        for name in branch.get("required", ()):
            if pc.any(pc.and_(applies, pc.invert(_is_here(name, rows)))).as_py():
                return False
        for name in branch.get("properties", {}):
            if pc.any(pc.and_(applies, _is_here(name, rows))).as_py():
                return False
    return True


def _holds(said: Mapping[str, Any], rows: pa.RecordBatch) -> pa.Array:
    """Returns for each row whether the `if` holds. A condition on a missing member holds."""
    holds = pa.array(np.ones(rows.num_rows, bool))
    for name in said.get("required", ()):
        holds = pc.and_(holds, _is_here(name, rows))
    for name, spec in said.get("properties", {}).items():
        if name not in rows.schema.names:
            continue
        for kept in _kept(spec, rows.column(name)):
            holds = pc.and_(holds, pc.fill_null(kept, True))
    return holds


def _all(kept: pa.Array) -> bool:
    return bool(pc.all(kept, min_count=0).as_py())


def _is_here(name: str, rows: pa.RecordBatch) -> pa.Array:
    """Returns for each row whether it has an optional member, or one that must not be null."""
    if name not in rows.schema.names:
        return pa.array(np.zeros(rows.num_rows, bool))
    return rows.column(name).is_valid()


def _whole(known: _Spec, rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """Returns the rows with all members of the schema, and times as timestamps."""
    arrays = [
        rows.column(field.name) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
        for field in known.fields
    ]
    at = members().get_field_index("time")
    arrays[at] = as_moments(arrays[at])
    # Limits that the validator's calendar check does not know.
    if pc.min(pc.year(arrays[at])).as_py() < 1:
        return None
    return pa.RecordBatch.from_arrays(arrays, schema=members())
