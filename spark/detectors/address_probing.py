"""One user is refused many addresses."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed_names
from spark.detectors.signs import ADDRESS_DENIALS, denied, is_denied

_KEYS = ("user", "host")


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    refused = observed_names(denied(events, *ADDRESS_DENIALS), "address")
    condition = F.col("distinct") >= thresholds["min_addresses"]
    return findings(detector, refused, bursts(refused, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=is_denied(*ADDRESS_DENIALS),
        keys=_KEYS,
        least=thresholds["min_addresses"],
        window_s=thresholds["window_s"],
    )


ADDRESS_PROBING = Detector(
    name="address_probing", title="Probing of addresses", severity="medium", find=_find, focus=_focus
)
