"""Audit events -> denials by user, host and time. All DataFrame -> DataFrame.

Events are those of spark.event_table.read_events.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.events import LOGS_OWN, TIME_FORMAT, requests

# Report name -> its key columns.
KEYS = {
    "by_reason": ("reason",),
    "by_rule": ("rule_vhost", "rule_group", "rule_item", "rule_file", "rule_line"),
    "by_user": ("user",),
    "by_group": ("group",),
    "by_host": ("remote_host",),
    "by_vhost": ("vhost",),
    "by_address": ("direction", "address"),
    "by_router": ("router",),
    "by_hour": ("hour",),
}
_TOLD = {"reason": "reasons", "user": "users", "remote_host": "hosts"}
_RULE = ("vhost", "group", "item", "file", "line")


def is_denial() -> Column:
    """Excludes a candidate policy's denials, records of an `allow`, and an audit log's events about itself."""
    return (F.col("decision") == "deny") & ~F.col("reason").isin(*LOGS_OWN)


def total(which: Column) -> Column:
    """How many requests the events stand for that are so, as an aggregate (bigint)."""
    return F.coalesce(F.sum(F.when(which, requests())), F.lit(0)).cast("bigint")


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
        .agg(F.sum(requests()).alias("denials"), F.min(first).alias("first"), F.max(last).alias("last"))
    )
    names = [name for name in counts.columns if name not in ("denials", "first", "last")]
    return counts.orderBy(F.desc("denials"), *(F.asc_nulls_last(name) for name in names))


def denied(events: DataFrame) -> DataFrame:
    """The denials, with their `hour` and the members of their rule as `rule_...`."""
    rule = {f"rule_{name}": F.col(f"rule.{name}") for name in _RULE}
    return events.where(is_denial()).withColumns({"hour": F.date_trunc("hour", "time"), **rule})


def counted_by(denials: DataFrame, *keys: str) -> DataFrame:
    """The keys, denials (bigint), first and last (timestamp): the most denials first, then by key; hours in order.

    denials  of `denied`.
    keys     those of one of KEYS. A null key stays: denials before that was known.
    """
    counts = denials.groupBy(*keys).agg(
        F.sum(requests()).alias("denials"), F.min("time").alias("first"), F.max("time").alias("last")
    )
    if keys == ("hour",):
        return counts.orderBy("hour")
    return counts.orderBy(F.desc("denials"), *(F.asc_nulls_last(key) for key in keys))


def trend(denials: DataFrame) -> DataFrame:
    """Day by day: day (timestamp), denials, change against the day before (bigint, of the first null), and how many
    reasons, users and hosts they are of (bigint). Days without denials are not there and count as 0.
    """
    days = denials.groupBy(F.date_trunc("day", "time").alias("day")).agg(
        F.sum(requests()).alias("denials"),
        *(F.approx_count_distinct(F.col(name)).alias(told) for name, told in _TOLD.items()),
    )
    order = Window.orderBy("day")  # a row for each day: few
    is_next = F.date_diff("day", F.lag("day").over(order)) == 1
    before = F.when(is_next, F.lag("denials").over(order)).when(is_next.isNotNull(), F.lit(0))
    names = ["day", "denials", "change", *_TOLD.values()]
    return days.withColumn("change", F.col("denials") - before).select(*names).orderBy("day")
