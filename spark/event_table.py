"""The event table: validated audit events, as Parquet by day and router.

    TABLE/table.json                                    the mark of a table, with the version of this layout
    TABLE/events/day=2026-11-20/router_dir=R1/*.parquet
    TABLE/quarantine/*.parquet                          lines that are not events: file, offset, reason, line,
    line_bytes
    TABLE/batches/*.json                                the batches that were taken in, with counts (spark.lines.commit)
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
    """Returns the events of a table, each once: columns of spark.schemas.event_table().

    Tables of older versions lack the newest members, which are then null. A filter on `day` and `router_dir` reads only
    those partitions.
    Errors  those of pyspark, if `table` cannot be read. A table without events yields no rows.
    """
    events = Path(table) / EVENTS
    if not any(events.glob("day=*")):
        return session.createDataFrame([], event_table())
    return session.read.schema(event_table()).parquet(hadoop_path(events))


def read_quarantine(session: SparkSession, table: Path | str) -> DataFrame:
    """Returns the lines of a table that are not events.

    Returns  file, offset (where the line begins, bytes), reason (all faults, separated by "; "), line (its beginning,
             valid UTF-8), line_bytes (its whole length).
    """
    quarantine = Path(table) / QUARANTINE
    columns = "file string, offset bigint, reason string, line string, line_bytes bigint"
    if not any(quarantine.glob("*.parquet")):
        return session.createDataFrame([], columns)
    return session.read.schema(columns).parquet(hadoop_path(quarantine))


def router_dir(router: str) -> str:
    """Returns a router's id as a folder name.

    An id of 1 to 100 of A-Z, a-z, 0-9, . _ - that begins with a letter or a digit is used as it is. Any other id is
    reduced to these characters, cut, and extended by a hash. Stops an id of 256 unusual characters from making a path
    that no file system accepts.
    """
    if _PLAIN_ROUTER.fullmatch(router):
        return router
    head = _STRANGE.sub("", router)[:_HEAD_CHARS]
    return f"~{head}-{hashlib.sha256(router.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH_DIGITS]}"


def file_uri(path: Path) -> str:
    """Returns a path for writing."""
    return f"file://{path.resolve()}"


def hadoop_path(path: Path) -> str:
    """Returns a path for reading. There Hadoop takes *, ?, [, ], {, } and \\ as a pattern, so they are escaped."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path.resolve()))
