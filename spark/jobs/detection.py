"""Runs all detectors on a trail and returns one frame of findings."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark.detectors import DETECTORS
from spark.detectors.finding import OBSERVATION, Detector, Seen, Thresholds, bursts, findings
from spark.detectors.focus import focused, watch
from spark.sums.bursts import Watch
from spark.sums.trail import Trail

SEVERITIES = ("low", "medium", "high", "critical")
_ORDER = ("first", "detector", "finding_id")


# For a few thousand rows, compiling the code of a query with 24 joins takes ten times as long as running it.
_UNCOMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_MOST_UNCOMPILED = 200_000


def enabled(thresholds: Mapping[str, Mapping[str, Any]]) -> list[Detector]:
    """Returns the detectors that are enabled.

    thresholds  of spark.detectors.thresholds.parse; at least one is enabled
    """
    return [detector for detector in DETECTORS if thresholds[detector.name]["enabled"]]


def looked_at(thresholds: Mapping[str, Mapping[str, Any]]) -> Watch:
    """Returns what a trail must have sums of, for `detect`."""
    return watch(enabled(thresholds), thresholds)


def detect(trail: Trail, thresholds: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    """Returns FINDING rows of the enabled detectors, the earliest first. They are computed now, and cached.

    trail  with the sums of what is `looked_at`
    """
    detectors = enabled(thresholds)
    needed = focused(trail, detectors, thresholds)
    is_little = needed.events.count() <= _MOST_UNCOMPILED
    if is_little:  # a task for every few rows costs more than their work
        needed = replace(needed, events=needed.events.coalesce(1))
    with _settings(trail.events.sparkSession, _UNCOMPILED if is_little else {}):
        held = found(needed, detectors, thresholds).orderBy(*_ORDER).persist()
        held.count()
    return held


def ranked(findings: DataFrame) -> DataFrame:
    """Returns findings in the order of display if not all fit: the largest of each detector, then the second of each.

    Attack: a stranger causes a thousand small findings, each with a new name. Otherwise they would displace the
    findings of other detectors, and larger ones of the same detector.
    """
    within_its_detector = Window.partitionBy("detector").orderBy(F.col("count").desc(), "first", "finding_id")
    severity = F.array_position(F.array(*map(F.lit, SEVERITIES)), F.col("severity"))
    nth = findings.withColumn("nth", F.row_number().over(within_its_detector))
    return nth.orderBy("nth", severity.desc(), "first", "finding_id").drop("nth")


def foremost(findings: DataFrame, most: int) -> tuple[DataFrame, bool]:
    """Returns at most this many findings, the earliest first, and whether these are all."""
    is_all = findings.count() <= most
    return (findings if is_all else ranked(findings).limit(most)).orderBy(*_ORDER), is_all


def found(trail: Trail, detectors: Sequence[Detector], thresholds: Mapping[str, Thresholds]) -> DataFrame:
    """Returns FINDING rows of these detectors. Persists their observations.

    One query serves all detectors: for a short trail, planning one query each takes Spark longer than everything else.
    """
    observations = reduce(DataFrame.unionByName, [_tagged(each, trail.events) for each in detectors]).persist()
    focuses = watch(detectors, thresholds).focuses
    bursting = bursts(observations, focuses)
    incidents = [bursting.where(F.col("detector").isin(*[each.name for each in detectors if each.incidents is None]))]
    for detector in detectors:
        if detector.incidents is not None:
            own = F.col("detector") == detector.name
            seen = Seen(trail=trail, observations=observations.where(own), bursts=bursting.where(own))
            told = detector.incidents(seen, thresholds[detector.name])
            incidents.append(told.select(F.lit(detector.name).alias("detector"), "key", "start", "end"))
    severities = {detector.name: detector.severity for detector in detectors}
    return findings(observations, reduce(DataFrame.unionByName, incidents), severities)


def _tagged(detector: Detector, events: DataFrame) -> DataFrame:
    """Returns the detector's observations, with its name as `detector` and their `key`."""
    named = (F.lit(detector.name).alias("detector"), F.array(*detector.keys).alias("key"))
    return detector.observe(events).select(*OBSERVATION, *named)


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
