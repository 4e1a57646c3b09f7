"""Audit events -> what was denied, to whom, where from and when. All DataFrame -> DataFrame.

Events are those of spark.transforms.validation.events: one column per member of the schema, `time` a timestamp (UTC).
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# Report name -> its key column.
KEYS = {"by_reason": "reason", "by_user": "user", "by_host": "remote_host", "by_vhost": "vhost", "by_hour": "hour"}

EVENTS_LOST = "events_lost"


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


def denied(events: DataFrame) -> DataFrame:
    """The denials: not what an `allow` may one day record, and not the marks of lost events."""
    return events.where((F.col("decision") == "deny") & (F.col("reason") != EVENTS_LOST)).withColumn(
        "hour", F.date_trunc("hour", "time")
    )


def lost(events: DataFrame) -> DataFrame:
    """One row: lost (bigint), how many events the routers say they could not write."""
    marks = events.where(F.col("reason") == EVENTS_LOST)
    return marks.agg(F.coalesce(F.sum("lost"), F.lit(0)).cast("bigint").alias("lost"))


def counted_by(denials: DataFrame, key: str) -> DataFrame:
    """key, denials (bigint), first and last (timestamp): the most denials first, then by key; hours in their order.

    denials  of `denied`.
    key      one of the columns of KEYS. A null key stays: denials before that was known.
    """
    counts = denials.groupBy(key).agg(
        F.count(F.lit(1)).alias("denials"), F.min("time").alias("first"), F.max("time").alias("last")
    )
    if key == "hour":
        return counts.orderBy("hour")
    return counts.orderBy(F.desc("denials"), F.asc_nulls_last(key))


def _moment(at: datetime) -> Column:
    return F.timestamp_micros(F.lit(round(at.timestamp() * 1_000_000)))
