"""Moves the output of one batch's tasks into the event table: each event once, each batch once. Runs in the driver.

A batch is in the table if `TABLE/batches/<batch>.json` exists. Before that, its files are moved there under its name,
and a second try removes them first. So a batch that is repeated after a crash is there only once.
"""

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark.event_table import BATCHES, EVENTS, QUARANTINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The counts of a batch, or of all batches. files: their names, and how many lines were read from each

    lines = events + duplicates + quarantined, except lines of the C router's log that report no denial
    """

    files: Mapping[str, int]
    lines: int
    events: int
    duplicates: int
    quarantined: int


@dataclass(slots=True)
class _File:
    """A Parquet file of events, made by a task or in the table already; times in microseconds."""

    path: Path
    rows: int
    first: int
    last: int


def commit(table: Path, batch: str, made: Iterable[Mapping[str, Any]]) -> Sums:
    """Takes a batch into the table, unless it is there already.

    batch  a name of [0-9a-f-], always the same for the same lines
    made   rows as from spark.lines.source
    Returns  its counts. Errors  OSError, pa.ArrowException: nothing is lost, the batch can be committed again.
    """
    said = table / BATCHES / f"{batch}.json"
    rows = list(made)
    try:
        if said.exists():
            return _sums(json.loads(said.read_text("utf-8")))
        for left in (
            *table.glob(f"{EVENTS}/day=*/router_dir=*/{batch}_*.parquet"),
            *table.glob(f"{QUARANTINE}/{batch}_*"),
        ):
            left.unlink()
        sums = _taken(table, batch, rows)
        _write_whole(said, json.dumps(asdict(sums)) + "\n")
        return sums
    finally:
        for staging in {row["staging"] for row in rows}:
            shutil.rmtree(staging, ignore_errors=True)


def totals(table: Path) -> Sums:
    """Returns the counts of all batches of a table."""
    lines: Counter[str] = Counter()
    events = duplicates = quarantined = 0
    for path in sorted((table / BATCHES).glob("*.json")):
        one = _sums(json.loads(path.read_text("utf-8")))
        lines.update(one.files)
        events, duplicates = events + one.events, duplicates + one.duplicates
        quarantined += one.quarantined
    return Sums(files=dict(lines), lines=lines.total(), events=events, duplicates=duplicates, quarantined=quarantined)


def _sums(told: Mapping[str, Any]) -> Sums:
    return Sums(**told)


def _taken(table: Path, batch: str, rows: Sequence[Mapping[str, Any]]) -> Sums:
    lines: Counter[str] = Counter()
    places: defaultdict[tuple[str, str], list[_File]] = defaultdict(list)
    quarantine: list[tuple[Path, int]] = []
    for row in rows:
        lines[row["file"]] += row["lines"]
        if row["path"] is None:
            continue
        path = Path(row["staging"]) / row["path"]
        if row["day"]:
            places[row["day"], row["router_dir"]].append(
                _File(path=path, rows=row["rows"], first=row["first"], last=row["last"])
            )
        else:
            quarantine.append((path, row["rows"]))
    events = duplicates = number = 0
    for (day, router_dir), made in sorted(places.items()):
        folder = table / EVENTS / f"day={day}" / f"router_dir={router_dir}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        duplicates += _without_repetitions(made, [_existing(path) for path in sorted(folder.glob("*.parquet"))])
        for file in made:
            events += file.rows
            number += 1
            if file.rows:
                _move(file.path, folder / f"{batch}_{number}.parquet")
    for number, (path, _) in enumerate(quarantine):
        _move(path, table / QUARANTINE / f"{batch}_{number}.parquet")
    bad = sum(count for _, count in quarantine)
    return Sums(files=dict(lines), lines=lines.total(), events=events, duplicates=duplicates, quarantined=bad)


def _without_repetitions(made: Sequence[_File], there: Sequence[_File]) -> int:
    """Removes events that occur already, or twice, from the new files. Returns their number.

    A line that was written twice has the same time twice. So only files whose times overlap are compared, and only
    their rows in those times. In an ordered trail that is almost nothing.
    """
    removed = 0
    for place, file in enumerate(made):
        others = [
            one for one in (*there, *made[:place]) if one.rows and one.first <= file.last and file.first <= one.last
        ]
        if not others and not _has_repetitions(file):
            continue
        known = [_ids(one, max(one.first, file.first), min(one.last, file.last)) for one in others]
        ids = _ids(file, file.first, file.last)
        keep = _first_ones(ids)
        if known:
            keep = pc.and_(keep, pc.invert(pc.is_in(ids, pa.concat_arrays(known))))
        count = pc.sum(keep).as_py() or 0
        if count < file.rows:
            removed += file.rows - count
            _rewrite(file, keep, count)
    return removed


def _has_repetitions(file: _File) -> bool:
    ids = pq.read_table(file.path, columns=["event_id"]).column("event_id")
    return bool(pc.count_distinct(ids).as_py() < file.rows)


def _ids(file: _File, first: int, last: int) -> pa.Array:
    moment = pa.timestamp("us", tz="UTC")
    within = (pc.field("time") >= pa.scalar(first, moment)) & (pc.field("time") <= pa.scalar(last, moment))
    held = pq.read_table(file.path, columns=["event_id"], filters=within).column("event_id")
    return held.combine_chunks() if held.num_chunks else pa.array([], pa.string())


def _first_ones(ids: pa.Array) -> pa.Array:
    """Returns for each id whether it is the first with its value."""
    codes = pc.dictionary_encode(ids).indices.to_numpy()
    keep = np.zeros(len(codes), bool)
    keep[np.unique(codes, return_index=True)[1]] = True
    return pa.array(keep)


def _rewrite(file: _File, keep: pa.Array, count: int) -> None:
    if count:
        pq.write_table(pq.read_table(file.path, partitioning=None).filter(keep), file.path, compression="zstd")
        _to_disk(file.path)
    file.rows = count


def _existing(path: Path) -> _File:
    """Returns a file of the table, with its times from its footer."""
    told = pq.read_metadata(path)
    names = [told.schema.column(place).path for place in range(told.num_columns)]
    at = names.index("time")
    statistics = [told.row_group(group).column(at).statistics for group in range(told.num_row_groups)]
    micros = [
        (round(one.min.timestamp() * 1_000_000) - 1, round(one.max.timestamp() * 1_000_000) + 1) for one in statistics
    ]
    return _File(
        path=path, rows=told.num_rows, first=min(low for low, _ in micros), last=max(high for _, high in micros)
    )


def _move(path: Path, target: Path) -> None:
    """Moves a file into the table and flushes it to disk, before the batch is recorded as done."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.move(path, target)
    _to_disk(target.parent)


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    _to_disk(part)
    part.replace(path)
    _to_disk(path.parent)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
