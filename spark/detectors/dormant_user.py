"""A user who has not come for long comes again."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, findings_of_all, observed
from spark.detectors.signs import seen

_KEYS = ("user",)


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    coming = observed(seen(events))
    # By day first: one row a day is what is sorted, however often somebody comes.
    days = coming.groupBy("user", F.to_date("time").alias("day")).agg(
        F.min("time").alias("came"), F.max("time").alias("left")
    )
    earlier = F.lag("left").over(Window.partitionBy("user").orderBy("day"))
    long = F.make_dt_interval(days=F.lit(thresholds["dormant_days"]))
    woken = days.withColumn("earlier", earlier).where(F.col("came") >= F.col("earlier") + long)
    incidents = woken.select(
        "user",
        F.col("came").alias("start"),
        (F.col("came") + F.expr("INTERVAL 1 MICROSECOND")).alias("end"),
    )
    return findings_of_all(detector, coming, incidents, _KEYS)


DORMANT_USER = Detector(name="dormant_user", title="A dormant user comes back", severity="medium", find=_find)
