"""A user, or a host, of which the trail has nothing before, once it is long enough to know who comes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, findings_of_all, observed
from spark.detectors.signs import seen

_KINDS = ("user", "remote_host")


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    known = seen(events).where(F.col("remote_host").isNotNull())
    begin = events.agg(F.min("time").alias("begin"))
    enough = F.make_dt_interval(days=F.lit(thresholds["baseline_days"]))
    news = []
    for kind in _KINDS:
        coming = observed(known, what=F.lit(kind))
        first = coming.groupBy(kind).agg(F.min("time").alias("start"))
        late = first.crossJoin(F.broadcast(begin)).where(F.col("start") >= F.col("begin") + enough)
        incidents = late.select(kind, "start", (F.col("start") + F.expr("INTERVAL 1 MICROSECOND")).alias("end"))
        news.append(findings_of_all(detector, coming, incidents, (kind,)))
    return news[0].unionByName(news[1])


FIRST_SEEN = Detector(name="first_seen", title="A user or host for the first time", severity="low", find=_find)
