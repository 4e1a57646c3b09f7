"""One user is denied many addresses."""

from pyspark.sql import DataFrame

from spark.detectors.finding import Detector, Thresholds, observed_names
from spark.detectors.signs import ADDRESS_DENIALS, denied
from spark.sums.bursts import Focus

_KEYS = ("user", "host")
_SIGN = denied(*ADDRESS_DENIALS)


def _observe(events: DataFrame) -> DataFrame:
    return observed_names(events.where(_SIGN.column()), "address")


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        min_distinct=thresholds["min_addresses"],
        window_s=thresholds["window_s"],
    )


ADDRESS_PROBING = Detector(
    name="address_probing", title="Probing of addresses", severity="medium", keys=_KEYS, observe=_observe, focus=_focus
)
