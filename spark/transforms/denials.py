"""The sums of a trail -> denials by user, host and time."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.sums.cells import DENIALS, DISTINCT, FLOODS, HASH_BITS, MOST_HASHES
from spark.sums.trail import Trail
from spark.transforms.events import DENIAL, TIME_FORMAT

# Report name -> its key columns.
KEYS: Final = {name: keys for name, keys in DENIALS.items() if name != "by_day"}
_FLOODED: Final = ("owner", "router", "connection", "user", "remote_host", "stage", "reason")
_WHOLE_NUMBERS: Final = ("rule_line", "connection")


def is_denial() -> Column:
    return DENIAL.column()


def denied(events: DataFrame) -> DataFrame:
    """Returns the denials among events by spark.schemas.event_table()."""
    return events.where(is_denial())


def total(which: Column) -> Column:
    """Counts the requests that matching events of Trail.facts() represent, as an aggregate (bigint)."""
    return _sum(which, "requests")


def events(which: Column) -> Column:
    """Counts the matching events of Trail.facts(), as an aggregate (bigint)."""
    return _sum(which, "events")


def _sum(which: Column, name: str) -> Column:
    return F.coalesce(F.sum(F.when(which, F.col(name))), F.lit(0)).cast("bigint")


def floods(trail: Trail) -> DataFrame:
    """Returns the sums of floods, by owner and kind: the most denials first.

    Returns  owner, connection, user, remote_host, stage, reason; denials (bigint), first and last (timestamp) of the
    denials
             in the sum
    """
    first, last = (
        F.try_to_timestamp(F.col("keys")[at], F.lit(TIME_FORMAT)) for at in (len(_FLOODED), len(_FLOODED) + 1)
    )
    counts = (
        trail.of_kind(FLOODS)
        .groupBy(*_named(_FLOODED))
        .agg(F.sum("requests").alias("denials"), F.min(first).alias("first"), F.max(last).alias("last"))
    )
    return counts.orderBy(F.desc("denials"), *(F.asc_nulls_last(name) for name in _FLOODED))


def counted_by(trail: Trail, name: str) -> DataFrame:
    """Returns the keys, denials (bigint), first and last (timestamp).

    The most denials come first, then by key; hours are in order.

    name  one of KEYS. Null keys stay: denials before the value was known.
    """
    keys = KEYS[name]
    counts = trail.of_kind(name).select(*_named(keys), F.col("requests").alias("denials"), "first", "last")
    if keys == ("hour",):
        return counts.orderBy("hour")
    return counts.orderBy(F.desc("denials"), *(F.asc_nulls_last(key) for key in keys))


def trend(trail: Trail) -> DataFrame:
    """Returns for each day: day (timestamp), denials, change from the day before (bigint, null for the first day), and
    the approximate number of reasons, users and hosts (bigint). Days without denials are absent and count as 0.
    """
    denials = trail.of_kind("by_day").select(
        *_named(("day",)), F.lit("denials").alias("what"), F.col("requests").alias("n")
    )
    every = reduce(DataFrame.unionByName, [denials, *(_distinct(trail, name) for name in DISTINCT)])
    found = every.groupBy("day").pivot("what", ["denials", *DISTINCT]).agg(F.max("n")).fillna(0)
    order = Window.orderBy("day")  # a row for each day: few
    is_next = F.date_diff("day", F.lag("day").over(order)) == 1
    before = F.when(is_next, F.lag("denials").over(order)).when(is_next.isNotNull(), F.lit(0))
    return found.select("day", "denials", (F.col("denials") - before).alias("change"), *DISTINCT).orderBy("day")


def _distinct(trail: Trail, name: str) -> DataFrame:
    """Returns day, what (the name) and n (the number of distinct values).

    n is exact below MOST_HASHES, else within some 5 %. The k-th least of n hashes is near k/n of their range
    (Bar-Yossef et al. 2002).
    """
    order = Window.partitionBy("day").orderBy("low")
    numbered = trail.of_kind(name).select(*_named(("day",)), "low").withColumn("nth", F.row_number().over(order))
    kept = (
        numbered.where(F.col("nth") <= MOST_HASHES)
        .groupBy("day")
        .agg(F.max("nth").alias("n"), F.max("low").alias("top"))
    )
    guess = F.round(F.lit(float((MOST_HASHES - 1) << HASH_BITS)) / F.col("top"))
    count = F.when(F.col("n") < MOST_HASHES, F.col("n")).otherwise(guess).cast("bigint")
    return kept.select("day", F.lit(name).alias("what"), count.alias("n"))


def _named(keys: Sequence[str]) -> list[Column]:
    """Returns the keys of cells as columns: text, except for times and whole numbers."""
    named = []
    for at, name in enumerate(keys):
        text = F.col("keys")[at]
        if name in ("hour", "day"):
            column = F.timestamp_micros(text.cast("bigint"))
        else:
            column = text.cast("bigint") if name in _WHOLE_NUMBERS else text
        named.append(column.alias(name))
    return named
