"""Links as the core sees them: credit, queues, deliveries in flight, counters.

A wire is the engine's link object. The core calls its functions and never looks inside a delivery handle. In flight,
an unsettled delivery is one tuple in the receiving link's `unsettled`: handle → (origin, source, since_s), where
`origin` is told the outcome: the sending link itself, a Fanout (multicast) or a Stream.

Sources: docs/spec/routing.md §6, §8, §9.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from router.core.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED

if TYPE_CHECKING:
    from router.core.addresses import Address
    from router.core.streams import Leg
    from router.core.work import Work

Handle = Any  # a delivery of the engine


class Origin(Protocol):
    """Who learns what became of a copy of a message."""

    def on_accepted(self, source: Handle, since_s: int) -> None: ...
    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None: ...
    def on_progress(self, source: Handle, state: int, out: "OutLink", outgoing: Handle) -> None: ...
    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None: ...


class Attachment:
    """What every link of one connection shares."""

    __slots__ = ("capacity", "connection_id", "engine", "in_links", "is_blocked", "is_route_container", "out_links")

    def __init__(self, *, connection_id: int, engine: Any, capacity: int, is_route_container: bool = False) -> None:
        self.connection_id = connection_id
        self.engine = engine
        self.capacity = capacity
        self.is_route_container = is_route_container
        self.is_blocked = False  # the socket takes no more for now
        self.in_links: set[InLink] = set()
        self.out_links: set[OutLink] = set()


class Queued(NamedTuple):
    """A delivery that waits for credit on an outgoing link."""

    origin: Origin | None  # None for messages the router itself makes
    source: Handle
    since_s: int
    payload: bytes
    is_settled: bool
    leg: "Leg | None" = None  # set instead of payload for a message being streamed


class _Link:
    __slots__ = (
        "accepted",
        "address",
        "attachment",
        "delayed_1s",
        "delayed_10s",
        "delivery_count",
        "engine",
        "identity",
        "is_open",
        "modified",
        "name",
        "presettled",
        "rejected",
        "released",
        "settle",
        "wire",
        "work",
    )

    def __init__(self, identity: int, wire: Any, attachment: Attachment, work: "Work") -> None:
        self.identity = identity
        self.name: str = wire.name
        self.wire = wire
        self.attachment = attachment
        self.engine = attachment.engine
        self.work = work
        self.address: Address | None = None
        self.is_open = True
        self.settle = wire.settle
        self.delivery_count = self.accepted = self.rejected = self.released = self.modified = 0
        self.presettled = self.delayed_1s = self.delayed_10s = 0

    def count_outcome(self, state: int) -> None:
        if state == ACCEPTED:
            self.accepted += 1
        elif state == REJECTED:
            self.rejected += 1
        elif state == RELEASED:
            self.released += 1
        elif state == MODIFIED:
            self.modified += 1

    def count_delay(self, seconds: int) -> None:
        if seconds > 10:
            self.delayed_10s += 1
        else:
            self.delayed_1s += 1


class InLink(_Link):
    """A link on which a client sends."""

    __slots__ = (
        "annotations",
        "credit_withheld",
        "dropped_presettled",
        "inspect",
        "is_draining",
        "is_settled",
        "max_message_bytes",
        "on_over_credit",
        "on_oversize",
        "owed",
        "route",
        "three_way",
        "update",
    )

    def __init__(self, identity: int, wire: Any, attachment: Attachment, work: "Work") -> None:
        super().__init__(identity, wire, attachment, work)
        self.is_settled = wire.is_settled
        self.update = wire.update
        # Looks at the message in the buffer: returns its (new) size, or -1 after it refused it. None: nothing to do.
        self.inspect: Callable[[Handle, int], int] | None = None
        # Anonymous links: inspects, and names the address; None after it refused the message.
        self.route: Callable[[Handle, int], tuple[Address, int] | None] | None = None
        self.annotations: Any = None  # router annotations taken off the message just inspected
        self.max_message_bytes = 0
        self.on_oversize: Callable[[Handle], None] | None = None
        self.on_over_credit: Callable[[], None] | None = None
        self.owed = 0  # credit to give back at the end of this pass
        self.credit_withheld = 0  # credit not issued because nobody can receive
        self.is_draining = False
        self.dropped_presettled = 0
        self.three_way: dict[Handle, tuple[OutLink, Handle]] = {}  # receivers that await our settlement

    @property
    def is_anonymous(self) -> bool:
        return self.address is None

    @property
    def may_have_credit(self) -> bool:
        return self.address is None or self.address.has_path

    def owe(self, credit: int = 1) -> None:
        """Give `credit` back to the sender at the end of this pass."""
        if not self.owed:
            self.work.refill.append(self)
            self.work.touched.add(self.engine)
        self.owed += credit

    def grant_owed(self) -> None:
        owed, self.owed = self.owed, 0
        if not self.is_open:
            return
        if not self.may_have_credit:
            self.credit_withheld += owed
            return
        self.wire.grant(owed)
        self.work.touched.add(self.engine)
        if self.wire.credit < 0 and self.on_over_credit is not None:
            self.on_over_credit()

    def grant_initial(self) -> None:
        """The whole window at attach, if somebody can receive."""
        self.credit_withheld = self.attachment.capacity
        self.grant_withheld()

    def grant_withheld(self) -> None:
        """Somebody can receive (again)."""
        if self.is_open and self.may_have_credit and (self.credit_withheld or self.is_draining):
            if self.is_draining:
                self.is_draining = False
                self.wire.stop_drain()
            credit, self.credit_withheld = self.credit_withheld, 0
            self.wire.grant(credit)
            self.work.touched.add(self.engine)

    def on_drained(self, credit: int) -> None:
        self.owe(credit)

    def on_aborted(self) -> None:
        self.owe()

    # Outcomes (Origin)

    def on_accepted(self, source: Handle, since_s: int) -> None:
        if not self.is_open:
            return
        self.update(source, ACCEPTED)
        self.settle(source)
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
        self.three_way.pop(source, None)
        if state:
            self.wire.relay_outcome(source, outgoing, state)
        self.settle(source)
        self.count_outcome(state)
        if (delay := self.work.now_s - since_s) > 1:
            self.count_delay(delay)
        self.owe()

    def on_progress(self, source: Handle, state: int, out: "OutLink", outgoing: Handle) -> None:
        """The receiver gave a state and waits for our settlement (three-way), or reports progress."""
        if not self.is_open:
            return
        self.three_way[source] = (out, outgoing)
        self.wire.relay_outcome(source, outgoing, state)
        self.work.touched.add(self.engine)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        """The receiver is gone: modified if it may have seen the message, else released (routing §9.3)."""
        if not self.is_open:
            return
        self.three_way.pop(source, None)
        if was_sent:
            self.wire.modify(source)
            self.modified += 1
        else:
            self.wire.release(source)
            self.released += 1
        self.owe()

    def on_sender_settled(self, source: Handle) -> None:
        """The sender settled before, or in answer to, the receiver's outcome (routing §9.1)."""
        waiting = self.three_way.pop(source, None)
        for out, outgoing in (waiting,) if waiting is not None else self._copies_of(source):
            out.settle_early(outgoing)
        self.settle(source)
        self.owe()

    def _copies_of(self, source: Handle) -> "list[tuple[OutLink, Handle]]":
        """Where a message of this link still waits for its outcome. A search: senders that settle first are rare."""
        out_links = self.address.out_links if self.address is not None else ()
        return [(out, outgoing) for out in out_links for outgoing, record in out.unsettled.items() if record[1] == source]

    def refuse(self, delivery: Handle, condition: Any) -> None:
        """Reject a message before routing; presettled ones vanish. One credit returns (routing §9.5)."""
        if self.is_settled(delivery):
            self.settle(delivery)
        else:
            self.wire.reject(delivery, condition)
        self.work.touched.add(self.engine)
        self.owe()

    def release_undeliverable(self, delivery: Handle) -> None:
        """No destination: released, or dropped and counted when presettled (routing §6.1, §8.2)."""
        self.delivery_count += 1
        if self.is_settled(delivery):
            self.presettled += 1
            self.dropped_presettled += 1
            self.settle(delivery)
        else:
            self.released += 1
            self.wire.release(delivery)
        self.work.touched.add(self.engine)
        self.owe()
        if self.address is not None and not self.address.has_path and not self.is_draining:
            self.is_draining = True
            self.wire.start_drain()


class OutLink(_Link):
    """A link on which a client receives.

    INVARIANT: room > 0 means that nothing is queued, no streamed message occupies the link and the socket takes
    more, so a delivery may be written at once.
    """

    __slots__ = (
        "compose",
        "dropped_presettled",
        "is_busy",
        "load",
        "queue",
        "room",
        "send",
        "sends_settled",
        "unsettled",
    )

    def __init__(self, identity: int, wire: Any, attachment: Attachment, work: "Work") -> None:
        super().__init__(identity, wire, attachment, work)
        self.send = wire.send
        # Makes the bytes to send where the receiver wants router annotations. None: the message as it is.
        self.compose: Callable[[InLink | None, int], bytes] | None = None
        self.sends_settled: bool = wire.wants_settled
        self.room = 0
        self.load = 0  # queued and unsettled deliveries: what balanced compares
        self.is_busy = False
        self.queue: deque[Queued] = deque()
        self.unsettled: dict[Handle, tuple[Origin, Handle, int]] = {}
        self.dropped_presettled = 0

    def on_delivery(self, outgoing: Handle) -> None:
        """The receiver's disposition. Hot."""
        wire = self.wire
        state = wire.remote_state(outgoing)
        if wire.is_settled(outgoing):
            record = self.unsettled.pop(outgoing, None)
            if record is not None:
                origin, source, since_s = record
                self.load -= 1
                if state == ACCEPTED:
                    self.accepted += 1
                    origin.on_accepted(source, since_s)
                else:
                    self.count_outcome(state)
                    origin.on_outcome(source, since_s, state, outgoing)
            self.settle(outgoing)
        elif state and (record := self.unsettled.get(outgoing)) is not None:
            record[0].on_progress(record[1], state, self, outgoing)

    def settle_early(self, outgoing: Handle) -> None:
        """The sender will not look at the outcome any more: settle towards the receiver."""
        if self.unsettled.pop(outgoing, None) is not None:
            self.load -= 1
            self.count_outcome(self.wire.remote_state(outgoing))
            self.settle(outgoing)
            self.work.touched.add(self.engine)

    def enqueue(self, item: Queued) -> None:
        self.queue.append(item)
        self.load += 1
        if item.is_settled and len(self.queue) > self.attachment.capacity:
            self._drop_presettled()

    def _drop_presettled(self) -> None:
        """A receiver that grants no credit keeps about linkCapacity presettled messages (routing §8.1)."""
        head, *middle, newest = self.queue
        kept = [item for item in middle if not item.is_settled or item.leg is not None]
        dropped = [item for item in middle if item.is_settled and item.leg is None]
        self.queue = deque((head, *kept, newest))
        self.load -= len(dropped)
        self.dropped_presettled += len(dropped)
        for item in dropped:
            if isinstance(item.origin, InLink):
                item.origin.owe()

    def on_credit(self) -> None:
        """The receiver granted credit, or asks to drain."""
        self.refresh_room()
        if self.wire.is_draining and not self.queue and not self.is_busy:
            self.wire.drained()
            self.room = 0
            self.work.touched.add(self.engine)

    def refresh_room(self) -> None:
        """Take the credit as it stands and send what is queued."""
        if self.attachment.is_blocked or self.is_busy or not self.is_open:
            self.room = 0
            return
        room = self.wire.credit
        queue = self.queue
        while room > 0 and queue and not self.is_busy:
            item = queue.popleft()
            self.load -= 1
            room -= 1
            self._send_queued(item)
        self.room = 0 if queue or self.is_busy else max(room, 0)

    def _send_queued(self, item: Queued) -> None:
        self.work.touched.add(self.engine)
        if item.leg is not None:
            item.leg.start()
            return
        self.send_payload(item.origin, item.source, item.since_s, item.payload, is_settled=item.is_settled)

    def send_payload(
        self, origin: Origin | None, source: Handle, since_s: int, payload: bytes, *, is_settled: bool
    ) -> None:
        """Send one complete delivery and account for it. The caller has taken the credit for it."""
        self.delivery_count += 1
        outgoing = self.wire.send_bytes(payload)
        if is_settled:
            self.presettled += 1
            self.settle(outgoing)
            if isinstance(origin, InLink):
                origin.owe()
        elif self.sends_settled:
            self.settle(outgoing)
            if origin is not None:
                origin.on_accepted(source, since_s)
        elif origin is not None:
            self.unsettled[outgoing] = (origin, source, since_s)
            self.load += 1

    def lose_everything(self) -> None:
        """The link is gone: tell every origin what became of its message."""
        self.is_open = False
        self.room = 0
        unsettled, self.unsettled = self.unsettled, {}
        queue, self.queue = self.queue, deque()
        self.load = 0
        for origin, source, since_s in unsettled.values():
            origin.on_lost(source, since_s, was_sent=True)
        for item in queue:
            if item.leg is not None:
                item.leg.lose()
            elif item.is_settled:
                if isinstance(item.origin, InLink):
                    item.origin.owe()
            elif item.origin is not None:
                item.origin.on_lost(item.source, item.since_s, was_sent=False)
