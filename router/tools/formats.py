"""How qdstat prints values and tables. Pure. The exact layout is an interface: scripts cut columns out of it. Only what
goes to a terminal is made to fit it.

Source: docs/spec/management.md section 9.2.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Cells = Sequence[Any]
RenderTable = Callable[["Table"], list[str]]

# A number that is cut is another number; a few characters still tell one name from another.
_NUMBER = re.compile(r"[-\d.,:]*( [KMGTP]iB)?")
_LEAST_TEXT = 8

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """rows  cells of any type: None prints as nothing, the rest as `str` gives it"""

    title: str  # may be several lines
    headers: tuple[str, ...]
    rows: tuple[Cells, ...]


Block = Table | list[str]


def render_classic(table: Table, columns: int | None = None) -> list[str]:
    """Title, header, a line of `=`, rows; columns two apart, the last one not padded. Without rows only the title.

    columns  of the terminal that this is for: what is wider is cut, where it is text. None: nothing is cut
    """
    if not table.rows:
        return table.title.splitlines()
    rows = [[_text(cell) for cell in row] for row in table.rows]
    widths = [max(len(row[column]) for row in [table.headers, *rows]) + 2 for column in range(len(table.headers))]
    if columns is not None:
        widths = _fitted(widths, table.headers, rows, columns - 2)

    def line(cells: Sequence[str]) -> str:
        cut = [
            cell if len(cell) <= width - 2 else f"{cell[: width - 3]}…"
            for cell, width in zip(cells, widths, strict=True)
        ]
        padded = [cell.ljust(width) for cell, width in zip(cut[:-1], widths, strict=False)]
        return "  " + "".join(padded) + cut[-1]

    return [*table.title.splitlines(), line(table.headers), "  " + "=" * sum(widths), *map(line, rows)]


def _fitted(widths: list[int], headers: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths that fit into `room`, the widest columns of text cut most; more where that is not enough."""
    is_text = [any(not _NUMBER.fullmatch(row[column]) for row in rows) for column in range(len(widths))]
    least = [
        min(width, max(len(header), _LEAST_TEXT) + 2) if cut else width
        for width, header, cut in zip(widths, headers, is_text, strict=True)
    ]
    found = list(widths)
    while sum(found) > room and (wide := [column for column, width in enumerate(found) if width > least[column]]):
        found[max(wide, key=found.__getitem__)] -= 1
    return found


def render_csv(table: Table) -> list[str]:
    """Title, header and rows; every field that is not empty is quoted. Without rows only the title."""
    if not table.rows:
        return table.title.splitlines()
    return [*table.title.splitlines(), *(",".join(map(_csv_field, row)) for row in [table.headers, *table.rows])]


def _csv_field(cell: Any) -> str:
    text = _text(cell)
    return '"' + text.replace('"', '""') + '"' if text else ""


def _text(cell: Any) -> str:
    """The text of a cell. It goes to a terminal, so control characters from a router (escape sequences, line breaks
    that fake rows) are shown, not obeyed."""
    if cell is None:
        return ""
    text = str(cell)
    return text if text.isprintable() else printable(text)


def printable(text: str) -> str:
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def plain(value: Any) -> str:
    """An integer as it is; what is no number as its text."""
    return f"{value:d}" if isinstance(value, int) else f"{value:.0f}" if isinstance(value, float) else str(value)


def commas(value: Any) -> str:
    """1234567 is 1,234,567."""
    return f"{value:,d}" if isinstance(value, int) else plain(value)


def kimigi(size_bytes: Any) -> str:
    """Below 1024 the number, from there three digits or so and a binary unit."""
    if not isinstance(size_bytes, int | float) or size_bytes < 1024:
        return plain(size_bytes)
    power = 1
    while size_bytes >= 1024 ** (power + 1) and power < len(_UNITS):
        power += 1
    scaled = size_bytes / 1024**power
    digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
    return f"{scaled:.{digits}f} {_UNITS[power - 1]}"


def time_long(seconds: Any) -> str:
    """DDD:HH:MM:SS"""
    if not isinstance(seconds, int | float):
        return plain(seconds)
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day:03d}:{hour:02d}:{minute:02d}:{second:02d}"


def time_short(seconds: Any) -> str:
    """HH:MM:SS, the day left out."""
    if not isinstance(seconds, int | float):
        return plain(seconds)
    return time_long(int(seconds) % 86400)[4:]


def ctime(epoch_s: Any) -> str:
    """`Www Mmm dd HH:MM:SS YYYY` in local time."""
    if not isinstance(epoch_s, int | float):
        return plain(epoch_s)
    try:
        return time.ctime(epoch_s)
    except (ValueError, OverflowError, OSError):
        return plain(epoch_s)


def render(blocks: Iterable[Block], render_table: RenderTable) -> list[str]:
    """Tables and plain lines below each other, an empty line between two blocks."""
    lines: list[str] = []
    for index, block in enumerate(blocks):
        lines += [""] * bool(index)
        lines += render_table(block) if isinstance(block, Table) else map(printable, block)
    return lines
