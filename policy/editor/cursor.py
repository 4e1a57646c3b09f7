"""Finds the context of a place in a policy or a configuration: the section, the enclosing names, the word.

Pure. The text may be incomplete or arbitrary: nothing is refused, and text that makes no sense is skipped. Only the
text before the place counts, from the beginning of its section.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from policy.files.conf_text import camel_case
from policy.files.positioned_json import MAX_DEPTH

_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[\[\]{}:,]|\n|[^\s\[\]{}:,"]+')
_JSON_ELEMENT: Final = re.compile(r'\[\s*"[A-Za-z.]*"\s*,\s*\{')
_CONF_SECTION: Final = re.compile(r"^[ \t]*[A-Za-z0-9_-]+[ \t]*\{", re.MULTILINE)
_MARKS: Final = ("{", "}", "[", "]", ":", ",", "\n")
_MAP: Final = re.compile(r"[ \t]*(?:\{(?!user\})|\[)")
_REST_OF_LINE: Final = re.compile(r"[^\n]*")
# Stops a section of millions of brackets and names from delaying the display while a user types: about a second.
_MAX_TOKENS: Final = 200_000
_MAX_TOKENS_BEHIND: Final = 5_000


class Role(Enum):
    """The kind of text at a place: the type of a section, a name, or the value of one."""

    TYPE = "type"
    NAME = "name"
    VALUE = "value"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The context of a place.

    section     its type, "" outside of one
    path        the names around the place inside the section, including the attribute's own if it is a value; without
                list indexes
    start, end  of the word, without its quotes; both equal the place if there is no word
    is_quoted   whether the word begins with a quote; `is_closed` whether it also ends with one
    siblings    the names in the same map
    """

    role: Role
    section: str = ""
    path: tuple[str, ...] = ()
    word: str = ""
    start: int
    end: int
    is_quoted: bool = False
    is_closed: bool = False
    siblings: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Frame:
    """An open bracket. name: the key whose value comes next"""

    bracket: str
    name: str | None = None
    count: int = 0
    names: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    start: int
    end: int
    text: str
    is_quoted: bool = False
    is_closed: bool = False

    @property
    def is_mark(self) -> bool:
        return not self.is_quoted and self.text in _MARKS


def cursor_at(text: str, offset: int, *, is_conf: bool) -> Cursor:
    """Returns the context at an offset of a text whose lines end with `\\n`."""
    start = _beginning(text, offset, _CONF_SECTION if is_conf else _JSON_ELEMENT)
    scan = _Scan(text, offset, is_conf=is_conf, is_inside=start > 0)
    return scan.cursor(start)


def _beginning(text: str, offset: int, pattern: re.Pattern[str]) -> int:
    """Returns the beginning of the section around the offset, 0 if none is found."""
    start = 0
    for match in pattern.finditer(text, 0, offset):
        start = match.start()
    return start


def item_at(cursor: Cursor, offset: int) -> tuple[str, int, int]:
    """Returns the item of a comma-separated list at the offset, with its beginning and end."""
    inside = min(max(offset - cursor.start, 0), len(cursor.word))
    before, after = cursor.word[:inside], cursor.word[inside:]
    begin = before.rfind(",") + 1
    comma = after.find(",")
    end = len(cursor.word) if comma < 0 else inside + comma
    item = cursor.word[begin:end]
    begin += len(item) - len(item.lstrip())
    return item.strip(), cursor.start + begin, cursor.start + begin + len(item.strip())


class _Scan:
    """Scans the text once. `found` is the context at the offset, as soon as it is known."""

    def __init__(self, text: str, offset: int, *, is_conf: bool, is_inside: bool) -> None:
        self.text, self.offset, self.is_conf = text, offset, is_conf
        # A JSON text that is read from an element on is inside the outermost array.
        self.frames: list[_Frame] = [_Frame("[")] if is_inside and not is_conf else []
        self.section = ""
        self.last: _Word | None = None
        self.found: Cursor | None = None
        self.depth = 0
        self.home: _Frame | None = None

    def cursor(self, start: int) -> Cursor:
        behind = 0
        for count, word in enumerate(self._words(start)):
            if len(self.frames) > MAX_DEPTH or count > _MAX_TOKENS:
                return Cursor(role=Role.NOTHING, start=self.offset, end=self.offset)
            if self.found is None and word.start - word.is_quoted > self.offset:
                self._find(None)
            elif self.found is None and word.end + word.is_closed >= self.offset and not word.is_mark:
                self._find(word)
            if self.found is not None:
                behind += 1
                if behind > _MAX_TOKENS_BEHIND or len(self.frames) < self.depth:
                    break
            self._take(word)
        if self.found is None:
            self._find(None)
        assert self.found is not None
        names = self.home.names if self.home is not None else set()
        return replace(self.found, siblings=frozenset(names - {self.found.word}))

    def _words(self, at: int) -> Iterator[_Word]:
        text = self.text
        while (match := _TOKEN.search(text, at)) is not None:
            at = match.end()
            piece = match[0]
            if piece.startswith("#") and (self.is_conf or _begins_line(text, match.start())):
                at = _end_of_line(text, match.start())
                if match.start() < self.offset <= at and self.found is None:
                    self.found = Cursor(role=Role.NOTHING, start=self.offset, end=self.offset)
                continue
            is_bare = piece == ":" and self._has_bare_value(at)
            if piece[0] == '"':
                is_closed = len(piece) > 1 and piece.endswith('"') and not _ends_with_escape(piece)
                end = at - is_closed
                inside = text[match.start() + 1 : end]
                yield _Word(start=match.start() + 1, end=end, text=inside, is_quoted=True, is_closed=is_closed)
            else:
                yield _Word(start=match.start(), end=at, text=piece)
            if is_bare:
                value = _bare_value(text, at)
                at = _end_of_line(text, at)
                if value is None and match.end() <= self.offset <= at:
                    self._find(None)
                elif value is not None:
                    if self.found is None and match.end() <= self.offset < value.start:
                        self._find(None)
                    yield value

    def _has_bare_value(self, at: int) -> bool:
        """Returns whether the rest of the line is a value in `.conf` syntax."""
        is_name = self.last is not None and not (self.last.is_quoted and len(self.frames) > 1)
        return self.is_conf and is_name and bool(self.frames) and _MAP.match(self.text, at) is None

    def _take(self, word: _Word) -> None:
        frame = self.frames[-1] if self.frames else None
        if not word.is_mark:
            self._take_word(word, frame)
        elif word.text in "{[":
            if self.is_conf and frame is None and self.last is not None:
                self.section = camel_case(self.last.text)
            self.frames.append(_Frame(word.text))
            self.last = None
        elif word.text in "}]":
            if frame is not None:
                self.frames.pop()
            if self.frames:
                self.frames[-1].name = None
            self.last = None
        elif word.text == ":":
            if frame is not None and frame.bracket == "{" and self.last is not None:
                frame.name = camel_case(self.last.text) if len(self.frames) == 1 else self.last.text
                frame.names.add(frame.name)
            self.last = None
        elif word.text == ",":
            if frame is not None:
                frame.count += 1
                frame.name = None
            self.last = None
        elif self.is_conf:  # the end of a line
            if frame is not None and frame.bracket == "{":
                frame.name = None
            self.last = None

    def _take_word(self, word: _Word, frame: _Frame | None) -> None:
        if not self.is_conf and len(self.frames) == 2 and frame is not None and frame.count == 0:
            self.section = word.text
        if frame is not None and frame.bracket == "{" and frame.name is not None:
            frame.name = None
            self.last = None
        else:
            self.last = word

    def _find(self, word: _Word | None) -> None:
        if self.found is not None:
            return
        frame = self.frames[-1] if self.frames else None
        path = tuple(each.name for each in self.frames if each.bracket == "{" and each.name is not None)
        if self.is_conf:
            is_type = frame is None
        else:
            is_type = len(self.frames) <= 1 or (len(self.frames) == 2 and frame is not None and frame.bracket == "[")
        is_name = frame is not None and frame.bracket == "{" and frame.name is None
        role = Role.TYPE if is_type else Role.NAME if is_name else Role.VALUE
        if not self.is_conf and len(self.frames) == 2 and frame is not None and frame.count > 0:
            role = Role.NOTHING
        self.depth, self.home = len(self.frames), frame
        self.found = Cursor(
            role=role,
            section="" if is_type else self.section,
            path=path,
            word="" if word is None else word.text,
            start=self.offset if word is None else word.start,
            end=self.offset if word is None else word.end,
            is_quoted=word is not None and word.is_quoted,
            is_closed=word is not None and word.is_closed,
        )


def _bare_value(text: str, at: int) -> _Word | None:
    """Returns the value from `at` to the end of the line, without its comment, comma and quotes.

    None if there is none.
    """
    rest = text[at : _end_of_line(text, at)]
    value = re.sub(r"(?:^|[ \t])#.*", "", rest).rstrip().removesuffix(",").rstrip()
    start = at + len(value) - len(value.lstrip())
    value = value.lstrip()
    if not value:
        return None
    if value[0] != '"':
        return _Word(start=start, end=start + len(value), text=value)
    is_closed = len(value) > 1 and value.endswith('"')
    inside = value[1 : len(value) - is_closed]
    return _Word(start=start + 1, end=start + 1 + len(inside), text=inside, is_quoted=True, is_closed=is_closed)


def _begins_line(text: str, at: int) -> bool:
    """Returns whether only blanks precede the place in its line."""
    while at > 0 and text[at - 1] in " \t":
        at -= 1
    return at == 0 or text[at - 1] == "\n"


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _ends_with_escape(token: str) -> bool:
    """Returns whether the last quote is escaped by a backslash."""
    inside = token[1:-1]
    return (len(inside) - len(inside.rstrip("\\"))) % 2 == 1
