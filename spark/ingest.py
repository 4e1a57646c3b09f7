"""Audit files -> the event table: once, or as a stream with a checkpoint."""

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark.event_table import BATCHES, EVENTS, QUARANTINE, file_uri
from spark.folders import MARK, VERSION, UnusableError, check_version, is_table, make_folder
from spark.lines.commit import Sums, commit
from spark.lines.source import NAME, AuditFiles, Reading

CHECKPOINT = "checkpoint"
_STAGING = ".staging"
_LOCK = ".lock"


def once(session: SparkSession, folder: Path, table: Path, *, router: str | None = None) -> Sums:
    """Takes everything in the folder now, including torn tails, into a new table: for one report.

    router  of the C router's logs in the folder, see spark.lines.source.Reading
    Errors  UnusableError; those of pyspark, if a file cannot be read.
    """
    with _open(table) as staging:
        session.dataSource.register(AuditFiles)
        reading = Reading(folder=folder, staging=staging, router=router)
        made = session.read.format(NAME).options(**reading.options()).load()
        return commit(table, "once", (row.asDict() for row in made.collect()))


def stream(
    session: SparkSession,
    folder: Path,
    table: Path,
    *,
    router: str | None = None,
    every_s: int | None = None,
    told: Callable[[Sums], None] | None = None,
    part_bytes: int | None = None,
    batch_bytes: int | None = None,
) -> None:
    """Takes what is new in the folder into the table. Returns when everything that existed at the start is in.

    every_s  continue, and look for more at this interval in seconds, until the caller is interrupted
    told     is called with the counts of each batch
    Errors   UnusableError; those of pyspark, if a file cannot be read.
    """
    with _open(table) as staging:
        session.dataSource.register(AuditFiles)
        sizes = {
            name: size for name, size in (("part_bytes", part_bytes), ("batch_bytes", batch_bytes)) if size is not None
        }
        reading = Reading(folder=folder, staging=staging, router=router, **sizes)
        checkpoint = table / CHECKPOINT

        def take(made: DataFrame, batch: int) -> None:
            # The checkpoint's own name: another checkpoint counts its batches from 0 again.
            name = json.loads((checkpoint / "metadata").read_text("utf-8"))["id"]
            sums = commit(table, f"{name[:8]}-{batch:08d}", (row.asDict() for row in made.collect()))
            if told is not None:
                told(sums)

        lines = session.readStream.format(NAME).options(**reading.options()).load()
        writer = lines.writeStream.foreachBatch(take).option("checkpointLocation", file_uri(checkpoint))
        when = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
        query = writer.trigger(**when).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()


@contextlib.contextmanager
def _open(table: Path) -> Iterator[Path]:
    """Opens a table for one writer, and creates it if needed. Yields an empty folder for its tasks.

    Errors  UnusableError, OSError.
    """
    if table.is_dir() and any(table.iterdir()) and not is_table(table):
        raise UnusableError(f"{table}: is not empty and holds no table ({MARK}); give a new folder or a table")
    for part in ("", EVENTS, QUARANTINE, BATCHES):
        make_folder(table / part, "")
    lock = os.open(table / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnusableError(f"{table}: another qdaudit writes to it; wait for it, or stop it") from None
        if is_table(table):
            check_version(table)
        else:
            mark = {"table": "palisade audit events", "version": VERSION}
            (table / MARK).write_text(json.dumps(mark) + "\n", "ascii")
        shutil.rmtree(table / _STAGING, ignore_errors=True)
        staging = table / _STAGING / uuid.uuid4().hex
        staging.mkdir(mode=0o700, parents=True)
        try:
            yield staging
        finally:  # frees the space on a full disk
            shutil.rmtree(table / _STAGING, ignore_errors=True)
    finally:
        os.close(lock)
