"""A limit of a router, or of one of its vhosts, refuses again and again."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed
from spark.detectors.signs import LIMITS, denied
from spark.sums.bursts import Focus
from spark.sums.trail import Trail

_KEYS = ("router", "vhost", "reason")
_SIGN = denied(*LIMITS)


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    refused = observed(trail.events.where(_SIGN.column()), what=F.coalesce("user", "remote_host"))
    condition = F.col("requests") >= thresholds["min_denials"]
    return findings(detector, refused, bursts(refused, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(signs=(_SIGN,), keys=_KEYS, least=thresholds["min_denials"], window_s=thresholds["window_s"])


LIMIT_SATURATION = Detector(
    name="limit_saturation", title="A limit is saturated", severity="medium", find=_find, focus=_focus
)
