"""Links on which clients send: their credit, the outcomes of their messages, and their dispositions.

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
    """The annotations of a message that the router redirects to another address than the address of its link."""

    to: str
    phase: int
    ingress: str | None
    trace: tuple[str, ...]
    reply_to: str | None


class Rest(Protocol):
    """Inspects the rest of a message, after the part that was inspected first."""

    def see(self, size: int) -> Condition | None:
        """Inspects the next `size` bytes in the buffer. Returns the condition to refuse the message with, or None."""
        ...

    def end(self) -> Condition | None:
        """Inspects the end of the message. Returns the same as `see`."""
        ...


class Merging(Protocol):
    """The copies of a multicast message (router.core.copies)."""

    @property
    def undecided(self) -> int:
        """The number of copies that have no outcome."""
        ...

    def on_sender_settled(self) -> None: ...
    def settling(self) -> Iterator[None]: ...


# The reasons to take nothing from a link.
OVER_RATE: Final = 1  # its connection sends more in a second than it may
OVER_BUDGET: Final = 2  # a level of its connection's account holds too many bytes
LINK_OVER_BUDGET: Final = 4  # the link itself holds too many bytes
ENDING: Final = 16  # the router is to end, and a routed link has no credit of the router's (8: router.core.ways)
_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET | WAY_FULL


def _ignore(_source: Handle) -> None:
    """Ignores the sender's updates: the default while no receiver needs them."""


def _stop(_delivery: Handle, _size: int, _before: int) -> bool:
    """Discards the message: the default while the owner of the limit is not known."""
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
        self.grant: Callable[[int], None] = wire.grant  # pacing replaces it
        # Inspects the message in the buffer. Returns its (new) size, or -1 if it refused the message. None: no
        # inspection.
        self.inspect: Callable[[Handle, int], int] | None = None
        # Inspects the rest of the message that was just inspected, as it arrives; None: no inspection. Streams take it.
        self.rest: Rest | None = None
        self.annotations: Annotations | None = None  # taken from the message that was just inspected
        # The encoded annotations, for other routers, of messages that arrive without annotations; None: not needed so
        # far.
        self.heading: bytes | None = None
        # (reply-to) → the reply-to that other routers get; None: the messages come from another router, and their
        # annotations contain it.
        self.vouch: Callable[[str], str] | None = None
        self.crossing: Counted | None = None  # of its latest balanced message that left for another router
        # The link to another router that took presettled messages in this pass. Their credit depends on that link's
        # credit.
        self.lender: Lender | None = None
        self.lent = 0  # credit to give back when that link has some
        # The maximum size of a message in bytes; 0: no limit. If it is exceeded, on_oversize gets the delivery, its
        # size and its size before. It returns True if it refused the message.
        self.max_message_bytes = 0
        self.on_oversize: Callable[[Handle, int, int], bool] = _stop
        self.on_over_credit: Callable[[], None] | None = None
        # Called if the message under way made no progress for this number of seconds. The flag is True if that delayed
        # other links.
        self.on_stalled: Callable[[float, bool], None] | None = None
        # Gets deliveries that the sender settled, or gave a state, later.
        self.on_updated: Callable[[Handle], None] = _ignore
        # Its multicasts that have an outcome but are not settled for all receivers.
        self.merging: dict[Handle, Merging] = {}
        self.passed_over = 0  # messages refused before routing, or aborted before any part of them was taken
        self.redirected = 0  # messages given to a fallback destination
        self.owed = 0  # credit to give back at the end of this pass
        self.credit_withheld = 0  # credit not granted because there is no receiver
        self.is_draining = False
        self.dropped_presettled = 0
        self.holds = 0  # the reasons to take nothing from it, as flags
        self.eased = 0  # the reasons that are gone: the link continues when its turn comes
        self.held = 0  # bytes of its messages that wait on other links, or are on their way to other routers
        self.on_its_way: Held | None = None  # bytes of large messages; None: there were none
        self.records = 0  # records of all messages on their way, as of the latest second

    @property
    def may_have_credit(self) -> bool:
        address = self.address
        return address is None or (address.has_own_path if self.is_fallback else address.has_path)

    def owe(self, credit: int = 1) -> None:
        """Gives `credit` back to the sender at the end of this pass."""
        if not self.owed:
            self.work.refill.append(self)
            self.work.touched.add(self.engine)
        self.owed += credit

    def offer(self, credit: int) -> None:
        """Gives `credit` when there is a receiver. The sender has no claim to it before."""
        if self.may_have_credit:
            self.owe(credit)
            return
        self.credit_withheld += credit
        if self.wire.credit < 0:
            self.owe(0)  # a sender that continues beyond its credit is dealt with at the end of the pass

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
        """Grants the whole window at attach, if there is a receiver."""
        self.credit_withheld = window
        self.grant_withheld()

    def grant_withheld(self) -> None:
        """Grants the withheld credit, because there is a receiver (again)."""
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
        """Takes back `credit` that the sender gave up.

        Attack: a sender that gives up more than it had corrupts our count. It is treated as a sender over its credit.
        """
        if self.wire.credit >= 0:
            self.offer(credit)
        else:
            self.on_excess()

    def on_excess(self) -> None:
        """Handles that more has arrived than the sender had credit for."""
        if self.on_over_credit is not None:
            self.on_over_credit()

    def on_aborted(self) -> None:
        self.passed_over += 1
        self.owe()

    # Holding back

    def hold(self, why: int) -> None:
        """Takes nothing more, except the rest of a message that streams."""
        if not self.holds:
            self.wire.hold()
        self.holds |= why
        self.eased &= ~why

    def go_on(self, why: int) -> None:
        """Removes a reason to take nothing, and continues if it was the last."""
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
        """Marks a reason as about to be gone: the link continues when its turn comes."""
        self.eased |= why
        self.work.relieved[self] = None

    def relieve(self, has_time: Callable[[], bool]) -> bool:
        if self.is_open:
            self.go_on(self.eased)
        return True

    def count_records(self) -> None:
        """Charges a client's link for messages on their way to other routers: no receiver here is charged for them."""
        is_charged = self.crossing is not None and self.is_open and not self.attachment.is_neighbour
        before, self.records = self.records, self.wire.unsettled_count if is_charged else 0
        if self.records != before:
            self.attachment.account.charge((self.records - before) * RECORD_BYTES)

    def charge(self, size: int) -> None:
        """Adds `size` bytes of its messages that wait on other links. A negative `size` removes bytes."""
        held = self.held = self.held + size
        account, limit = self.payer
        if held > limit > 0 and not self.holds & LINK_OVER_BUDGET and self.is_open:
            self.hold(LINK_OVER_BUDGET)
        elif self.holds & LINK_OVER_BUDGET and held <= limit - limit // 8:
            self.ease(LINK_OVER_BUDGET)
        account.charge(size)

    def release(self) -> None:
        """Removes the references of a link that is gone, so that no cycle waits for the garbage collector."""
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
        """Passes on a state if the receiver waits for our settlement (three-way), or reports progress."""
        if self.is_open:
            self.wire.relay_state(source, outgoing, state)
            self.work.touched.add(self.engine)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        """Gives the outcome of a message whose receiver is gone (routing §9.3).

        It is modified if the receiver may have seen the message, else released.
        """
        if not self.is_open:
            return
        self.count_unstuck(since_s)
        if ACCEPTED <= (told := self.wire.told(source)) <= MODIFIED:
            self.count_outcome(told)  # the receiver gave it before it was gone, and an outcome is final
        else:
            self.wire.give(source, MODIFIED if was_sent else RELEASED)
            self.count_outcome(self.wire.told(source))
        self.conclude(source)

    def forgo(self, state: int, since_s: int) -> None:
        """Counts `state`, the outcome so far, because the sender has settled."""
        if self.is_open:
            self._count(state, since_s)

    def _count(self, outcome: int, since_s: int) -> None:
        self.count_outcome(outcome)
        if (delay := self.work.now_s - since_s) > 1:
            self.count_delay(delay)

    def report_merged(self, source: Handle, outcome: int) -> None:
        """Gives the outcome unsettled: every copy has one, but not every receiver has settled (routing §7.3)."""
        self.wire.give(source, outcome)
        self.work.touched.add(self.engine)

    def on_merged(self, source: Handle, since_s: int, outcome: int) -> None:
        """Gives the combined outcome of several copies, without the data of their outcomes (routing §7.3)."""
        if outcome in (MODIFIED, RELEASED):
            self.on_lost(source, since_s, was_sent=outcome == MODIFIED)
        elif self.is_open:
            self.wire.give(source, outcome)
            self._count(outcome, since_s)
            self.conclude(source)

    def letting_go(self) -> Iterator[None]:
        """Settles the copies that wait for the sender, one in each step, because the link is gone."""
        merging, self.merging = self.merging, {}
        for copies in merging.values():
            yield from copies.settling()

    def conclude(self, source: Handle, *, is_undeliverable: bool = False) -> None:
        """Settles a message that has its outcome, at once or when the rest of it has arrived. Returns one credit.

        is_undeliverable  True if there was no receiver: the credit waits until there is one (routing §6.1)
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
        """Pays for further bytes of a message that does not arrive in one piece. Returns True if more may be taken."""
        pacing = self.attachment.pacing
        return pacing is None or pacing.pay(size)

    def refuse(self, delivery: Handle, condition: Condition) -> None:
        """Rejects a message before routing. Presettled messages are dropped. Returns one credit (routing §9.5)."""
        self.passed_over += 1
        if not self.is_settled(delivery):
            self.wire.reject(delivery, condition)
        self.conclude(delivery)

    def refuses(self, delivery: Handle) -> bool:
        """Refuses a message of a transaction before it is forwarded. Returns True if it did.

        For a settled message the router can report the refusal only by closing the link.
        """
        if is_foreign := self.is_foreign(delivery, ends_link=self.is_settled(delivery)):
            self.refuse(delivery, UNKNOWN_TRANSACTION)
        return is_foreign

    def release_undeliverable(self, delivery: Handle) -> None:
        """Releases a message without destination, or drops and counts it if it is presettled (routing §6.1, §8.2)."""
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
        """Asks the sender to give up its credit, because there is no receiver."""
        if not self.is_draining and self.is_open and self.attachment.can_drain:
            self.is_draining = True
            self.wire.start_drain()
            self.work.touched.add(self.engine)


def take_in_process(link: InLink, source: Handle) -> None:
    """Settles a message that the router itself receives. The caller gives the credit back."""
    if link.is_settled(source):
        link.presettled += 1
        link.settle(source)
    else:
        link.accept(source)
        link.accepted += 1
    link.work.touched.add(link.engine)


def is_over_budget(link: InLink) -> bool:
    """Returns True if the link, or its connection, holds too many bytes."""
    return bool(link.holds & (OVER_BUDGET | LINK_OVER_BUDGET))


class Discard:
    """Reads the rest of a message that no receiver gets, then settles it. The sender pays for its bytes all the same.

    If it settled at once, the engine would drop the rest without opening the session window for it again.
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
        """Does nothing: the link is gone, and the message with it."""
