"""Routed links: a link of one peer continues as a link of another, and the router adds and stores nothing.

Credit and drains come from the receiver, and tags from the sender. Messages, outcomes and losses are handled as on
other links. Sources: docs/spec/routing.md §6.3, §15; docs/spec/network.md §11.
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

# How many messages the sender may be ahead of the receiver, even if the receiver's credit is larger. Attack: a receiver
# grants credit for a million small messages and takes none. All of them were on their way, or in the engine.
MAX_AHEAD: Final = 2048
# The error for a message without a body. The router looks at no bytes of other messages: they concern only the two
# peers.
EMPTY: Final = Condition(name="amqp:decode-error", description="invalid message format")
_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET
_PLAIN: Final = Treatment()


class Tagged(bytes):
    """A message that waits, with the tag of its sender."""

    tag: bytes


class RoutedPath(LiveAddress):
    """The only way of a routed link. It is in no table, so no other message finds it.

    on_emptied    called once, when everything that waits for the receiver has left
    in_hand       1 while a message is being given to the receiver, and has used up a credit of the sender
    is_exhausted  True while the sender has just reported that it has no more messages
    begin         takes a message that has not arrived completely, or has a state
    has_transaction  tells whether the client's coordinator at the same container gave it this transaction
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
        """Grants the sender the receiver's credit, minus the messages that are under way."""
        inward, onward = self.inward, self.onward
        if not (inward.is_open and onward.is_open) or inward.holds & _HOLDS_CREDIT:
            return
        if inward.is_draining and not onward.wire.is_draining:
            inward.stop_drain()
        more = min(onward.wire.credit, MAX_AHEAD) - len(onward.queue) - inward.wire.credit - self.in_hand
        if more > 0:
            inward.wire.grant(more)  # rate limits delay the taking of messages, not the credit
            inward.work.touched.add(inward.engine)

    def drain(self) -> bool:
        """Asks the sender for its remaining messages, because the receiver drains.

        Returns False if it has no credit left.
        """
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
    """The common part of both links, as management shows them.

    is_own  True if the router attached the link
    """

    __slots__ = ()
    attachment: Connection
    is_own: bool
    path: RoutedPath

    def _may_name(self, transaction: bytes | None) -> bool:
        """Returns True if the peer may name the transaction. A container may name any."""
        return self.is_own or self.path.has_transaction(transaction)

    @property
    def owning_key(self) -> str:
        return self.path.key

    @property
    def capacity(self) -> int:
        return 0 if self.is_own else self.attachment.capacity


class RoutedIn(_Routed, InLink):
    """The link on which messages of a routed link arrive. Its credit is exactly the receiver's credit.

    room_bytes  the bytes from a container that may wait. The receiver's account pays for them, because the receiver
                asked for them.
    Attack: a few clients that ask for much and take nothing. Their messages were charged to the container's connection,
    and when its account was full, no client got anything from the container.
    """

    __slots__ = ("is_own", "path", "room_bytes")
    room_bytes: int
    # For example a transaction's state, without which the message would be outside of the transaction.
    relays_states = True

    @property
    def payer(self) -> tuple[Account, int]:
        return (self.path.onward.attachment.account, self.room_bytes) if self.is_own else super().payer

    @property
    def peer(self) -> str:
        return str(self.path.onward.identity)

    def may_transact(self, delivery: Handle) -> bool:
        return self._may_name(self.wire.transaction(delivery))

    def grant_owed(self) -> None:
        """Grants nothing: only the receiver gives credit. Reports a sender that is over its credit."""
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
        # Looked up once, because it is called for each message.
        self.send_as: Callable[[int, Handle], Handle] = wire.send_as

    @property
    def peer(self) -> str:
        return str(self.path.inward.identity)

    def on_credit(self) -> None:
        # This comes first. Otherwise a drain that arrives together with the credit finds the sender without credit.
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
        """True if the sender sent messages for which the receiver had no room."""
        return bool(self.queue) or self.leg is not None

    def may_transact(self, delivery: Handle) -> bool:
        """Returns True if the receiver may name the transaction.

        After the Discharge a receiver may settle a delivery that had its outcome before.
        """
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
        """Queues a message with its tag and state.

        The engine may have released the delivery of a large message before its turn comes.
        """
        if isinstance(item.leg, Leg):
            item.leg.tag = self.path.inward.wire.tag(item.leg.stream.source)
        super().enqueue(item)

    def occupy(self, leg: Growing) -> None:
        super().occupy(leg)
        assert isinstance(leg, Leg)
        self.wire.next_tag = self.path.inward.wire.tag(leg.stream.source) if leg.tag is None else leg.tag

    def _drop_presettled(self) -> None:
        """Drops nothing: the receiver gave credit for each message. What waits, waits for its session's window."""

    def send_payload(
        self, origin: object, source: Handle | None, since_s: int, payload: bytes, *, is_settled: bool
    ) -> None:
        if isinstance(payload, Tagged):
            self.wire.next_tag = payload.tag
        super().send_payload(origin, source, since_s, payload, is_settled=is_settled)  # type: ignore[arg-type]


def forward_routed(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Forwards a message that has arrived completely, unchanged."""
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
    """Forwards as `forward_routed` while the receiver drains.

    A sender without credit does not announce its last message.
    """
    assert isinstance(address, RoutedPath)
    address.forward(link, address, delivery, size)
    if link.wire.credit <= 0 and address.onward.is_open:
        address.onward.refresh_room()


def _give_later(link: InLink, out: RoutedOut, delivery: Handle, size: int, *, is_settled: bool) -> None:
    """Queues a message because the receiver has no room now, or its room must be calculated."""
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
