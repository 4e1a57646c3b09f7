"""Writes policy files in one layout: the same rules, comments and order, evenly indented.

Pure. A comment stays before the value that it preceded. A comment before a closing bracket moves after it. One or more
blank lines become one. The meaning of the text does not change.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from policy.attributes import Path
from policy.files.conf import document_of
from policy.files.json_sections import Beginnings, split
from policy.files.loader import PolicyFileError, parse_policy
from policy.files.positioned_json import MAX_DEPTH, Document, without_comments
from policy.files.sections import Section

INDENT = "  "
MAX_LINE = 120
_COMMENT_OR_BLANK = re.compile(r"^[ \t\r]*[#\n]", re.MULTILINE)
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


def formatted(text: str, file: str) -> str:
    """Returns the text of a policy file in the one layout.

    Raises PolicyFileError if it is not JSON or a key is repeated.
    """
    stripped = without_comments(text)
    elements = split(stripped)
    if elements is not None and not _is_too_deep(value := [element for element, _ in elements]):
        return laid_out(value, comments_of(text, Beginnings(stripped, elements).first_on))
    document = parse_policy(text, file)
    if document.problems:
        raise PolicyFileError(file, document.problems)
    return laid_out(document.value, comments_of(text, first_paths(document).get))


def _is_too_deep(elements: list[object]) -> bool:
    """Returns whether they may be nested too deeply. If so, the reader that knows places decides."""
    level: list[dict[str, object] | list[object]] = [elements]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


@dataclass(slots=True)
class Before:
    """The comments and the blank line before a value."""

    has_blank: bool = False
    comments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Comments:
    """The comments of a file that are on lines of their own.

    before  path of a value -> the lines before it
    behind  comments that no value follows
    """

    before: dict[Path, Before] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)


def comments_of(text: str, first_on: Callable[[int], Path | None]) -> Comments:
    """Returns the comments of a policy file or a configuration.

    first_on  line -> the path of the value that begins first on it, the outermost of several; None: there is none
    """
    found = Comments()
    if not _COMMENT_OR_BLANK.search(text):
        return found
    waiting = Before()
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            waiting.comments.append(stripped)
        elif not stripped:
            waiting.has_blank |= not waiting.comments
        elif (waiting.has_blank or waiting.comments) and (path := first_on(number)) is not None:
            found.before[path] = waiting
            waiting = Before()
    found.behind = waiting.comments
    return found


def comments_in(text: str, file: str, sections: Sequence[Section]) -> Comments:
    """Returns the comments of a loaded file, like comments_of: paths begin with the index of the section."""
    if not _COMMENT_OR_BLANK.search(text):
        return Comments()
    if file.endswith(".conf"):
        return comments_of(text, first_paths(document_of(sections)).get)
    stripped = without_comments(text)
    elements = split(stripped)
    # A loaded text can be read fast.
    assert elements is not None
    return comments_of(text, Beginnings(stripped, elements).first_on)


def first_paths(document: Document) -> dict[int, Path]:
    """Returns line -> the path of the value that begins first on it, the outermost of several at one place."""
    first: dict[int, tuple[int, int, Path]] = {}
    for path, (line_number, column) in document.positions.items():
        place = (column, len(path), path)
        if line_number not in first or place < first[line_number]:
            first[line_number] = place
    return {line_number: path for line_number, (_, _, path) in first.items()}


def laid_out(value: object, comments: Comments) -> str:
    """Returns the value as JSON in the one layout, with the comments."""
    return _Layout(comments).text(value)


def value_lines(value: object, depth: int, begin: str) -> list[str]:
    """Returns the lines of a value without comments, at `depth`. The first line begins with `begin`."""
    # Not at the top level, where a list always has a line for each element.
    return _Layout(Comments()).lines(value, ("",), depth, begin)


class _Layout:
    def __init__(self, comments: Comments) -> None:
        self.before = comments.before
        self.behind = comments.behind
        # The lists with a comment or a blank line before one of their elements; and those with a comment.
        self.preceded = {path[:-1] for path in self.before if path}
        self.led = {path[:-1] for path, before in self.before.items() if path and before.comments}

    def text(self, value: object) -> str:
        lines = [*self._lead((), 0), *self.lines(value, (), 0, ""), *self.behind]
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
        """Returns the lines of a value. The first line begins with `begin` at `depth`."""
        margin = INDENT * depth
        match value:
            case dict() if value:
                return [f"{margin}{begin}{{", *self._members(value, path, depth), f"{margin}}}"]
            case [str() as name, dict() as attributes] if attributes and len(path) == 1 and path not in self.led:
                # A pair: its two brackets open and close together.
                inner = self.lines(attributes, (*path, 1), depth, f"{begin}[{_ENCODE(name)}, ")
                return [*inner[:-1], f"{inner[-1]}]"]
            case list() if value and (not path or path in self.led or _is_deep(value)):
                return self._long_list(value, path, depth, begin)
            case list() if value:
                flat = f"{margin}{begin}{_ENCODE(value)}"
                return [flat] if len(flat) <= MAX_LINE else self._long_list(value, path, depth, begin)
            case _:
                return [f"{margin}{begin}{_ENCODE(value)}"]

    def _long_list(self, value: list[object], path: Path, depth: int, begin: str) -> list[str]:
        """Returns a list with one or more lines for each element."""
        margin, inner_margin = INDENT * depth, INDENT * (depth + 1)
        lines = [f"{margin}{begin}["]
        last = len(value) - 1
        is_preceded = path in self.preceded
        for index, item in enumerate(value):
            if isinstance(item, str) and not is_preceded:
                lines.append(f"{inner_margin}{_ENCODE(item)}")
            else:
                inner_path = (*path, index)
                lines += self._lead(inner_path, depth + 1, is_first=index == 0)
                lines += self.lines(item, inner_path, depth + 1, "")
            if index < last:
                lines[-1] += ","
        return [*lines, f"{margin}]"]

    def _members(self, value: dict[str, object], path: Path, depth: int) -> Iterator[str]:
        for index, (key, inner) in enumerate(value.items()):
            inner_path = (*path, key)
            yield from self._lead(inner_path, depth + 1, is_first=index == 0)
            *lines, last = self.lines(inner, inner_path, depth + 1, f"{_ENCODE(key)}: ")
            yield from lines
            yield last + ("," if index < len(value) - 1 else "")


def _is_deep(value: list[object]) -> bool:
    return any(isinstance(item, dict | list) and item for item in value)
