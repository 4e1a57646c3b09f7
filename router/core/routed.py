"""Routed links: a link of one peer goes on as a link of another, and the router adds nothing and keeps nothing.

Credit and drains are the receiver's, tags the sender's. Messages, outcomes and losses take
the ways that they take on other links. Sources: docs/spec/routing.md §6.3, §15; docs/spec/network.md §11.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from router.core.addresses import LiveAddress, Treatment
from router.core.forward import give_copy
from router.core.in_links import LINK_OVER_BUDGET, OVER_BUDGET, InLink
from router.core.links import Connection, Growing, Queued
from router.core.out_links import OutLink
from router.core.ports import OutgoingWire
from router.core.streams import Leg
from router.core.weights import LARGE_BYTES
from router.core.work import Work
from router.values import Handle

_HOLDS_CREDIT: Final = OVER_BUDGET | LINK_OVER_BUDGET
_PLAIN: Final = Treatment()


class Tagged(bytes):
    """A message that waits, with the tag of its sender."""

    tag: bytes


class RoutedPath(LiveAddress):
    """The one way of a routed link. In no table: nobody else finds it.

    on_emptied  called once, when all that waits for the receiver has left
    has_transactions  has the client a coordinator at the same container?
    """

    __slots__ = ("has_transactions", "inward", "on_emptied", "onward")

    def __init__(self, key: str, inward: "RoutedIn", onward: "RoutedOut", has_transactions: Callable[[], bool]) -> None:
        super().__init__(key, _PLAIN, forward_routed)
        self.inward = inward
        self.onward = onward
        self.has_transactions = has_transactions
        self.on_emptied: Callable[[], None] | None = None
        self.out_links = deque((onward,))

    def relay_credit(self) -> None:
        """The sender may send what the receiver takes, beyond what is under way."""
        inward, onward = self.inward, self.onward
        if not (inward.is_open and onward.is_open) or inward.holds & _HOLDS_CREDIT:
            return
        if inward.is_draining and not onward.wire.is_draining:
            inward.is_draining = False
            inward.wire.stop_drain()
        more = onward.wire.credit - len(onward.queue) - inward.wire.credit
        if more > 0:
            inward.wire.grant(more)  # rates are kept by taking nothing, not by giving less
            inward.work.touched.add(inward.engine)

    def drain(self) -> bool:
        """The receiver drains. Asks the sender for the rest; False: it has no credit left for any."""
        inward = self.inward
        if not inward.is_open or inward.wire.credit <= 0:
            return False
        if not inward.is_draining:
            inward.is_draining = True
            inward.wire.start_drain()
            inward.work.touched.add(inward.engine)
        return True


class _Routed:
    """The common part of both links, as management shows it. is_own: the router attached it"""

    __slots__ = ()
    attachment: Connection
    is_own: bool
    path: RoutedPath

    @property
    def may_transact(self) -> bool:
        """What the container says of transactions is its own."""
        return self.is_own or self.path.has_transactions()

    @property
    def owning_key(self) -> str:
        return self.path.key

    @property
    def capacity(self) -> int:
        return 0 if self.is_own else self.attachment.capacity


class RoutedIn(_Routed, InLink):
    """The link on which messages of a routed link come. Its credit is what the receiver gave, no more."""

    __slots__ = ("is_own", "path")

    @property
    def peer(self) -> str:
        return str(self.path.onward.identity)

    def grant_owed(self) -> None:
        """Nobody is owed credit: that is the receiver's to give."""
        self.owed = 0
        if self.is_open and self.wire.credit < 0 and self.on_over_credit is not None:
            self.on_over_credit()

    def grant_initial(self, window: int) -> None:
        self.path.relay_credit()

    def grant_withheld(self) -> None:
        self.path.relay_credit()

    def on_drained(self, credit: int) -> None:
        if self.wire.credit < 0:
            super().on_drained(credit)
            return
        self.is_draining = False
        self.wire.stop_drain()
        onward = self.path.onward
        if onward.is_open:
            onward.refresh_room()


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
        if path.on_emptied is not None and not self.has_waiting:
            emptied, path.on_emptied = path.on_emptied, None
            emptied()

    @property
    def has_waiting(self) -> bool:
        """Is there what the sender has sent and the receiver had no room for?"""
        return bool(self.queue) or self.leg is not None

    def answer_drain(self) -> None:
        if not self.path.drain():
            super().answer_drain()

    def vacate(self) -> None:
        super().vacate()
        self.path.relay_credit()

    def enqueue(self, item: Queued) -> None:
        """The sender may have left before a large message's turn comes, and the engine released what it had of it."""
        if isinstance(item.leg, Leg):
            item.leg.tag = self.path.inward.wire.tag(item.leg.stream.source)
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
    limit = link.max_message_bytes
    if limit and size > limit and link.on_oversize(delivery, size, 0):
        return
    if not out.is_open:
        link.release_undeliverable(delivery)
        return
    is_settled = link.is_settled(delivery)
    if out.room <= 0:
        _give_later(link, out, delivery, size, is_settled=is_settled)
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


def _give_later(link: InLink, out: RoutedOut, delivery: Handle, size: int, *, is_settled: bool) -> None:
    """The receiver has no room now, or its room is to be counted."""
    payload = Tagged(link.work.copy(size))
    payload.tag = link.wire.tag(delivery)
    link.delivery_count += 1
    if is_settled:
        link.presettled += 1
        link.settle(delivery)
        give_copy(link, out, None, link.work.now_s, payload, is_settled=True)
    else:
        give_copy(link, out, delivery, link.work.now_s, payload, is_settled=False)
    if link.wire.credit < 0:
        link.owe(0)
