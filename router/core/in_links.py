"""Links on which clients send: their credit, what becomes of their messages, their dispositions.

Sources: docs/spec/routing.md §6.1, §8, §9.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from router.core.budget import RECORD_BYTES
from router.core.links import Connection, Counted, Lender, Link
from router.core.outcomes import ACCEPTED, MODIFIED, RELEASED, UNKNOWN_TRANSACTION
from router.core.ports import IncomingWire
from router.core.ways import WAY_FULL
from router.core.weights import Held
from router.core.work import Work
from router.values import Condition, Handle


class Annotations(Protocol):
    """The annotations that routers have written into a message."""

    @property
    def to(self) -> str | None: ...
    @property
    def phase(self) -> int: ...
    @property
    def ingress(self) -> str | None: ...
    @property
    def trace(self) -> tuple[str, ...]: ...
    @property
    def reply_to(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """The annotations of a message that the router gives to another address than that of the link that it came on."""

    to: str
    phase: int
    ingress: str | None
    trace: tuple[str, ...]
    reply_to: str | None


class Rest(Protocol):
    """Looks at what comes of a message behind the part that was inspected."""

    def see(self, size: int) -> Condition | None:
        """The next `size` bytes are in the buffer. Returns the condition to refuse the message with, or None."""
        ...

    def end(self) -> Condition | None:
        """The message has ended. Returns as `see`."""
        ...


class Merging(Protocol):
    """The copies of a multicast message (router.core.copies)."""

    @property
    def undecided(self) -> int:
        """How many have no outcome."""
        ...

    def on_sender_settled(self) -> None: ...
    def settling(self) -> Iterator[None]: ...


# Why nothing is taken from a link.
OVER_RATE: Final = 1  # its connection sends more in a second than it may
OVER_BUDGET: Final = 2  # a level of its connection's account holds too much
LINK_OVER_BUDGET: Final = 4  # the link itself does
ENDING: Final = 16  # the router is to end, and a routed link has no credit of the router's (8: router.core.ways)
_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET | WAY_FULL


def _ignore(_source: Handle) -> None:
    """Nobody carries the sender's updates."""


def _stop(_delivery: Handle, _size: int, _before: int) -> bool:
    """A limit whose owner is not known: the message goes nowhere."""
    return True


class InLink(Link):
    """A link on which a client sends."""

    __slots__ = (
        *("accept", "annotations", "credit_withheld", "crossing", "dropped_presettled", "eased", "grant", "heading"),
        *("held", "holds", "inspect", "is_draining", "is_settled", "lender", "lent", "max_message_bytes", "merging"),
        *("on_over_credit", "on_oversize", "on_stalled", "on_updated", "owed", "passed_over", "redirected", "rest"),
        *("records", "on_its_way", "vouch"),
    )
    wire: IncomingWire
    relays_states = False

    def __init__(self, identity: int, wire: IncomingWire, attachment: Connection, work: Work) -> None:
        super().__init__(identity, wire, attachment, work)
        self.is_settled: Callable[[Handle], bool] = wire.is_settled
        self.accept: Callable[[Handle], None] = wire.accept_delivery
        self.grant: Callable[[int], None] = wire.grant  # pacing puts its own here
        # Looks at the message in the buffer: returns its (new) size, or -1 after it refused it. None: nothing to do.
        self.inspect: Callable[[Handle, int], int] | None = None
        # Looks at the rest of the message just inspected, as it comes; None: nothing to do. Streams take it.
        self.rest: Rest | None = None
        self.annotations: Annotations | None = None  # taken off the message just inspected
        # The annotations for other routers of its messages that bring none, encoded; None: not needed so far.
        self.heading: bytes | None = None
        # (reply-to) → what other routers are told of it; None: another router's messages, whose annotations tell.
        self.vouch: Callable[[str], str] | None = None
        self.crossing: Counted | None = None  # of its latest balanced message that left for another router
        # The link to another router that presettled messages of this pass left on, whose credit theirs comes from.
        self.lender: Lender | None = None
        self.lent = 0  # credit to give back when that has some
        # Past so many bytes (0: never) on_oversize gets the delivery, its size and the one before. Did it refuse it?
        self.max_message_bytes = 0
        self.on_oversize: Callable[[Handle, int, int], bool] = _stop
        self.on_over_credit: Callable[[], None] | None = None
        # Gets seconds: its message under way made no progress for so long, or where it is true held up others.
        self.on_stalled: Callable[[float, bool], None] | None = None
        self.on_updated: Callable[[Handle], None] = _ignore  # gets what the sender settled, or gave a state, later
        self.merging: dict[Handle, Merging] = {}  # its multicasts with an outcome which nobody has settled for all
        self.passed_over = 0  # messages refused before routing, or aborted before anything of them was taken
        self.redirected = 0  # messages given to a fallback destination
        self.owed = 0  # credit to give back at the end of this pass
        self.credit_withheld = 0  # credit not issued because nobody can receive
        self.is_draining = False
        self.dropped_presettled = 0
        self.holds = 0  # why nothing is taken from it, as flags
        self.eased = 0  # of these, what is gone: it goes on when its turn comes
        self.held = 0  # bytes of its messages that wait on other links, or are on their way to other routers
        self.on_its_way: Held | None = None  # of large messages; None: there was none
        self.records = 0  # of all that are on their way, as of the latest second

    @property
    def may_have_credit(self) -> bool:
        address = self.address
        return address is None or (address.has_own_path if self.is_fallback else address.has_path)

    def owe(self, credit: int = 1) -> None:
        """Give `credit` back to the sender at the end of this pass."""
        if not self.owed:
            self.work.refill.append(self)
            self.work.touched.add(self.engine)
        self.owed += credit

    def offer(self, credit: int) -> None:
        """Give `credit` as soon as somebody can receive: the sender has no claim to it before."""
        if self.may_have_credit:
            self.owe(credit)
            return
        self.credit_withheld += credit
        if self.wire.credit < 0:
            self.owe(0)  # a sender that goes on beyond its credit is dealt with at the end of the pass

    def grant_owed(self) -> None:
        owed, self.owed = self.owed, 0
        if not self.is_open:
            return
        if self.wire.credit + owed < 0:
            self.on_excess()
            return
        if self.is_draining or self.holds & _HOLDS_CREDIT:
            self.credit_withheld += owed
            return
        if self.lender is not None and not (owed := self.lender.share(self, owed)):
            return
        self.grant(owed)
        self.work.touched.add(self.engine)

    def grant_initial(self, window: int) -> None:
        """The whole window at attach, if somebody can receive."""
        self.credit_withheld = window
        self.grant_withheld()

    def grant_withheld(self) -> None:
        """Somebody can receive (again)."""
        if self.holds & _HOLDS_CREDIT:
            return
        if self.is_open and self.may_have_credit and (self.credit_withheld or self.is_draining):
            if self.is_draining:
                self.is_draining = False
                self.wire.stop_drain()
            credit, self.credit_withheld = self.credit_withheld, 0
            self.grant(credit)
            self.work.touched.add(self.engine)

    def end_credit(self) -> None:
        """The router is to end: give no credit any more, and ask a client for what it has. May be repeated."""
        if self.is_open and self.grant != self.withhold:
            self.grant = self.withhold
            if not self.attachment.is_neighbour:  # a router needs no asking: what it has it uses, or it does no harm
                self.drain()

    def withhold(self, credit: int) -> None:
        self.credit_withheld += credit

    def on_drained(self, credit: int) -> None:
        """The sender gave up `credit`. More than it had is an attack on our arithmetic: over its credit."""
        if self.wire.credit >= 0:
            self.offer(credit)
        else:
            self.on_excess()

    def on_excess(self) -> None:
        """More has come than there was credit for, and waits."""
        if self.on_over_credit is not None:
            self.on_over_credit()

    def on_aborted(self) -> None:
        self.passed_over += 1
        self.owe()

    # Holding back

    def hold(self, why: int) -> None:
        """Take nothing more, but for the rest of a message that streams."""
        if not self.holds:
            self.wire.hold()
        self.holds |= why
        self.eased &= ~why

    def go_on(self, why: int) -> None:
        """This reason not to take anything is gone."""
        self.eased &= ~why
        if not self.holds & why:
            return
        self.holds &= ~why
        self.work.touched.add(self.engine)
        if self.holds:
            self.wire.read_on()
        else:
            self.wire.go_on()
        if why & _HOLDS_CREDIT:
            self.grant_withheld()

    def ease(self, why: int) -> None:
        """This reason is about to be gone: it goes on when its turn comes."""
        self.eased |= why
        self.work.relieved[self] = None

    def relieve(self, has_time: Callable[[], bool]) -> bool:
        if self.is_open:
            self.go_on(self.eased)
        return True

    def count_records(self) -> None:
        """Charge a client's link for what is on its way to other routers, which no receiver here is charged for."""
        is_charged = self.crossing is not None and self.is_open and not self.attachment.is_neighbour
        before, self.records = self.records, self.wire.unsettled_count if is_charged else 0
        if self.records != before:
            self.attachment.account.charge((self.records - before) * RECORD_BYTES)

    def charge(self, size: int) -> None:
        """`size` bytes more of its messages wait on other links; fewer, where it is negative."""
        held = self.held = self.held + size
        account, limit = self.payer
        if held > limit > 0 and not self.holds & LINK_OVER_BUDGET and self.is_open:
            self.hold(LINK_OVER_BUDGET)
        elif self.holds & LINK_OVER_BUDGET and held <= limit - limit // 8:
            self.ease(LINK_OVER_BUDGET)
        account.charge(size)

    def release(self) -> None:
        """The link is gone. What refers to it, and it to that, would stay until cycles are looked for."""
        self.count_records()
        self.on_stalled = self.on_over_credit = self.on_foreign = None
        self.inspect = self.vouch = self.crossing = self.on_its_way = None
        self.on_oversize, self.on_updated = _stop, _ignore

    # Outcomes (Origin)

    @property
    def sender(self) -> Link:
        return self

    def on_accepted(self, source: Handle, since_s: int) -> None:
        if not self.is_open:
            return
        self.accept(source)
        self.accepted += 1
        work = self.work
        if work.now_s - since_s > 1:
            self.count_delay(work.now_s - since_s)
        if not self.owed:
            work.refill.append(self)
            work.touched.add(self.engine)
        self.owed += 1

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        if not self.is_open:
            return
        if state:
            self.wire.relay_state(source, outgoing, state)
        self._count(state, since_s)
        self.conclude(source)

    def on_progress(self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        """The receiver gave a state and waits for our settlement (three-way), or reports progress."""
        if self.is_open:
            self.wire.relay_state(source, outgoing, state)
            self.work.touched.add(self.engine)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        """The receiver is gone: modified if it may have seen the message, else released (routing §9.3)."""
        if not self.is_open:
            return
        self.count_unstuck(since_s)
        if ACCEPTED <= (told := self.wire.told(source)) <= MODIFIED:
            self.count_outcome(told)  # the receiver gave it before it went, and an outcome is final
        else:
            self.wire.give(source, MODIFIED if was_sent else RELEASED)
            self.count_outcome(self.wire.told(source))
        self.conclude(source)

    def forgo(self, state: int, since_s: int) -> None:
        """The sender has settled; `state` is the outcome so far."""
        if self.is_open:
            self._count(state, since_s)

    def _count(self, outcome: int, since_s: int) -> None:
        self.count_outcome(outcome)
        if (delay := self.work.now_s - since_s) > 1:
            self.count_delay(delay)

    def report_merged(self, source: Handle, outcome: int) -> None:
        """Every copy has its outcome, and not every receiver has settled: give theirs unsettled (routing §7.3)."""
        self.wire.give(source, outcome)
        self.work.touched.add(self.engine)

    def on_merged(self, source: Handle, since_s: int, outcome: int) -> None:
        """The one outcome of several copies: without their data (routing §7.3)."""
        if outcome in (MODIFIED, RELEASED):
            self.on_lost(source, since_s, was_sent=outcome == MODIFIED)
        elif self.is_open:
            self.wire.give(source, outcome)
            self._count(outcome, since_s)
            self.conclude(source)

    def letting_go(self) -> Iterator[None]:
        """The link is gone: settle the copies that wait for its sender to settle, one in each step."""
        merging, self.merging = self.merging, {}
        for copies in merging.values():
            yield from copies.settling()

    def conclude(self, source: Handle, *, is_undeliverable: bool = False) -> None:
        """It has its outcome: say and settle it, at once or when the rest of the message has come. One credit returns.

        is_undeliverable  nobody could receive it: the credit waits until somebody can (routing §6.1)
        """
        if self.wire.is_partial(source):
            self.wire.read_by(Discard(self, source, is_undeliverable=is_undeliverable))
            self.work.touched.add(self.engine)
        else:
            self.settle_concluded(source, is_undeliverable=is_undeliverable)

    def settle_concluded(self, source: Handle, *, is_undeliverable: bool) -> None:
        if self.is_open:
            self.settle(source)
            if is_undeliverable:
                self.offer(1)
            else:
                self.owe()

    def pay(self, size: int) -> bool:
        """Pay for further bytes of a message that does not come in one piece. May more be taken?"""
        pacing = self.attachment.pacing
        return pacing is None or pacing.pay(size)

    def refuse(self, delivery: Handle, condition: Condition) -> None:
        """Reject a message before routing; presettled ones vanish. One credit returns (routing §9.5)."""
        self.passed_over += 1
        if not self.is_settled(delivery):
            self.wire.reject(delivery, condition)
        self.conclude(delivery)

    def refuses(self, delivery: Handle) -> bool:
        """Refuse a message of a transaction, before it is forwarded. Of a settled one only the link's end can tell."""
        if is_foreign := self.is_foreign(delivery, ends_link=self.is_settled(delivery)):
            self.refuse(delivery, UNKNOWN_TRANSACTION)
        return is_foreign

    def release_undeliverable(self, delivery: Handle) -> None:
        """No destination: released, or dropped and counted when presettled (routing §6.1, §8.2)."""
        self.delivery_count += 1
        if self.is_settled(delivery):
            self.presettled += 1
            self.dropped_presettled += 1
        else:
            self.released += 1
            self.wire.give(delivery, RELEASED)
        self.conclude(delivery, is_undeliverable=True)
        if not self.may_have_credit:
            self.drain()

    def drain(self) -> None:
        """Nobody can receive: ask the sender to give up what credit it has, until somebody can."""
        if not self.is_draining and self.is_open and self.attachment.can_drain:
            self.is_draining = True
            self.wire.start_drain()
            self.work.touched.add(self.engine)


def take_in_process(link: InLink, source: Handle) -> None:
    """The router itself is the receiver. The caller gives the credit back."""
    if link.is_settled(source):
        link.presettled += 1
        link.settle(source)
    else:
        link.accept(source)
        link.accepted += 1
    link.work.touched.add(link.engine)


def is_over_budget(link: InLink) -> bool:
    """Does the link, or its connection, have too much that waits?"""
    return bool(link.holds & (OVER_BUDGET | LINK_OVER_BUDGET))


class Discard:
    """Reads the rest of a message that nobody gets, then settles it. Its bytes are paid for all the same.

    Settling at once would let the engine drop what still comes without opening the session window for it again.
    """

    __slots__ = ("delivery", "is_undeliverable", "link", "received")

    def __init__(self, link: InLink, delivery: Handle, *, is_undeliverable: bool) -> None:
        self.link = link
        self.delivery = delivery
        self.is_undeliverable = is_undeliverable
        self.received = 0

    def more(self) -> None:
        link, size = self.link, 0
        while link.pay(size):
            size = link.wire.read()
            if not size:
                self._end_if_complete()
                return
            self.received += size

    def hurry(self) -> None:
        while size := self.link.wire.read():
            self.received += size
            self.link.pay(size)
        self._end_if_complete()

    def _end_if_complete(self) -> None:
        if not self.link.wire.is_partial(self.delivery):
            self.link.wire.tell_outcome()
            self.link.wire.end_stream()
            self.link.settle_concluded(self.delivery, is_undeliverable=self.is_undeliverable)

    def abort(self) -> None:
        """The link is gone, and the message with it."""
