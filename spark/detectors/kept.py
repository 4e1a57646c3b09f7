"""Reads the findings that `qdaudit detect --out` has written, so that a report need not detect them again."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, LongType, TimestampType

from spark.detectors.finding import FINDING, SINGLE

# Stops a wrong file from being read as a whole. A thousand findings with the most names and evidence are smaller.
MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_SHOWN: Final = 40  # characters of an unknown member's name


class KeptFindingsError(Exception):
    """The file cannot be used. str() names line and member, and the right form."""


def parse(text: str) -> list[dict[str, Any]]:
    """Returns FINDING rows of JSON lines, with times as datetime in UTC. Raises KeptFindingsError."""
    return [_row(line, number) for number, line in enumerate(text.split("\n"), 1) if line]


def frame_of(session: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Returns one file's rows, in their order."""
    values = [tuple(row[name] for name in FINDING.names) for row in rows]
    return session.createDataFrame(values, FINDING).coalesce(1)


def _row(line: str, number: int) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise KeptFindingsError(f"line {number} is not JSON: {error}") from None
    no_finding = f"line {number} is no finding of `qdaudit detect --out`"
    if not isinstance(given, dict):
        raise KeptFindingsError(f"{no_finding}: it has to be an object")
    if missing := [name for name in FINDING.names if name not in given]:
        raise KeptFindingsError(f"{no_finding}: {missing[0]} is missing")
    if unknown := given.keys() - set(FINDING.names):
        raise KeptFindingsError(f"{no_finding}, which has no member {min(unknown)[:_MAX_SHOWN]!r}")
    return {field.name: _value(given[field.name], field.dataType, field.name, number) for field in FINDING}


def _value(value: Any, kind: DataType, name: str, number: int) -> Any:
    if value is None and name in SINGLE:
        return None
    right: Any
    match kind:
        case TimestampType():
            wanted, right = "a time with its zone", _moment(value)
        case LongType():
            wanted, right = "a whole number from 0 on", value if type(value) is int and 0 <= value < 1 << 63 else None
        case ArrayType():
            is_list = isinstance(value, list) and all(map(_is_text, value))
            wanted, right = "a list of texts", value if is_list else None
        case _:
            wanted, right = "a text", value if _is_text(value) else None
    if right is None:
        raise KeptFindingsError(f"line {number}: {name} has to be {wanted}")
    return right


def _moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (TypeError, ValueError, OverflowError):  # OverflowError: in UTC it is before the year 1 or after 9999
        return None


def _is_text(value: Any) -> bool:
    """Returns whether it is a text that Spark can hold: JSON permits halves of surrogate pairs, Spark does not."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
