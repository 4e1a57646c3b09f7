"""Far more denials at a router after another ruleset came into force than before."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, findings_of_all, observed
from spark.transforms.events import LOGS_OWN

_KEYS = ("router",)
_STAGES = ("accept", "open", "begin", "attach", "transfer", "management")


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    window = F.make_dt_interval(secs=F.lit(thresholds["window_s"]))
    is_denial = (F.col("decision") == "deny") & ~F.col("reason").isin(*LOGS_OWN) & F.col("stage").isin(*_STAGES)
    denials = observed(events.where(is_denial & F.col("ruleset_digest").isNotNull()), what=F.col("user"))
    # By minute first: what is sorted does not grow with the number of requests.
    minutes = (
        events.where(F.col("ruleset_digest").isNotNull())
        .groupBy("router", (F.unix_micros("time") / F.lit(60_000_000)).cast("bigint").alias("minute"), "ruleset_digest")
        .agg(F.min("time").alias("since"))
    )
    earlier = F.lag("ruleset_digest").over(Window.partitionBy("router").orderBy("since", "ruleset_digest"))
    changes = minutes.withColumn("earlier", earlier).where(F.col("earlier") != F.col("ruleset_digest"))
    near = denials.join(
        F.broadcast(changes.select(F.col("router").alias("of_router"), "since")),
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
        # Not `before` times the factor, which may be more than 64 bits hold.
        & (F.col("after") / F.lit(thresholds["factor"]) >= F.greatest("before", F.lit(1)))
    )
    incidents = surges.select("router", F.col("since").alias("start"), (F.col("since") + window).alias("end"))
    return findings_of_all(detector, denials, incidents, _KEYS)


DENIAL_SURGE = Detector(name="denial_surge", title="More denials after a change of policy", severity="high", find=_find)
