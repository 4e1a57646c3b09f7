"""Links on which clients receive: messages that wait for their credit, and messages in flight to them.

Sources: docs/spec/routing.md §6.2, §8, §9.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import ClassVar, Final, Protocol, cast

from router.core.budget import RECORD_BYTES, Level
from router.core.crossings import CrossingWeights
from router.core.in_links import InLink
from router.core.links import Answer, Connection, Growing, Link, Origin, Queued
from router.core.ports import OutgoingWire
from router.core.weights import LARGE_BYTES, Details, Weights
from router.core.work import Work
from router.values import Handle

# After this number of messages to a receiver, one message takes the slow path, which checks the sender's own credit.
# Attack: a sender that ignores its credit fills our memory with deliveries that a receiver never settles.
_ROOM_STEP: Final = 1024

# A link's account may differ by this number of records until the next second.
_RECORDS_STEP: Final = 64

# The load of a link that a message under way occupies: more than any number of deliveries. Otherwise a message that
# does not end would delay messages for which another receiver is free.
OCCUPIED: Final = 1 << 30


class Bypass(Protocol):
    """Other links of the connection, for messages that have not arrived completely (router.core.streaming_links)."""

    def take(self, sender: InLink | None, /) -> "OutLink | None": ...


class OutLink(Link):
    """A link on which a client receives.

    INVARIANT: room > 0 means that a delivery may be written at once. Nothing is queued, no streamed message occupies
    the link, the session and the socket accept more, and there is credit.
    """

    __slots__ = (
        *(
            "bypass",
            "compose",
            "details",
            "dropped_presettled",
            "leg",
            "load",
            "on_sending",
            "on_stalled",
            "queue",
            "records",
        ),
        *("room", "room_given", "send", "sends_settled", "unchecked", "unsettled", "weights"),
    )
    wire: OutgoingWire
    # True if it waits while the connection's receivers hold too much that they do not settle.
    waits_for_others: ClassVar[bool] = True

    def __init__(self, identity: int, wire: OutgoingWire, attachment: Connection, work: Work) -> None:
        super().__init__(identity, wire, attachment, work)
        self.send: Callable[[int], Handle] = wire.send
        # Gets the bytes that `compose` made when they begin to leave, perhaps long after. None: not needed.
        self.on_sending: Callable[[bytes], None] | None = None
        # Makes the bytes to send if the receiver wants router annotations. None: the message is sent unchanged.
        self.compose: Callable[[InLink | None, int], bytes] | None = None
        self.bypass: Bypass | None = None  # other links that take its large messages; None: it takes them itself
        self.sends_settled = wire.wants_settled
        self.room = 0
        self.room_given = 0  # the value of room when it was last calculated
        self.unchecked = 0  # messages sent since a sender's credit was last checked
        self.load = 0  # queued and unsettled deliveries, and OCCUPIED: balanced distribution compares it
        self.leg: Growing | None = None  # the streamed message that occupies the link
        self.queue: deque[Queued] = deque()
        self.unsettled: dict[Handle, tuple[Origin, Handle, int]] = {}
        self.records = 0  # unsettled deliveries that the account is charged for
        self.weights: Weights | CrossingWeights | None = None  # of large messages; None: there was none yet
        self.details: Details | None = None  # of states given and not settled; None: there was none yet
        self.dropped_presettled = 0
        # Called if the receiver has taken nothing of a message under way for this number of seconds.
        self.on_stalled: Callable[[float], None] | None = None

    def on_receiver_accepted(self, outgoing: Handle) -> None:
        """Handles that the receiver has accepted and settled. Hot."""
        record = self.unsettled.pop(outgoing, None)
        if record is not None:
            origin, source, since_s = record
            self.load -= 1
            if self.stuck:
                self.count_unstuck(since_s)
            self.accepted += 1
            origin.on_accepted(source, since_s)
        elif self.leg is not None and self.leg.ends_early(outgoing):
            return
        self.settle(outgoing)

    def on_delivery(self, outgoing: Handle) -> None:
        """Handles any other disposition of the receiver."""
        wire = self.wire
        state = wire.remote_state(outgoing)
        if self.is_foreign(outgoing):
            self._leave_without_outcome(outgoing)
        elif wire.is_settled(outgoing):
            record = self.unsettled.pop(outgoing, None)
            if record is not None:
                origin, source, since_s = record
                self.load -= 1
                if self.stuck:
                    self.count_unstuck(since_s)
                self.count_outcome(state)
                origin.on_outcome(source, since_s, state, outgoing)
            elif self.leg is not None and self.leg.ends_early(outgoing):
                return
            self.settle(outgoing)
        elif state and (record := self.unsettled.get(outgoing)) is not None:
            origin, source, since_s = record
            if size := self.engine.details_bytes:
                if self.details is None:
                    account = self.attachment.account
                    self.details = Details(account.charge if self.attachment.is_neighbour else account.wait)
                    self.settle = self._settle_weighed
                self.details.give(outgoing, size)
            successor = origin.on_progress(source, state, outgoing, self.settle_early)
            if successor is not None:
                self.unsettled[outgoing] = (successor, source, since_s)

    def _leave_without_outcome(self, outgoing: Handle) -> None:
        """Gives up a delivery that its receiver settled in a transaction unknown here: its real outcome is unknown."""
        if self.wire.is_settled(outgoing):
            record = self.unsettled.pop(outgoing, None)
            if record is not None:
                origin, source, since_s = record
                self.load -= 1
                origin.on_lost(source, since_s, was_sent=True)
            self.settle(outgoing)

    def settle_early(self, outgoing: Handle) -> None:
        """Settles a delivery whose outcome the sender no longer needs, when the receiver has the whole message."""
        if self.leg is not None and self.leg.turns_settled(outgoing):
            return
        if self.unsettled.pop(outgoing, None) is not None:
            self.load -= 1
            self.count_outcome(self.wire.remote_state(outgoing))
            self.settle(outgoing)
            self.work.touched.add(self.engine)

    def enqueue(self, item: Queued) -> None:
        self.queue.append(item)
        item.charge.take()
        self.load += 1
        if item.is_settled and len(self.queue) > self.attachment.capacity:
            self._drop_presettled()

    def _drop_presettled(self) -> None:
        """Limits the queue of a receiver without credit to about linkCapacity presettled messages (routing §8.1)."""
        head, *middle, newest = self.queue
        kept = [item for item in middle if not _may_be_dropped(item)]
        dropped = [item for item in middle if _may_be_dropped(item)]
        self.queue = deque((head, *kept, newest))
        self.load -= len(dropped)
        self.dropped_presettled += len(dropped)
        for item in dropped:
            item.charge.free()
            if isinstance(item.origin, InLink):
                item.origin.owe()

    def charge(self, size: int) -> None:
        """Adds `size` bytes of other routers' messages that wait here. A negative `size` removes bytes."""
        self.attachment.account.keep(size)

    def refuse(self, origin: Origin | None, source: Handle | None, since_s: int, level: Level) -> None:
        """Releases a message of another router that may not wait here, or drops it if it is presettled.

        Attack: the one described in router.core.ways, from many routers or to many receivers.

        level  the level of the receiver's account that has no room
        """
        self.attachment.refuse_to_keep(level)
        if origin is not None and source is not None:
            origin.on_lost(source, since_s, was_sent=False)
            return
        self.dropped_presettled += 1
        if isinstance(origin, InLink):
            origin.owe()

    def occupy(self, leg: Growing) -> None:
        """Reserves the link for the streamed message until `vacate`."""
        self.leg = leg
        self.room = 0
        self.load += OCCUPIED

    def vacate(self) -> None:
        """Frees the link for its next message, because the streamed message is over."""
        self.leg = None
        self.load -= OCCUPIED
        self.work.touched.add(self.engine)

    def abort(self, outgoing: Handle) -> None:
        """Aborts the streamed message that occupies the link, because it stays incomplete. Frees the link."""
        self.wire.abort(outgoing)
        self.vacate()
        self.refresh_room()

    def break_off(self) -> None:
        """Aborts a streamed message before the link is closed: the receiver must not take its part as complete."""
        if self.leg is not None:
            self.leg.break_off()
            self.work.touched.add(self.engine)

    def give_up(self) -> None:
        """Gives up the streamed message that occupies the link. The link itself continues."""
        leg = self.leg
        if leg is not None:
            leg.give_up()
            self.work.touched.add(self.engine)

    def withdraw(self, leg: Growing) -> None:
        """Removes a message that will not come from the queue."""
        kept = deque(item for item in self.queue if item.leg is not leg)
        for item in self.queue:
            if item.leg is leg:
                item.charge.free()
        self.queue = kept
        self.load -= 1

    def on_credit(self) -> None:
        """Handles that the receiver granted credit or asks to drain, or that some of the sent bytes have left."""
        room, wire = self.room, self.wire
        if room > 0 and wire.credit >= room and not wire.is_draining and not wire.is_congested:
            return  # there is room as before, and it is calculated again when it is used up
        self.refresh_room()
        if self.leg is not None:
            self.work.resumable.add(self.leg.stream)

    def refresh_room(self) -> None:
        """Calculates the room from the credit, sends queued messages, and answers a drain when all of them are sent."""
        self.unchecked += self.room_given - self.room
        self.room = self.room_given = 0
        wire, queue, attachment = self.wire, self.queue, self.attachment
        if not -_RECORDS_STEP < len(self.unsettled) - self.records < _RECORDS_STEP:
            self.count_records()
        if (
            attachment.is_blocked
            or (attachment.is_crowded and self.waits_for_others)
            or self.leg is not None
            or not self.is_open
            or wire.is_congested
        ):
            return
        room = wire.credit
        while room > 0 and queue and self.leg is None and not (attachment.is_crowded and self.waits_for_others):
            item = queue.popleft()
            item.charge.free()
            self.load -= 1
            room -= 1
            self._send_queued(item)
        if queue or self.leg is not None or room <= 0:
            if wire.drain_limit is not None and room <= 0 and self.leg is None:
                self.answer_drain()
            return
        if not wire.is_draining or not self.answer_drain():
            self.room = self.room_given = max(min(room, _ROOM_STEP - self.unchecked), 0)

    def answer_drain(self) -> bool:
        """Answers a receiver that drains the link, when everything is sent.

        Returns True if the drain has its answer.
        """
        self.wire.drained()
        self.work.touched.add(self.engine)
        return True

    def count_records(self) -> None:
        """Charges the connection for deliveries that the receiver has not settled.

        If the receiver is another router, this never stops the other receivers.
        """
        more = len(self.unsettled) - self.records
        self.records += more
        account = self.attachment.account
        (account.charge if self.attachment.is_neighbour else account.wait)(more * RECORD_BYTES)

    def weigh(self, outgoing: Handle, size: int) -> None:
        """Charges for a large message that is not settled: the receiver's connection, or the sender if a router
        receives.

        Its record is already among the unsettled.
        """
        if self.weights is None:
            attachment = self.attachment
            is_far = attachment.is_neighbour
            self.weights = CrossingWeights(self.unsettled) if is_far else Weights(attachment.account.wait)
            self.settle = self._settle_weighed
        self.weights.add(outgoing, size)

    def _settle_weighed(self, outgoing: Handle) -> None:
        if self.weights is not None:
            self.weights.drop(outgoing)
        if self.details is not None:
            self.details.drop(outgoing)
        self.wire.settle(outgoing)

    def make_room(self) -> None:
        """Calculates the room again when none is left. The caller checks its sender's credit."""
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
        if item.has_state:
            self._carry_state(item)

    def _carry_state(self, item: Queued) -> None:
        """Gives the delivery that was just sent the state of its sender, unless that state is no longer needed."""
        if item.origin is None or item.source is None or not self.unsettled:
            return
        outgoing, (origin, source, _) = next(reversed(self.unsettled.items()))
        sender = origin.sender
        if origin is item.origin and source is item.source and sender.is_open:
            self.wire.relay_state(outgoing, source, sender.wire.remote_state(source))

    def send_payload(
        self, origin: Origin | None, source: Handle | None, since_s: int, payload: bytes, *, is_settled: bool
    ) -> None:
        """Sends one complete delivery and accounts for it. The caller has already taken the credit for it."""
        self.delivery_count += 1
        if self.on_sending is not None:
            self.on_sending(payload)
        outgoing = self.wire.send_bytes(payload)
        if is_settled:
            self.presettled += 1
            self.settle(outgoing)
            if isinstance(origin, InLink):
                origin.owe()
        elif self.sends_settled:
            self.settle(outgoing)
            if origin is not None and source is not None:
                origin.on_accepted(source, since_s)
        elif origin is not None and source is not None:
            self.unsettled[outgoing] = (origin, source, since_s)
            self.load += 1
            if len(payload) > LARGE_BYTES:
                self.weigh(outgoing, len(payload))

    def release(self) -> None:
        """Removes the references of a link that is gone, so that no cycle waits for the garbage collector."""
        self.on_stalled = self.on_foreign = None

    def drop_unsent(self) -> None:
        """Frees the bytes that have not left, because the receiver has detached."""
        self.wire.drop_unsent(reversed(self.unsettled))

    def give_up_queue(self) -> None:
        """Gives up the waiting messages, because their receiver is gone, and informs their origins."""
        queue, self.queue = self.queue, deque()
        self.load -= len(queue)
        self.work.begin(lose_queued(queue))

    def lose_everything(self) -> None:
        """Ends every message of a link that is gone, and informs the origins of their outcomes."""
        self.is_open = False
        self.room = 0
        unsettled, self.unsettled = self.unsettled, {}
        self.count_records()
        for held in (self.weights, self.details):
            if held is not None:
                self.work.begin(held.clearing())
        queue, self.queue = self.queue, deque()
        leg, self.leg = self.leg, None
        self.load = 0
        if leg is not None:
            # The leg has the newest record, if any: a streamed message must learn of each copy only once.
            newest = next(reversed(unsettled), None)
            if newest is not None and cast(object, unsettled[newest][0]) is leg:
                del unsettled[newest]
            leg.lose(was_sent=True)
        self.work.begin(chain(_lose_sent(unsettled.values()), lose_queued(queue)))


def _may_be_dropped(item: Queued) -> bool:
    return item.is_settled and item.leg is None and not isinstance(item.payload, Answer)


def _lose_sent(records: Collection[tuple[Origin, Handle, int]]) -> Iterator[None]:
    """Informs the origins of messages that were sent to a link that is gone.

    INVARIANT: a record's origin checks that its own link still exists, because this may run late.
    """
    for origin, source, since_s in records:
        origin.on_lost(source, since_s, was_sent=True)
        yield


def lose_queued(queue: Collection[Queued]) -> Iterator[None]:
    """Informs the origins of waiting messages that no receiver gets them."""
    for item in queue:
        item.charge.free()
        if item.leg is not None:
            item.leg.lose(was_sent=False)
        elif item.is_settled:
            if isinstance(item.origin, InLink):
                item.origin.owe()
        elif item.origin is not None and item.source is not None:
            item.origin.on_lost(item.source, item.since_s, was_sent=False)
        yield
