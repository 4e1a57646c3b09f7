"""Far more denials at a router after another ruleset came into force than before."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Seen, Thresholds, observed, spans_of
from spark.sums.bursts import DIGESTS
from spark.sums.picks import Wanted
from spark.sums.trail import Trail
from spark.transforms.events import LOGS_OWN
from spark.transforms.sign import Sign

_KEYS = ("router",)
_STAGES = ("accept", "open", "begin", "attach", "transfer", "management")
_SIGN = Sign(among={"decision": ("deny",), "stage": _STAGES}, but={"reason": LOGS_OWN}, has=("ruleset_digest",))


def _observe(events: DataFrame) -> DataFrame:
    return observed(events.where(_SIGN.column()), what=F.col("user"))


def _incidents(seen: Seen, thresholds: Thresholds) -> DataFrame:
    window = _window(thresholds)
    near = seen.observations.join(
        F.broadcast(_changes(seen.trail).select(F.col("router").alias("of_router"), "since")),
        (F.col("router") == F.col("of_router"))
        & (F.col("time") >= F.col("since") - window)
        & (F.col("time") < F.col("since") + window),
    )
    counts = near.groupBy("router", "since").agg(
        F.coalesce(F.sum(F.when(F.col("time") < F.col("since"), F.col("weight"))), F.lit(0)).alias("before"),
        F.coalesce(F.sum(F.when(F.col("time") >= F.col("since"), F.col("weight"))), F.lit(0)).alias("after"),
    )
    surges = counts.where(
        (F.col("after") >= thresholds["min_denials"])
        # Not `before` times the factor, which may exceed 64 bits.
        & (F.col("after") / F.lit(thresholds["factor"]) >= F.greatest("before", F.lit(1)))
    )
    end = F.col("since") + window
    return surges.select(F.array("router").alias("key"), F.col("since").alias("start"), end.alias("end"))


def _wants(trail: Trail, thresholds: Thresholds) -> Sequence[Wanted]:
    window = _window(thresholds)
    near = _changes(trail).select(
        "router", (F.col("since") - window).alias("start"), (F.col("since") + window).alias("end")
    )
    return [Wanted(signs=(_SIGN,), keys=_KEYS, spans=spans_of(near, _KEYS))]


def _changes(trail: Trail) -> DataFrame:
    """Returns router, and the time since which it has a different ruleset."""
    names = [F.col("keys")[at].alias(name) for name, at in (("router", 0), ("ruleset_digest", 2))]
    minutes = trail.of_kind(DIGESTS).select(*names, F.col("first").alias("since"))
    earlier = F.lag("ruleset_digest").over(Window.partitionBy("router").orderBy("since", "ruleset_digest"))
    changed = minutes.withColumn("earlier", earlier).where(F.col("earlier") != F.col("ruleset_digest"))
    return changed.select("router", "since")


def _window(thresholds: Thresholds) -> Column:
    return F.make_dt_interval(secs=F.lit(thresholds["window_s"]))


DENIAL_SURGE = Detector(
    name="denial_surge",
    title="More denials after a change of policy",
    severity="high",
    keys=_KEYS,
    observe=_observe,
    incidents=_incidents,
    wants=_wants,
)
