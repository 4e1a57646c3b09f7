"""The Parquet files of an event table, divided into shares, which workers process with Arrow."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from spark.event_table import EVENTS

# Bytes of rows processed together. More bytes give fewer sums for Spark to add up, but a worker holds several times as
# much.
_HELD_BYTES = 64 * 1024 * 1024
_ROWS = 65_536
# Shares for each task that runs at a time: a task with less to read does not wait long for others.
_SHARES_EACH = 2
# Limit of one share, unless a single file or day is larger: its sums stay in memory until it was read.
_SHARE_BYTES = 256 * 1024 * 1024


class DamagedFileError(Exception):
    """A file of the table that cannot be read. The text names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Share:
    """The files of one task.

    files  in the order of days and routers
    parts  day, as in the table's folder names -> the number of shares that have its files
    most   the greatest of these, of any day of the table
    """

    files: Sequence[str]
    parts: Mapping[str, int]
    most: int


def shares_of(table: Path, tasks: int) -> list[Share]:
    """Returns the current files as shares of similar size, for this many tasks at a time.

    One share has all of a day, unless the day is larger than a share.
    """
    files = sorted((table / EVENTS).glob("day=*/router_dir=*/*.parquet"))
    sizes = {path: path.stat().st_size for path in files}
    of_days: Counter[str] = Counter()
    for path, size in sizes.items():
        of_days[_day(path)] += size
    whole = max(sum(sizes.values()), 1)
    most = min(-(-whole // (_SHARES_EACH * tasks)), _SHARE_BYTES)
    cut: dict[int, list[Path]] = {}
    before, day_begin, day = 0, 0, ""
    for path in files:
        if _day(path) != day:
            day, day_begin = _day(path), before
        at = day_begin if of_days[day] <= most else before
        cut.setdefault(at // most, []).append(path)
        before += sizes[path]
    shares_of_day = Counter(day for paths in cut.values() for day in {_day(path) for path in paths})
    return [
        Share(
            [str(path) for path in paths],
            {day: shares_of_day[day] for day in {_day(path) for path in paths}},
            max(shares_of_day.values()),
        )
        for paths in cut.values()
    ]


def _day(path: Path) -> str:
    return path.parent.parent.name.removeprefix("day=")


def by_workers(
    session: SparkSession, shares: Sequence[Share], make: Callable[[Share], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Returns the output of `make` for each share, each in its own task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(shares[number])

    return session.range(0, len(shares), 1, max(len(shares), 1)).mapInArrow(run, schema)


def pieces(share: Share, columns: Sequence[str], texts: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the rows of a share in few tables, with the requested columns that their files have.

    texts  columns whose texts stay dictionary-encoded, as they are in the file: so they are read and grouped in a third
           of the time
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for path in share.files:
        with opened(path, texts) as file:
            for batch in file.iter_batches(_ROWS, columns=there(file, columns), use_threads=False):
                # A table may have files of several versions, with different columns.
                if held and (held[0].schema != batch.schema or held_bytes > _HELD_BYTES):
                    yield _together(held)
                    held, held_bytes = [], 0
                held.append(batch)
                held_bytes += batch.nbytes
    if held:
        yield _together(held)


@contextlib.contextmanager
def opened(path: str, texts: Sequence[str]) -> Iterator[Any]:
    """Yields an open file and closes it. Errors: DamagedFileError, also for errors while it is read."""
    try:
        metadata = pq.read_metadata(path)
        names = set(metadata.schema.to_arrow_schema().names)
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=[name for name in texts if name in names]) as file:
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        reason = " ".join(str(error).split())
        raise DamagedFileError(f"{path}: {reason} Take the file from a copy, or make the table anew") from error


def there(file: Any, columns: Sequence[str]) -> list[str]:
    """Returns the columns, or members of them (`folded.samples`), that a file has."""
    schema = file.schema_arrow
    known = set(schema.names)
    for member in schema:
        if pa.types.is_struct(member.type):
            known |= {f"{member.name}.{part.name}" for part in member.type}
    return [name for name in columns if name in known]


def _together(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries()
