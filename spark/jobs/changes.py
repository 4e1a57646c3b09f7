"""The report on changes by management, carried out and refused, by user and entity."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.jobs.reports import Kind
from spark.sums.trail import Trail
from spark.tables import counted
from spark.transforms import changes, denials
from spark.transforms.events import requests

_TITLES = {
    "changes_by_user": "Changes by user",
    "changes_by_host": "Changes by host",
    "changes_by_type": "Changes by operation and type",
    "changes_by_entity": "Changes by entity",
    "changes_refused": "Refused for want of a right",
}


def _totals(trail: Trail) -> DataFrame:
    counts = F.when(changes.is_asked(), requests())
    asked = trail.events.agg(
        F.coalesce(F.sum(counts), F.lit(0)).alias("asked"),
        F.coalesce(F.sum(F.when(F.col("decision") == "deny", counts)), F.lit(0)).alias("refused"),
    )
    return asked.crossJoin(trail.facts().agg(denials.total(denials.is_denial()).alias("denials")))


def _tables(trail: Trail) -> Mapping[str, tuple[str, DataFrame]]:
    found = changes.asked(trail.events)
    frames = {name: changes.counted_by(found, keys) for name, keys in changes.KEYS.items()}
    refused = found.where("is_refused")
    frames["changes_refused"] = changes.counted_by(refused, changes.KEYS["changes_refused"])
    return {name: (_TITLES[name], frame) for name, frame in frames.items()}


def _says(totals: Mapping[str, int]) -> tuple[str, str]:
    asked, refused, others = totals["asked"], totals["refused"], totals["denials"] - totals["refused"]
    return f"{counted(asked, 'request')} for changes, {refused} of them refused; {counted(others, 'other denial')}", ""


CHANGES = Kind(summary="changes_summary.json", totals=_totals, says=_says, tables=_tables)
