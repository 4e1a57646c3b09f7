"""Failed logins of many users from one host, at one router. At several it is credential_stuffing."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed_names
from spark.detectors.signs import LOGIN_FAILURES, denied
from spark.sums.bursts import Focus
from spark.sums.trail import Trail

_KEYS = ("host",)
_SIGN = denied(*LOGIN_FAILURES, has=("remote_host",))


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    failures = observed_names(trail.events.where(_SIGN.column()), "user")
    condition = (F.col("distinct") >= thresholds["min_users"]) & (F.col("routers") == 1)
    return findings(detector, failures, bursts(failures, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        least=thresholds["min_users"],
        window_s=thresholds["window_s"],
    )


PASSWORD_SPRAYING = Detector(
    name="password_spraying", title="Password spraying from one host", severity="high", find=_find, focus=_focus
)
