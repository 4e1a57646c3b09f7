"""The shadow report: decisions that candidate policies would change, by reason, rule, user and place."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from spark.jobs.reports import Kind
from spark.sums.trail import Trail
from spark.tables import counted
from spark.transforms import denials, shadow

_TITLES = {
    "shadow_by_reason": "Disagreements by reason",
    "shadow_by_rule": "Disagreements by rule of the candidate",
    "shadow_by_vhost": "Disagreements by vhost",
    "shadow_by_user": "Disagreements by user",
    "shadow_by_host": "Disagreements by host",
    "shadow_by_address": "Disagreements by address",
    "shadow_by_candidate": "Disagreements by candidate policy",
}


def kind(candidate: str | None = None) -> Kind:
    """Returns the report.

    candidate  the beginning of a digest: only decisions of candidates with such a digest
    """

    def totals(trail: Trail) -> DataFrame:
        outcomes: tuple[shadow.Outcome, ...] = ("would_deny", "would_allow", "errors")
        counts = trail.events.agg(*(shadow.total(name, candidate).alias(name) for name in outcomes))
        others = trail.facts().agg(
            denials.events(shadow.is_shadow()).alias("shadow_events"),
            denials.total(denials.is_denial()).alias("denials"),
        )
        return counts.crossJoin(others)

    def tables(trail: Trail) -> Mapping[str, tuple[str, DataFrame]]:
        found = shadow.disagreements(trail.events, candidate)
        return {name: (_TITLES[name], shadow.counted_by(found, keys)) for name, keys in shadow.KEYS.items()}

    return Kind(summary="shadow_summary.json", totals=totals, says=_says, tables=tables)


def _says(totals: Mapping[str, int]) -> tuple[str, str]:
    found = (
        f"{counted(totals['would_deny'], 'decision')} that a candidate policy would have denied, "
        f"{totals['would_allow']} that it would have allowed"
    )
    events = f"{counted(totals['shadow_events'], 'event')} of candidates and {counted(totals['denials'], 'denial')}"
    errors = totals["errors"]
    return f"{found}; {events}", f"{counted(errors, 'time')} a candidate could not be loaded or asked" if errors else ""
