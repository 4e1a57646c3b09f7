"""Reads the sections of a valid JSON text fast. Places are computed only when requested.

Of a thousand vhosts most have no findings, and the others mostly have one, about one attribute.
Pure.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TypeGuard

from policy.attributes import Path, Place, SourceLocation
from policy.files.positioned_json import DECODER, MAX_MAPS, Lines, after_blanks, is_encodable
from policy.files.sections import Section

_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")

# For a text without repeated keys. Does not check each object.
_PLAIN = json.JSONDecoder()

_Members = dict[str | int, tuple[int, int]]  # key or index -> offset of the key, or else the value; of the value


def json_sections(text: str, file: str, *, is_eager: bool = False) -> tuple[Section, ...] | None:
    """Returns the sections of an array of `["type", {attributes}]`, without comments. None for any other or wrong text.

    is_eager  find the places of the members of maps now, in up to MAX_MAPS maps, and no others later
    """
    if (elements := split(text)) is None:
        return None
    sections = []
    places = Places(text)
    line, counted = 1, 0
    for element, offset in elements:
        if not is_pair(element):
            return None
        type_, attributes = element
        # Faster than a search for all lines.
        line, counted = line + text.count("\n", counted, offset), offset
        column = offset - text.rfind("\n", 0, offset)
        inside = dict(places.members(offset)) if is_eager else _Inside(places, offset)
        source = SourceLocation(file=file, line=line, column=column, places=inside)
        sections.append(Section(type=type_, attributes=attributes, source=source))
    return tuple(sections)


def is_pair(element: object) -> TypeGuard[tuple[str, dict[str, object]]]:
    """Returns whether it is a type and attributes."""
    match element:
        case [str(), dict()]:
            return True
        case _:
            return False


def split(text: str) -> list[tuple[object, int]] | None:
    """Returns the elements of a text that is one array, each with its offset.

    Many times faster than `positioned_json.parse`, with the same result. Returns None if the text is anything else, or
    in any way wrong.
    """
    # Only an escape can be half of a surrogate pair.
    has_escapes = "\\u" in text
    found: list[tuple[object, int]] = []
    try:
        at = after_blanks(text, 1 if text.startswith("\ufeff") else 0)
        if text[at : at + 1] != "[":
            return None
        at = after_blanks(text, at + 1)
        while text[at : at + 1] != "]":
            if found and text[at : at + 1] != ",":
                return None
            at = after_blanks(text, at + 1) if found else at
            value, end = DECODER.raw_decode(text, at)
            if has_escapes and not is_encodable(value):
                return None
            found.append((value, at))
            at = after_blanks(text, end)
        return found if after_blanks(text, at + 1) == len(text) else None
    except (ValueError, RecursionError):
        return None


def _behind(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


class Places:
    """Places in a text that `split` has read. Values are identified by their offsets in it."""

    __slots__ = ("_members", "_ordered", "_text", "lines")

    def __init__(self, text: str) -> None:
        self.lines = Lines(text)
        self._text = text
        self._members: dict[int, _Members] = {}
        self._ordered: dict[int, list[tuple[int, int, str | int]]] = {}

    def place(self, offset: int, path: Path) -> Place | None:
        """Returns the place of `path` in the value at `offset`, or of its key if it has one.

        None if there is no such value.
        """
        place = offset
        for step in path:
            found = self._members_of(offset).get(step)
            if found is None:
                return None
            place, offset = found
        return self.lines.place(place)

    def paths(self, offset: int) -> Iterator[Path]:
        """Yields the paths of the value at `offset` and of all values inside it."""
        yield ()
        for step, (_, inner) in self._members_of(offset).items():
            yield from ((step, *path) for path in self.paths(inner))

    def members(self, offset: int) -> Iterator[tuple[Path, Place]]:
        """Yields paths and places of the members of an element's attributes, and of the maps in them."""
        _, attributes = self._members_of(offset)[1]
        waiting: list[tuple[Path, int]] = [((), attributes)]
        for path, inner in waiting:
            for name, (place, value) in self._members_of(inner).items():
                below = (*path, name)
                yield below, self.lines.place(place)
                if self._text[value] == "{" and len(below) < MAX_MAPS:
                    waiting.append((below, value))

    def first_in(self, offset: int, begin: int, end: int) -> Path | None:
        """Returns the path of the first value that begins from `begin` up to `end`, in the value at `offset`."""
        members = self._ordered.get(offset)
        if members is None:
            members = self._ordered[offset] = [
                (place, inner, step) for step, (place, inner) in self._members_of(offset).items()
            ]
        index = bisect_left(members, begin, key=itemgetter(0))
        if index > 0:
            _, inner, step = members[index - 1]
            if (found := self.first_in(inner, begin, end)) is not None:
                return (step, *found)
        if index < len(members) and members[index][0] < end:
            return (members[index][2],)
        return None

    def _members_of(self, offset: int) -> _Members:
        """Returns the direct members of the value at `offset`."""
        known = self._members.get(offset)
        if known is None:
            known = self._members[offset] = dict(self._scanned(offset))
        return known

    def _scanned(self, offset: int) -> Iterator[tuple[str | int, tuple[int, int]]]:
        text = self._text
        bracket = text[offset]
        if bracket not in "{[":
            return
        decode = _PLAIN.raw_decode
        at, count = after_blanks(text, offset + 1), 0
        while text[at] not in "}]":
            step: str | int = count
            value = at
            if bracket == "{":
                step, end = decode(text, at)
                value = _behind(_COLON, text, end)
            yield step, (at, value)
            count += 1
            at = _behind(_COMMA, text, decode(text, value)[1])


class _Inside(Mapping[Path, Place]):
    """The places inside the attributes of the element at `offset`, an array of type and attributes."""

    __slots__ = ("_offset", "_places")

    def __init__(self, places: Places, offset: int) -> None:
        self._places = places
        self._offset = offset

    def __getitem__(self, path: Path) -> Place:
        place = self._places.place(self._offset, (1, *path)) if path else None
        if place is None:
            raise KeyError(path)
        return place

    def __iter__(self) -> Iterator[Path]:
        return (path[1:] for path in self._places.paths(self._offset) if path[:1] == (1,) and path[1:])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Beginnings:
    """Finds, when requested, the value that begins first on a line of a text that `split` has read."""

    def __init__(self, text: str, elements: Sequence[tuple[object, int]]) -> None:
        self._places = Places(text)
        self._root = after_blanks(text, 1 if text.startswith("\ufeff") else 0)
        self._offsets = [offset for _, offset in elements]

    def first_on(self, line: int) -> Path | None:
        """Returns the path of the first value on the line, the outermost of several at one place.

        None if there is none.
        """
        begin, end = self._places.lines.offset(line), self._places.lines.offset(line + 1)
        if self._root >= begin:
            return () if self._root < end else None
        index = bisect_left(self._offsets, begin)
        if index > 0 and (found := self._places.first_in(self._offsets[index - 1], begin, end)) is not None:
            return (index - 1, *found)
        return (index,) if index < len(self._offsets) and self._offsets[index] < end else None
