"""The denials report: by reason, rule, user, group, host, vhost, address, router and time."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.jobs.reports import Kind
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


def _totals() -> Mapping[str, Column]:
    every = denials.total(denials.is_denial())
    return {
        "denials": every,
        "repeated": every - F.count_if(denials.is_denial()),
        "shadow_events": F.count_if(shadow.is_shadow()),
        "changes": F.count_if(changes.is_allowed()),
    }


def _tables(events: DataFrame) -> Mapping[str, tuple[str, DataFrame]]:
    denied = denials.denied(events)
    tables = {name: (_TITLES[name], denials.counted_by(denied, *keys)) for name, keys in denials.KEYS.items()}
    trend = ("Denials day by day (UTC)", denials.trend(denied))
    return {**tables, "trend": trend, "floods": ("Floods: denials summed up", denials.floods(denied))}


def _says(totals: Mapping[str, int]) -> tuple[str, str]:
    others = totals["shadow_events"]
    more = f" and {counted(others, 'event')} of candidate policies" if others else ""
    changed = totals["changes"]
    more += f" and {counted(changed, 'event')} of changes" if changed else ""
    repeated = f" ({totals['repeated']} of them as numbers)" if totals["repeated"] else ""
    return f"{counted(totals['denials'], 'denial')}{repeated}{more}", ""


DENIALS = Kind(summary="summary.json", totals=_totals, says=_says, tables=_tables)
