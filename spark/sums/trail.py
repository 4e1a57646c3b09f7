"""Events and their sums: the input of a report."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.event_table import read_events
from spark.sums.bursts import Watch
from spark.sums.cells import CELL_SCHEMA, FACT, FACTS, HASH_BITS, Asked, cells
from spark.sums.files import Share, by_workers, pieces, shares_of
from spark.sums.picks import PICKED, PICKED_SCHEMA, Wanted, picked, picked_of
from spark.sums.rows import COLUMNS, TEXTS
from spark.transforms.events import within

_ADDED = ("events", "requests", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """The input of a report.

    events  within the requested time, by spark.schemas.event_table()
    sums    cells by spark.sums.cells.CELLS, one for each kind and keys. Those of RUNS and STARTS are of any time.
    pick    returns the wanted events, by spark.sums.picks.PICKED
    """

    events: DataFrame
    sums: DataFrame
    pick: Callable[[Sequence[Wanted]], DataFrame]

    def of_kind(self, kind: str) -> DataFrame:
        return self.sums.where(F.col("kind") == kind)

    def facts(self) -> DataFrame:
        """Returns the sums of events by decision, reason, stage and router.

        Further columns: events, requests, lost (bigint); first and last (timestamp) of their times. A predicate on the
        first four holds for all events that a row sums up.
        """
        names = [F.col("keys")[at].alias(name) for at, name in enumerate(FACT)]
        return self.of_kind(FACTS).select(*names, *_ADDED, "first", "last")


def trail_of_table(
    session: SparkSession,
    table: Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    has_denials: bool = False,
    watch: Watch | None = None,
) -> Trail:
    """Returns the trail of an event table within a time, from the files that it has now.

    has_denials  with the sums for denials
    watch        what detectors look at; None: no detectors
    """
    begin, end = _micros(since), _micros(until)
    asked = Asked(has_denials=has_denials, seed=_seed(), watch=watch, since=begin, before=end)
    shares = shares_of(table, session.sparkContext.defaultParallelism)

    def summed(share: Share) -> Iterator[pa.RecordBatch]:
        return cells(pieces(share, COLUMNS, TEXTS), asked, share)

    def picks(wanted: Sequence[Wanted]) -> DataFrame:
        def of_share(share: Share) -> Iterator[pa.RecordBatch]:
            return picked(share, wanted, since=begin, before=end)

        return by_workers(session, shares, of_share, PICKED_SCHEMA)

    return Trail(
        events=within(read_events(session, table), since=since, until=until),
        sums=_summed(by_workers(session, shares, summed, CELL_SCHEMA)),
        pick=picks,
    )


def trail_of_events(events: DataFrame, *, has_denials: bool = False, watch: Watch | None = None) -> Trail:
    """Returns the trail of events from any source."""
    asked = Asked(has_denials=has_denials, seed=_seed(), watch=watch)

    def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return cells((pa.Table.from_batches([batch]) for batch in batches), asked)

    def picks(wanted: Sequence[Wanted]) -> DataFrame:
        there = (field.name for field in PICKED if field.name in events.columns)
        return events.select(*there).mapInArrow(lambda batches: picked_of(batches, wanted), PICKED_SCHEMA)

    seen = events.select(*(name for name in COLUMNS if name in events.columns))
    return Trail(events=events, sums=_summed(seen.mapInArrow(summed, CELL_SCHEMA)), pick=picks)


def _summed(cells: DataFrame) -> DataFrame:
    added = [F.sum(name).alias(name) for name in _ADDED]
    ends = (F.min("first").alias("first"), F.max("last").alias("last"))
    # On disk: normally they are few, but with a different name in each of millions of denials they would fill the
    # memory that the reports need.
    return cells.groupBy("kind", "keys", "low", "high").agg(*added, *ends).persist(StorageLevel.DISK_ONLY)


def _seed() -> int:
    return secrets.randbits(HASH_BITS)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)
