"""Policy files in one layout: the same rules, comments and order, evenly indented.

Pure. A comment stays before the value it stood before; one that stands before a closing bracket goes behind it. Where
there were blank lines, one stays. The meaning of the text is the same before and after.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from policy.attributes import Path
from policy.files.loader import PolicyFileError, parse_policy
from policy.files.positioned_json import Document

INDENT = "  "
MAX_LINE = 120


def formatted(text: str, file: str) -> str:
    """The text of a policy file in the one layout. Raises PolicyFileError when it is no JSON, or a key stands twice."""
    document = parse_policy(text, file)
    if document.problems:
        raise PolicyFileError(file, document.problems)
    return laid_out(document.value, comments_of(document, text))


@dataclass(slots=True)
class Before:
    """The comments and the blank line before a value."""

    has_blank: bool = False
    comments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Comments:
    """The comments of a file that stand on lines of their own.

    before  path of a value -> the lines before it
    behind  those with nothing behind them
    """

    before: dict[Path, Before] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)


def comments_of(document: Document, text: str) -> Comments:
    """text  of which `document` was read, a policy file or a configuration"""
    # The first thing that begins on a line; of several that begin at one place the outermost.
    first: dict[int, tuple[int, int, Path]] = {}
    for path, (line_number, column) in document.positions.items():
        place = (column, len(path), path)
        if line_number not in first or place[:2] < first[line_number][:2]:
            first[line_number] = place
    found = Comments()
    waiting = Before()
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            waiting.comments.append(stripped)
        elif not stripped:
            waiting.has_blank |= not waiting.comments
        elif number in first:
            if waiting.has_blank or waiting.comments:
                found.before[first[number][2]] = waiting
            waiting = Before()
    found.behind = waiting.comments
    return found


def laid_out(value: object, comments: Comments) -> str:
    """The value as JSON in the one layout, with the comments."""
    return _Layout(value, comments).text()


def value_lines(value: object, depth: int, begin: str) -> list[str]:
    """The lines of a value without comments, at `depth`, the first beginning with `begin`."""
    # Not at the top, where a list always has a line for each element.
    return _Layout(value, Comments()).lines(value, ("",), depth, begin)


class _Layout:
    def __init__(self, value: object, comments: Comments) -> None:
        self.value = value
        self.before = comments.before
        self.behind = comments.behind

    def text(self) -> str:
        lines = [*self._lead((), 0), *self.lines(self.value, (), 0, ""), *self.behind]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _lead(self, path: Path, depth: int, *, is_first: bool = True) -> Iterator[str]:
        before = self.before.get(path)
        if before is None:
            return
        if before.has_blank and not is_first:
            yield ""
        for comment in before.comments:
            yield INDENT * depth + comment

    def lines(self, value: object, path: Path, depth: int, begin: str) -> list[str]:
        """The lines of a value, the first of them beginning with `begin` at `depth`."""
        margin = INDENT * depth
        flat = f"{margin}{begin}{json.dumps(value, ensure_ascii=False)}"
        match value:
            case dict() if value:
                return [f"{margin}{begin}{{", *self._members(value, path, depth), f"{margin}}}"]
            case [str() as name, dict() as attributes] if attributes and len(path) == 1 and not self._is_led(path):
                # A pair: its two brackets open and close together.
                head = f"{begin}[{json.dumps(name, ensure_ascii=False)}, "
                inner = self.lines(attributes, (*path, 1), depth, head)
                return [*inner[:-1], f"{inner[-1]}]"]
            case list() if value and (not path or self._is_led(path) or len(flat) > MAX_LINE or _is_deep(value)):
                lines = [f"{margin}{begin}["]
                for index, item in enumerate(value):
                    inner_path = (*path, index)
                    lines += self._lead(inner_path, depth + 1, is_first=index == 0)
                    lines += self.lines(item, inner_path, depth + 1, "")
                    lines[-1] += "," if index < len(value) - 1 else ""
                return [*lines, f"{margin}]"]
            case _:
                return [flat]

    def _members(self, value: dict[str, object], path: Path, depth: int) -> Iterator[str]:
        for index, (key, inner) in enumerate(value.items()):
            inner_path = (*path, key)
            yield from self._lead(inner_path, depth + 1, is_first=index == 0)
            *lines, last = self.lines(inner, inner_path, depth + 1, f"{json.dumps(key, ensure_ascii=False)}: ")
            yield from lines
            yield last + ("," if index < len(value) - 1 else "")

    def _is_led(self, path: Path) -> bool:
        """Does a comment stand before one of the elements of the list at `path`?"""
        return any(other[:-1] == path and other and before.comments for other, before in self.before.items())


def _is_deep(value: list[object]) -> bool:
    return any(isinstance(item, dict | list) and item for item in value)
