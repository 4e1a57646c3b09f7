"""A limit of a router, or of one of its vhosts, refuses again and again."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed
from spark.detectors.signs import LIMITS, denied, is_denied

_KEYS = ("router", "vhost", "reason")


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    refused = observed(denied(events, *LIMITS), what=F.coalesce("user", "remote_host"))
    condition = F.col("requests") >= thresholds["min_denials"]
    return findings(detector, refused, bursts(refused, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(signs=is_denied(*LIMITS), keys=_KEYS, least=thresholds["min_denials"], window_s=thresholds["window_s"])


LIMIT_SATURATION = Detector(
    name="limit_saturation", title="A limit is saturated", severity="medium", find=_find, focus=_focus
)
