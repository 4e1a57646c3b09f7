"""What comparing address lists may take: steps of work and bytes of memory, counted as they are spent.

Whether two lists of patterns mean the same is a question whose answer may take exponential work: 104 patterns of the
form `#/x/*/*` keep 2^104 sets of states apart. So the work is counted where it is done, and where there is more than
there may be the answer is "cannot tell", never a guess. No clock is asked: the same lists always get the same answer.
Pure. Source: docs/qdpolicy.md, Bounds.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

# Stops a list written to be hard from occupying a pipeline: about 4 s. What grows with the number of vhosts and items
# only is allowed for besides (Effort.allow).
MAX_STEPS: Final = 18_000_000
# Of one rule of lint; several compare lists.
RULE_STEPS: Final = MAX_STEPS // 6
# Of one walk through several automata: 48 MiB, beside the automata themselves.
MAX_HELD_BYTES: Final = 48 << 20
# States and steps of one automaton, about 250 bytes each; and of those that are kept for the next comparison.
MAX_BUILT: Final = 220_000
MAX_KEPT: Final = 60_000
# Of what walks have found out about automata, kept for the next one.
MAX_KEPT_BYTES: Final = 16 << 20

# What making a state or a step takes, as measured.
_BUILD_STEPS: Final = 4
_MAX_NAMED: Final = 3
_MAX_CHARACTERS: Final = 60


class TooComplexError(Exception):
    """Lists cannot be compared within the bounds.

    lists  those that took most, in words
    """

    def __init__(self, lists: str = "these lists") -> None:
        super().__init__(f"cannot tell: too large to compare: {lists}")
        self.lists = lists

    def about(self, claim: str) -> str:
        """The answer to whether `claim` holds."""
        return f"cannot tell whether {claim}: too large to compare: {self.lists}"


class Effort:
    """What is left of a bounded amount of work. Not to be shared by two runs."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps
        self._held_bytes = 0
        self._built = 0
        self._worst: tuple[int, Sequence[str]] = (0, ())  # steps, items
        self.known: dict[object, object] = {}  # automata by what they are made of
        self._kept = self._kept_bytes = 0

    def allow(self, steps: int) -> None:
        """Add what an input of this size takes anyway."""
        self._left += steps

    @contextmanager
    def share(self, allowed: int = 0) -> Iterator["Effort"]:
        """A quarter of what is left, for one of many lists: a hard one leaves something to the others.

        allowed  steps that a list of this size takes anyway, besides
        """
        share = Effort(allowed + self._left // 4)
        given = share._left
        try:
            yield share
        finally:
            self._left -= max(given - max(share._left, 0) - allowed, 0)

    def spend(self, steps: int) -> None:
        """Errors: TooComplexError."""
        self._left -= steps
        if self._left < 0:
            raise TooComplexError

    def hold(self, size_bytes: int) -> None:
        """Memory of the walk under way. Errors: TooComplexError."""
        self._held_bytes += size_bytes
        if self._held_bytes > MAX_HELD_BYTES:
            raise TooComplexError

    def release(self) -> None:
        """Another walk begins."""
        self._held_bytes = 0

    def build(self, size: int) -> None:
        """States and steps of the automaton under construction. Errors: TooComplexError."""
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
        """True when there is room for them, which is taken then."""
        if self._kept_bytes + size_bytes > MAX_KEPT_BYTES:
            return False
        self._kept_bytes += size_bytes
        return True

    @contextmanager
    def naming(self, items: Sequence[str]) -> Iterator[None]:
        """Errors of the body name the items that took most until then."""
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
