"""Reports the first of equal events, and later only their number. Pure: the owner of the clock asks for the numbers."""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Repeats(Generic[Key]):
    """The occurrences of events by key, since the latest report of the key.

    room  the number of keys that are counted separately
    """

    __slots__ = ("_counts", "_room")

    def __init__(self, room: int) -> None:
        self._room = room
        self._counts: dict[Key, int] = {}  # a key in here has been reported

    def count(self, key: Key, crowd: Key) -> bool:
        """Counts an event. Returns True if it must be reported now. Otherwise it becomes part of a number.

        crowd  the key to use if there is no room for the event's own key. There must be only a few of these
        """
        counts = self._counts
        if key in counts:
            counts[key] += 1
            return False
        if len(counts) < self._room:
            counts[key] = 0
            return True
        counts[crowd] = counts.get(crowd, 0) + 1
        return False

    def take(self, may_report: Callable[[Key], bool] = lambda _key: True) -> Iterator[tuple[Key, int]]:
        """Iterates over the keys with their occurrences (at least one) since the latest report. Call regularly.

        A key without occurrences is removed, and reported at once when it occurs again. Each number is current when it
        is returned. Keys may be added and removed meanwhile.

        may_report  asked about each key that has occurred. If it returns False, the key waits for a later call
        """
        for key in list(self._counts):
            if key not in self._counts:
                continue
            count = self._counts[key]
            if count and not may_report(key):
                continue
            del self._counts[key]
            if count:
                self._counts[key] = 0
                yield key, count

    def __iter__(self) -> Iterator[Key]:
        """Iterates over the keys that were reported or counted recently."""
        return iter(self._counts)

    def __contains__(self, key: Key) -> bool:
        return key in self._counts

    def add(self, key: Key, crowd: Key, number: int) -> Key:
        """Counts events of which none is reported now. Returns the key that they are counted under."""
        key = key if key in self._counts or len(self._counts) < self._room else crowd
        self._counts[key] = self._counts.get(key, 0) + number
        return key

    def forget(self, key: Key) -> int:
        """Removes the key. Returns its occurrences since the latest report."""
        return self._counts.pop(key, 0)
