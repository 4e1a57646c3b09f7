"""Audit events, whatever they say: each once, and of a time. All DataFrame -> DataFrame.

Events are those of spark.transforms.validation.events: one column per member of the schema, `time` a timestamp (UTC).
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

EVENTS_LOST = "events_lost"
LOG_CLOSED = "log_closed"
FILE_DELETED = "file_deleted"
# Reasons of events in which an audit log speaks of itself.
LOGS_OWN = (EVENTS_LOST, LOG_CLOSED, FILE_DELETED, "checkpoint", "end_recovered")


def deduplicated(events: DataFrame) -> DataFrame:
    """One row per event_id. Of rows that differ otherwise the least is kept, so the result does not depend on order."""
    others = [name for name in events.columns if name != "event_id"]
    least = events.groupBy("event_id").agg(F.min(F.struct(*others)).alias("least"))
    return least.select("event_id", "least.*").select(*events.columns)


def within(events: DataFrame, *, since: datetime | None, until: datetime | None) -> DataFrame:
    """Events at or after `since` and before `until`; both with a time zone."""
    kept = events
    if since is not None:
        kept = kept.where(F.col("time") >= _moment(since))
    if until is not None:
        kept = kept.where(F.col("time") < _moment(until))
    return kept


def lost() -> Column:
    """How many events the routers say they could not write, as an aggregate (bigint)."""
    count = F.when(F.col("reason") == EVENTS_LOST, F.col("lost"))
    return F.coalesce(F.sum(count), F.lit(0)).cast("bigint")


def deleted_files() -> Column:
    """How many of their files the routers say they deleted, as an aggregate (bigint)."""
    return F.count_if(F.col("reason") == FILE_DELETED)


def _moment(at: datetime) -> Column:
    return F.timestamp_micros(F.lit(round(at.timestamp() * 1_000_000)))
