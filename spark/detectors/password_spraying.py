"""Failed logins of many users from one host, at one router. At several routers it is credential_stuffing."""

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
        max_routers=1,
        window_s=thresholds["window_s"],
    )


PASSWORD_SPRAYING = Detector(
    name="password_spraying",
    title="Password spraying from one host",
    severity="high",
    keys=_KEYS,
    observe=_observe,
    focus=_focus,
)
