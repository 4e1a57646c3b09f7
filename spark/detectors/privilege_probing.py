"""A user with a connection asks for several kinds of privilege, and is refused."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Thresholds, observed
from spark.detectors.signs import OPENED, PRIVILEGE_REFUSED, is_of_the_router, opened
from spark.sums.bursts import Focus
from spark.transforms.sign import any_column

_KEYS = ("user", "host")


def _observe(events: DataFrame) -> DataFrame:
    asked = F.concat_ws(
        " ",
        "reason",
        "management.operation",
        "management.entity_type",
        F.when(is_of_the_router(), F.col("address")),
    )
    # A refusal at these stages proves that the connection was admitted. If the admission was recorded, it is evidence
    # too.
    return observed(events.where(any_column(PRIVILEGE_REFUSED)), what=asked).unionByName(
        observed(opened(events), counts=F.lit(0).cast("bigint"))
    )


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=PRIVILEGE_REFUSED,
        keys=_KEYS,
        min_distinct=thresholds["min_requests"],
        window_s=thresholds["window_s"],
        story=(OPENED,),
    )


PRIVILEGE_PROBING = Detector(
    name="privilege_probing",
    title="Probing for privileges after an allow",
    severity="high",
    keys=_KEYS,
    observe=_observe,
    focus=_focus,
)
