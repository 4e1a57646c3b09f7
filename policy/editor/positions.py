"""Converts between offsets in a text and the positions that an editor uses.

Pure. A position is a line and a number of code units in it, both 0-based. The units of a character depend on the
encoding that editor and server agreed on. Source: Language Server Protocol 3.17, Position.
"""

from bisect import bisect_right
from typing import Final

Position = tuple[int, int]
Span = tuple[Position, Position]

_BYTES_OF_UNIT: Final = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
_CODECS: Final = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


def with_plain_line_ends(text: str) -> str:
    """Returns the text with `\\n` for each of the three line ends that editors know. Its lines stay the same."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Positions:
    """The positions in one text, whose lines end with `\\n`."""

    def __init__(self, text: str, encoding: str) -> None:
        """Finds the lines.

        encoding  utf-8, utf-16 or utf-32
        """
        self.text = text
        self._encoding = encoding
        self._is_plain = text.isascii() or encoding == "utf-32"
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)
        # Findings come in order, and a policy of thousands of vhosts may be one line: each search continues from the
        # last.
        self._known = (0, 0)  # an offset; the units from the beginning of its line

    def of(self, offset: int) -> Position:
        """Returns the position of an offset; for one outside the text, the nearest position inside."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._starts, offset) - 1
        start = self._starts[line]
        if self._is_plain:
            return line, offset - start
        known, units = self._known
        if not start <= known <= offset:
            known, units = start, 0
        units += self._units(self.text[known:offset])
        self._known = (offset, units)
        return line, units

    def offset(self, position: Position) -> int:
        """Returns the offset of a position; for one after the end of its line, the end of the line."""
        line, units = position
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[max(line, 0)]
        end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self.text)
        if line < 0 or units <= 0:
            return start
        if self._is_plain:
            return min(start + units, end)
        written = self.text[start:end].encode(_CODECS[self._encoding], "surrogatepass")
        size = units * _BYTES_OF_UNIT[self._encoding]
        return start + len(written[:size].decode(_CODECS[self._encoding], "ignore"))

    def place(self, line: int, column: int) -> int:
        """Returns the offset of a line and column as lint writes them: 1-based, in characters."""
        if not 1 <= line <= len(self._starts):
            return len(self.text)
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return min(self._starts[line - 1] + max(column, 1) - 1, end)

    def _units(self, text: str) -> int:
        return len(text.encode(_CODECS[self._encoding], "surrogatepass")) // _BYTES_OF_UNIT[self._encoding]
