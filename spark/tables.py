"""Shows a report: rich tables on a terminal, aligned columns elsewhere."""

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from spark.jobs.reports import Report, Table

# The rows that fit on a screen; --format json and --out have the rest.
SHOWN_ROWS = 20
MAX_CELL_CHARS = 60


def render(report: "Report", stream: TextIO) -> None:
    """Writes the whole report to `stream`, with colours and rules only on a terminal."""
    console = Console(file=stream, highlight=False)
    print(_summary(report), file=stream)
    for table in report.tables.values():
        if not table.rows:
            continue
        print(file=stream)
        if console.is_terminal:
            console.print(_rich(table))
        else:
            print("\n".join(_plain(table)), file=stream)
        if len(table.rows) > SHOWN_ROWS:
            more = f"{len(table.rows) - SHOWN_ROWS}{'' if table.is_complete else ' or more'}"
            print(f"... {more} rows more; --out writes all", file=stream)


def printable(value: str | int | None) -> str:
    """Returns the text of one cell. Peers choose many of these names: characters that affect a terminal are escaped."""
    if value is None:
        return "(none)"
    text = str(value)
    if len(text) > MAX_CELL_CHARS:
        text = text[: MAX_CELL_CHARS - 1] + "…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _summary(report: "Report") -> str:
    lines = [
        f"{report.heading} in {counted(report.lines, 'line')} of {counted(report.files, 'file')}; "
        f"{counted(report.duplicates, 'duplicate')}; {report.quarantined} quarantined"
    ]
    if report.warning:
        lines.append(f"WARNING: {report.warning}")
    if report.lost:
        lost = counted(report.lost, "event")
        lines.append(f"WARNING: {lost} could not be written by the routers: counts are too low")
    numbers = report.continuity
    if numbers.missing:
        lines.append(f"WARNING: {counted(numbers.missing, 'event')} missing between others of one start of a router")
    if report.deleted_files:
        lines.append(
            f"{counted(report.deleted_files, 'file')} deleted by the routers, as the limits of their audit logs ask"
        )
    starts = f"of {counted(numbers.starts, 'start')} of routers"
    if numbers.headless:
        lines.append(f"{numbers.headless} {starts}: the first events are not here")
    if numbers.endless:
        why = "still running, or killed with what was not written yet"
        lines.append(f"{numbers.endless} {starts}: no end on record, {why}")
    return "\n".join(lines)


def counted(number: int, noun: str) -> str:
    """Returns `1 line`, `2 lines`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rich(table: "Table") -> RichTable:
    shown = RichTable(title=table.title, title_justify="left")
    for name, is_number in zip(table.columns, _numbers(table), strict=True):
        shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in table.rows[:SHOWN_ROWS]:
        shown.add_row(*[Text(printable(value)) for value in row])  # Text: a peer's name is not parsed as markup
    return shown


def _plain(table: "Table") -> list[str]:
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
    return [table.title, *[f"  {line}" for line in lines]]


def _numbers(table: "Table") -> list[bool]:
    return [isinstance(value, int) for value in table.rows[0]]
