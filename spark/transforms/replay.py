"""Events -> their decisions by another policy: `policy.decide` itself, in Arrow batches."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from policy.ruleset import Ruleset
from spark.replaying.decisions import DECIDED, Replay
from spark.transforms.events import requests

Batches = Iterator[pyarrow.RecordBatch]

_ASKED = (
    *("event_id", "router", "stage", "decision", "reason", "user", "mechanism", "is_encrypted", "remote_host"),
    *("requested_vhost", "vhost", "group", "connection_name", "direction", "address", "usage", "limit", "granted"),
    *("ruleset_digest", "folded", "source", "groups", "asked", "user_id", "truncated", "schema_version", "detail"),
)
_KEPT = (
    *("event_id", "router", "stage", "user", "remote_host", "vhost", "group", "direction", "address"),
    "ruleset_digest",
)
REPLAYED = StructType(
    [
        *[StructField(name, StringType()) for name in _KEPT],
        StructField("time", TimestampType()),
        StructField("requests", LongType()),
        StructField("was_allowed", BooleanType()),
        StructField("was_reason", StringType()),
        StructField("is_allowed", BooleanType()),  # null: not replayed
        StructField("reason", StringType()),
        StructField("at_open", BooleanType()),  # the candidate refuses the connection, and so everything on it
        StructField("rule_vhost", StringType()),
        StructField("rule_group", StringType()),
        StructField("item", StringType()),
        StructField("file", StringType()),
        StructField("line", LongType()),
        StructField("why", StringType()),  # why it was not replayed
    ]
)


def decisions(events: DataFrame) -> DataFrame:
    """Returns the events of the table that record a decision of policy."""
    is_decision = F.lit(False)
    for stage, reasons in DECIDED.items():
        is_decision |= (F.col("stage") == stage) & F.col("reason").isin(*reasons)
    return events.where(F.col("decision").isin("allow", "deny") & is_decision)


def replayed(events: DataFrame, ruleset: Ruleset) -> DataFrame:
    """Returns REPLAYED rows, one for each event of `decisions`."""
    asked = decisions(events).select(
        *[name for name in _ASKED if name in events.columns],
        "time",
        (F.unix_micros("time") / 1e6).alias("time_s"),
        requests().alias("requests"),
    )
    return asked.mapInArrow(_replayer(ruleset), REPLAYED)


def _replayer(ruleset: Ruleset) -> Callable[[Batches], Batches]:
    """Makes one Replay for each task: its memory of connections serves all batches."""

    def replay(batches: Batches) -> Batches:
        asked = Replay(ruleset)
        for batch in batches:
            rows = [_row(asked, event) for event in batch.to_pylist()]
            times = batch.column(batch.schema.get_field_index("time"))
            columns = [
                times if field.name == "time" else pyarrow.array([row[field.name] for row in rows], _arrow(field))
                for field in REPLAYED
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, REPLAYED.fieldNames())

    return replay


def _arrow(field: StructField) -> Any:
    return {"string": pyarrow.string, "bigint": pyarrow.int64, "boolean": pyarrow.bool_}[
        field.dataType.simpleString()
    ]()


def _row(asked: Replay, event: dict[str, Any]) -> dict[str, Any]:
    answer = asked.decide(event)
    decision, rule = answer.decision, answer.rule
    return {
        **{name: event[name] for name in _KEPT},
        "requests": event["requests"],
        "was_allowed": event["decision"] == "allow",
        "was_reason": event["reason"],
        "is_allowed": decision.is_allowed if decision is not None else None,
        "reason": decision.reason.value if decision is not None else None,
        "at_open": answer.at_open,
        "rule_vhost": rule.vhost,
        "rule_group": rule.group,
        "item": rule.item,
        "file": rule.file,
        "line": rule.line,
        "why": answer.why or None,
    }


def outcome() -> Column:
    """Returns newly_allowed, newly_denied, same (the reason may differ) or not_replayed."""
    is_allowed, was_allowed = F.col("is_allowed"), F.col("was_allowed")
    return (
        F.when(is_allowed.isNull(), "not_replayed")
        .when(is_allowed & ~was_allowed, "newly_allowed")
        .when(~is_allowed & was_allowed, "newly_denied")
        .otherwise("same")
    )


def changed(replays: DataFrame) -> DataFrame:
    """Returns the decisions that change: whom they affect, with an example of each.

    Returns  outcome, stage, user, remote_host, direction, address, was_reason, reason, rule_vhost, rule_group, item,
             file, line, requests (bigint), example (an event id); the most first
    """
    keys = (
        *("outcome", "stage", "user", "remote_host", "direction", "address", "was_reason", "reason"),
        *("rule_vhost", "rule_group", "item", "file", "line"),
    )
    counts = (
        replays.withColumn("outcome", outcome())
        .where(F.col("outcome").isin("newly_allowed", "newly_denied"))
        .groupBy(*keys)
        .agg(F.sum("requests").alias("requests"), F.min("event_id").alias("example"))
    )
    return counts.orderBy(F.desc("requests"), *(F.asc_nulls_last(key) for key in keys))


def used(replays: DataFrame) -> DataFrame:
    """Returns what was allowed, and still is by the given policy: USED, each once, in order."""
    is_used = F.col("was_allowed") & F.col("is_allowed") & F.col("stage").isin("open", "attach")
    whose = ("router", "vhost", "group", "user", "remote_host", "direction", "address", "item")
    return replays.where(is_used).select(*whose).distinct().orderBy(*whose)


def totals(replays: DataFrame) -> DataFrame:
    """Returns outcome, why, requests, events (bigint)."""
    return (
        replays.groupBy(outcome().alias("outcome"), "why")
        .agg(F.sum("requests").alias("requests"), F.count(F.lit(1)).alias("events"))
        .orderBy("outcome", F.asc_nulls_last("why"))
    )
