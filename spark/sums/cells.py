"""Computes partial sums, called cells, from a piece of the event table. Pure Arrow; runs in Spark's workers.

A cell is a row of CELLS: what it sums up (`kind`), the values of its keys as text, and numbers. spark.sums.trail adds
up cells of the same kind and keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.sums.bursts import Gathered, Watch
from spark.sums.files import Share
from spark.sums.hashes import hashes_of, mixed
from spark.sums.rows import TIME, even, is_within
from spark.transforms.events import DENIAL, LOG_CLOSED
from spark.transforms.sign import coded

# kind, keys; events (their number), requests (that they represent), lost (events that they report as not written),
# first and last (of their times), low and high (of their numbers).
CELLS: Final = pa.schema(
    [("kind", pa.string()), ("keys", pa.list_(pa.string())), ("events", pa.int64()), ("requests", pa.int64()),
     ("lost", pa.int64()), ("first", TIME), ("last", TIME), ("low", pa.int64()), ("high", pa.int64())]
)  # fmt: skip
CELL_SCHEMA: Final = (
    "kind string, keys array<string>, events bigint, requests bigint, lost bigint, first timestamp, last timestamp, "
    "low bigint, high bigint"
)

# Kinds of cells for denials only, with the members by which they are counted.
DENIALS: Final[Mapping[str, Sequence[str]]] = {
    "by_reason": ("reason",),
    "by_rule": ("rule_vhost", "rule_group", "rule_item", "rule_file", "rule_line"),
    "by_user": ("user",),
    "by_group": ("group",),
    "by_host": ("remote_host",),
    "by_vhost": ("vhost",),
    "by_address": ("direction", "address"),
    "by_router": ("router",),
    "by_hour": ("hour",),
    "by_day": ("day",),
}
# Kinds of cells for the approximate number of distinct values of a member in a day's denials. The lowest hashes of a
# day's values are kept (`low`): these are either all hashes, or the greatest of them shows their density.
DISTINCT: Final[Mapping[str, str]] = {"reasons": "reason", "users": "user", "hosts": "remote_host"}
MOST_HASHES: Final = 512
HASH_BITS: Final = 63
FLOODS: Final = "floods"
_FLOOD: Final = (
    *("owner", "router", "connection", "user", "remote_host", "stage", "reason"),
    *("folded_first", "folded_last"),
)
# Rows of a batch. Spark holds a whole batch in several forms. Attack: a name for each denial.
_ROWS: Final = 4096
# Of all events within the requested time.
FACTS: Final = "facts"
FACT: Final = ("decision", "reason", "stage", "router")
# Of all events of any time: by router and start, the losses, the number of ends, and the runs of consecutive numbers.
STARTS: Final = "starts"
RUNS: Final = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The cells that are requested.

    has_denials  also the cells for denials
    seed         63 random bits, different in each report. Attack: names chosen for the lowest hashes would make a few
                 users look like a thousand
    watch        what detectors look at; None: no detectors
    since        and before, microseconds UTC; None: any
    """

    has_denials: bool
    seed: int
    watch: Watch | None = None
    since: int | None = None
    before: int | None = None


def cells(pieces: Iterable[pa.Table], asked: Asked, share: Share | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the cells.

    pieces  rows of spark.sums.rows.COLUMNS; a table of an older version may lack some
    share    the share to which all these rows belong; None: they are any part of a trail
    """
    gathered = None if asked.watch is None else Gathered(asked.watch, share)
    for piece in pieces:
        rows = even(piece)
        yield from _starts(rows)
        if asked.since is not None or asked.before is not None:
            rows = rows.filter(pa.array(is_within(rows, since=asked.since, before=asked.before)))
        yield from _sums(FACTS, rows, FACT)
        if asked.has_denials:
            yield from _of_denials(rows.filter(pa.array(DENIAL.mask(rows))), asked.seed)
        if gathered is not None:
            gathered.add(rows)
    if gathered is not None:
        for kind, keys, numbers in gathered.cells():
            yield from _batches(kind, keys, numbers)


def _of_denials(denied: pa.Table, seed: int) -> Iterator[pa.RecordBatch]:
    for name, keys in DENIALS.items():
        yield from _sums(name, denied, keys)
    for name, member in DISTINCT.items():
        yield from _least_hashes(name, denied, member, seed)
    yield from _sums(FLOODS, denied.filter(denied["is_flood"]), _FLOOD)


def _sums(kind: str, rows: pa.Table, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    numbers = [("requests", "count"), ("requests", "sum"), ("lost", "sum"), ("time", "min"), ("time", "max")]
    sums = rows.group_by(list(keys), use_threads=False).aggregate(numbers)
    names = {"events": "requests_count", "requests": "requests_sum", "lost": "lost_sum"}
    names |= {"first": "time_min", "last": "time_max"}
    yield from _batches(kind, [sums[key] for key in keys], {name: sums[of] for name, of in names.items()})


def _least_hashes(kind: str, rows: pa.Table, member: str, seed: int) -> Iterator[pa.RecordBatch]:
    values = rows.select(["day", member]).filter(pc.is_valid(rows[member]))
    found = values.group_by(["day", member], use_threads=False).aggregate([])
    days, (indices, names) = found["day"].to_numpy(), coded(found[member])
    # Without the last bit: a person who knows the hashes of names does not know their order.
    hashes = (mixed(hashes_of(names) ^ np.uint64(seed)) >> np.uint64(64 - HASH_BITS)).astype(np.int64)[indices]
    order = np.lexsort((hashes, days))
    days, hashes = days[order], hashes[order]
    begins = np.flatnonzero(np.concatenate(([True], days[1:] != days[:-1])))
    place = np.arange(len(days)) - np.repeat(begins, np.diff(np.append(begins, len(days))))
    is_kept = place < MOST_HASHES
    yield from _batches(kind, [pa.array(days[is_kept])], {"low": pa.array(hashes[is_kept])})


def _starts(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    numbered = rows.select(["router", "start", "sequence", "reason", "lost"])
    numbered = numbered.filter(pc.and_(pc.is_valid(rows["start"]), pc.is_valid(rows["sequence"])))
    if not len(numbered):
        return
    ends = pc.cast(pc.fill_null(pc.equal(numbered["reason"], LOG_CLOSED), False), pa.int64())
    sums = (
        numbered.append_column("ends", ends)
        .group_by(["router", "start"], use_threads=False)
        .aggregate([("ends", "sum"), ("lost", "sum")])
    )
    whose = [sums["router"], sums["start"]]
    yield from _batches(STARTS, whose, {"events": sums["ends_sum"], "lost": sums["lost_sum"]})
    yield from _runs(numbered)


def _runs(numbered: pa.Table) -> Iterator[pa.RecordBatch]:
    """Returns the numbers of each start as runs without a gap. Files are ordered, so most have one run."""
    codes = np.zeros(len(numbered), np.int64)
    for key in ("router", "start"):
        indices, names = coded(numbered[key])
        codes = codes * (len(names) + 1) + indices
    numbers = numbered["sequence"].to_numpy()
    order = np.lexsort((numbers, codes))
    codes, numbers = codes[order], numbers[order]
    # Not the difference of the numbers, which may exceed 64 bits.
    is_next = (codes[1:] == codes[:-1]) & ((numbers[1:] == numbers[:-1]) | (numbers[1:] - 1 == numbers[:-1]))
    begins = np.flatnonzero(np.concatenate(([True], ~is_next)))
    ends = np.append(begins[1:], len(numbers)) - 1
    whose = numbered.select(["router", "start"]).take(order[begins])
    runs = {"low": pa.array(numbers[begins]), "high": pa.array(numbers[ends])}
    yield from _batches(RUNS, [whose["router"], whose["start"]], runs)


def _batches(kind: str, keys: Sequence[Any], numbers: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    if not (count := len(keys[0])):
        return
    texts = pa.concat_arrays([_whole(key).cast(pa.string()) for key in keys])
    # Turns the keys, which are stored one column after another, into the keys of each row.
    side_by_side = np.arange(count * len(keys)).reshape(len(keys), count).T.ravel()
    offsets = np.arange(0, (count + 1) * len(keys), len(keys), dtype=np.int32)
    columns = {
        "kind": pa.repeat(kind, count),
        "keys": pa.ListArray.from_arrays(pa.array(offsets), texts.take(pa.array(side_by_side))),
        **{name: _whole(column) for name, column in numbers.items()},
    }
    whole = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in CELLS
    ]
    yield from pa.table(whole, schema=CELLS).to_batches(_ROWS)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
