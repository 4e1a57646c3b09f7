"""Reports the first of equal events, then their number. Pure: the owner of the clock asks for the numbers."""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Repeats(Generic[Key]):
    """Occurrences by key, since the key was last reported.

    room  how many keys are kept apart
    """

    __slots__ = ("_counts", "_room")

    def __init__(self, room: int) -> None:
        self._room = room
        self._counts: dict[Key, int] = {}  # a key that is there has been reported

    def count(self, key: Key, crowd: Key) -> bool:
        """Count an event. True: report it now; else it is part of a number.

        crowd  the key it is counted under when there is no room for its own; of these there are few
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
        """Each key with its occurrences, at least one, since it was last reported. Begin at equal intervals.

        A key without any is reported at once when it occurs again. Each number is as it is when it is asked for; keys
        may come and go meanwhile.

        may_report  asked about each key that has occurred; no: it waits for a later time, and is among the first then
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
        """The keys that have been reported, or counted, lately."""
        return iter(self._counts)

    def __contains__(self, key: Key) -> bool:
        return key in self._counts

    def add(self, key: Key, crowd: Key, number: int) -> Key:
        """Count events, none of which is reported now. Returns the key that they are counted under."""
        key = key if key in self._counts or len(self._counts) < self._room else crowd
        self._counts[key] = self._counts.get(key, 0) + number
        return key

    def forget(self, key: Key) -> int:
        """The key occurs no more. Returns its occurrences since it was last reported."""
        return self._counts.pop(key, 0)
