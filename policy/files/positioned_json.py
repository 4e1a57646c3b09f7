"""Reads JSON in which every value has its line and column, so that a message can point to the fault.

Stricter than the standard library's reader: a key may occur only once in an object (a second `remoteHosts` would
silently replace the first), and NaN and Infinity are not numbers. Lines whose first non-blank character is `#` are
comments.
Source: RFC 8259; docs/spec/policy-and-auth.md §2.1.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, NoReturn

from policy.attributes import Path, Place

# Stops a file of a million brackets from exhausting the stack; a policy needs six levels.
MAX_DEPTH = 64
# Of maps in maps, in a router's configuration: the deepest setting has three levels.
MAX_MAPS = 32

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_$][\w$.-]*")
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None}
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault in a file. line, column  1-based"""

    line: int
    column: int
    text: str


class NotJson(Exception):
    """The text is not JSON as described above."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.line}:{problem.column}: {problem.text}")
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A JSON text that was read.

    value      as the standard library would return it
    positions  path of a value -> (line, column) of its key if it has one, else of the value
    problems   faults that do not prevent reading: repeated keys
    """

    value: object
    positions: Mapping[Path, Place]
    problems: tuple[Problem, ...]

    def position_of(self, path: Path) -> Place:
        """Returns (line, column) of the value at `path`, or of the nearest enclosing value that exists."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, (1, 1))


class Lines:
    """The lines of a text, to convert an offset to a place. They are searched for at the first request."""

    __slots__ = ("_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []

    def place(self, offset: int) -> Place:
        starts = self._found()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def offset(self, line: int) -> int:
        """Returns the beginning of a line; the end of the text plus one for the line after the last."""
        return self._found()[line - 1]

    def _found(self) -> list[int]:
        if not self._starts:
            self._starts = list(accumulate([len(line) + 1 for line in self._text.split("\n")], initial=0))
        return self._starts


def parse(text: str) -> Document:
    """Reads one JSON text. Raises NotJson at the first place that cannot be read."""
    return _Parser(without_comments(text)).document()


def without_comments(text: str) -> str:
    """Returns the text with an empty line for each comment line."""
    return _COMMENT_LINE.sub("", text)


class Repeat(NamedTuple):
    """A key that occurs in one object a second time, at `place`."""

    key: str
    place: Place
    first_line: int

    @property
    def problem(self) -> Problem:
        text = f"key '{self.key}' stands here a second time, the first is in line {self.first_line}: keep one of them"
        return Problem(line=self.place[0], column=self.place[1], text=text)


def first_repeat(text: str, at: int) -> Repeat:
    """Returns the first repeated key in the value at `at`, which must have one. Raises NotJson."""
    parser = _Parser(text, at)
    parser.value()
    return parser.repeats[0]


class RepeatedKeyError(ValueError):
    """A key occurs twice in one object: one value would silently replace the other."""


def _object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RepeatedKeyError
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Reads fast, without places. Raises ValueError or its subclasses JSONDecodeError and RepeatedKeyError.
DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object_of)


def loads(text: str) -> object:
    """Reads JSON as `json.loads` does, but refuses a key that occurs twice in one object: RepeatedKeyError."""
    return json.loads(text, object_pairs_hook=_object_of)


def is_encodable(value: object) -> bool:
    """Returns False if a text in a JSON value contains half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


def after_blanks(text: str, at: int) -> int:
    """Returns the offset of the next character, at or after `at`, that is not blank."""
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


class _Parser:
    def __init__(self, text: str, at: int = 0) -> None:
        self.text, self.at = text, at
        self.lines = Lines(text)
        self.positions: dict[Path, Place] = {}
        self.repeats: list[Repeat] = []

    def document(self) -> Document:
        if self.text.startswith("\ufeff"):
            self.at = 1
        value = self.value()
        if self._peek():
            raise self._error(f"the text goes on after its end with {self._shown()}: remove that")
        problems = tuple(repeat.problem for repeat in self.repeats)
        return Document(value=value, positions=self.positions, problems=problems)

    def value(self) -> object:
        """Returns the value at `at`."""
        return self._value(())

    def _value(self, path: Path) -> object:
        start = self._peek()
        self.positions.setdefault(path, self.lines.place(self.at))
        if len(path) > MAX_DEPTH:
            raise self._error(f"nested more than {MAX_DEPTH} levels deep")
        if start == "{":
            return self._object(path)
        if start == "[":
            return self._array(path)
        if start == '"':
            return self._string()
        if match := _NUMBER.match(self.text, self.at):
            return self._number(match)
        match = _WORD.match(self.text, self.at)
        if match is not None and match.group() in _WORDS:
            self.at = match.end()
            return _WORDS[match.group()]
        if match is not None:
            raise self._error(f'{self._shown()} is no value: texts are written in double quotes, "{match.group()}"')
        raise self._error(f"a value is missing before {self._shown()}")

    def _object(self, path: Path) -> dict[str, object]:
        result: dict[str, object] = {}
        self.at += 1
        if self._peek() == "}":
            self.at += 1
            return result
        while True:
            if self._peek() != '"':
                raise self._error(f"expected a key in double quotes, found {self._shown()}")
            position = self.lines.place(self.at)
            key = self._string()
            inner = (*path, key)
            if key in result:
                self.repeats.append(Repeat(key, position, self.positions[inner][0]))
            self.positions[inner] = position
            if self._peek() != ":":
                raise self._error(f"expected ':' after the key '{key}', found {self._shown()}")
            self.at += 1
            result[key] = self._value(inner)
            if self._is_at_end("}", "object"):
                return result

    def _array(self, path: Path) -> list[object]:
        result: list[object] = []
        self.at += 1
        if self._peek() == "]":
            self.at += 1
            return result
        while True:
            result.append(self._value((*path, len(result))))
            if self._is_at_end("]", "array"):
                return result

    def _is_at_end(self, bracket: str, kind: str) -> bool:
        found = self._peek()
        if found not in (",", bracket) or not found:
            raise self._error(f"expected ',' or the '{bracket}' that ends the {kind}, found {self._shown()}")
        self.at += 1
        if found == "," and self._peek() == bracket:
            raise self._error(f"there is a ',' too many before this '{bracket}'")
        return found == bracket

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self._error("the text that begins here does not end on this line, or has a wrong \\ sequence in it")
        text = str(json.loads(match.group()))
        if not is_encodable(text):
            # Neither a file nor a log can hold it, and the router refuses it too.
            raise self._error("this text holds half of a surrogate pair")
        self.at = match.end()
        return text

    def _number(self, match: re.Match[str]) -> int | float:
        try:
            number: int | float = json.loads(match.group())
        except ValueError:
            raise self._error("this number has too many digits") from None
        self.at = match.end()
        return number

    def _peek(self) -> str:
        """Returns the next non-blank character, "" at the end; `at` then points to it."""
        self.at = after_blanks(self.text, self.at)
        return self.text[self.at : self.at + 1]

    def _shown(self) -> str:
        character = self.text[self.at : self.at + 1]
        match = _WORD.match(self.text, self.at)
        if match is not None:
            return f"'{match.group()}'"
        return f"'{character}'" if character else "the end of the file"

    def _error(self, text: str) -> NotJson:
        line, column = self.lines.place(self.at)
        return NotJson(Problem(line=line, column=column, text=text))
