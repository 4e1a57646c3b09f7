"""Finds where candidate policies (shadowPolicyDir) would have decided differently. All DataFrame -> DataFrame.

Events are those of spark.event_table.read_events.
One event represents `shadow.count` equal decisions.
"""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.events import SHADOW_DECISIONS, summed

# Report name -> its key columns.
KEYS = {
    "shadow_by_reason": ("reason", "candidate_reason"),
    "shadow_by_rule": ("vhost", "group", "item", "file", "line"),
    "shadow_by_vhost": ("vhost",),
    "shadow_by_user": ("user",),
    "shadow_by_host": ("remote_host",),
    "shadow_by_address": ("direction", "address"),
    "shadow_by_candidate": ("candidate",),
}

Outcome = Literal["would_deny", "would_allow", "errors"]
_DECISIONS: dict[str, str] = {"would_deny": "shadow_deny", "would_allow": "shadow_allow", "errors": "shadow_error"}


def is_shadow() -> Column:
    return F.col("decision").isin(*SHADOW_DECISIONS)


def total(outcome: Outcome, candidate: str | None) -> Column:
    """Counts the decisions with this outcome, as an aggregate (bigint).

    candidate  as for `disagreements`
    """
    counts = F.when((F.col("decision") == _DECISIONS[outcome]) & _is_of(candidate), F.col("shadow.count"))
    return summed(counts)


def disagreements(events: DataFrame, candidate: str | None = None) -> DataFrame:
    """Returns the decisions that a candidate policy would have made differently.

    candidate  the beginning of the digest of candidate policies, None for all
    Returns    time, would_deny, would_allow (bigint, one of them 0), and the columns of KEYS: reason of the policy in
               force; candidate_reason; vhost, the candidate's, else that in force, else the requested one; group, item,
               file, line of the candidate's rule; user, remote_host, direction, address; candidate, its digest
    """
    return events.where(F.col("decision").isin("shadow_deny", "shadow_allow") & _is_of(candidate)).select(
        "time",
        *(_count(outcome).alias(outcome) for outcome in ("would_deny", "would_allow")),
        "reason",
        F.col("shadow.reason").alias("candidate_reason"),
        F.coalesce("shadow.vhost", "vhost", "requested_vhost").alias("vhost"),
        "shadow.group",
        "shadow.item",
        "shadow.file",
        "shadow.line",
        "user",
        "remote_host",
        "direction",
        "address",
        F.col("shadow.ruleset_digest").alias("candidate"),
    )


def counted_by(disagreements: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the keys, would_deny, would_allow (bigint), first and last (timestamp): the most first, then by key.

    Null keys stay: without a vhost there is no rule, and an event that sums up several has no user.
    """
    counts = disagreements.groupBy(*keys).agg(
        *(summed(F.col(name)).alias(name) for name in ("would_deny", "would_allow")),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    both = F.col("would_deny").cast("decimal(20,0)") + F.col("would_allow")
    return counts.orderBy(F.desc(both), *(F.asc_nulls_last(F.col(key)) for key in keys))


def _count(outcome: str) -> Column:
    return F.when(F.col("decision") == _DECISIONS[outcome], F.col("shadow.count")).otherwise(F.lit(0).cast("bigint"))


def _is_of(candidate: str | None) -> Column:
    if candidate is None:
        return F.lit(True)
    return F.coalesce(F.col("shadow.ruleset_digest").startswith(candidate), F.lit(False))
