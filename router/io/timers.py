"""Deadlines of many connections on few timers: buckets of a quarter of a second.

Ten thousand idle connections need one loop timer for each bucket that is due, not ten thousand handles.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from router.core.work import Timed
from router.io.turns import Slices

BUCKET_S: Final = 0.25


class Timers:
    """Calls `on_timer` of each member when it is due, at most one bucket late and never early.

    A bucket is handled in slices: thousands of peers that connected at the same moment are due at the same moment.
    """

    def __init__(self, clock: Callable[[], float], after: Callable[[], None]) -> None:
        """Starts without members.

        after  called after each handled bucket, or slice of one
        """
        self._clock = clock
        self._after = after
        # Ordered sets: a discarded member is released at once. Otherwise it would stay until its old deadline, and
        # peers that connect and disconnect quickly could fill the memory.
        self._buckets: dict[int, dict[Timed, None]] = {}
        self._due: dict[Timed, int] = {}

    def set(self, member: Timed, deadline: float | None) -> None:
        """Sets or replaces a member's deadline. None removes it."""
        self.discard(member)
        if deadline is None:
            return
        bucket = int(deadline / BUCKET_S) + 1
        if bucket not in self._buckets:
            self._buckets[bucket] = {}
            loop = asyncio.get_running_loop()
            loop.call_at(loop.time() + max(bucket * BUCKET_S - self._clock(), 0), self._work_off, bucket)
        self._buckets[bucket][member] = None
        self._due[member] = bucket

    def discard(self, member: Timed) -> None:
        bucket = self._due.pop(member, None)
        if bucket in self._buckets:
            self._buckets[bucket].pop(member, None)

    def _work_off(self, bucket: int) -> None:
        Slices(self._call(bucket, self._buckets.pop(bucket, {})), self._after)

    def _call(self, bucket: int, members: Iterable[Timed]) -> Iterator[None]:
        for member in members:
            if self._due.get(member) == bucket:
                del self._due[member]
                self.set(member, member.on_timer(self._clock()))
                yield
