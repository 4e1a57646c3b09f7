"""The figures of one case, their ratio to the floor, and their output as text and JSON."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

HEADINGS = ("case", "figure", "router", "floor", "ratio", "ratio's spread", "budget", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one case.

    router, floor  medians of the runs; floor None if there is no comparison
    ratio          median of router/floor, run by run
    spread         smallest and largest ratio of the runs; of `router` without a ratio
    budget         the limit of the ratio (without one: of `router`): the most, or the least if more is better
    """

    case: str
    figure: str
    unit: str
    better: Literal["less", "more"]
    router: float
    floor: float | None
    ratio: float | None
    spread: tuple[float, float]
    budget: float | None

    @property
    def is_over(self) -> bool:
        """Returns whether the figure exceeds its budget."""
        if self.budget is None:
            return False
        value = self.router if self.ratio is None else self.ratio
        return value > self.budget if self.better == "less" else value < self.budget


def row(
    case: str,
    figure: str,
    unit: str,
    *,
    router: Sequence[float],
    floor: Sequence[float] | None = None,
    better: Literal["less", "more"] = "less",
    budget: float | None = None,
) -> Row:
    """Returns a row from the runs of one figure. Router and floor are in the order in which they alternated."""
    ratios = [mine / base for mine, base in zip(router, floor, strict=True) if base] if floor else []
    spread_of = ratios or router
    return Row(
        case=case,
        figure=figure,
        unit=unit,
        better=better,
        router=statistics.median(router),
        floor=statistics.median(floor) if floor else None,
        ratio=statistics.median(ratios) if ratios else None,
        spread=(min(spread_of), max(spread_of)),
        budget=budget,
    )


def table(rows: Iterable[Row]) -> str:
    lines = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    is_text = (0, 1, 7)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in is_text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    sign = "≤" if row.better == "less" else "≥"
    return (
        row.case,
        f"{row.figure}, {row.unit}",
        _number(row.router),
        "" if row.floor is None else _number(row.floor),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        " to ".join(f"{end:.2f}" if row.ratio is not None else _number(end) for end in row.spread),
        "" if row.budget is None else f"{sign} {row.budget:g}",
        "over" if row.is_over else "",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def store(path: Path, rows: Iterable[Row], circumstances: Mapping[str, Any]) -> None:
    """Writes rows and the circumstances of the measurement, as JSON."""
    path.parent.mkdir(exist_ok=True)
    content = {**circumstances, "rows": [{**asdict(row), "is_over": row.is_over} for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n")
