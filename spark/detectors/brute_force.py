"""Many failed logins of one user, from one host or many."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed
from spark.detectors.signs import failed_logins, is_failed_login

_KEYS = ("user",)


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    failures = observed(failed_logins(events).where(F.col("user").isNotNull()), what=F.col("remote_host"))
    condition = F.col("requests") >= thresholds["min_failures"]
    return findings(detector, failures, bursts(failures, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=is_failed_login() & F.col("user").isNotNull(),
        keys=_KEYS,
        least=thresholds["min_failures"],
        window_s=thresholds["window_s"],
    )


BRUTE_FORCE = Detector(name="brute_force", title="Brute force on one user", severity="high", find=_find, focus=_focus)
