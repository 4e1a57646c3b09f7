"""The copies of one multicast message, of which its sender learns one outcome (routing §7.3).

The sender gets the outcome when every copy has one: settled when every receiver has settled, else unsettled. From then
on whoever settles first settles for all: the sender for the copies, or the last receiver for the sender.

INVARIANT: `source` is looked at only while `wants_outcome` and the sender's link is open, and of a settled message only
until its end has come. Afterwards the engine may have made another delivery of it.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from router.core.in_links import InLink
from router.core.outcomes import RELEASED, merge
from router.values import Handle


class Copy(Protocol):
    """One whose receiver has given its outcome and has not settled."""

    def settle(self) -> None: ...


class Copies:
    """unsettled      copies whose receivers have not settled, and are there
    undecided      of these, copies without an outcome
    outcome        of those that have one
    wants_outcome  the sender waits: it has not settled first, and its delivery is not settled
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
        """A copy without an outcome has this one now, and is settled or gone."""
        self.outcome = merge(self.outcome, state)
        self.unsettled -= 1
        self.undecided -= 1
        if not self.undecided:
            self._tell()

    def decide(self, copy: Copy, state: int) -> bool:
        """The receiver of a copy gave its outcome and has not settled. False: nobody waits, so it is settled now."""
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
        """The receiver of a copy that has its outcome has settled, or is gone."""
        if self._decided is not None:
            self._decided.pop(copy, None)
        self.unsettled -= 1
        if not self.unsettled:
            self._tell()

    def _tell(self) -> None:
        """Every copy has its outcome."""
        if not self.wants_outcome or not self.link.is_open:
            return
        if self.unsettled:
            self.link.report_merged(self.source, self.outcome)
            return
        self._stop_waiting()
        self._end()

    def _end(self) -> None:
        """Every copy is settled, too: so is the sender's delivery."""
        self.link.on_merged(self.source, self.since_s, self.outcome)

    def _stop_waiting(self) -> None:
        self.wants_outcome = False
        if self._decided is not None:
            self.link.merging.pop(self.source, None)

    def on_sender_settled(self) -> None:
        """It waits for nothing any more: the copies that have their outcome are settled.

        At once, so that no record of `source` outlives it.
        """
        if self.wants_outcome:
            if not self.undecided:
                self.link.forgo(self.outcome, self.since_s)
            self._stop_waiting()
            for _ in self.settling():
                pass

    def settling(self) -> Iterator[None]:
        """Settle the copies that have their outcome, one in each step."""
        while self._decided:
            copy, _ = self._decided.popitem()
            copy.settle()
            yield


class DecidedCopy:
    """One copy of a whole message, in the place of its Copies from when its receiver has given the outcome."""

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
        """The first outcome stands."""

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        self._copies.on_settled(self)

    def forgo(self, state: int, since_s: int) -> None:
        self._copies.on_sender_settled()
