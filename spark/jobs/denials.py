"""The denials report: by reason, rule, user, group, host, vhost, address, router and time."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from spark.jobs.reports import Kind
from spark.sums.trail import Trail
from spark.tables import counted
from spark.transforms import changes, denials, shadow

_TITLES = {
    "by_reason": "Denials by reason",
    "by_rule": "Denials by rule",
    "by_user": "Denials by user",
    "by_group": "Denials by group",
    "by_host": "Denials by host",
    "by_vhost": "Denials by vhost",
    "by_address": "Denials by address",
    "by_router": "Denials by router",
    "by_hour": "Denials by hour (UTC)",
}


def _totals(trail: Trail) -> DataFrame:
    every = denials.total(denials.is_denial())
    return trail.facts().agg(
        every.alias("denials"),
        (every - denials.events(denials.is_denial())).alias("repeated"),
        denials.events(shadow.is_shadow()).alias("shadow_events"),
        denials.events(changes.is_allowed()).alias("changes"),
    )


def _tables(trail: Trail) -> Mapping[str, tuple[str, DataFrame]]:
    tables = {name: (_TITLES[name], denials.counted_by(trail, name)) for name in denials.KEYS}
    trend = ("Denials day by day (UTC)", denials.trend(trail))
    return {**tables, "trend": trend, "floods": ("Floods: denials summed up", denials.floods(trail))}


def _says(totals: Mapping[str, int]) -> tuple[str, str]:
    others = totals["shadow_events"]
    more = f" and {counted(others, 'event')} of candidate policies" if others else ""
    changed = totals["changes"]
    more += f" and {counted(changed, 'event')} of changes" if changed else ""
    repeated = f" ({totals['repeated']} of them as numbers)" if totals["repeated"] else ""
    return f"{counted(totals['denials'], 'denial')}{repeated}{more}", ""


DENIALS = Kind(summary="summary.json", totals=_totals, says=_says, tables=_tables, has_denials=True)
