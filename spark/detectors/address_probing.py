"""One user is refused many addresses."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, bursts, findings, observed_names
from spark.detectors.signs import ADDRESS_DENIALS, denied
from spark.sums.bursts import Focus
from spark.sums.trail import Trail

_KEYS = ("user", "host")
_SIGN = denied(*ADDRESS_DENIALS)


def _find(detector: Detector, trail: Trail, thresholds: Thresholds) -> DataFrame:
    refused = observed_names(trail.events.where(_SIGN.column()), "address")
    condition = F.col("distinct") >= thresholds["min_addresses"]
    return findings(detector, refused, bursts(refused, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=(_SIGN,),
        keys=_KEYS,
        least=thresholds["min_addresses"],
        window_s=thresholds["window_s"],
    )


ADDRESS_PROBING = Detector(
    name="address_probing", title="Probing of addresses", severity="medium", find=_find, focus=_focus
)
