"""The limits for comparing address lists: steps of work and bytes of memory, counted as they are used.

To decide whether two lists of patterns mean the same may take exponential work: 104 patterns of the form `#/x/*/*` have
2^104 different sets of states. So the work is counted, and beyond the limit the answer is "cannot tell", never a guess.
No clock is used: the same lists always get the same answer.
Pure. Source: docs/qdpolicy.md, Bounds.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

# Stops a list written to be hard from blocking a pipeline: about 4 s. Work that only grows with the number of vhosts
# and items is allowed in addition (Effort.allow).
MAX_STEPS: Final = 18_000_000
# Of one lint rule; several rules compare lists.
RULE_STEPS: Final = MAX_STEPS // 6
# Of one walk through several automata: 48 MiB, apart from the automata themselves.
MAX_HELD_BYTES: Final = 48 << 20
# States and steps of one automaton, about 250 bytes each; also of all automata kept for later comparisons.
MAX_BUILT: Final = 220_000
MAX_KEPT: Final = 60_000
# Of the results of walks that are kept for later ones.
MAX_KEPT_BYTES: Final = 16 << 20

# The measured cost of making a state or a step.
_BUILD_STEPS: Final = 4
_MAX_NAMED: Final = 3
_MAX_CHARACTERS: Final = 60


class TooComplexError(Exception):
    """Lists cannot be compared within the limits.

    lists  the most expensive lists, in words
    """

    def __init__(self, lists: str = "these lists") -> None:
        super().__init__(f"cannot tell: too large to compare: {lists}")
        self.lists = lists

    def about(self, claim: str) -> str:
        """Returns the answer to whether `claim` holds."""
        return f"cannot tell whether {claim}: too large to compare: {self.lists}"


class Effort:
    """The remainder of a limited amount of work. Two runs must not share it."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps
        self._held_bytes = 0
        self._built = 0
        self._worst: tuple[int, Sequence[str]] = (0, ())  # steps, items
        self.known: dict[object, object] = {}  # automata by their inputs
        self._kept = self._kept_bytes = 0

    def allow(self, steps: int) -> None:
        """Adds the steps that an input of this size needs in any case."""
        self._left += steps

    @contextmanager
    def share(self, allowed: int = 0) -> Iterator["Effort"]:
        """Yields a quarter of the remainder, for one of many lists, so that a hard list leaves work for the others.

        allowed  additional steps that a list of this size needs in any case
        """
        share = Effort(allowed + self._left // 4)
        given = share._left
        try:
            yield share
        finally:
            self._left -= max(given - max(share._left, 0) - allowed, 0)

    def spend(self, steps: int) -> None:
        """Counts steps. Errors: TooComplexError."""
        self._left -= steps
        if self._left < 0:
            raise TooComplexError

    def hold(self, size_bytes: int) -> None:
        """Counts memory of the current walk. Errors: TooComplexError."""
        self._held_bytes += size_bytes
        if self._held_bytes > MAX_HELD_BYTES:
            raise TooComplexError

    def release(self) -> None:
        """Forgets the memory of a walk before another begins."""
        self._held_bytes = 0

    def build(self, size: int) -> None:
        """Counts states and steps of the automaton under construction. Errors: TooComplexError."""
        self._built += size
        self._left -= _BUILD_STEPS * size
        if self._built > MAX_BUILT or self._left < 0:
            raise TooComplexError

    def keep(self, name: object, automaton: object, size: int) -> None:
        if size > MAX_KEPT:
            return
        if self._kept + size > MAX_KEPT:
            self.known.clear()
            self._kept = self._kept_bytes = 0
        self.known[name] = automaton
        self._kept += size

    def may_keep_bytes(self, size_bytes: int) -> bool:
        """Reserves the bytes and returns True if there is room for them."""
        if self._kept_bytes + size_bytes > MAX_KEPT_BYTES:
            return False
        self._kept_bytes += size_bytes
        return True

    @contextmanager
    def naming(self, items: Sequence[str]) -> Iterator[None]:
        """Makes errors of the body name the most expensive items so far."""
        before, self._built = self._left, 0
        try:
            yield
        except TooComplexError:
            self._note(before, items)
            raise TooComplexError(_named(self._worst[1])) from None
        self._note(before, items)

    def _note(self, before: int, items: Sequence[str]) -> None:
        if items and before - self._left >= self._worst[0]:
            self._worst = (before - self._left, items)


def _named(items: Sequence[str]) -> str:
    shown = [f"'{item[:_MAX_CHARACTERS]}{'…' if len(item) > _MAX_CHARACTERS else ''}'" for item in items[:_MAX_NAMED]]
    more = f" and {len(items) - _MAX_NAMED} more" if len(items) > _MAX_NAMED else ""
    return f"{', '.join(shown) or 'these lists'}{more}"
