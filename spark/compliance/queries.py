"""The queries of the controls, by name. All DataFrame -> DataFrame.

Events are those of spark.event_table.read_events. Each result is ordered and has few rows: groups, not events.
"""

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.detectors.signs import LOGIN_FAILURES, opened
from spark.detectors.thresholds import defaults
from spark.jobs.detection import detect
from spark.sums.trail import Trail
from spark.transforms.changes import asked
from spark.transforms.denials import denied
from spark.transforms.events import LOGS_OWN, bounded, requests

Query = Callable[[DataFrame], DataFrame]

# PCI DSS 4.0 10.2.2 and AU-3: user, kind, time, outcome, origin and subject of an event.
_CONTENT: Final[Mapping[str, str]] = {
    "who": "user",
    "what": "stage",
    "when": "time",
    "outcome": "decision",
    "where_from": "remote_host",
    "where": "router",
    "why": "reason",
}


def _times(*more: Column) -> tuple[Column, ...]:
    return (*more, F.min("time").alias("first"), F.max("time").alias("last"))


def _requests() -> Column:
    return F.sum(requests()).cast("bigint").alias("requests")


def accesses(events: DataFrame) -> DataFrame:
    """Counts admitted connections: user, remote_host, router, connections."""
    keys = ("user", "remote_host", "router")
    return opened(events).groupBy(*keys).agg(*_times(_requests())).orderBy(*(F.asc_nulls_last(key) for key in keys))


def refusals(events: DataFrame) -> DataFrame:
    keys = ("stage", "reason", "user", "remote_host")
    counts = denied(events).groupBy(*keys).agg(*_times(_requests()))
    return counts.orderBy(F.desc("requests"), *(F.asc_nulls_last(key) for key in keys))


def failed_logins(events: DataFrame) -> DataFrame:
    keys = ("user", "remote_host", "router", "reason")
    counts = denied(events).where(F.col("reason").isin(*LOGIN_FAILURES)).groupBy(*keys).agg(*_times(_requests()))
    return counts.orderBy(F.desc("requests"), *(F.asc_nulls_last(key) for key in keys))


def held_back(events: DataFrame) -> DataFrame:
    """Counts a router's measures against guessing: withheld answers, and refusals by bans."""
    keys = ("router", "reason", "user", "remote_host")
    found = denied(events).where(F.col("reason").isin("too_many_guesses", "banned"))
    return found.groupBy(*keys).agg(*_times(_requests())).orderBy(*(F.asc_nulls_last(key) for key in keys))


def administration(events: DataFrame) -> DataFrame:
    """Counts changes by management, by user, request and outcome."""
    keys = ("user", "remote_host", "operation", "entity_type", "entity_name")
    outcomes = [
        F.sum(F.col(name).cast("bigint")).alias(to) for name, to in (("is_done", "done"), ("is_refused", "refused"))
    ]
    counts = asked(events).groupBy(*keys).agg(*_times(*outcomes, F.sum("requests").cast("bigint").alias("requests")))
    return counts.orderBy(*(F.asc_nulls_last(key) for key in keys))


def rules_changed(events: DataFrame) -> DataFrame:
    """Lists the rulesets in force at each router, with the first and last time on record."""
    counts = events.where(F.col("ruleset_digest").isNotNull()).groupBy("router", "ruleset_digest")
    return counts.agg(*_times(F.count(F.lit(1)).alias("events"))).orderBy("router", "first")


def log_itself(events: DataFrame) -> DataFrame:
    """Counts the audit log's events about itself: its ends, its losses, and deletions by retention."""
    counts = events.where(F.col("reason").isin(*LOGS_OWN)).groupBy("router", "reason")
    return counts.agg(*_times(F.count(F.lit(1)).alias("events"), F.sum(bounded("lost")).alias("lost"))).orderBy(
        "router", "reason"
    )


def starts(events: DataFrame) -> DataFrame:
    """Lists each start of a router: its first and last event, and whether its end is on record."""
    counts = events.where(F.col("start").isNotNull()).groupBy("router", "start")
    ended = F.max((F.col("reason") == "log_closed").cast("int")).cast("boolean").alias("has_end")
    return counts.agg(*_times(F.count(F.lit(1)).alias("events"), ended)).orderBy("router", "first")


def kinds(events: DataFrame) -> DataFrame:
    """Counts the kinds of event on record."""
    counts = events.groupBy("stage", "decision").agg(*_times(F.count(F.lit(1)).alias("events"), _requests()))
    return counts.orderBy("stage", "decision")


def content(events: DataFrame) -> DataFrame:
    """Counts for each kind of event how many record each required fact.

    The facts are the user, the kind, the time, the outcome, the origin and the reason.
    """
    counts = (
        events.where(~F.col("reason").isin(*LOGS_OWN))
        .groupBy("stage")
        .agg(F.count(F.lit(1)).alias("events"), *(F.count(member).alias(name) for name, member in _CONTENT.items()))
    )
    return counts.orderBy("stage")


def findings(trail: Trail) -> DataFrame:
    """Returns the findings of the detectors with default thresholds. trail: with the data that they need"""
    found = detect(trail, defaults())
    return found.select(
        *("finding_id", "detector", "severity", "first", "last", "count", "user", "remote_host", "router", "events"),
        F.element_at("evidence", 1).alias("first_event"),
    )


# Takes a trail, unlike the other queries, which take its events.
FINDINGS: Final = "findings"
QUERIES: Final[Mapping[str, Query]] = {
    "accesses": accesses,
    "refusals": refusals,
    "failed_logins": failed_logins,
    "held_back": held_back,
    "administration": administration,
    "rules_changed": rules_changed,
    "log_itself": log_itself,
    "starts": starts,
    "kinds": kinds,
    "content": content,
}
