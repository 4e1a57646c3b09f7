"""All detectors over a trail: one frame of findings."""

import contextlib
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.detectors import DETECTORS
from spark.detectors.focus import focused

SEVERITIES = ("low", "medium", "high", "critical")


# For some thousand rows, compiling the code of a query of 24 joins takes ten times as long as running it.
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_MOST_UNCOMPILED = 200_000


def detect(events: DataFrame, thresholds: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    """FINDING rows of the detectors that are enabled, the earliest first. They are found now, and held.

    thresholds  of spark.detectors.thresholds.parse; at least one detector is enabled
    """
    enabled = [detector for detector in DETECTORS if thresholds[detector.name]["enabled"]]
    needed = focused(events, enabled, thresholds)
    is_little = needed.count() <= _MOST_UNCOMPILED
    frames = [
        detector.findings(events if detector.focus is None else needed, thresholds[detector.name])
        for detector in enabled
    ]
    found = reduce(DataFrame.unionByName, frames).orderBy("first", "detector", "finding_id")
    with _settings(events.sparkSession, _UNCOMPILED if is_little else {}):
        held = found.persist()
        held.count()
    return held


@contextlib.contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    earlier = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, before in earlier.items():
            session.conf.unset(name) if before is None else session.conf.set(name, before)


def at_least(findings: DataFrame, severity: str) -> DataFrame:
    return findings.where(F.col("severity").isin(*SEVERITIES[SEVERITIES.index(severity) :]))
