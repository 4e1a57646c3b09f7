"""Failed logins of one user from one host, then a successful one: a password may have been guessed."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Seen, Thresholds, observed
from spark.detectors.signs import LOGIN_FAILURES, OPENED, denied, opened
from spark.sums.bursts import Focus

_KEYS = ("user", "host")
_SIGN = denied(*LOGIN_FAILURES, has=("user",))


def _observe(events: DataFrame) -> DataFrame:
    successes = observed(opened(events), what=F.lit("allowed"), counts=F.lit(0).cast("bigint"))
    return observed(events.where(_SIGN.column())).unionByName(successes)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        min_requests=thresholds["min_failures"],
        window_s=thresholds["window_s"],
        story=(OPENED,),
    )


def _incidents(seen: Seen, thresholds: Thresholds) -> DataFrame:
    """Returns the bursts of failures that a successful login followed."""
    spans = seen.bursts.select(F.col("key").alias("of_key"), "start", "end")
    of_spans = seen.observations.join(
        spans,
        (F.col("key") == F.col("of_key"))
        & (F.col("time") >= F.col("start"))
        & (F.col("time") < F.col("end") + F.make_dt_interval(secs=F.lit(thresholds["window_s"]))),
    )
    # A running sum from the first row, not over a sliding frame: one step for each row.
    before = (
        Window.partitionBy("key", "start")
        .orderBy("time", "what", "event_id")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    came_in = of_spans.withColumn("failures", F.sum("weight").over(before)).where(
        (F.col("what") == "allowed") & (F.col("failures") >= thresholds["min_failures"])
    )
    return came_in.groupBy("key", "start").agg((F.min("time") + F.expr("INTERVAL 1 MICROSECOND")).alias("end"))


DENIED_THEN_ALLOWED = Detector(
    name="denied_then_allowed",
    title="Failed logins, then one that succeeds",
    severity="critical",
    keys=_KEYS,
    observe=_observe,
    focus=_focus,
    incidents=_incidents,
)
