"""How qdstat prints values and tables. Pure.

The exact layout is an interface, because scripts cut columns out of it. Only output for a terminal is fitted to the
terminal. Source: docs/spec/management.md section 9.2.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from policy.printing import printable

Cells = Sequence[Any]
RenderTable = Callable[["Table"], list[str]]
RenderLine = Callable[[str], str]

# A cut number would be another number. A few characters are still enough to tell names apart.
_NUMBER = re.compile(r"[-\d.,:]*( [KMGTP]iB)?")
_LEAST_TEXT = 8
# Columns are aligned up to this width. A wider cell is printed completely, and only its own row is not aligned.
# Otherwise one peer with a container id of a megabyte would make each of a thousand rows a megabyte wide.
_MAX_ALIGNED = 1024

# Texts that a spreadsheet treats as a formula when it opens a CSV file, for example `=cmd|' /C calc'!A0`: these
# characters at the beginning of a cell, and their wide forms in Asian scripts. Control characters (TAB, CR) are escaped
# before.
_FORMULA = re.compile(r"[\s\"']*[=+\-@\uff1d\uff0b\uff0d\uff20]")
# A number is no formula, and neither is the `-` for an empty value.
_NOT_FORMULA = re.compile(r"[-+]?[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-")
# If semicolons separate cells, a spreadsheet begins a new cell after each, even inside our quotes.
_FORMULA_INSIDE = re.compile(r"(;[\s\"']*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
# A line outside a table has no quotes, and a comma also begins a cell.
_FORMULA_IN_LINE = re.compile(r"(?:^|[,;])[\s\"']*[=+\-@\uff1d\uff0b\uff0d\uff20]")

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    subtitle  a second line of the title, "" for none
    rows      cells of any type: None prints as nothing, other values as `str` gives them
    """

    title: str
    subtitle: str = ""
    headers: tuple[str, ...]
    rows: tuple[Cells, ...]

    def title_lines(self, render_line: RenderLine) -> list[str]:
        return [render_line(line) for line in (self.title, self.subtitle) if line]


Block = Table | list[str]


def render_classic(table: Table, columns: int | None = None) -> list[str]:
    """Returns title, header, a line of `=`, and rows. Columns are two apart, and the last one is not padded.

    Without rows only the title.

    columns  of the terminal: wider text is cut. None: nothing is cut
    """
    titles = table.title_lines(printable)
    if not table.rows:
        return titles
    rows = [[_text(cell) for cell in row] for row in table.rows]
    widths = [
        min(max(len(row[column]) for row in [table.headers, *rows]), _MAX_ALIGNED) + 2
        for column in range(len(table.headers))
    ]
    if columns is not None:
        widths = _fitted(widths, table.headers, rows, columns - 2)

    def line(cells: Sequence[str]) -> str:
        cut = [
            cell if columns is None or len(cell) <= width - 2 else f"{cell[: width - 3]}…"
            for cell, width in zip(cells, widths, strict=True)
        ]
        padded = [
            cell.ljust(width) if len(cell) <= width - 2 else f"{cell}  "
            for cell, width in zip(cut[:-1], widths, strict=False)
        ]
        return "  " + "".join(padded) + cut[-1]

    return [*titles, line(table.headers), "  " + "=" * sum(widths), *map(line, rows)]


def _fitted(widths: list[int], headers: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Returns widths that fit into `room`.

    The widest columns of text are cut most. The result may still be too wide.
    """
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
    """Returns title, header and rows. Every field that is not empty is quoted. Without rows only the title.

    A cell that a spreadsheet would treat as a formula gets a `'` in front, which makes it text there.
    """
    titles = table.title_lines(csv_line)
    if not table.rows:
        return titles
    return [*titles, *(",".join(_csv_field(_text(cell)) for cell in row) for row in [table.headers, *table.rows])]


def csv_line(text: str) -> str:
    """Returns a line outside the tables of a CSV file: unchanged, or as one field if a part would be a formula."""
    shown = printable(text)
    return _csv_field(shown) if _FORMULA_IN_LINE.search(shown) else shown


def _csv_field(text: str) -> str:
    if _FORMULA.match(text) and not _NOT_FORMULA.fullmatch(text):
        text = f"'{text}"
    text = _FORMULA_INSIDE.sub(r"\1'", text)
    return '"' + text.replace('"', '""') + '"' if text else ""


def _text(cell: Any) -> str:
    """Returns the text of a cell.

    It goes to a terminal. So control characters from a router (escape sequences, line breaks that imitate rows) are
    shown, and have no effect.
    """
    return "" if cell is None else printable(str(cell))


def plain(value: Any) -> str:
    """Returns an integer unchanged, and any other value as its text."""
    return f"{value:d}" if isinstance(value, int) else f"{value:.0f}" if isinstance(value, float) else str(value)


def commas(value: Any) -> str:
    """Returns 1234567 as 1,234,567."""
    return f"{value:,d}" if isinstance(value, int) else plain(value)


def kimigi(size_bytes: Any) -> str:
    """Returns a number below 1024 unchanged, and a larger one with about three digits and a binary unit."""
    if not isinstance(size_bytes, int | float) or size_bytes < 1024:
        return plain(size_bytes)
    power = 1
    while size_bytes >= 1024 ** (power + 1) and power < len(_UNITS):
        power += 1
    scaled = size_bytes / 1024**power
    digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
    return f"{scaled:.{digits}f} {_UNITS[power - 1]}"


def time_long(seconds: Any) -> str:
    """Returns DDD:HH:MM:SS."""
    if not isinstance(seconds, int | float):
        return plain(seconds)
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day:03d}:{hour:02d}:{minute:02d}:{second:02d}"


def time_short(seconds: Any) -> str:
    """Returns HH:MM:SS, without the days."""
    if not isinstance(seconds, int | float):
        return plain(seconds)
    return time_long(int(seconds) % 86400)[4:]


def ctime(epoch_s: Any) -> str:
    """Returns `Www Mmm dd HH:MM:SS YYYY` in local time."""
    if not isinstance(epoch_s, int | float):
        return plain(epoch_s)
    try:
        return time.ctime(epoch_s)
    except (ValueError, OverflowError, OSError):
        return plain(epoch_s)


def render(blocks: Iterable[Block], render_table: RenderTable, render_line: RenderLine = printable) -> list[str]:
    """Returns tables and plain lines one below the other, with an empty line between two blocks."""
    lines: list[str] = []
    for index, block in enumerate(blocks):
        lines += [""] * bool(index)
        lines += render_table(block) if isinstance(block, Table) else map(render_line, block)
    return lines
