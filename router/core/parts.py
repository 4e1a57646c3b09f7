"""The bytes of a message that streams, as long as a receiver has still to take them: one copy for all receivers.

Source: docs/spec/routing.md §10.1.
"""

from collections import deque


class Place:
    """How much of the parts a receiver has taken.

    number    of the part from which it takes next; parts are numbered from 0
    offset    bytes of that part which it has taken
    position  bytes of all parts which it has taken
    """

    __slots__ = ("number", "offset", "position")

    def __init__(self, position: int) -> None:
        """position  in the first part"""
        self.number = 0
        self.offset = self.position = position


class Parts:
    """kept  bytes that are held
    end      bytes that have come since the beginning of the message
    """

    __slots__ = ("_first", "_parts", "end", "kept")

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._first = 0  # the number of the first one that is kept
        self.kept = self.end = 0

    def add(self, part: bytes) -> None:
        """The next bytes have come."""
        self._parts.append(part)
        self.kept += len(part)
        self.end += len(part)

    def next(self, place: Place) -> bytes:
        """The part at `place`, of which not all is taken. There is one: `place.position` is less than `end`."""
        return self._parts[place.number - self._first]

    def take(self, place: Place, size: int) -> None:
        """A receiver takes `size` bytes more, of one part."""
        place.position += size
        place.offset += size
        if place.offset == len(self._parts[place.number - self._first]):
            place.number += 1
            place.offset = 0

    def forget(self, number: int) -> None:
        """Every receiver has taken the parts before that of this number."""
        while self._first < number:
            self.kept -= len(self._parts.popleft())
            self._first += 1

    def clear(self) -> None:
        """Nobody takes more."""
        self._first += len(self._parts)
        self._parts.clear()
        self.kept = 0
