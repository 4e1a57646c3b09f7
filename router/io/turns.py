"""Everyone has a turn: long work is done in slices of 150 microseconds, and messages are routed in between.

A connection whose turn was too short for what it has sent is not read until that is worked off. It goes on in a later
pass of the loop; the loop sees to every other socket before each. The router's own long work has slices of the same
length: a coroutine asks `turn` or `take`, callbacks use `Slices`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

# How long one connection's work, and in a pass the work of all that are behind, may hold up everybody else. Stops a
# read that is costly to work off (thousands of TLS records of one byte) from keeping messages waiting.
TURN_S: Final = 0.00015

# Passes of those that are behind, at most, until what they leave to write is written. A message for 50 receivers takes
# a turn: written after each, every copy would be a system call of its own.
PASSES_PER_WRITE: Final = 8


def turn(clock: Callable[[], float] = time.perf_counter, seconds: float = TURN_S) -> Callable[[], bool]:
    """A turn begins; the result says whether it has time left."""
    end = clock() + seconds
    return lambda: clock() < end


def take(steps: Iterator[object], has_time: Callable[[], bool]) -> bool:
    """Do steps while there is time, one at least. False: there are no more."""
    return any(not has_time() for _ in steps)


class Slices:
    """Does `steps` in slices, one in each pass of the loop. The first begins at once.

    A step that raises ends them.
    """

    __slots__ = ("_after", "_next", "_on_fault", "_seconds", "_steps", "is_over")

    def __init__(
        self,
        steps: Iterator[object],
        after: Callable[[], None],
        *,
        seconds: float = TURN_S,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        """after     called after each slice
        seconds   of a slice; 0: each step is one
        on_fault  gets what a step raised; None: the loop's handler does
        """
        self._steps = steps
        self._after = after
        self._seconds = seconds
        self._on_fault = on_fault
        self._next: asyncio.Handle | None = None
        self.is_over = False
        self._go_on()

    def _go_on(self) -> None:
        self._next = None  # which refers back to this: both would stay until cycles are looked for
        try:
            self.is_over = not take(self._steps, turn(seconds=self._seconds)) or self.is_over
        except Exception as error:
            self.is_over = True
            if self._on_fault is None:
                raise
            self._on_fault(error)
        finally:
            self._after()
        if not self.is_over:
            self._next = asyncio.get_running_loop().call_soon(self._go_on)

    def cancel(self) -> None:
        """No slice comes any more."""
        self.is_over = True
        if self._next is not None:
            self._next.cancel()


class Unfinished(Protocol):
    """A member with more to do than fitted into its turn."""

    def go_on(self) -> bool:
        """One turn more. Returns whether there is still more to do."""
        ...


class _Remainder:
    """Steps that nobody waits for."""

    __slots__ = ("_begin_turn", "_steps")

    def __init__(self, steps: Iterator[object], begin_turn: Callable[[], Callable[[], bool]]) -> None:
        self._steps = steps
        self._begin_turn = begin_turn

    def go_on(self) -> bool:
        return take(self._steps, self._begin_turn())


class Turns:
    """Those that are behind, in the order in which their next turn comes."""

    def __init__(self, clock: Callable[[], float], after: Callable[[], None]) -> None:
        """clock  monotonic seconds
        after  writes what turns left to write; called when nobody is behind, and after PASSES_PER_WRITE passes
        """
        self._clock = clock
        self._after = after
        self._has_time: Callable[[], bool] | None = None  # of the pass under way
        self._of_reads: Callable[[], bool] | None = None  # of what is read in it
        self._behind: dict[Unfinished, None] = {}
        self._pass: asyncio.Handle | None = None
        self._unwritten = 0  # passes since `after` was called

    def begin(self) -> Callable[[], bool]:
        """A turn begins; the result says whether it has time left. In a pass, all have what is left of the one turn.

        So have, while somebody is behind, all that are read before the next pass. Attack: many peers send at once, and
        each read is worth a turn of its own.
        """
        if self._has_time is not None:
            return self._has_time
        if self._pass is None:
            return turn(self._clock)
        if self._of_reads is None:
            self._of_reads = turn(self._clock)
        return self._of_reads

    def add(self, member: Unfinished) -> None:
        """Give it further turns until it is done; last of those that wait, unless it waits already."""
        self._behind.setdefault(member)
        if self._pass is None:
            self._pass = asyncio.get_running_loop().call_soon(self._go_on)

    def later(self, steps: Iterator[object]) -> None:
        """Do steps in turns as a member of their own, from the next pass on. One that raises ends them."""
        self.add(_Remainder(steps, self.begin))

    def discard(self, member: Unfinished) -> None:
        self._behind.pop(member, None)

    def _go_on(self) -> None:
        """One turn for all together, round robin: whoever is next has what is left of it."""
        self._pass = self._of_reads = None
        self._has_time = has_time = turn(self._clock)
        try:
            for member in list(self._behind):
                if member not in self._behind:
                    continue  # its socket was closed in this very pass
                del self._behind[member]
                if member.go_on():
                    self._behind[member] = None
                if not has_time():
                    break
            self._unwritten += 1
            if not self._behind or self._unwritten == PASSES_PER_WRITE:
                self._unwritten = 0
                self._after()
        finally:
            self._has_time = None
            # Also when one member's turn raises: the others are not read until they have had theirs.
            if self._behind and self._pass is None:
                self._pass = asyncio.get_running_loop().call_soon(self._go_on)

    def stop(self) -> None:
        """No turn comes any more."""
        self._behind.clear()
        if self._pass is not None:
            self._pass.cancel()
