"""A limit of a router, or of one of its vhosts, causes repeated refusals."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, observed
from spark.detectors.signs import LIMITS, denied
from spark.sums.bursts import Focus

_KEYS = ("router", "vhost", "reason")
_SIGN = denied(*LIMITS)


def _observe(events: DataFrame) -> DataFrame:
    return observed(events.where(_SIGN.column()), what=F.coalesce("user", "remote_host"))


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(signs=(_SIGN,), keys=_KEYS, min_requests=thresholds["min_denials"], window_s=thresholds["window_s"])


LIMIT_SATURATION = Detector(
    name="limit_saturation", title="A limit is saturated", severity="medium", keys=_KEYS, observe=_observe, focus=_focus
)
