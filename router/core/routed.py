"""Routed links: a link of one peer goes on as a link of another, and the router adds nothing and keeps nothing.

Credit and drains are the receiver's, tags the sender's. Messages, outcomes and losses take
the ways that they take on other links. Sources: docs/spec/routing.md §6.3, §15; docs/spec/network.md §11.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from router.core.addresses import Forward, LiveAddress, Treatment
from router.core.budget import Account, Charge
from router.core.forward import give_copy
from router.core.in_links import ENDING, LINK_OVER_BUDGET, OVER_BUDGET, InLink
from router.core.links import Connection, Growing, Queued
from router.core.out_links import OutLink
from router.core.outcomes import TRANSACTIONAL
from router.core.ports import OutgoingWire
from router.core.streams import Leg, begin_stream
from router.core.weights import LARGE_BYTES
from router.core.work import Work
from router.values import Condition, Handle

# Messages that the sender may be ahead of the receiver, whose credit may be more. Attack: a receiver that gives credit
# for a million small messages and takes none: they were all on their way, or in the engine.
MAX_AHEAD: Final = 2048
# A message has a body. Of the bytes of others the router looks at none: they are the two peers' matter.
EMPTY: Final = Condition(name="amqp:decode-error", description="invalid message format")
_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET
_PLAIN: Final = Treatment()


class Tagged(bytes):
    """A message that waits, with the tag of its sender."""

    tag: bytes


class RoutedPath(LiveAddress):
    """The one way of a routed link. In no table: nobody else finds it.

    on_emptied    called once, when all that waits for the receiver has left
    in_hand       1 while a message is being given to the receiver, the sender's credit for which is used up
    is_exhausted  the sender has just said that it has no more
    begin         takes a message that has not come whole, or has a state
    has_transaction  has the client's coordinator at the same container given it this one?
    """

    __slots__ = ("begin", "has_transaction", "in_hand", "inward", "is_exhausted", "on_emptied", "onward")

    def __init__(
        self, key: str, inward: "RoutedIn", onward: "RoutedOut", has_transaction: Callable[[bytes | None], bool]
    ) -> None:
        super().__init__(key, _PLAIN, forward_routed)
        self.begin: Forward = begin_stream
        self.inward = inward
        self.onward = onward
        self.in_hand = 0
        self.is_exhausted = False
        self.has_transaction = has_transaction
        self.on_emptied: Callable[[], None] | None = None
        self.out_links = deque((onward,))

    def relay_credit(self) -> None:
        """The sender may send what the receiver takes, beyond what is under way."""
        inward, onward = self.inward, self.onward
        if not (inward.is_open and onward.is_open) or inward.holds & _HOLDS_CREDIT:
            return
        if inward.is_draining and not onward.wire.is_draining:
            inward.stop_drain()
        more = min(onward.wire.credit, MAX_AHEAD) - len(onward.queue) - inward.wire.credit - self.in_hand
        if more > 0:
            inward.wire.grant(more)  # rates are kept by taking nothing, not by giving less
            inward.work.touched.add(inward.engine)

    def drain(self) -> bool:
        """The receiver drains. Asks the sender for the rest; False: it has no credit left for any."""
        inward = self.inward
        if not inward.is_open or self.is_exhausted:
            return False
        self.relay_credit()
        if inward.wire.credit <= 0 and not self.in_hand:
            return False
        if not inward.is_draining:
            inward.is_draining = True
            inward.wire.start_drain()
            inward.wire.forward_by(_forward_drained)
            inward.work.touched.add(inward.engine)
        return True


class _Routed:
    """The common part of both links, as management shows it. is_own: the router attached it"""

    __slots__ = ()
    attachment: Connection
    is_own: bool
    path: RoutedPath

    def _may_name(self, transaction: bytes | None) -> bool:
        """What the container says of transactions is its own."""
        return self.is_own or self.path.has_transaction(transaction)

    @property
    def owning_key(self) -> str:
        return self.path.key

    @property
    def capacity(self) -> int:
        return 0 if self.is_own else self.attachment.capacity


class RoutedIn(_Routed, InLink):
    """The link on which messages of a routed link come. Its credit is what the receiver gave, no more.

    room_bytes  what may wait of what comes from a container, on its receiver's account: that has asked for it.
    Attack: a few clients that ask for much and take nothing. It was on the account of the container's connection, and
    when that was full nobody got anything from the container any more.
    """

    __slots__ = ("is_own", "path", "room_bytes")
    room_bytes: int
    relays_states = True  # a transaction's, for instance, without which the message would be outside of it

    @property
    def payer(self) -> tuple[Account, int]:
        return (self.path.onward.attachment.account, self.room_bytes) if self.is_own else super().payer

    @property
    def peer(self) -> str:
        return str(self.path.onward.identity)

    def may_transact(self, delivery: Handle) -> bool:
        return self._may_name(self.wire.transaction(delivery))

    def grant_owed(self) -> None:
        """Nobody is owed credit: that is the receiver's to give."""
        self.owed = 0
        if self.is_open and self.wire.credit < 0 and self.on_over_credit is not None:
            self.on_over_credit()

    def grant_initial(self, window: int) -> None:
        self.path.relay_credit()

    def end_credit(self) -> None:
        """Its credit is its receiver's: what comes from now on is not taken."""
        if self.is_open:
            self.hold(ENDING)

    def grant_withheld(self) -> None:
        self.path.relay_credit()

    def stop_drain(self) -> None:
        self.is_draining = False
        self.wire.stop_drain()
        self.wire.forward_by(self.path.forward)

    def on_drained(self, credit: int) -> None:
        if self.wire.credit < 0:
            super().on_drained(credit)
            return
        self.stop_drain()
        path, onward = self.path, self.path.onward
        if onward.is_open:
            path.is_exhausted = True
            onward.refresh_room()
            path.is_exhausted = False


class RoutedOut(_Routed, OutLink):
    """The link on which messages of a routed link leave."""

    __slots__ = ("is_own", "path", "send_as")

    def __init__(self, identity: int, wire: OutgoingWire, attachment: Connection, work: Work) -> None:
        super().__init__(identity, wire, attachment, work)
        self.send_as: Callable[[int, Handle], Handle] = wire.send_as  # looked up once: it is called for each message

    @property
    def peer(self) -> str:
        return str(self.path.inward.identity)

    def on_credit(self) -> None:
        # First, lest a drain that comes with the credit finds the sender without any.
        self.path.relay_credit()
        super().on_credit()

    def refresh_room(self) -> None:
        super().refresh_room()
        path = self.path
        path.relay_credit()
        if path.on_emptied is not None and not self.has_waiting:
            emptied, path.on_emptied = path.on_emptied, None
            emptied()

    @property
    def has_waiting(self) -> bool:
        """Is there what the sender has sent and the receiver had no room for?"""
        return bool(self.queue) or self.leg is not None

    def may_transact(self, delivery: Handle) -> bool:
        """A receiver may settle, after the Discharge, what it gave its outcome before."""
        return self._may_name(self.wire.transaction(delivery)) or self._repeats(delivery)

    def _repeats(self, delivery: Handle) -> bool:
        if not self.wire.is_settled(delivery) or (record := self.unsettled.get(delivery)) is None:
            return False
        come, source = self.path.inward.wire, record[1]
        return come.told(source) == TRANSACTIONAL and come.told_transaction(source) == self.wire.transaction(delivery)

    def answer_drain(self) -> bool:
        return not self.path.drain() and super().answer_drain()

    def vacate(self) -> None:
        super().vacate()
        self.path.relay_credit()

    def enqueue(self, item: Queued) -> None:
        """The engine may have released the delivery of a large message, with tag and state, before its turn comes."""
        if isinstance(item.leg, Leg):
            wire, source = self.path.inward.wire, item.leg.stream.source
            item.leg.tag = wire.tag(source)
            item.leg.state = wire.state(source)
        super().enqueue(item)

    def occupy(self, leg: Growing) -> None:
        super().occupy(leg)
        assert isinstance(leg, Leg)
        self.wire.next_tag = self.path.inward.wire.tag(leg.stream.source) if leg.tag is None else leg.tag

    def _drop_presettled(self) -> None:
        """The receiver gave credit for each: what waits is for its session's window."""

    def send_payload(
        self, origin: object, source: Handle | None, since_s: int, payload: bytes, *, is_settled: bool
    ) -> None:
        if isinstance(payload, Tagged):
            self.wire.next_tag = payload.tag
        super().send_payload(origin, source, since_s, payload, is_settled=is_settled)  # type: ignore[arg-type]


def forward_routed(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """A message has come whole: it goes on as it is."""
    assert isinstance(address, RoutedPath)
    out = address.onward
    if not size:
        link.refuse(delivery, EMPTY)
        address.relay_credit()
        return
    limit = link.max_message_bytes
    if limit and size > limit and link.on_oversize(delivery, size, 0):
        return
    if not out.is_open:
        link.release_undeliverable(delivery)
        return
    is_settled = link.is_settled(delivery)
    if out.room <= 0:
        address.in_hand = 1
        _give_later(link, out, delivery, size, is_settled=is_settled)
        address.in_hand = 0
        return
    outgoing = out.send_as(size, delivery)
    work = link.work
    link.delivery_count += 1
    out.delivery_count += 1
    out.room -= 1
    work.touched.add(out.engine)
    if is_settled:
        link.presettled += 1
        out.presettled += 1
        out.settle(outgoing)
        link.settle(delivery)
    elif out.sends_settled:
        out.settle(outgoing)
        link.on_accepted(delivery, work.now_s)
    else:
        out.load += 1
        out.unsettled[outgoing] = (link, delivery, work.now_s)
        if size > LARGE_BYTES:
            out.weigh(outgoing, size)


def _forward_drained(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """As `forward_routed` while the receiver drains. A sender without credit tells nobody that this was its last."""
    assert isinstance(address, RoutedPath)
    address.forward(link, address, delivery, size)
    if link.wire.credit <= 0 and address.onward.is_open:
        address.onward.refresh_room()


def _give_later(link: InLink, out: RoutedOut, delivery: Handle, size: int, *, is_settled: bool) -> None:
    """The receiver has no room now, or its room is to be counted."""
    payload = Tagged(link.work.copy(size))
    payload.tag = link.wire.tag(delivery)
    charge = Charge(link, size)
    link.delivery_count += 1
    if is_settled:
        link.presettled += 1
        link.settle(delivery)
        give_copy(link, out, None, link.work.now_s, payload, is_settled=True, charge=charge)
    else:
        give_copy(link, out, delivery, link.work.now_s, payload, is_settled=False, charge=charge)
    if link.wire.credit < 0:
        link.owe(0)
