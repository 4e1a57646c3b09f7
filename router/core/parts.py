"""The bytes of a message that streams, kept until all receivers have taken them. All receivers share one copy.

Source: docs/spec/routing.md §10.1.
"""

from collections import deque


class Place:
    """The position of one receiver in the parts.

    number    of the part from which it takes next; parts are numbered from 0
    offset    bytes of that part which it has taken
    position  bytes of all parts which it has taken
    """

    __slots__ = ("number", "offset", "position")

    def __init__(self, position: int) -> None:
        """Starts at a position in the first part.

        position  bytes
        """
        self.number = 0
        self.offset = self.position = position


class Parts:
    """The parts of one message.

    kept  bytes that are held
    end   bytes that have arrived since the beginning of the message
    """

    __slots__ = ("_first", "_parts", "end", "kept")

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._first = 0  # the number of the first part that is kept
        self.kept = self.end = 0

    def add(self, part: bytes) -> None:
        """Adds the next bytes, which have arrived."""
        self._parts.append(part)
        self.kept += len(part)
        self.end += len(part)

    def next(self, place: Place) -> bytes:
        """Returns the part at `place`, which is not completely taken. `place.position` must be less than `end`."""
        return self._parts[place.number - self._first]

    def take(self, place: Place, size: int) -> None:
        """Moves a receiver forward by `size` bytes of one part."""
        place.position += size
        place.offset += size
        if place.offset == len(self._parts[place.number - self._first]):
            place.number += 1
            place.offset = 0

    def forget(self, number: int) -> None:
        """Drops the parts before this number, because every receiver has taken them."""
        while self._first < number:
            self.kept -= len(self._parts.popleft())
            self._first += 1

    def clear(self) -> None:
        """Drops all parts, because no receiver takes more."""
        self._first += len(self._parts)
        self._parts.clear()
        self.kept = 0
