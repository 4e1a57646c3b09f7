"""Many failed logins of one user, from one or more hosts."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, observed
from spark.detectors.signs import LOGIN_FAILURES, denied
from spark.sums.bursts import Focus

_KEYS = ("user",)
_SIGN = denied(*LOGIN_FAILURES, has=("user",))


def _observe(events: DataFrame) -> DataFrame:
    return observed(events.where(_SIGN.column()), what=F.col("remote_host"))


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        min_requests=thresholds["min_failures"],
        window_s=thresholds["window_s"],
    )


BRUTE_FORCE = Detector(
    name="brute_force", title="Brute force on one user", severity="high", keys=_KEYS, observe=_observe, focus=_focus
)
