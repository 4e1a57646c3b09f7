"""Failed logins of many users from one host, at several routers."""

from pyspark.sql import DataFrame

from spark.detectors.finding import Detector, Thresholds, observed_names
from spark.detectors.signs import LOGIN_FAILURES, denied
from spark.sums.bursts import Focus

_KEYS = ("host",)
_SIGN = denied(*LOGIN_FAILURES, has=("remote_host",))


def _observe(events: DataFrame) -> DataFrame:
    return observed_names(events.where(_SIGN.column()), "user")


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        min_distinct=thresholds["min_users"],
        min_routers=thresholds["min_routers"],
        window_s=thresholds["window_s"],
    )


CREDENTIAL_STUFFING = Detector(
    name="credential_stuffing",
    title="Credential stuffing over routers",
    severity="high",
    keys=_KEYS,
    observe=_observe,
    focus=_focus,
)
