"""The event table: audit events that were judged once, as Parquet by day and router.

    TABLE/table.json                                    the mark of a table, with the version of this layout
    TABLE/events/day=2026-11-20/router_dir=R1/*.parquet
    TABLE/quarantine/*.parquet                          lines that are no events: file, offset, reason, line, line_bytes
    TABLE/batches/*.json                                what was taken in at once, and its numbers (spark.lines.commit)
    TABLE/checkpoint/                                   of Structured Streaming: how far each file was read

`qdaudit ingest` writes it, every report reads it with `read_events`. The columns are spark.schemas.event_table().
"""

import hashlib
import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark.schemas import event_table

EVENTS = "events"
QUARANTINE = "quarantine"
BATCHES = "batches"
PARTITIONS = ("day", "router_dir")
_PLAIN_ROUTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_STRANGE = re.compile(r"[^A-Za-z0-9._-]")
_HEAD_CHARS = 40
_HASH_DIGITS = 16


def read_events(session: SparkSession, table: Path | str) -> DataFrame:
    """The events of a table, each once: columns of spark.schemas.event_table().

    Tables of older versions lack the newest members; they are null. A filter on `day` and `router_dir` reads those
    partitions alone.
    Errors  those of pyspark, when `table` cannot be read. A table without events is empty.
    """
    events = Path(table) / EVENTS
    if not any(events.glob("day=*")):
        return session.createDataFrame([], event_table())
    return session.read.schema(event_table()).parquet(hadoop_path(events))


def read_quarantine(session: SparkSession, table: Path | str) -> DataFrame:
    """The lines of a table that are no events.

    Returns  file, offset (where the line begins, bytes), reason (all faults, "; " between), line (its beginning, valid
             UTF-8), line_bytes (its whole length).
    """
    quarantine = Path(table) / QUARANTINE
    columns = "file string, offset bigint, reason string, line string, line_bytes bigint"
    if not any(quarantine.glob("*.parquet")):
        return session.createDataFrame([], columns)
    return session.read.schema(columns).parquet(hadoop_path(quarantine))


def router_dir(router: str) -> str:
    """A router's id as a name of a folder.

    The id itself where it is of 1 to 100 of A-Z, a-z, 0-9, . _ - and begins with a letter or a digit. Else what it has
    of these, cut, and a hash. Stops an id of 256 strange characters from being a path that no file system takes.
    """
    if _PLAIN_ROUTER.fullmatch(router):
        return router
    head = _STRANGE.sub("", router)[:_HEAD_CHARS]
    return f"~{head}-{hashlib.sha256(router.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH_DIGITS]}"


def file_uri(path: Path) -> str:
    """A path to be written."""
    return f"file://{path.resolve()}"


def hadoop_path(path: Path) -> str:
    """A path to be read. There Hadoop takes *, ?, [, ], {, } and \\ for a pattern; these are names."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path.resolve()))
