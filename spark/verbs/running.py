"""Common parts of the verbs on the event table: arguments, a session, and private files."""

import argparse
import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.folders import MARK, UnusableError, UsageError, check_version, is_table
from spark.verbs import sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DONE, FOUND, USAGE, UNREADABLE = 0, 1, 2, 3
# Rows of one table that are held in memory and shown. Stops a peer that uses a new name for each attempt.
MAX_ROWS = 1000


def add_table(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("table", metavar="TABLE", type=Path, help="an event table, made by `qdaudit ingest`")
    verb.add_argument("--since", metavar="T", type=moment, help="only events from T on, e.g. 2026-01-31T08:00:00Z")
    verb.add_argument("--until", metavar="T", type=moment, help="only events before T; without a zone T is UTC")
    sessions.add_session(verb)


def moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write it as 2026-01-31 or 2026-01-31T08:00:00Z"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, *, is_by_arrow: bool = False) -> "Iterator[tuple[SparkSession, DataFrame]]":
    """Yields a session, and the events of the table within the requested time.

    is_by_arrow  Python workers read them, not Spark itself
    Errors       UnusableError, SparkUnavailableError
    """
    if arguments.since and arguments.until and arguments.since >= arguments.until:
        raise UsageError(f"--since {arguments.since} must be before --until {arguments.until}")
    size = _size_of(arguments.table)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")  # its remarks on versions of pandas
    with sessions.opened(arguments, size, is_by_arrow=is_by_arrow) as (session, _):
        from spark.event_table import read_events
        from spark.transforms.events import within

        yield session, within(read_events(session, arguments.table), since=arguments.since, until=arguments.until)


def _size_of(table: Path) -> int:
    """Returns the bytes of the table's files.

    Raises UnusableError if there is no table: a report of zero would be wrong.
    """
    if not table.is_dir():
        raise UnusableError(f"{table}: no such folder; give an event table, made by `qdaudit ingest`")
    if not is_table(table):
        raise UnusableError(f"{table}: is no event table (it has no {MARK}); make one with `qdaudit ingest`")
    check_version(table)
    return sum(path.stat().st_size for path in (table / "events").rglob("*.parquet"))


def text_of(path: Path, most: int) -> str:
    """Returns the text of a file of limited size. Raises UnusableError."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UnusableError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > most:
        raise UnusableError(f"{path}: larger than {most} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableError(f"{path}: is not UTF-8") from None


def write_private(path: Path, text: str) -> None:
    """Replaces a file, which only its owner can read. Raises UnusableError."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UnusableError(f"{path}: cannot be written: {error.strerror}") from None


def rows_of(frame: "DataFrame", most: int = MAX_ROWS) -> tuple[list[dict[str, Any]], bool]:
    """Returns the first rows, with times as RFC 3339 text in UTC, and whether these are all."""
    from spark.jobs.reports import with_text_times

    rows = with_text_times(frame).take(most + 1)
    return [row.asDict(recursive=True) for row in rows[:most]], len(rows) <= most


def json_line(row: Mapping[str, Any]) -> str:
    """Returns ASCII on one line: no name in it can end the line or affect a terminal."""
    return json.dumps(row, ensure_ascii=True, allow_nan=False)


def json_text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
