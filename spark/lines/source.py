"""Audit files as a Spark data source, read once or as a stream. Its rows describe the Parquet files made.

For each file, a stream's offset has how many of its (uncompressed) bytes are done, and the size of the compressed file
that is completely done: {"denials-1.jsonl": {"bytes": 4096, "packed": 0}}. The checkpoint contains it, so a restarted
stream continues there.
"""

import gc
import time
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark.lines import files
from spark.lines.part import Part, Written, ingest

NAME = "palisade_audit"
# One task's share of a plain file, and the most that one batch of a stream reads (files are not cut). Between batches a
# core is idle for two seconds; a run that is ended loses its last batch, some 40 s of work.
PART_BYTES = 64 * 1024 * 1024
BATCH_BYTES = 6 * 1024 * 1024 * 1024

MADE = (
    "file string, lines bigint, staging string, path string, day string, router_dir string, rows bigint, "
    "first bigint, last bigint"
)
_COLUMNS = pa.schema(
    [("file", pa.string()), ("lines", pa.int64()), ("staging", pa.string()), ("path", pa.string()),
     ("day", pa.string()), ("router_dir", pa.string()), ("rows", pa.int64()), ("first", pa.int64()),
     ("last", pa.int64())]
)  # fmt: skip

Offset = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The input of a reading, and the folder for the output of its tasks.

    router   of the C router's logs in the folder; None: there are none, and files with such names are skipped
    staging  an existing folder, in which each task makes its own folder
    """

    folder: Path
    staging: Path
    router: str | None = None
    part_bytes: int = PART_BYTES
    batch_bytes: int = BATCH_BYTES

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Reading":
        router = options.get("router") or None
        return cls(
            folder=Path(options["folder"]),
            staging=Path(options["staging"]),
            router=router,
            part_bytes=int(options.get("part_bytes", PART_BYTES)),
            batch_bytes=int(options.get("batch_bytes", BATCH_BYTES)),
        )

    def options(self) -> dict[str, str]:
        return {
            "folder": str(self.folder),
            "staging": str(self.staging),
            "router": self.router or "",
            "part_bytes": str(self.part_bytes),
            "batch_bytes": str(self.batch_bytes),
        }

    def files(self) -> list[files.Found]:
        return files.audit_files(self.folder, self.kinds())[0]

    def kinds(self) -> tuple[str, ...]:
        return (files.LINES,) if self.router is None else (files.LINES, files.LOGS)


class AuditFiles(DataSource):
    """`spark.read` or `spark.readStream` of format `palisade_audit` with the options of `Reading`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._reading = Reading.of(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return MADE

    def reader(self, schema: StructType) -> "_Reader":
        return _Reader(self._reading)

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(self._reading)


class _Share(InputPartition):
    """One part, for one task."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


class _Tasks:
    """The common part of both kinds of reading, which runs in the workers."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # Spark makes one even if there are no partitions
            return
        part: Part = partition.value
        if not gc.get_freeze_count():
            # A Spark worker collects garbage after each task. Over all imported objects that takes 40 ms, so they are
            # excluded.
            gc.freeze()
        # Each attempt has its own folder: files that a failed attempt left are never used.
        staging = part.staging / uuid.uuid4().hex
        staging.mkdir(mode=0o700)
        mine = Part(name=part.name, path=part.path, start=part.start, end=part.end, router=part.router, staging=staging)
        lines, written = ingest(mine)
        yield _made(part.name, lines, staging, written)

    def _part(self, name: str, start: int, end: int | None) -> _Share:
        router = None if name.endswith(files.LINES) else self._reading.router
        path = self._reading.folder / name
        part = Part(name=name, path=path, start=start, end=end, router=router, staging=self._reading.staging)
        return _Share(part)

    def _parts(self, name: str, start: int, end: int) -> Iterator[_Share]:
        step = self._reading.part_bytes
        for begin in range(start, end, step):
            yield self._part(name, begin, min(begin + step, end))


class _Reader(_Tasks, DataSourceReader):
    """Reads everything, including torn tails."""

    def partitions(self) -> Sequence[InputPartition]:
        shares: list[InputPartition] = []
        for file in self._reading.files():
            if file.is_packed:
                shares.append(self._part(file.name, 0, None))
            else:
                shares += self._parts(file.name, 0, file.size)
        return shares


class StreamReader(_Tasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is new since the checkpoint's offset, whole lines only."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._reading.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._now({})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        target = self._now(start) if self._target is None else self._target
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if not isinstance(limit, ReadMaxBytes | ReadAllAvailable):
            most = self._reading.batch_bytes
        end, taken = {name: start[name] for name in target if name in start}, 0
        has_news = False
        for name in sorted(target):
            if most is not None and taken >= most:
                break
            before, after = start.get(name), target[name]
            if before == after or (before is not None and _is_done(before, after)):
                continue
            has_news = True
            # Bytes that are done in a plain file stay known after it is compressed.
            done = before["bytes"] if before and after["packed"] else after["bytes"]
            end[name] = {"bytes": done, "packed": after["packed"]}
            taken += after["packed"] or after["bytes"] - (before or {"bytes": 0})["bytes"]
        return end if has_news else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        shares: list[InputPartition] = []
        for name, after in end.items():
            before = start.get(name, {"bytes": 0, "packed": 0})
            if before == after:
                continue
            if after["packed"]:
                shares.append(self._part(name, before["bytes"], None))
            else:
                # A file that is shorter than what was read from it is a new file of that name.
                begin = before["bytes"] if before["bytes"] <= after["bytes"] else 0
                shares += self._parts(name, begin, after["bytes"])
        return shares

    def _now(self, start: Offset) -> Offset:
        """Returns how far each file reaches now."""
        now_s = time.time()
        offset: Offset = {}
        for file in self._reading.files():
            done = start.get(file.name, {"bytes": 0})["bytes"]
            if file.is_packed:
                offset[file.name] = {"bytes": done, "packed": file.size}
            else:
                begin = done if done <= file.size else 0
                end = files.end_of_lines(file, begin, now_s=now_s)
                if end:
                    offset[file.name] = {"bytes": end, "packed": 0}
        return offset


def _is_done(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Returns whether an existing file was already read to this point."""
    if after["packed"]:
        return before["packed"] == after["packed"]
    return before["bytes"] == after["bytes"]


def _made(name: str, lines: int, staging: Path, written: Sequence[Written]) -> pa.RecordBatch:
    """Returns the rows of one task: one with the number of lines, then one for each file."""
    rows: list[dict[str, Any]] = [{"file": name, "lines": lines, "staging": str(staging)}]
    for one in written:
        rows.append(
            {"file": name, "lines": 0, "staging": str(staging), "path": one.path, "day": one.day,
             "router_dir": one.router_dir, "rows": one.rows, "first": one.first, "last": one.last}
        )  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=_COLUMNS)
