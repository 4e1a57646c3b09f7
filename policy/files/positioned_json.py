"""JSON in which every value knows its line and column, so that a message can point at what is wrong.

Stricter than the standard library's reader: a key may stand only once in an object (a second `remoteHosts` would
quietly replace the first), and NaN and Infinity are no numbers. Lines whose first non-blank character is `#` are
comments.
Source: RFC 8259; docs/spec/policy-and-auth.md §2.1.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.attributes import Path

# Stops a file of a million brackets from exhausting the stack; a policy needs six levels.
MAX_DEPTH = 64

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_$][\w$.-]*")
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None}
COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in a file is wrong. line, column  1-based"""

    line: int
    column: int
    text: str


class NotJson(Exception):
    """The text is no JSON as described above."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.line}:{problem.column}: {problem.text}")
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """value      as the standard library would give it
    positions  path of a value -> (line, column) of its key where it has one, else of the value
    problems   what is wrong without making the text unreadable: keys that stand twice
    """

    value: object
    positions: Mapping[Path, tuple[int, int]]
    problems: tuple[Problem, ...]

    def position_of(self, path: Path) -> tuple[int, int]:
        """(line, column) of the value at `path`, or of the nearest thing around it that is there."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, (1, 1))


def parse(text: str) -> Document:
    """Read one JSON text. Raises NotJson at the first place that cannot be read."""
    return _Parser(COMMENT_LINE.sub("", text)).document()


def first_repeat(text: str, at: int) -> Problem:
    """The first key that stands twice in one object of the value at `at`, in which there is one. Raises NotJson."""
    parser = _Parser(text, at)
    parser.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
    parser.value()
    return parser.problems[0]


class _Doubtful(Exception):
    """Not plainly one of the texts `split` reads; the slow reader says what is wrong."""


def split(text: str) -> list[tuple[object, int, int]] | None:
    """The elements of a text that is one array, each with the offset and the line (1-based) it begins at.

    Many times faster than `parse`, which it agrees with. None when the text is anything else, or in any way wrong.
    """
    plain = COMMENT_LINE.sub("", text)
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
    # Only an escape can be half of a surrogate pair.
    has_escapes = "\\u" in plain
    found: list[tuple[object, int, int]] = []
    line, counted = 1, 0
    try:
        at = after_blanks(plain, 1 if plain.startswith("\ufeff") else 0)
        if plain[at : at + 1] != "[":
            return None
        at = after_blanks(plain, at + 1)
        while plain[at : at + 1] != "]":
            if found and plain[at : at + 1] != ",":
                return None
            at = after_blanks(plain, at + 1) if found else at
            line, counted = line + plain.count("\n", counted, at), at
            value, end = decoder.raw_decode(plain, at)
            if has_escapes and not is_encodable(value):
                return None
            found.append((value, at, line))
            at = after_blanks(plain, end)
        return found if after_blanks(plain, at + 1) == len(plain) else None
    except (ValueError, RecursionError, _Doubtful):
        return None


def is_encodable(value: object) -> bool:
    """False where a text in a value, as JSON gives it, holds half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


def after_blanks(text: str, at: int) -> int:
    """The offset of the next character at or behind `at` that is not blank."""
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Doubtful
    return found


def _no_constant(_: str) -> object:
    raise _Doubtful


@dataclass(slots=True)
class _Parser:
    text: str
    at: int = 0
    line_starts: list[int] = field(default_factory=list)
    positions: dict[Path, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def document(self) -> Document:
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        if self.text.startswith("\ufeff"):
            self.at = 1
        value = self._value(())
        if self._peek():
            raise self._error(f"the text goes on after its end with {self._shown()}: remove that")
        return Document(value=value, positions=self.positions, problems=tuple(self.problems))

    def value(self) -> object:
        """The value at `at`."""
        return self._value(())

    def _value(self, path: Path) -> object:
        start = self._peek()
        self.positions.setdefault(path, self._position(self.at))
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
            position = self._position(self.at)
            key = self._string()
            inner = (*path, key)
            if key in result:
                first = self.positions[inner][0]
                text = f"key '{key}' stands here a second time, the first is in line {first}: keep one of them"
                self.problems.append(Problem(line=position[0], column=position[1], text=text))
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
            # What neither a file nor a log can hold; the router refuses it as well.
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
        """The next character that is not blank, "" at the end; `at` then points to it."""
        match = _BLANKS.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _shown(self) -> str:
        character = self.text[self.at : self.at + 1]
        match = _WORD.match(self.text, self.at)
        if match is not None:
            return f"'{match.group()}'"
        return f"'{character}'" if character else "the end of the file"

    def _position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.line_starts, at)
        return line, at - self.line_starts[line - 1] + 1

    def _error(self, text: str) -> NotJson:
        line, column = self._position(self.at)
        return NotJson(Problem(line=line, column=column, text=text))
