"""Selects the wanted events of a table, which are few of many. Runs in Spark's workers."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.sums.files import Share, opened, there
from spark.sums.rows import TEXTS, TIME, even, hosts, is_within, micros
from spark.transforms.sign import Sign, any_mask, coded

# The columns that detectors use.
PICKED: Final = pa.schema(
    [("event_id", pa.string()), ("time", TIME), ("router", pa.string()), ("start", pa.string()),
     ("connection", pa.int64()), ("stage", pa.string()), ("decision", pa.string()), ("reason", pa.string()),
     ("user", pa.string()), ("remote_host", pa.string()), ("vhost", pa.string()), ("address", pa.string()),
     ("ruleset_digest", pa.string()), ("attempts", pa.int64()), ("folded", pa.struct([("samples", pa.string())])),
     ("management", pa.struct([("operation", pa.string()), ("entity_type", pa.string())]))]
)  # fmt: skip
PICKED_SCHEMA: Final = (
    "event_id string, time timestamp, router string, start string, connection bigint, stage string, decision string, "
    "reason string, user string, remote_host string, vhost string, address string, ruleset_digest string, "
    "attempts bigint, folded struct<samples:string>, management struct<operation:string,entity_type:string>"
)
_READ: Final = (
    *(field.name for field in PICKED if not pa.types.is_struct(field.type)),
    *(f"{field.name}.{member.name}" for field in PICKED if pa.types.is_struct(field.type) for member in field.type),
)
# The columns that decide whether an event is wanted.
_JUDGED: Final = (
    *("time", "router", "stage", "decision", "reason", "user", "remote_host", "vhost", "address", "ruleset_digest"),
)
_ROWS: Final = 16_384  # of a batch
_LEAST, _GREATEST = -(2**62), 2**62

Key = tuple[str | None, ...]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Events that match one of `signs`, with the keys and times of `spans`.

    keys   members, or `host`
    spans  values of the keys, and the time from (inclusive) and to (exclusive), microseconds UTC; None: any
    """

    signs: Sequence[Sign]
    keys: Sequence[str] = ()
    spans: Sequence[tuple[Key, Span]] | None = None


def always(keys: Sequence[Key]) -> list[tuple[Key, Span]]:
    return [(key, (_LEAST, _GREATEST)) for key in keys]


class Pick:
    """Decides which rows are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        spans: dict[Key, list[Span]] = defaultdict(list)
        for key, span in wanted.spans or ():
            spans[key].append(span)
        self._places = [
            {value: at for at, value in enumerate(dict.fromkeys(key[nth] for key in spans))}
            for nth in range(len(wanted.keys))
        ]
        numbered = sorted((self._code(key), key) for key in spans)
        self._codes = np.array([code for code, _ in numbered], np.int64)
        merged = [(at, *span) for at, (_, key) in enumerate(numbered) for span in _merged(spans[key])]
        of, begins, ends = np.array(merged, np.int64).reshape(-1, 3).T
        self._bounds = np.unique(np.concatenate((begins, ends)))
        # A time is represented by the number of bounds at or before it, so a key and a time together are one small
        # number.
        self._begins = self._at(of, np.searchsorted(self._bounds, begins) + 1)
        self._ends = self._at(of, np.searchsorted(self._bounds, ends))

    def _code(self, key: Key) -> int:
        code = 0
        for value, places in zip(key, self._places, strict=True):
            code = code * len(places) + places[value]
        return code

    def _at(self, key: Any, moment: Any) -> Any:
        return np.asarray(key, np.int64) * (len(self._bounds) + 1) + moment

    def mask(self, rows: pa.Table) -> Any:
        """Returns a mask of the wanted rows.

        rows  as of spark.sums.rows.even, with `host`
        """
        mask = any_mask(self._wanted.signs, rows)
        if self._wanted.spans is None or not mask.any():
            return mask
        if not len(self._begins):
            return np.zeros(len(rows), bool)
        codes = np.zeros(len(rows), np.int64)
        for name, places in zip(self._wanted.keys, self._places, strict=True):
            numbers, known = coded(rows[name])
            found = pc.fill_null(pc.index_in(known, pa.array([*places], pa.string())), -1).to_numpy()
            ids = np.append(found, places.get(None, -1)).astype(np.int64)[numbers]
            mask &= ids >= 0
            codes = codes * len(places) + ids
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        mask &= self._codes[at] == codes
        moments = self._at(at, np.searchsorted(self._bounds, micros(rows["time"]), side="right"))
        nth = np.searchsorted(self._begins, moments, side="right") - 1
        return mask & (nth >= 0) & (moments <= self._ends[nth])


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def picked(
    share: Share, wanted: Sequence[Wanted], *, since: int | None, before: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the wanted events of a share of a table, as PICKED."""
    picks = [Pick(each) for each in wanted]
    for path in share.files:
        with opened(path, TEXTS) as file:
            for group in range(file.num_row_groups):
                mask = _mask(file.read_row_group(group, there(file, _JUDGED), use_threads=False), picks, since, before)
                if mask.any():
                    whole = file.read_row_group(group, there(file, _READ), use_threads=False)
                    yield from _as_picked(whole.filter(pa.array(mask)))


def picked_of(batches: Iterator[pa.RecordBatch], wanted: Sequence[Wanted]) -> Iterator[pa.RecordBatch]:
    """Yields the wanted events of batches of events, which have some columns of spark.schemas.event_table()."""
    picks = [Pick(each) for each in wanted]
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        yield from _as_picked(rows.filter(pa.array(_mask(rows, picks, None, None))))


def _mask(rows: pa.Table, picks: Sequence[Pick], since: int | None, before: int | None) -> Any:
    flat = even(rows)
    flat = flat.append_column("host", hosts(flat))
    return is_within(flat, since=since, before=before) & np.logical_or.reduce([pick.mask(flat) for pick in picks])


def _as_picked(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    known = {name: rows[name].combine_chunks() for name in rows.column_names}
    columns = [_member(known.get(field.name), field, len(rows)) for field in PICKED]
    yield from pa.table(columns, schema=PICKED).to_batches(_ROWS)


def _member(column: Any, wanted: Any, count: int) -> Any:
    """Returns a column in the wanted form: only some members of a struct, nulls if the column is missing."""
    if column is None:
        return pa.nulls(count, wanted.type)
    if not pa.types.is_struct(wanted.type):
        return column.cast(wanted.type)
    names = {field.name for field in column.type}
    parts = [
        _member(pc.struct_field(column, field.name) if field.name in names else None, field, count)
        for field in wanted.type
    ]
    return pa.StructArray.from_arrays(parts, fields=list(wanted.type), mask=pc.is_null(column))
