"""Makes numbers, plots and tables into one HTML file that has everything in it, and loads nothing else.

The template engine escapes the texts of peers; control and bidirectional characters are shown as escapes. The page's
Content-Security-Policy permits only our own style and script, by their hash. So even a text that became markup could
not run or load anything.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

# Of one cell: a list of a hundred names is cut.
_MAX_CELL_CHARS: Final = 400
_SEVERITIES: Final = ("low", "medium", "high", "critical")
_WIDTH, _HEIGHT, _BASE = 1000.0, 180.0, 150.0
_MAX_BARS: Final = 500


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    mark  a severity, "" for none
    """

    cells: tuple[Cell, ...]
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    x: float
    y: float
    anchor: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    title: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    width: float = _WIDTH
    height: float = _HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of a page.

    about    a line on the data and its time
    numbers  name, value
    remarks  sentences
    """

    title: str
    about: str
    numbers: Sequence[tuple[str, int]]
    remarks: Sequence[str]
    plots: Sequence[Plot]
    tables: Sequence[PageTable]


def render(page: Page) -> str:
    style, script = _own("report.css"), _own("report.js")
    engine = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    template = engine.from_string(_own("report.html.jinja"))
    return template.render(
        page=page,
        style=Markup(style),  # noqa: S704 - our own files, of this package
        script=Markup(script),  # noqa: S704
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def table(
    name: str, title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, is_whole: bool
) -> PageTable:
    """Returns a table.

    rows  column -> text, number, null or a list of texts
    """
    made = tuple(Row(tuple(_cell(row[column]) for column in columns), _mark(row)) for row in rows)
    note = "" if is_whole else f"The first {len(made)} rows; the exports have all."
    return PageTable(name=name, title=title, columns=tuple(columns), rows=made, note=note)


def columns_plot(title: str, values: Sequence[tuple[str, int]]) -> Plot:
    """Returns a plot with a column for each value, in their order; only the last ones if there are too many."""
    shown = values[-_MAX_BARS:]
    most = max((value for _, value in shown), default=0)
    if not most:
        return Plot(title=title, bars=(), marks=())
    step = _WIDTH / len(shown)
    bars = tuple(
        Bar(
            x=round(nth * step, 2),
            y=round(_BASE - value / most * (_BASE - 16), 2),
            width=round(max(step * 0.9, 0.5), 2),
            height=round(value / most * (_BASE - 16), 2),
            title=f"{shown_text(name)}: {value}",
        )
        for nth, (name, value) in enumerate(shown)
    )
    first, last = (shown_text(shown[at][0]) for at in (0, -1))
    marks = (
        Mark(x=0, y=_BASE + 16, anchor="start", text=first),
        Mark(x=_WIDTH, y=_BASE + 16, anchor="end", text=last),
        Mark(x=0, y=11, anchor="start", text=f"most: {most}"),
    )
    return Plot(title=title, bars=bars, marks=marks)


def bars_plot(title: str, values: Sequence[tuple[str, int]], most_shown: int = 10) -> Plot:
    """Returns a plot with a horizontal bar for each of the first values, with its name."""
    shown = [value for value in values[:most_shown] if value[1] > 0]
    most = max((value for _, value in shown), default=0)
    bars, marks = [], []
    for nth, (name, value) in enumerate(shown):
        y = 4.0 + nth * 20
        text = shown_text(name)
        bars.append(Bar(x=260, y=y, width=round(value / most * 660, 2), height=14, title=f"{text}: {value}"))
        marks.append(Mark(x=252, y=y + 11, anchor="end", text=text[:40]))
        marks.append(Mark(x=round(266 + value / most * 660, 2), y=y + 11, anchor="start", text=str(value)))
    return Plot(title=title, bars=tuple(bars), marks=tuple(marks), height=8.0 + len(shown) * 20)


def shown_text(value: object) -> str:
    """Returns a peer's text without unprintable characters, which could mislead a reader.

    These include control and bidirectional characters.
    """
    if isinstance(value, list | tuple):
        text = ", ".join(shown_text(each) for each in value)
    elif value is None:
        text = "(none)"
    else:
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(value))
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"


def _cell(value: object) -> Cell:
    return Cell(shown_text(value), isinstance(value, int) and not isinstance(value, bool))


def _mark(row: Mapping[str, Any]) -> str:
    severity = row.get("severity")
    return severity if severity in _SEVERITIES else ""


def _own(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
