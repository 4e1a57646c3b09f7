"""Logins at a router fail because its authenticator does not answer."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, observed
from spark.detectors.signs import VERIFIER_UNAVAILABLE, denied
from spark.sums.bursts import Focus

_KEYS = ("router",)
_SIGN = denied(VERIFIER_UNAVAILABLE)


def _observe(events: DataFrame) -> DataFrame:
    return observed(events.where(_SIGN.column()), what=F.col("user"))


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        min_requests=thresholds["min_failures"],
        window_s=thresholds["window_s"],
    )


AUTHENTICATOR_OUTAGE = Detector(
    name="authenticator_outage",
    title="An authenticator does not answer",
    severity="critical",
    keys=_KEYS,
    observe=_observe,
    focus=_focus,
)
