"""Many failed logins of one user, from one host or many."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed
from spark.detectors.signs import LOGIN_FAILURES, denied
from spark.sums.bursts import Focus
from spark.sums.trail import Trail

_KEYS = ("user",)
_SIGN = denied(*LOGIN_FAILURES, has=("user",))


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    failures = observed(trail.events.where(_SIGN.column()), what=F.col("remote_host"))
    condition = F.col("requests") >= thresholds["min_failures"]
    return findings(detector, failures, bursts(failures, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        least=thresholds["min_failures"],
        window_s=thresholds["window_s"],
    )


BRUTE_FORCE = Detector(name="brute_force", title="Brute force on one user", severity="high", find=_find, focus=_focus)
