"""A denials report for a reader: rich tables on a terminal, aligned columns elsewhere."""

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from spark.jobs.denials import Report, Table

# What fits a screen; the rest is in --format json and --out.
SHOWN_ROWS = 20
MAX_CELL_CHARS = 60

_TITLES = {
    "by_reason": "Denials by reason",
    "by_user": "Denials by user",
    "by_host": "Denials by host",
    "by_vhost": "Denials by vhost",
    "by_hour": "Denials by hour (UTC)",
    "quarantine": "Quarantined lines",
}


def render(report: "Report", stream: TextIO) -> None:
    """Write the whole report to `stream`; colours and rules only where it is a terminal."""
    console = Console(file=stream, highlight=False)
    print(_summary(report), file=stream)
    for name, title in _TITLES.items():
        table = report.tables[name]
        if not table.rows:
            continue
        print(file=stream)
        if console.is_terminal:
            console.print(_rich(title, table))
        else:
            print("\n".join(_plain(title, table)), file=stream)
        if len(table.rows) > SHOWN_ROWS:
            more = f"{len(table.rows) - SHOWN_ROWS}{'' if table.is_complete else ' or more'}"
            print(f"... {more} rows more; --out writes all", file=stream)


def printable(value: str | int | None) -> str:
    """One cell. A peer chose many of these names: whatever could steer a terminal or turn text around is escaped."""
    if value is None:
        return "(none)"
    text = str(value)
    if len(text) > MAX_CELL_CHARS:
        text = text[: MAX_CELL_CHARS - 1] + "…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _summary(report: "Report") -> str:
    lines = [
        f"{_count(report.denials, 'denial')} in {_count(report.lines, 'line')} of {_count(report.files, 'file')}; "
        f"{_count(report.duplicates, 'duplicate')}; {report.quarantined} quarantined"
    ]
    if report.lost:
        lines.append(f"WARNING: {_count(report.lost, 'event')} could not be written by the routers: counts are too low")
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rich(title: str, table: "Table") -> RichTable:
    shown = RichTable(title=title, title_justify="left")
    for name, is_number in zip(table.columns, _numbers(table), strict=True):
        shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in table.rows[:SHOWN_ROWS]:
        shown.add_row(*[Text(printable(value)) for value in row])  # Text: no markup from a peer's name
    return shown


def _plain(title: str, table: "Table") -> list[str]:
    cells = [table.columns, *[tuple(printable(value) for value in row) for row in table.rows[:SHOWN_ROWS]]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.columns))]
    numbers = _numbers(table)
    lines = [
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]
    return [title, *[f"  {line}" for line in lines]]


def _numbers(table: "Table") -> list[bool]:
    return [isinstance(value, int) for value in table.rows[0]]
