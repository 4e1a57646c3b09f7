"""Converts one part of one file to Parquet files, of events by day and router, and of invalid lines.

Runs in Spark's workers.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark.event_table import router_dir
from spark.lines import files, qdrouterd, quick
from spark.lines.judge import MAX_QUARANTINED_CHARS, judge, members

# Bytes of columns in memory before they are written. Two workers and Spark itself easily fit in 4 GB.
_HELD_BYTES = 96 * 1024 * 1024
# Limit of Parquet files from one part. Stops lines with made-up routers and days from making a million small files.
MAX_PLACES = 1000
_COMPRESSION = "zstd"
# Nearly every row has a different value: a dictionary would be as long as the column.
_ALL_DIFFERENT = {"event_id", "sequence", "time", "offset"}

QUARANTINE = pa.schema(
    [("file", pa.string()), ("offset", pa.int64()), ("reason", pa.string()), ("line", pa.string()),
     ("line_bytes", pa.int64())]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The input and the output folder of one task.

    name     the file's, without .gz or .zst; path is its place, with that name
    start    and `end`, uncompressed bytes, see spark.lines.files.blocks
    router   the router whose log it is, for a log of the C router; None for our lines
    staging  an empty folder of only this task
    """

    name: str
    path: Path
    start: int
    end: int | None
    router: str | None
    staging: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One Parquet file.

    path  below the task's folder; first and last are times in microseconds, 0 in quarantine
    """

    path: str
    day: str
    router_dir: str
    rows: int
    first: int
    last: int


@dataclass(slots=True)
class _Place:
    """The Parquet file of one day and router, while it is written."""

    path: Path
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0
    rows: int = 0
    first: int = 2**63 - 1
    last: int = -(2**63)
    writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self.held.append(rows)
        self.held_bytes += rows.nbytes
        self.rows += rows.num_rows

    def saw(self, moments: pa.Array) -> None:
        least_and_most = pc.min_max(moments.cast(pa.int64()))
        self.first = min(self.first, least_and_most["min"].as_py())
        self.last = max(self.last, least_and_most["max"].as_py())

    def flush(self) -> None:
        if not self.held:
            return
        if self.writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            schema = self.held[0].schema
            dictionaries = [name for name in schema.names if name not in _ALL_DIFFERENT]
            self.writer = pq.ParquetWriter(self.path, schema, compression=_COMPRESSION, use_dictionary=dictionaries)
        self.writer.write_table(pa.Table.from_batches(self.held).combine_chunks())
        self.held, self.held_bytes = [], 0


def ingest(part: Part) -> tuple[int, list[Written]]:
    """Reads, validates and writes one part. Returns its number of lines, and the files written.

    A file that no longer exists counts as no lines. A compressed file that is torn or invalid has one more line, in
    quarantine, which says so.
    """
    places: dict[tuple[str, str], _Place] = {}
    bad = _Place(part.staging / "quarantine.parquet")
    lines = 0
    try:
        for begin, block in files.blocks(part.path, part.start, part.end):
            lines += _take(part, begin, block, places, bad)
            if sum(place.held_bytes for place in places.values()) + bad.held_bytes > _HELD_BYTES:
                for place in (*places.values(), bad):
                    place.flush()
    except FileNotFoundError:
        pass
    except files.TornFileError as error:
        lines += 1
        bad.add(_quarantine(part.name, [(part.start, str(error), b"")]))
    for place in (*places.values(), bad):
        place.flush()
        if place.writer is not None:
            place.writer.close()
            _to_disk(place.path)
    return lines, [*_written(part, places), *_quarantined(part, bad)]


def _written(part: Part, places: dict[tuple[str, str], _Place]) -> Iterator[Written]:
    for (day, folder), place in places.items():
        path = str(place.path.relative_to(part.staging))
        yield Written(path=path, day=day, router_dir=folder, rows=place.rows, first=place.first, last=place.last)


def _quarantined(part: Part, bad: _Place) -> Iterator[Written]:
    if bad.rows:
        path = str(bad.path.relative_to(part.staging))
        yield Written(path=path, day="", router_dir="", rows=bad.rows, first=0, last=0)


def _take(part: Part, begin: int, block: bytes, places: dict[tuple[str, str], _Place], bad: _Place) -> int:
    """Adds one block's lines to their files. Returns their number."""
    starts, ends = quick.bounds(block)
    rows = quick.columns(block, starts, ends) if part.router is None else None
    if rows is not None:
        taken, faults = starts, {}
    else:
        lines = [block[a:b] for a, b in zip(starts, ends, strict=True)]
        judged = judge(lines) if part.router is None else qdrouterd.judge(lines, part.router, part.name, begin + starts)
        rows, taken, faults = judged.events, starts[np.asarray(judged.places, np.int64)], dict(judged.faults)
    whole = _with_origin(part, rows, begin + taken)
    refused = _place(part, whole, places)
    for offset in refused:
        faults[int(np.searchsorted(starts, offset - begin))] = f"one of more than {MAX_PLACES} days and routers"
    if faults:
        told = [(begin + int(starts[at]), why, block[starts[at] : ends[at]]) for at, why in sorted(faults.items())]
        bad.add(_quarantine(part.name, told))
    return len(starts)


def _with_origin(part: Part, rows: pa.RecordBatch, offsets: Any) -> pa.RecordBatch:
    source = "palisade" if part.router is None else "qdrouterd"
    more = [
        pa.repeat(pa.scalar(source, pa.string()), rows.num_rows),
        pa.repeat(pa.scalar(part.name, pa.string()), rows.num_rows),
        pa.array(offsets, pa.int64()),
    ]
    names = [*rows.schema.names, "source", "file", "offset"]
    return pa.RecordBatch.from_arrays([*rows.columns, *more], names=names)


def _place(part: Part, rows: pa.RecordBatch, places: dict[tuple[str, str], _Place]) -> Sequence[int]:
    """Adds every row to the file of its day and router. Returns the offsets of rows beyond the limit of files."""
    refused: list[int] = []
    if not rows.num_rows:
        return refused
    days = pc.floor_temporal(rows.column("time"), unit="day").cast(pa.int64())
    routers = pc.dictionary_encode(rows.column("router"))
    pairs = pc.add(
        pc.multiply(pc.divide(days, 86_400_000_000), len(routers.dictionary)), routers.indices.cast(pa.int64())
    )
    distinct = pc.unique(pairs).to_pylist()
    for pair in distinct:
        mine = rows if len(distinct) == 1 else rows.filter(pc.equal(pairs, pair))
        number, router = divmod(pair, len(routers.dictionary))
        day = datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d").rjust(10, "0")
        key = day, router_dir(routers.dictionary[router].as_py())
        if key not in places and len(places) >= MAX_PLACES:
            refused += mine.column("offset").to_pylist()
            continue
        folder = part.staging / f"day={key[0]}" / f"router_dir={key[1]}"
        place = places.setdefault(key, _Place(folder / "events.parquet"))
        place.saw(mine.column("time"))
        place.add(mine)
    return refused


def _quarantine(name: str, told: Sequence[tuple[int, str, bytes]]) -> pa.RecordBatch:
    """Returns rows of the quarantine.

    told  offset, reason and line of each
    """
    offsets, reasons, lines = zip(*told, strict=True)
    shown = [line[: 4 * MAX_QUARANTINED_CHARS].decode("utf-8", "replace")[:MAX_QUARANTINED_CHARS] for line in lines]
    columns = [[name] * len(told), offsets, reasons, shown, [len(line) for line in lines]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, QUARANTINE, strict=True)], schema=QUARANTINE
    )


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stored() -> pa.Schema:
    """Returns the columns of the Parquet files of events."""
    origin = [("source", pa.string()), ("file", pa.string()), ("offset", pa.int64())]
    return pa.schema([*members(), *origin])
