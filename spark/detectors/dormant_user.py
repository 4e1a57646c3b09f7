"""A user returns after a long absence."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Seen, Thresholds, observed, spans_of
from spark.sums.bursts import SEEN, STAYS
from spark.sums.picks import Wanted
from spark.sums.trail import Trail

_KEYS = ("user",)


def _observe(events: DataFrame) -> DataFrame:
    return observed(events.where(SEEN.column()))


def _incidents(seen: Seen, thresholds: Thresholds) -> DataFrame:
    return _woken(seen.trail, thresholds).select(F.array("user").alias("key"), "start", "end")


def _wants(trail: Trail, thresholds: Thresholds) -> Sequence[Wanted]:
    return [Wanted(signs=(SEEN,), keys=_KEYS, spans=spans_of(_woken(trail, thresholds), _KEYS))]


def _woken(trail: Trail, thresholds: Thresholds) -> DataFrame:
    """Returns users, and the time of their first event after a long absence, as `start` and `end`."""
    stays = trail.of_kind(STAYS).select(F.col("keys")[0].alias("user"), "first", "last")
    # Stays from several shares of the trail may overlap.
    before = Window.partitionBy("user").orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    earlier = F.max("last").over(before)
    long = F.make_dt_interval(days=F.lit(thresholds["dormant_days"]))
    woken = stays.withColumn("earlier", earlier).where(F.col("first") >= F.col("earlier") + long)
    end = F.col("first") + F.expr("INTERVAL 1 MICROSECOND")
    return woken.select("user", F.col("first").alias("start"), end.alias("end"))


DORMANT_USER = Detector(
    name="dormant_user",
    title="A dormant user comes back",
    severity="medium",
    keys=_KEYS,
    observe=_observe,
    incidents=_incidents,
    wants=_wants,
)
