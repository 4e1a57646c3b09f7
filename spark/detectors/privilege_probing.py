"""A user who was let in asks for several kinds of privilege, and is refused."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, Thresholds, bursts, findings, observed
from spark.detectors.signs import is_of_the_router, is_opened, is_privilege_refused, opened, privileges_refused

_KEYS = ("user", "host")


def _find(detector: Detector, events: DataFrame, thresholds: Thresholds) -> DataFrame:
    asked = F.concat_ws(
        " ",
        "reason",
        "management.operation",
        "management.entity_type",
        F.when(is_of_the_router(), F.col("address")),
    )
    # The stages of a refusal prove that its connection had been let in; where that was recorded it is evidence too.
    story = observed(privileges_refused(events), what=asked).unionByName(
        observed(opened(events), counts=F.lit(0).cast("bigint"))
    )
    condition = F.col("distinct") >= thresholds["min_requests"]
    return findings(detector, story, bursts(story, _KEYS, thresholds["window_s"], condition), _KEYS)


def _focus(thresholds: Thresholds) -> Focus:
    return Focus(
        signs=is_privilege_refused(),
        keys=_KEYS,
        least=thresholds["min_requests"],
        window_s=thresholds["window_s"],
        story=is_opened(),
    )


PRIVILEGE_PROBING = Detector(
    name="privilege_probing", title="Probing for privileges after an allow", severity="high", find=_find, focus=_focus
)
