"""Rows of the event table in Arrow, in a uniform form: all members present, as columns of their own, counts limited."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark.transforms.events import MOST
from spark.transforms.sign import coded

TIME: Final = pa.timestamp("us", tz="UTC")
_STRUCTS: Final[Mapping[str, Mapping[str, str]]] = {
    "rule": {f"rule_{name}": name for name in ("vhost", "group", "item", "file", "line")},
    "folded": {"owner": "owner", "folded_first": "first", "folded_last": "last"},
}
_PLAIN: Final = (
    *("time", "decision", "reason", "stage", "router", "start", "sequence", "connection", "user", "remote_host"),
    *("vhost", "group", "direction", "address", "attempts", "lost", "ruleset_digest"),
)
_NUMBERS: Final = ("sequence", "attempts", "lost", "connection")
# The columns that are read, and the text columns among them: as text, or dictionary-encoded.
COLUMNS: Final = (*_PLAIN, *_STRUCTS)
TEXTS: Final = tuple(name for name in _PLAIN if name != "time" and name not in _NUMBERS)

_EARLIEST, _LATEST = -(2**63), 2**63 - 1
_UNITS: Final = {"hour": 3_600_000_000, "day": 86_400_000_000}
# Like Java's regular expressions: a dot does not match a line end.
_MAPPED: Final = re.compile(r"(?i)\A::ffff:(?=[0-9]+\.)|%[^\n\r\u0085\u2028\u2029]*")


def even(rows: pa.Table) -> pa.Table:
    """Returns the columns, the members of structs as columns of their own, and computed columns.

    rows     of COLUMNS; a table of an older version may lack some: these become null
    Returns  _PLAIN; members of structs as rule_vhost, owner; is_flood (bool); requests (how many it represents); hour
    and
             day (microseconds of their beginning)
    """
    rows = rows.combine_chunks()
    names = set(rows.column_names)
    columns: dict[str, Any] = {}
    for name in _PLAIN:
        if name in names:
            columns[name] = rows[name].cast(TIME) if name == "time" else rows[name]
        else:
            columns[name] = pa.nulls(len(rows), pa.int64() if name in _NUMBERS else pa.string())
    for name, members in _STRUCTS.items():
        known = {field.name for field in rows[name].type} if name in names else set()
        for column, member in members.items():
            is_there = member in known
            columns[column] = pc.struct_field(rows[name], member) if is_there else pa.nulls(len(rows), pa.string())
    columns["is_flood"] = pc.is_valid(rows["folded"]) if "folded" in names else pa.repeat(False, len(rows))
    columns["requests"] = pc.fill_null(_bounded(columns["attempts"]), 1)
    columns["lost"] = _bounded(columns["lost"])
    at = micros(columns["time"])
    for unit, length in _UNITS.items():  # pc.floor_temporal takes ten times as long with a time zone
        columns[unit] = pa.array(at // length * length)
    return pa.table(columns)


def micros(times: Any) -> Any:
    """Returns times as numpy numbers, in microseconds UTC."""
    return times.cast(pa.int64()).to_numpy()


def is_within(rows: pa.Table, *, since: int | None, before: int | None) -> Any:
    """Returns numpy booleans: whether rows are within the time, in microseconds UTC. None: no limit."""
    at = micros(rows["time"])
    return (at >= (_EARLIEST if since is None else since)) & (at < (_LATEST if before is None else before))


def grouped(rows: pa.Table, keys: Sequence[str], numbers: Sequence[tuple[str, str]]) -> pa.Table:
    """Returns aggregates under the names of their columns: each column has one aggregate."""
    sums = rows.group_by(list(keys), use_threads=False).aggregate(list(numbers))
    return pa.table({**{key: sums[key] for key in keys}, **{name: sums[f"{name}_{how}"] for name, how in numbers}})


def host_of(text: str) -> str:
    """Returns the host as spark.detectors.finding.host does."""
    if ":" not in text and "%" not in text:
        return text
    plain = _MAPPED.sub("", text)
    if ":" not in plain:
        return plain
    left, right = ([group for group in half.lower().split(":") if group] for half in plain.partition("::")[::2])
    whole = left + ["0"] * max(8 - len(left) - len(right), 0) + right
    return f"{':'.join(whole[:4])}::/64"


def hosts(rows: pa.Table) -> Any:
    """Returns the column `host`: remote_host as detectors count it."""
    numbers, known = coded(rows["remote_host"])
    named = pa.array([host_of(text) for text in known.to_pylist()], pa.string()).dictionary_encode()
    places = pa.concat_arrays([named.indices, pa.array([None], pa.int32())])
    return pa.DictionaryArray.from_arrays(places.take(pa.array(numbers)), named.dictionary)


def _bounded(counts: Any) -> Any:
    """Limits counts as spark.transforms.events.bounded does."""
    return pc.if_else(pc.greater(counts, MOST), MOST, counts)
