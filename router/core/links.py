"""Links as the core sees them: credit, queues, deliveries in flight, counters.

A wire is the engine's link object. The core calls its functions and never looks inside a delivery handle. In flight,
an unsettled delivery is one tuple in the receiving link's `unsettled`: handle → (origin, source, since_s), where
`origin` is told the outcome: the sending link itself, a Fanout (multicast) or a Stream.

Sources: docs/spec/routing.md §6, §8, §9.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from router.core.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED

if TYPE_CHECKING:
    from router.core.addresses import Address
    from router.core.pacing import Pacing
    from router.core.streams import Leg
    from router.core.work import Work

Handle = Any  # a delivery of the engine


class Origin(Protocol):
    """Who learns what became of a copy of a message."""

    def on_accepted(self, source: Handle, since_s: int) -> None: ...
    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None: ...
    def on_progress(self, source: Handle, state: int, out: "OutLink", outgoing: Handle) -> None: ...
    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None: ...

    def source_of(self, key: Handle) -> Handle:
        """The sender's delivery; `key` is what the other functions get as `source`."""
        ...


class Attachment:
    """What every link of one connection shares."""

    __slots__ = (
        *("capacity", "connection_id", "engine", "held_back_count", "in_links", "is_blocked", "is_route_container"),
        *("out_links", "pacing"),
    )

    def __init__(self, *, connection_id: int, engine: Any, capacity: int, is_route_container: bool = False) -> None:
        self.connection_id = connection_id
        self.engine = engine
        self.capacity = capacity
        self.is_route_container = is_route_container
        self.is_blocked = False  # the socket takes no more for now
        self.in_links: set[InLink] = set()
        self.out_links: set[OutLink] = set()
        self.pacing: Pacing | None = None  # what the connection may send in a second, if that is limited
        self.held_back_count = 0  # how often its senders had to wait for that


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
        "is_blocked",
        "is_open",
        "modified",
        "name",
        "presettled",
        "rate_samples",
        "rejected",
        "released",
        "settle",
        "settle_rate",
        "stuck",
        "wire",
        "work",
        "zero_credit_since_s",
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
        # Kept by core.watch:
        self.stuck = 0  # deliveries now counted as stuck
        self.settle_rate = 0  # settled per second, mean of the last seconds
        self.rate_samples: tuple[int, ...] = ()
        self.zero_credit_since_s: int | None = work.now_s
        self.is_blocked = False

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
        """A delivery was settled after more than a second; it may have been counted as stuck."""
        if seconds > 10:
            self.delayed_10s += 1
        else:
            self.delayed_1s += 1
        self.count_unstuck(self.work.now_s - seconds)

    def count_unstuck(self, since_s: int) -> None:
        """A delivery of that time is settled or gone."""
        if self.stuck and since_s < self.work.stuck_before_s:
            self.stuck -= 1


def _stop(_delivery: Handle, _size: int, _before: int) -> bool:
    """A limit whose owner is not known: the message goes nowhere."""
    return True


class InLink(_Link):
    """A link on which a client sends."""

    __slots__ = (
        "accept",
        "annotations",
        "credit_withheld",
        "discard",
        "dropped_presettled",
        "grant",
        "inspect",
        "is_draining",
        "is_settled",
        "max_message_bytes",
        "on_over_credit",
        "on_oversize",
        "owed",
        "receivers",
        "route",
        "update",
        "updated",
    )

    def __init__(self, identity: int, wire: Any, attachment: Attachment, work: "Work") -> None:
        super().__init__(identity, wire, attachment, work)
        self.is_settled = wire.is_settled
        self.update = wire.update
        self.accept = wire.accept_delivery
        # Pacing puts its own here.
        self.grant: Callable[[int], None] = wire.grant
        self.discard: Callable[[Handle, Callable[[], None]], None] = wire.discard
        # Looks at the message in the buffer: returns its (new) size, or -1 after it refused it. None: nothing to do.
        self.inspect: Callable[[Handle, int], int] | None = None
        # Anonymous links: inspects, and names the address; None after it refused the message.
        self.route: Callable[[Handle, int], tuple[Address, int] | None] | None = None
        self.annotations: Any = None  # router annotations taken off the message just inspected
        # Past so many bytes on_oversize is asked, 0: never. It takes the delivery, its size now and its size before,
        # and says whether it refused the message.
        self.max_message_bytes = 0
        self.on_oversize: Callable[[Handle, int, int], bool] = _stop
        self.on_over_credit: Callable[[], None] | None = None
        self.owed = 0  # credit to give back at the end of this pass
        self.credit_withheld = 0  # credit not issued because nobody can receive
        self.is_draining = False
        self.dropped_presettled = 0
        self.receivers: Callable[[], Iterable[OutLink]] = tuple  # where its messages may be
        self.updated: set[Handle] = set()  # whose sender settled or gave a state in this pass

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
        if self.wire.credit + owed < 0:
            if self.on_over_credit is not None:
                self.on_over_credit()
            return
        if not self.may_have_credit:
            self.credit_withheld += owed
            return
        self.grant(owed)
        self.work.touched.add(self.engine)

    def grant_initial(self, window: int) -> None:
        """The whole window at attach, if somebody can receive."""
        self.credit_withheld = window
        self.grant_withheld()

    def grant_withheld(self) -> None:
        """Somebody can receive (again)."""
        if self.is_open and self.may_have_credit and (self.credit_withheld or self.is_draining):
            if self.is_draining:
                self.is_draining = False
                self.wire.stop_drain()
            credit, self.credit_withheld = self.credit_withheld, 0
            self.grant(credit)
            self.work.touched.add(self.engine)

    def on_drained(self, credit: int) -> None:
        """The sender gave up `credit`. More than it had is an attack on our arithmetic: over its credit."""
        if self.wire.credit >= 0:
            self.owe(credit)
        elif self.on_over_credit is not None:
            self.on_over_credit()

    def on_aborted(self) -> None:
        self.owe()

    # Outcomes (Origin)

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
        self.count_outcome(state)
        if (delay := self.work.now_s - since_s) > 1:
            self.count_delay(delay)
        self.conclude(source)

    def on_progress(self, source: Handle, state: int, out: "OutLink", outgoing: Handle) -> None:
        """The receiver gave a state and waits for our settlement (three-way), or reports progress."""
        if self.is_open:
            self.wire.relay_state(source, outgoing, state)
            self.work.touched.add(self.engine)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        """The receiver is gone: modified if it may have seen the message, else released (routing §9.3)."""
        if not self.is_open:
            return
        self.count_unstuck(since_s)
        if was_sent:
            self.wire.modify(source)
            self.modified += 1
        else:
            self.wire.release(source)
            self.released += 1
        self.conclude(source)

    def on_merged(self, source: Handle, since_s: int, outcome: int) -> None:
        """The one outcome of several copies: without their data (routing §7.3)."""
        if outcome in (MODIFIED, RELEASED):
            self.on_lost(source, since_s, was_sent=outcome == MODIFIED)
        elif self.is_open:
            self.update(source, outcome)
            self.count_outcome(outcome)
            if (delay := self.work.now_s - since_s) > 1:
                self.count_delay(delay)
            self.conclude(source)

    def conclude(self, source: Handle) -> None:
        """Its state has been given: settle, at once or when the rest of the message has come. One credit returns."""
        if self.wire.is_partial(source):
            self.discard(source, lambda: self._settle(source))
            self.work.touched.add(self.engine)
        else:
            self._settle(source)

    def _settle(self, source: Handle) -> None:
        if self.is_open:
            self.settle(source)
            self.owe()

    def refuse(self, delivery: Handle, condition: Any) -> None:
        """Reject a message before routing; presettled ones vanish. One credit returns (routing §9.5)."""
        if not self.is_settled(delivery):
            self.wire.reject(delivery, condition)
        self.conclude(delivery)

    def release_undeliverable(self, delivery: Handle) -> None:
        """No destination: released, or dropped and counted when presettled (routing §6.1, §8.2)."""
        self.delivery_count += 1
        if self.is_settled(delivery):
            self.presettled += 1
            self.dropped_presettled += 1
        else:
            self.released += 1
            self.wire.release(delivery)
        self.conclude(delivery)
        if self.address is not None and not self.address.has_path and not self.is_draining:
            self.is_draining = True
            self.wire.start_drain()

    # The sender's own dispositions

    def on_updated(self, source: Handle) -> None:
        """The sender settled first, answered a three-way receiver, or gave a state of its own (routing §9.1)."""
        if not self.updated:
            self.engine.afterwards.append(self._take_updates)
        self.updated.add(source)

    def _take_updates(self) -> None:
        """Carry the sender's dispositions to the copies of its messages.

        A search through what is in flight to this link's receivers, once per read and only for senders that do this:
        keeping the way from message to copies would cost every message.
        """
        updated, self.updated = self.updated, set()
        if not self.is_open:
            return
        settled = {source for source in updated if self.is_settled(source)}
        found: set[Handle] = set()  # settled ones whose copies are settled now
        queued: set[Handle] = set()  # those of them whose credit returns when the copy is written
        for out in self.receivers():
            for outgoing, (origin, key, _) in list(out.unsettled.items()):
                source = origin.source_of(key)
                if source in settled:
                    if origin is self:
                        self.count_outcome(out.wire.remote_state(outgoing))
                    out.settle_early(outgoing)
                    found.add(source)
                elif source in updated and (state := self.wire.remote_state(source)):
                    out.wire.relay_state(outgoing, source, state)
                    self.work.touched.add(out.engine)
            if settled and out.queue:
                out.queue = deque(self._as_settled(item, settled, found, queued) for item in out.queue)
        for source in found:
            self.settle(source)
            if source not in queued:
                self.owe()
        self.work.touched.add(self.engine)

    def _as_settled(self, item: Queued, settled: set[Handle], found: set[Handle], queued: set[Handle]) -> Queued:
        """A queued copy, made presettled when its sender has settled."""
        if item.is_settled or item.origin is None:
            return item
        source = item.origin.source_of(item.source)
        if source not in settled:
            return item
        found.add(source)
        if item.leg is not None:
            item.leg.stream.forgo_outcome()
            return item._replace(is_settled=True)
        origin = None if source in queued else self
        queued.add(source)
        return Queued(origin, None, item.since_s, item.payload, True)

    def source_of(self, key: Handle) -> Handle:
        return key


# Every so many messages to a receiver one takes the slow way, on which its sender's own credit is looked at. Stops a
# sender that ignores its credit from filling our memory with deliveries that a patient receiver never settles.
_ROOM_STEP: Final = 1024


class OutLink(_Link):
    """A link on which a client receives.

    INVARIANT: room > 0 means that nothing is queued, no streamed message occupies the link, the session and the socket
    take more and there is credit, so a delivery may be written at once.
    """

    __slots__ = (
        "compose",
        "dropped_presettled",
        "leg",
        "load",
        "queue",
        "room",
        "room_given",
        "send",
        "sends_settled",
        "unchecked",
        "unsettled",
    )

    def __init__(self, identity: int, wire: Any, attachment: Attachment, work: "Work") -> None:
        super().__init__(identity, wire, attachment, work)
        self.send = wire.send
        # Makes the bytes to send where the receiver wants router annotations. None: the message as it is.
        self.compose: Callable[[InLink | None, int], bytes] | None = None
        self.sends_settled: bool = wire.wants_settled
        self.room = 0
        self.room_given = 0  # what room was when it was last worked out
        self.unchecked = 0  # sent since a sender's credit was last looked at
        self.load = 0  # queued and unsettled deliveries: what balanced compares
        self.leg: Leg | None = None  # the streamed message that occupies the link
        self.queue: deque[Queued] = deque()
        self.unsettled: dict[Handle, tuple[Origin, Handle, int]] = {}
        self.dropped_presettled = 0

    def on_receiver_accepted(self, outgoing: Handle) -> None:
        """The receiver has accepted and settled. Hot."""
        record = self.unsettled.pop(outgoing, None)
        if record is not None:
            origin, source, since_s = record
            self.load -= 1
            if self.stuck:
                self.count_unstuck(since_s)
            self.accepted += 1
            origin.on_accepted(source, since_s)
        self.settle(outgoing)

    def on_delivery(self, outgoing: Handle) -> None:
        """The receiver's disposition, any other."""
        wire = self.wire
        state = wire.remote_state(outgoing)
        if wire.is_settled(outgoing):
            record = self.unsettled.pop(outgoing, None)
            if record is not None:
                origin, source, since_s = record
                self.load -= 1
                if self.stuck:
                    self.count_unstuck(since_s)
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

    def withdraw(self, leg: "Leg") -> None:
        """The message will not come: take its place out of the queue."""
        self.queue = deque(item for item in self.queue if item.leg is not leg)
        self.load -= 1

    def on_credit(self) -> None:
        """The receiver granted credit or asks to drain, or some of what was sent has left."""
        self.refresh_room()
        if self.leg is not None:
            self.work.resumable.add(self.leg.stream)

    def refresh_room(self) -> None:
        """Take the credit as it stands, send what is queued, and answer a drain when all is sent."""
        self.unchecked += self.room_given - self.room
        self.room = self.room_given = 0
        wire, queue = self.wire, self.queue
        if self.attachment.is_blocked or self.leg is not None or not self.is_open or wire.is_congested:
            return
        room = wire.credit
        while room > 0 and queue and self.leg is None:
            item = queue.popleft()
            self.load -= 1
            room -= 1
            self._send_queued(item)
        if queue or self.leg is not None or room <= 0:
            return
        if wire.is_draining:
            wire.drained()
            self.work.touched.add(self.engine)
        else:
            self.room = self.room_given = max(min(room, _ROOM_STEP - self.unchecked), 0)

    def make_room(self) -> None:
        """There is none: is there more? The caller looks at its sender's credit."""
        self.refresh_room()
        if self.unchecked >= _ROOM_STEP:
            self.unchecked = 0
            self.refresh_room()

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
        leg, self.leg = self.leg, None
        self.load = 0
        for origin, source, since_s in unsettled.values():
            origin.on_lost(source, since_s, was_sent=True)
        if leg is not None:
            leg.lose(was_sent=True)
        for item in queue:
            if item.leg is not None:
                item.leg.lose(was_sent=False)
            elif item.is_settled:
                if isinstance(item.origin, InLink):
                    item.origin.owe()
            elif item.origin is not None:
                item.origin.on_lost(item.source, item.since_s, was_sent=False)
