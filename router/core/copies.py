"""The copies of one multicast message. Its sender gets one outcome for all of them (routing §7.3).

The sender gets the outcome when every copy has one. It is settled if every receiver has settled, else unsettled. After
that, the first side to settle settles for all: the sender settles the copies, or the last receiver settles the sender's
delivery.

INVARIANT: `source` is used only while `wants_outcome` and the sender's link is open, and for a settled message only
until its end has arrived. Later the engine may have used the object for another delivery.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from router.core.in_links import InLink
from router.core.outcomes import RELEASED, merge
from router.values import Handle


class Copy(Protocol):
    """A copy whose receiver has given its outcome and has not settled."""

    def settle(self) -> None: ...


class Copies:
    """Counts the copies of one message, and merges their outcomes.

    unsettled      existing copies whose receivers have not settled
    undecided      the unsettled copies without an outcome
    outcome        the merged outcome of the other copies
    wants_outcome  True while the sender waits: it has not settled first, and its delivery is not settled
    """

    __slots__ = ("_decided", "link", "outcome", "since_s", "source", "undecided", "unsettled", "wants_outcome")

    def __init__(self, link: InLink, source: Handle, since_s: int, count: int) -> None:
        self.link = link
        self.source = source
        self.since_s = since_s
        self.unsettled = self.undecided = count
        self.outcome = RELEASED
        self.wants_outcome = True
        self._decided: dict[Copy, None] | None = None

    @property
    def sender(self) -> InLink:
        return self.link

    def conclude(self, state: int) -> None:
        """Gives this outcome to a copy without an outcome, which is settled or gone."""
        self.outcome = merge(self.outcome, state)
        self.unsettled -= 1
        self.undecided -= 1
        if not self.undecided:
            self._tell()

    def decide(self, copy: Copy, state: int) -> bool:
        """Gives the outcome of a copy whose receiver has not settled. Returns False if it is settled now.

        It is settled at once if the sender no longer waits.
        """
        if not self.wants_outcome or not self.link.is_open:
            copy.settle()
            self.conclude(state)
            return False
        if self._decided is None:
            self._decided = {}
            self.link.merging[self.source] = self
        self._decided[copy] = None
        self.outcome = merge(self.outcome, state)
        self.undecided -= 1
        if not self.undecided:
            self._tell()
        return True

    def on_settled(self, copy: Copy) -> None:
        """Handles that the receiver of a copy with an outcome has settled, or is gone."""
        if self._decided is not None:
            self._decided.pop(copy, None)
        self.unsettled -= 1
        if not self.unsettled:
            self._tell()

    def _tell(self) -> None:
        """Gives the sender the outcome, because every copy has one."""
        if not self.wants_outcome or not self.link.is_open:
            return
        if self.unsettled:
            self.link.report_merged(self.source, self.outcome)
            return
        self._stop_waiting()
        self._end()

    def _end(self) -> None:
        """Settles the sender's delivery, because every copy is settled."""
        self.link.on_merged(self.source, self.since_s, self.outcome)

    def _stop_waiting(self) -> None:
        self.wants_outcome = False
        if self._decided is not None:
            self.link.merging.pop(self.source, None)

    def on_sender_settled(self) -> None:
        """Settles the copies that have an outcome, because the sender has settled.

        This happens at once, so that no record of `source` exists longer than `source` itself.
        """
        if self.wants_outcome:
            if not self.undecided:
                self.link.forgo(self.outcome, self.since_s)
            self._stop_waiting()
            for _ in self.settling():
                pass

    def settling(self) -> Iterator[None]:
        """Settles the copies that have their outcome, one in each step."""
        while self._decided:
            copy, _ = self._decided.popitem()
            copy.settle()
            yield


class DecidedCopy:
    """One copy of a complete message. It replaces Copies as the Origin when its receiver has given the outcome."""

    __slots__ = ("_copies", "_outgoing", "_settle")

    def __init__(self, copies: Copies, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        self._copies = copies
        self._outgoing = outgoing
        self._settle = settle

    def settle(self) -> None:
        self._settle(self._outgoing)

    # Origin

    @property
    def sender(self) -> InLink:
        return self._copies.link

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self._copies.on_settled(self)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        self._copies.on_settled(self)

    def on_progress(self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        """Ignores later states: the first outcome is final."""

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        self._copies.on_settled(self)

    def forgo(self, state: int, since_s: int) -> None:
        self._copies.on_sender_settled()
