"""Logins at a router fail because its authenticator does not answer."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed
from spark.detectors.signs import VERIFIER_UNAVAILABLE, denied
from spark.sums.bursts import Focus
from spark.sums.trail import Trail

_KEYS = ("router",)
_SIGN = denied(VERIFIER_UNAVAILABLE)


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    unanswered = observed(trail.events.where(_SIGN.column()), what=F.col("user"))
    condition = F.col("requests") >= thresholds["min_failures"]
    return findings(detector, unanswered, bursts(unanswered, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        least=thresholds["min_failures"],
        window_s=thresholds["window_s"],
    )


AUTHENTICATOR_OUTAGE = Detector(
    name="authenticator_outage", title="An authenticator does not answer", severity="critical", find=_find, focus=_focus
)
