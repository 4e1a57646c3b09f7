"""Everyone has a turn: what one connection's read leads to is done in slices, and others are served in between.

A connection whose turn was too short for what it has sent is not read until that is worked off. It goes on in a later
pass of the loop; the loop sees to every other socket before each.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

# How long one connection's work, and in a pass the work of all that are behind, may hold up everybody else. Stops a
# read that is costly to work off (thousands of TLS records of one byte) from keeping messages waiting.
TURN_S: Final = 0.001


class Unfinished(Protocol):
    """Who has more to do than fitted into the turn."""

    def go_on(self) -> bool:
        """One turn more. Returns whether there is still more to do."""
        ...


class Turns:
    """Those that are behind, in the order in which their next turn comes."""

    def __init__(self, clock: Callable[[], float], after: Callable[[], None]) -> None:
        """clock  monotonic seconds
        after   called after each turn: what it has left to be written is written
        """
        self._clock = clock
        self._after = after
        self._behind: dict[Unfinished, None] = {}
        self._pass: asyncio.Handle | None = None

    def begin(self) -> Callable[[], bool]:
        """A turn begins; the result says whether it has time left."""
        clock, end = self._clock, self._clock() + TURN_S
        return lambda: clock() < end

    def add(self, member: Unfinished) -> None:
        """Give it further turns until it is done; last of those that wait, unless it waits already."""
        self._behind.setdefault(member)
        if self._pass is None:
            self._pass = asyncio.get_running_loop().call_soon(self._go_on)

    def discard(self, member: Unfinished) -> None:
        self._behind.pop(member, None)

    def _go_on(self) -> None:
        """One turn each, round robin, for as long as a turn lasts."""
        self._pass = None
        has_time = self.begin()
        try:
            for member in list(self._behind):
                if member not in self._behind:
                    continue  # its socket was closed in this very pass
                del self._behind[member]
                if member.go_on():
                    self._behind[member] = None
                self._after()
                if not has_time():
                    break
        finally:
            # Whatever one member's turn raised: the others are not read until they have had theirs.
            if self._behind and self._pass is None:
                self._pass = asyncio.get_running_loop().call_soon(self._go_on)

    def stop(self) -> None:
        """No turn comes any more."""
        self._behind.clear()
        if self._pass is not None:
            self._pass.cancel()
