"""Failed logins of many users from one host, over several routers."""

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
    is_many = F.col("distinct") >= thresholds["min_users"]
    condition = is_many & (F.col("routers") >= thresholds["min_routers"])
    return findings(detector, failures, bursts(failures, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        least=thresholds["min_users"],
        window_s=thresholds["window_s"],
    )


CREDENTIAL_STUFFING = Detector(
    name="credential_stuffing", title="Credential stuffing over routers", severity="high", find=_find, focus=_focus
)
