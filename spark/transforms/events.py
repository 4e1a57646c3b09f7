"""Common columns of audit events. All DataFrame -> DataFrame.

Events are those of spark.event_table.read_events.
"""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.sign import Sign

EVENTS_LOST = "events_lost"
LOG_CLOSED = "log_closed"
FILE_DELETED = "file_deleted"
SHADOW_DECISIONS = ("shadow_deny", "shadow_allow", "shadow_error")
# The maximum that one event can represent, by schemas/audit_event.json: four billion such events do not overflow.
MOST = 2**31 - 1
# For times that are text, such as those within `folded`.
TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"
# Reasons of events in which an audit log reports about itself.
LOGS_OWN = (EVENTS_LOST, LOG_CLOSED, FILE_DELETED, "checkpoint", "end_recovered")
# Excludes a candidate policy's denials, records of an `allow`, and an audit log's events about itself.
DENIAL = Sign(among={"decision": ("deny",)}, but={"reason": LOGS_OWN})


def within(events: DataFrame, *, since: datetime | None, until: datetime | None) -> DataFrame:
    """Returns events at or after `since` and before `until`; both with a time zone."""
    kept = events
    has_days = "day" in events.columns  # then only the days of the requested time are read
    if since is not None:
        kept = kept.where(F.col("time") >= _moment(since))
        kept = kept.where(F.col("day") >= F.lit(since.astimezone(UTC).date())) if has_days else kept
    if until is not None:
        kept = kept.where(F.col("time") < _moment(until))
        kept = kept.where(F.col("day") <= F.lit(until.astimezone(UTC).date())) if has_days else kept
    return kept


def bounded(name: str) -> Column:
    """Returns a count of an event, null if it has none.

    Attack: a forged line with a huge count, in a table of an older `qdaudit ingest`, ends every sum with an error.
    """
    return F.when(F.col(name).isNotNull(), F.least(F.col(name), F.lit(MOST))).cast("bigint")


def summed(counts: Column) -> Column:
    """Returns the sum of counts of any size, as an aggregate (bigint).

    It is at most 2**63 - 1, which a forged count may reach.
    """
    return F.least(F.coalesce(F.sum(counts.cast("decimal(20,0)")), F.lit(0)), F.lit(2**63 - 1)).cast("bigint")


def requests() -> Column:
    """Returns how many requests an event represents (bigint)."""
    return F.coalesce(bounded("attempts"), F.lit(1))


def lost() -> Column:
    """Counts the events that the routers report as not written, as an aggregate of facts (bigint)."""
    return F.coalesce(F.sum(F.when(F.col("reason") == EVENTS_LOST, F.col("lost"))), F.lit(0)).cast("bigint")


def deleted_files() -> Column:
    """Counts the files that the routers report as deleted, as an aggregate of facts (bigint)."""
    return F.coalesce(F.sum(F.when(F.col("reason") == FILE_DELETED, F.col("events"))), F.lit(0)).cast("bigint")


def _moment(at: datetime) -> Column:
    return F.timestamp_micros(F.lit(round(at.timestamp() * 1_000_000)))
