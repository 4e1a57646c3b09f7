"""The sums of a trail -> the events that are missing by their numbers."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.sums.cells import RUNS, STARTS
from spark.sums.trail import Trail

_MOST = 2**63 - 1


def continuity(trail: Trail) -> DataFrame:
    """Checks that the events of each start of a router have consecutive numbers.

    trail    without duplicates, of any time: all that exist. Events of version 1 have no numbers and do not count.
    Returns  one row of bigints: starts; missing (events between others of their start that neither exist nor were
    reported
             lost); headless (starts without their first events: files moved away); endless (starts without their last
             event: still running, or killed with events in the queue).
    """
    earlier = Window.partitionBy("keys").orderBy("low", "high").rowsBetween(Window.unboundedPreceding, -1)
    reached = F.coalesce(F.max("high").over(earlier), F.lit(-1))
    # Runs of several files may overlap: a number counts once.
    new = F.greatest(_wide(F.col("high")) - F.greatest(_wide(F.col("low")) - 1, _wide(reached)), F.lit(0))
    runs = trail.of_kind(RUNS).select(
        "keys", "low", "high", new.alias("new"), F.lit(0).alias("lost"), F.lit(0).alias("ends")
    )
    none = F.lit(None).cast("bigint")
    ends = trail.of_kind(STARTS).select(
        "keys", none.alias("low"), none.alias("high"), F.lit(0).alias("new"),
        F.coalesce("lost", F.lit(0)).alias("lost"), F.col("events").alias("ends"),
    )  # fmt: skip
    starts = (
        runs.unionByName(ends)
        .groupBy("keys")
        .agg(
            (_wide(F.max("high")) - _wide(F.min("low")) + 1 - F.sum("new")).alias("absent"),
            F.sum("lost").alias("lost"),
            F.min("low").alias("first"),
            F.sum("ends").alias("ends"),
        )
    )
    # Events may have been lost, and reported lost, before the first one that could be written.
    is_headless = F.col("first") > F.col("lost")
    before = F.when(is_headless, F.lit(0)).otherwise(F.col("first"))
    missing = F.greatest(F.col("absent") + before - F.col("lost"), F.lit(0))
    return starts.agg(
        F.count(F.lit(1)).alias("starts"),
        F.least(F.coalesce(F.sum(missing), F.lit(0)), F.lit(_MOST)).cast("bigint").alias("missing"),
        F.count_if(is_headless).alias("headless"),
        F.count_if(F.col("ends") == 0).alias("endless"),
    )


def _wide(number: Column) -> Column:
    """Returns a wider number.

    Attack: between two forged events, numbered 0 and 2**63 - 1, are more than 64 bits can count.
    """
    return number.cast("decimal(20,0)")
