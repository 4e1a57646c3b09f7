"""Where things stand in a JSON text that is known to be good, found out for as much of it as somebody asks about.

Of a thousand vhosts most are never blamed for anything, and of the others mostly one attribute is.
Pure.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator

from policy.attributes import Path
from policy.files.positioned_json import COMMENT_LINE, after_blanks

_Members = dict[str | int, tuple[int, int]]  # key or index -> offset of the key, or else the value; of the value


class Places:
    """Places in a text that `positioned_json.split` has taken apart; values are named by their offsets in it."""

    __slots__ = ("_decoder", "_line_starts", "_members", "_plain", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain: str | None = None
        self._line_starts: list[int] = []
        self._members: dict[int, _Members] = {}
        self._decoder = json.JSONDecoder()

    def place(self, offset: int, path: Path) -> tuple[int, int] | None:
        """(line, column) of what is at `path` of the value at `offset`, its key where it has one; None: not there."""
        place = offset
        for step in path:
            found = self._members_of(offset).get(step)
            if found is None:
                return None
            place, offset = found
        line = bisect_right(self._starts(), place)
        return line, place - self._line_starts[line - 1] + 1

    def paths(self, offset: int) -> Iterator[Path]:
        """The paths of the value at `offset` and of all inside it."""
        yield ()
        for step, (_, inner) in self._members_of(offset).items():
            yield from ((step, *path) for path in self.paths(inner))

    def _starts(self) -> list[int]:
        if not self._line_starts:
            self._line_starts = [0, *(match.end() for match in re.finditer("\n", self._plain_text()))]
        return self._line_starts

    def _plain_text(self) -> str:
        if self._plain is None:
            self._plain = COMMENT_LINE.sub("", self._text)
        return self._plain

    def _members_of(self, offset: int) -> _Members:
        """What is directly inside the value at `offset`."""
        known = self._members.get(offset)
        if known is None:
            known = self._members[offset] = dict(self._scanned(offset))
        return known

    def _scanned(self, offset: int) -> Iterator[tuple[str | int, tuple[int, int]]]:
        plain = self._plain_text()
        bracket = plain[offset]
        if bracket not in "{[":
            return
        decode = self._decoder.raw_decode
        at, count = after_blanks(plain, offset + 1), 0
        while plain[at] not in "}]":
            step: str | int = count
            value = at
            if bracket == "{":
                step, end = decode(plain, at)
                value = after_blanks(plain, after_blanks(plain, end) + 1)
            yield step, (at, value)
            count += 1
            at = after_blanks(plain, decode(plain, value)[1])
            if plain[at] == ",":
                at = after_blanks(plain, at + 1)
