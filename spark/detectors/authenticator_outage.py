"""Logins at a router fail because its authenticator does not answer."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed
from spark.detectors.signs import VERIFIER_UNAVAILABLE, denied, is_denied

_KEYS = ("router",)


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    unanswered = observed(denied(events, VERIFIER_UNAVAILABLE), what=F.col("user"))
    condition = F.col("requests") >= thresholds["min_failures"]
    return findings(detector, unanswered, bursts(unanswered, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=is_denied(VERIFIER_UNAVAILABLE),
        keys=_KEYS,
        least=thresholds["min_failures"],
        window_s=thresholds["window_s"],
    )


AUTHENTICATOR_OUTAGE = Detector(
    name="authenticator_outage", title="An authenticator does not answer", severity="critical", find=_find, focus=_focus
)
