"""A user or host for which the trail has no earlier event, once the trail is long enough to know the usual ones."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Seen, Thresholds, observed, spans_of
from spark.sums.bursts import HOSTS, SEEN, USERS
from spark.sums.picks import Wanted
from spark.sums.trail import Trail

_KINDS = {"user": USERS, "remote_host": HOSTS}
_SIGN = replace(SEEN, has=(*SEEN.has, "remote_host"))


def _observe(events: DataFrame) -> DataFrame:
    """Returns each event twice: as an observation of its user and of its host."""
    known = events.where(_SIGN.column())
    users, hosts = (observed(known, what=F.lit(kind)).withColumn("who", F.col(kind)) for kind in _KINDS)
    return users.unionByName(hosts)


def _wants(trail: Trail, thresholds: Thresholds) -> Sequence[Wanted]:
    return [
        Wanted(signs=(_SIGN,), keys=(kind,), spans=spans_of(_late(trail, kind, thresholds), (kind,))) for kind in _KINDS
    ]


def _incidents(seen: Seen, thresholds: Thresholds) -> DataFrame:
    users, hosts = (
        _late(seen.trail, kind, thresholds).select(F.array(F.lit(kind), kind).alias("key"), "start", "end")
        for kind in _KINDS
    )
    return users.unionByName(hosts)


def _late(trail: Trail, kind: str, thresholds: Thresholds) -> DataFrame:
    """Returns users or hosts with a late first event, and its time as `start` and `end`."""
    begin = trail.facts().agg(F.min("first").alias("begin"))
    enough = F.make_dt_interval(days=F.lit(thresholds["baseline_days"]))
    first = trail.of_kind(_KINDS[kind]).select(F.col("keys")[0].alias(kind), F.col("first").alias("start"))
    late = first.crossJoin(F.broadcast(begin)).where(F.col("start") >= F.col("begin") + enough)
    return late.select(kind, "start", (F.col("start") + F.expr("INTERVAL 1 MICROSECOND")).alias("end"))


FIRST_SEEN = Detector(
    name="first_seen",
    title="A user or host for the first time",
    severity="low",
    keys=("what", "who"),
    observe=_observe,
    incidents=_incidents,
    wants=_wants,
)
