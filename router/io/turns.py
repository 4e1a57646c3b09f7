"""Gives every connection a turn: long work is done in slices of 150 microseconds, and messages are routed in between.

A connection whose turn was too short for its data is not read until that data is handled. It continues in a later pass
of the loop, and the loop serves every other socket before each pass. The router's own long work has slices of the same
length: a coroutine asks `turn` or `take`, and callbacks use `Slices`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

# How long one connection's work may delay all others. In a pass, the limit for the work of all waiting members
# together. Attack: a read with expensive data (thousands of TLS records of one byte) keeps messages waiting.
TURN_S: Final = 0.00015

# The maximum number of passes before their output is written. A message for 50 receivers takes a turn. If the output
# were written after each turn, every copy would need its own system call.
PASSES_PER_WRITE: Final = 8


def turn(clock: Callable[[], float] = time.perf_counter, seconds: float = TURN_S) -> Callable[[], bool]:
    """Begins a turn. Returns a function that tells whether the turn has time left."""
    end = clock() + seconds
    return lambda: clock() < end


def take(steps: Iterator[object], has_time: Callable[[], bool]) -> bool:
    """Does steps while there is time, at least one. Returns False if there are no more."""
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
        """Begins the first slice.

        after     called after each slice
        seconds   of a slice; 0: each step is a slice
        on_fault  gets the exception of a step; None: the loop's handler gets it
        """
        self._steps = steps
        self._after = after
        self._seconds = seconds
        self._on_fault = on_fault
        self._next: asyncio.Handle | None = None
        self.is_over = False
        self._go_on()

    def _go_on(self) -> None:
        self._next = None  # it refers back to this object: both would stay until the garbage collector looks for cycles
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
        """Cancels all further slices."""
        self.is_over = True
        if self._next is not None:
            self._next.cancel()


class Unfinished(Protocol):
    """A member with more to do than fitted into its turn."""

    def go_on(self) -> bool:
        """Does one more turn. Returns True if there is still more to do."""
        ...


class _Remainder:
    """Steps that nothing waits for."""

    __slots__ = ("_begin_turn", "_steps")

    def __init__(self, steps: Iterator[object], begin_turn: Callable[[], Callable[[], bool]]) -> None:
        self._steps = steps
        self._begin_turn = begin_turn

    def go_on(self) -> bool:
        return take(self._steps, self._begin_turn())


class Turns:
    """The members that need further turns, in the order of these turns."""

    def __init__(self, clock: Callable[[], float], after: Callable[[], None]) -> None:
        """Starts without members.

        clock  monotonic seconds
        after  writes the output of turns; called if no member is left, and after PASSES_PER_WRITE passes
        """
        self._clock = clock
        self._after = after
        self._has_time: Callable[[], bool] | None = None  # of the current pass
        self._of_reads: Callable[[], bool] | None = None  # of the reads between two passes
        self._behind: dict[Unfinished, None] = {}
        self._pass: asyncio.Handle | None = None
        self._unwritten = 0  # the passes since `after` was called

    def begin(self) -> Callable[[], bool]:
        """Begins a turn. Returns a function that tells whether the turn has time left.

        All members of a pass share one turn. While members wait, all reads before the next pass also share one turn.
        Attack: many peers send at once, so that each read would have its own turn.
        """
        if self._has_time is not None:
            return self._has_time
        if self._pass is None:
            return turn(self._clock)
        if self._of_reads is None:
            self._of_reads = turn(self._clock)
        return self._of_reads

    def add(self, member: Unfinished) -> None:
        """Gives a member further turns until it is done. It becomes the last one, unless it already waits."""
        self._behind.setdefault(member)
        if self._pass is None:
            self._pass = asyncio.get_running_loop().call_soon(self._go_on)

    def later(self, steps: Iterator[object]) -> None:
        """Does steps in turns as a separate member, from the next pass on. A step that raises ends them."""
        self.add(_Remainder(steps, self.begin))

    def discard(self, member: Unfinished) -> None:
        self._behind.pop(member, None)

    def _go_on(self) -> None:
        """Does one turn for all members together, round robin: each member gets the time that is left."""
        self._pass = self._of_reads = None
        self._has_time = has_time = turn(self._clock)
        try:
            for member in list(self._behind):
                if member not in self._behind:
                    continue  # its socket was closed in this pass
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
            # Also if a member's turn raises: the others are not read until they have had their turn.
            if self._behind and self._pass is None:
                self._pass = asyncio.get_running_loop().call_soon(self._go_on)

    def stop(self) -> None:
        """Cancels all further turns."""
        self._behind.clear()
        if self._pass is not None:
            self._pass.cancel()
