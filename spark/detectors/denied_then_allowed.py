"""Failed logins of one user from one host, then one that succeeds: a password may have been guessed."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed
from spark.detectors.signs import LOGIN_FAILURES, OPENED, denied, opened
from spark.sums.bursts import Focus
from spark.sums.trail import Trail

_KEYS = ("user", "host")
_SIGN = denied(*LOGIN_FAILURES, has=("user",))


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    window_s, least = thresholds["window_s"], thresholds["min_failures"]
    failures = observed(trail.events.where(_SIGN.column()))
    successes = observed(opened(trail.events), what=F.lit("allowed"), counts=F.lit(0).cast("bigint"))
    spans = bursts(failures, _KEYS, window_s, F.col("requests") >= least)
    story = failures.unionByName(successes)
    of_spans = story.join(
        spans.select(*(F.col(key).alias(f"of_{key}") for key in _KEYS), "start", "end"),
        F.col("user").eqNullSafe(F.col("of_user"))
        & F.col("host").eqNullSafe(F.col("of_host"))
        & (F.col("time") >= F.col("start"))
        & (F.col("time") < F.col("end") + F.make_dt_interval(secs=F.lit(window_s))),
    )
    # A running sum from the first row on, not over a frame that slides: one step for each row.
    before = (
        Window.partitionBy(*_KEYS, "start")
        .orderBy("time", "what", "event_id")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    came_in = of_spans.withColumn("failures", F.sum("weight").over(before)).where(
        (F.col("what") == "allowed") & (F.col("failures") >= least)
    )
    incidents = came_in.groupBy(*_KEYS, "start").agg((F.min("time") + F.expr("INTERVAL 1 MICROSECOND")).alias("end"))
    return findings(detector, story, incidents, _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        least=thresholds["min_failures"],
        window_s=thresholds["window_s"],
        story=(OPENED,),
    )


DENIED_THEN_ALLOWED = Detector(
    name="denied_then_allowed",
    title="Failed logins, then one that succeeds",
    severity="critical",
    find=_find,
    focus=_focus,
)
