"""Audit events -> changes by management, done or refused, with their users. All DataFrame -> DataFrame.

Events are those of spark.event_table.read_events.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.events import requests

# Report name -> its key columns.
KEYS = {
    "changes_by_user": ("user",),
    "changes_by_host": ("remote_host",),
    "changes_by_type": ("operation", "entity_type"),
    "changes_by_entity": ("operation", "entity_type", "entity_name"),
    "changes_refused": ("user", "reason", "operation", "entity_type"),
}
_LAST_STATUS_OF_SUCCESS = 299


def is_asked() -> Column:
    """Returns a column: the event is a request that would change something, carried out or not."""
    return F.col("management").isNotNull()


def is_allowed() -> Column:
    """Returns a column: recorded and not refused, including reloads of the rules.

    Records by auditAllows are not changes.
    """
    return (F.col("decision") == "allow") & ~F.col("stage").isin("open", "attach")


def asked(events: DataFrame) -> DataFrame:
    """Returns the requests: time, is_done (by its status), is_refused, requests (bigint, the number that the row
    represents), reason, and the columns of KEYS.
    """
    return events.where(is_asked()).select(
        "time",
        ((F.col("decision") == "allow") & (F.col("management.status") <= _LAST_STATUS_OF_SUCCESS)).alias("is_done"),
        (F.col("decision") == "deny").alias("is_refused"),
        requests().alias("requests"),
        "reason",
        "user",
        "remote_host",
        *(f"management.{name}" for name in ("operation", "entity_type", "entity_name")),
    )


def counted_by(requests: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the keys, done, failed and refused (bigint), first and last (timestamp): the most first, then by key."""
    is_failed = ~F.col("is_done") & ~F.col("is_refused")
    counts = requests.groupBy(*keys).agg(
        *(
            F.coalesce(F.sum(F.when(which, F.col("requests"))), F.lit(0)).cast("bigint").alias(name)
            for name, which in (("done", F.col("is_done")), ("failed", is_failed), ("refused", F.col("is_refused")))
        ),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    total = F.col("done") + F.col("failed") + F.col("refused")
    return counts.orderBy(F.desc(total), *(F.asc_nulls_last(key) for key in keys))
