"""Makes a report from an event table: the counting and writing that all reports share. A Kind selects the report."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, TimestampType

from spark.event_table import QUARANTINE, file_uri, hadoop_path, read_quarantine
from spark.jobs.spreadsheet import defused
from spark.lines.commit import totals
from spark.sums.trail import Trail, trail_of_table
from spark.transforms import events
from spark.transforms.continuity import continuity

# Rows of a table that are fetched for display. Stops a peer with a new user name per attempt from filling the terminal
# and the memory; Parquet and CSV contain all rows.
MAX_SHOWN_ROWS = 1000
# For times that are the beginning of an hour or a day.
_FORMATS = {"hour": "yyyy-MM-dd'T'HH:mm:ss'Z'", "day": "yyyy-MM-dd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of report.

    summary  name of the file with the summary
    totals   the trail within the requested time -> one row of numbers, by name
    says     the totals -> the beginning of the report's first line, and a warning or ""
    tables   the trail within the requested time -> name of a table, its title and its rows
    has_denials  whether these need the sums for denials
    """

    summary: str
    totals: Callable[[Trail], DataFrame]
    says: Callable[[Mapping[str, int]], tuple[str, str]]
    tables: Callable[[Trail], Mapping[str, tuple[str, DataFrame]]]
    has_denials: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a report.

    columns  names, the key first; rows have the same width, with timestamps as RFC 3339 text in UTC.
    is_complete  false if there are more rows than these.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """Counts of missing events; see spark.transforms.continuity."""

    starts: int = 0
    missing: int = 0
    headless: int = 0
    endless: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report. files, lines, quarantined, duplicates, continuity cover everything read; all else the requested time.

    duplicates  valid lines beyond the first of their event_id.
    lost        events that the routers say they could not write; deleted_files  files that they say they deleted
    heading     the findings, in words; warning  a caution to the reader, "" for none
    tables      those of the kind, then quarantine (per file and reason).
    """

    files: int
    lines: int
    quarantined: int
    duplicates: int
    continuity: Continuity
    lost: int
    deleted_files: int
    totals: Mapping[str, int]
    heading: str
    warning: str
    tables: Mapping[str, Table]

    def as_json(self) -> dict[str, Any]:
        """Returns counts, then each table as {"rows": [{column: value}], "is_complete": bool}."""
        return {
            "files": self.files,
            "lines": self.lines,
            **self.totals,
            "lost": self.lost,
            "deleted_files": self.deleted_files,
            **asdict(self.continuity),
            "duplicates": self.duplicates,
            "quarantined": self.quarantined,
            **{
                name: {
                    "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
                    "is_complete": table.is_complete,
                }
                for name, table in self.tables.items()
            },
        }


def report(
    session: SparkSession,
    table: Path,
    kind: Kind,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    out: Path | None = None,
    top: int = MAX_SHOWN_ROWS,
) -> Report:
    """Reads an event table, writes reports and quarantine below `out` if given, and returns their contents.

    table  of spark.ingest; an empty one gives a report of zero
    out    an existing folder; <table>.parquet, <table>.csv and the summary in it are replaced.
    top    how many rows of each table are fetched; `out` has all rows
    Errors those of pyspark and of its bridge to Java, if a file cannot be read or a report not written.
    """
    trail = trail_of_table(session, table, since=since, until=until, has_denials=kind.has_denials)
    quarantined = read_quarantine(session, table)
    read = totals(table)
    whole = dict(kind.tables(trail))
    if out is not None:
        whole = {name: (title, _write(frame, out, name)) for name, (title, frame) in whole.items()}
        quarantined = _write(quarantined, out, QUARANTINE)
    counts = _row(kind.totals(trail))
    own = _row(trail.facts().agg(events.lost().alias("lost"), events.deleted_files().alias("deleted_files")))
    heading, warning = kind.says(counts)
    made = Report(
        files=len(read.files),
        lines=read.lines,
        quarantined=read.quarantined,
        duplicates=read.duplicates,
        continuity=Continuity(**_row(continuity(trail))),
        lost=own["lost"],
        deleted_files=own["deleted_files"],
        totals=counts,
        heading=heading,
        warning=warning,
        tables={name: _shown(title, frame, top) for name, (title, frame) in whole.items()}
        | {QUARANTINE: _shown("Quarantined lines", _by_file(quarantined), top)},
    )
    if out is not None:
        (out / kind.summary).write_text(json.dumps(made.as_json(), indent=2) + "\n", "ascii")
    return made


def _row(frame: DataFrame) -> dict[str, int]:
    """Returns the single row of an aggregate over all rows."""
    (row,) = frame.collect()
    return row.asDict()


def _by_file(quarantined: DataFrame) -> DataFrame:
    counts = quarantined.groupBy("file", "reason").agg(F.count(F.lit(1)).alias("lines"))
    return counts.orderBy(F.desc("lines"), "file", "reason")


def _shown(title: str, frame: DataFrame, top: int) -> Table:
    most = min(top, MAX_SHOWN_ROWS)
    rows = with_text_times(frame).take(most + 1)
    return Table(
        title=title,
        columns=tuple(frame.columns),
        rows=tuple(tuple(row) for row in rows[:most]),
        is_complete=len(rows) <= most,
    )


def _write(frame: DataFrame, out: Path, name: str) -> DataFrame:
    """Writes a table as Parquet and CSV. Returns a frame of the written file, so that it is not computed again."""
    target = file_uri(out / name)
    # In order within one file: grouped rows are few, compared with the events.
    frame.coalesce(1).write.mode("overwrite").parquet(f"{target}.parquet")
    written = frame.sparkSession.read.schema(frame.schema).parquet(hadoop_path(out / f"{name}.parquet"))
    # One file, for people and spreadsheets; quotes as in RFC 4180.
    texts = {field.name: defused(field.name) for field in frame.schema if isinstance(field.dataType, StringType)}
    csv, folder = with_text_times(written).withColumns(texts), out / f".{name}.csv"
    csv.coalesce(1).write.mode("overwrite").csv(file_uri(folder), header=True, escape='"', encoding="UTF-8")
    (part,) = folder.glob("part-*.csv")
    place = out / f"{name}.csv"
    if place.is_dir():  # written by earlier versions
        shutil.rmtree(place)
    part.replace(place)
    shutil.rmtree(folder)
    return written


def with_text_times(frame: DataFrame) -> DataFrame:
    """Returns timestamps as RFC 3339 text: Python and CSV would each use their own time zone."""
    times = {
        field.name: F.date_format(field.name, _FORMATS.get(field.name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"))
        for field in frame.schema
        if isinstance(field.dataType, TimestampType)
    }
    return frame.withColumns(times) if times else frame
