"""Audit events -> denials by user, host and time. All DataFrame -> DataFrame.

Events are those of spark.transforms.validation.events: one column per member of the schema, `time` a timestamp (UTC).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.events import LOGS_OWN
from spark.transforms.validation import TIME_FORMAT

# Report name -> its key column.
KEYS = {"by_reason": "reason", "by_user": "user", "by_host": "remote_host", "by_vhost": "vhost", "by_hour": "hour"}


def is_denial() -> Column:
    """Excludes a candidate policy's denials, records of an `allow`, and an audit log's events about itself."""
    return (F.col("decision") == "deny") & ~F.col("reason").isin(*LOGS_OWN)


def attempts() -> Column:
    """How many requests an event stands for."""
    return F.coalesce(F.col("attempts"), F.lit(1))


def total(which: Column) -> Column:
    """How many requests the events stand for that are so, as an aggregate (bigint)."""
    return F.coalesce(F.sum(F.when(which, attempts())), F.lit(0)).cast("bigint")


def floods(denials: DataFrame) -> DataFrame:
    """The sums of floods, by owner and kind: the most denials first.

    denials  of `denied`
    Returns  owner, connection, user, remote_host, stage, reason; denials (bigint), first and last (timestamp) of those
             that were summed up
    """
    keys = (F.col("folded.owner").alias("owner"), "router", "connection", "user", "remote_host", "stage", "reason")
    first, last = (F.try_to_timestamp(f"folded.{name}", F.lit(TIME_FORMAT)) for name in ("first", "last"))
    counts = (
        denials.where(F.col("folded").isNotNull())
        .groupBy(*keys)
        .agg(F.sum(attempts()).alias("denials"), F.min(first).alias("first"), F.max(last).alias("last"))
    )
    names = [name for name in counts.columns if name not in ("denials", "first", "last")]
    return counts.orderBy(F.desc("denials"), *(F.asc_nulls_last(name) for name in names))


def denied(events: DataFrame) -> DataFrame:
    """The denials, with their `hour`."""
    return events.where(is_denial()).withColumn("hour", F.date_trunc("hour", "time"))


def counted_by(denials: DataFrame, key: str) -> DataFrame:
    """key, denials (bigint), first and last (timestamp): the most denials first, then by key; hours in their order.

    denials  of `denied`.
    key      one of the columns of KEYS. A null key stays: denials before that was known.
    """
    counts = denials.groupBy(key).agg(
        F.sum(attempts()).alias("denials"), F.min("time").alias("first"), F.max("time").alias("last")
    )
    if key == "hour":
        return counts.orderBy("hour")
    return counts.orderBy(F.desc("denials"), F.asc_nulls_last(key))
