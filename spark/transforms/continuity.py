"""Audit events -> the events missing by their numbers. DataFrame -> DataFrame."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.events import LOG_CLOSED, bounded

_MOST = 2**63 - 1


def continuity(events: DataFrame) -> DataFrame:
    """Checks that the events of each start of a router follow one another.

    events   without duplicates, of any time: all that there are. Those of version 1 have no numbers and do not count.
    Returns  one row of bigints: starts; missing (events between others of their start that neither are there nor were
             reported lost); headless (starts without their first events: files moved away); endless (starts without
             their last event: still running, or killed with the events queued then).
    """
    has_number = F.col("start").isNotNull() & F.col("sequence").isNotNull()
    starts = (
        events.where(has_number)
        .groupBy("router", "start")
        .agg(
            (_wide(F.max("sequence")) - _wide(F.min("sequence")) + 1 - F.count_distinct("sequence")).alias("absent"),
            F.coalesce(F.sum(bounded("lost")), F.lit(0)).alias("lost"),
            F.min("sequence").alias("first"),
            F.count_if(F.col("reason") == LOG_CLOSED).alias("ends"),
        )
    )
    # Events may have been lost, and reported so, before the first that could be written.
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
    """Attack: two forged events, numbered 0 and 2**63 - 1, have more between them than 64 bits count."""
    return number.cast("decimal(20,0)")
