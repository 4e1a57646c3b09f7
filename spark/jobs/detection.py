"""All detectors over a trail: one frame of findings."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.detectors import DETECTORS

SEVERITIES = ("low", "medium", "high", "critical")


def detect(events: DataFrame, thresholds: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    """FINDING rows of the detectors that are enabled, the earliest first.

    thresholds  of spark.detectors.thresholds.parse; at least one detector is enabled
    """
    frames = [
        detector.findings(events, thresholds[detector.name])
        for detector in DETECTORS
        if thresholds[detector.name]["enabled"]
    ]
    return reduce(DataFrame.unionByName, frames).orderBy("first", "detector", "finding_id")


def at_least(findings: DataFrame, severity: str) -> DataFrame:
    return findings.where(F.col("severity").isin(*SEVERITIES[SEVERITIES.index(severity) :]))
