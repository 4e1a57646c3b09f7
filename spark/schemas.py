"""The Spark types of an audit event, derived from schemas/audit_event.json, so that there is only one description."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import schemas

_SCALARS: Mapping[str, type[DataType]] = {"string": StringType, "integer": LongType, "boolean": BooleanType}


def audit_event() -> StructType:
    """Returns the type of an audit event as written in a file: `time` is still text."""
    return struct_of(schemas.load("audit_event"))


def event_table() -> StructType:
    """Returns the type of a row of the event table, which every report reads.

    The members of `audit_event` in their order, with `time` a timestamp (UTC), and then
      source      `palisade`, a line of our audit files; `qdrouterd`, a line of the C router's log: such an event has
                  no start and no sequence, and null for everything that the log does not contain
      file        name of the file from which the line was read, without .gz or .zst
      offset      where the line begins in that file, in bytes, uncompressed
      day         the date of `time` (UTC); partition
      router_dir  `router` as a folder name, see spark.event_table.router_dir; partition
    """
    members = [
        StructField(field.name, TimestampType() if field.name == "time" else field.dataType) for field in audit_event()
    ]
    return StructType(
        [
            *members,
            StructField("source", StringType()),
            StructField("file", StringType()),
            StructField("offset", LongType()),
            StructField("day", DateType()),
            StructField("router_dir", StringType()),
        ]
    )


def struct_of(spec: Mapping[str, Any]) -> StructType:
    """Returns the struct type of a JSON Schema of type object.

    Every field is nullable: spark.lines.judge decides whether a null is allowed, and gives a reason.
    Errors  ValueError for a keyword or type that the audit event's schema does not use.
    """
    return StructType([StructField(name, _type_of(name, inner)) for name, inner in spec["properties"].items()])


def kinds_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns JSON Schema's `type`, always as a tuple."""
    kinds = spec["type"]
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _type_of(name: str, spec: Mapping[str, Any]) -> DataType:
    kinds = [kind for kind in kinds_of(spec) if kind != "null"]
    if kinds == ["object"]:
        return struct_of(spec)
    if len(kinds) == 1 and kinds[0] in _SCALARS:
        return _SCALARS[kinds[0]]()
    raise ValueError(f"{name}: no Spark type for JSON type {' or '.join(kinds)}; wanted object, {', '.join(_SCALARS)}")
