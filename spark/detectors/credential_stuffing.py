"""Failed logins of many users from one host, over several routers."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed_names
from spark.detectors.signs import failed_logins, is_failed_login

_KEYS = ("host",)


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    failures = observed_names(failed_logins(events).where(F.col("remote_host").isNotNull()), "user")
    is_many = F.col("distinct") >= thresholds["min_users"]
    condition = is_many & (F.col("routers") >= thresholds["min_routers"])
    return findings(detector, failures, bursts(failures, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=is_failed_login() & F.col("remote_host").isNotNull(),
        keys=_KEYS,
        least=thresholds["min_users"],
        window_s=thresholds["window_s"],
    )


CREDENTIAL_STUFFING = Detector(
    name="credential_stuffing", title="Credential stuffing over routers", severity="high", find=_find, focus=_focus
)
