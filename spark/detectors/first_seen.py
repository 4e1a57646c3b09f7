"""A user, or a host, of which the trail has nothing before, once it is long enough to know who comes."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, findings, observed, spans_of
from spark.sums.bursts import HOSTS, SEEN, USERS
from spark.sums.picks import Wanted
from spark.sums.trail import Trail

_KINDS = {"user": USERS, "remote_host": HOSTS}
_SIGN = replace(SEEN, has=(*SEEN.has, "remote_host"))


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    known = trail.events.where(_SIGN.column())
    news = [
        findings(detector, observed(known, what=F.lit(kind)), _late(trail, kind, thresholds), (kind,))
        for kind in _KINDS
    ]
    return news[0].unionByName(news[1])


def _wants(trail: Trail, thresholds: Thresholds) -> Sequence[Wanted]:
    return [
        Wanted(signs=(_SIGN,), keys=(kind,), spans=spans_of(_late(trail, kind, thresholds), (kind,))) for kind in _KINDS
    ]


def _late(trail: Trail, kind: str, thresholds: Thresholds) -> DataFrame:
    """Incidents: the first event of who came late for the first time."""
    begin = trail.facts().agg(F.min("first").alias("begin"))
    enough = F.make_dt_interval(days=F.lit(thresholds["baseline_days"]))
    first = trail.of_kind(_KINDS[kind]).select(F.col("keys")[0].alias(kind), F.col("first").alias("start"))
    late = first.crossJoin(F.broadcast(begin)).where(F.col("start") >= F.col("begin") + enough)
    return late.select(kind, "start", (F.col("start") + F.expr("INTERVAL 1 MICROSECOND")).alias("end"))


FIRST_SEEN = Detector(
    name="first_seen", title="A user or host for the first time", severity="low", find=_find, wants=_wants
)
