"""Messages of many frames, which the router forwards while they arrive.

A stream reads from its incoming link only while all its receivers keep up. So at most HIGH_BYTES and one read wait, or
BEHIND_BYTES of a multicast that waits for another message. If more arrives, the sender's session window closes.

The waiting bytes are stored once for all receivers. For each receiver the engine gets one piece at a time, when the
previous piece has left. The sender pays for the waiting bytes, and for what the engine holds until the message has
ended. A receiver pays for bytes that it does not read, and for whole messages that it does not settle.

Sources: docs/spec/routing.md §10.1, §10.3, §10.4, §9.4.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from router.core.addresses import LiveAddress
from router.core.budget import RECORD_BYTES, Charge
from router.core.copies import Copies
from router.core.fallback import redirect
from router.core.in_links import InLink
from router.core.links import Queued
from router.core.out_links import OutLink
from router.core.outcomes import ACCEPTED, MODIFIED, RELEASED, effective
from router.core.parts import Parts, Place
from router.core.ports import Engine
from router.core.selection import AnonymousInLink, hops
from router.core.weights import LARGE_BYTES, STREAMED_BYTES
from router.values import Condition, DeliveryState, Handle

# The sender is held back if this number of bytes waits for one receiver. Attack: a fast sender fills our memory through
# a slow receiver.
HIGH_BYTES: Final = 128 * 1024
LOW_BYTES: Final = HIGH_BYTES // 2
# Bytes of a multicast that may wait for receivers which other streamed messages occupy, while its sender's account has
# much room. Attack: two large multicasts enter the network at different routers. Each occupies the receivers near its
# sender and waits for the receivers near the other, so they would wait for each other.
BEHIND_BYTES: Final = 2 * 1024 * 1024
# Bytes of a copy that the engine gets at a time: for all copies of a message together, and at most and at least for one
# copy. The engine keeps that much for each copy until it is settled, and the sender pays for it until the message has
# ended. Attack: large multicasts that never end, to many receivers.
_PIECES_BYTES: Final = 1024 * 1024
_MOST_OF_A_PIECE: Final = 16 * 1024
_LEAST_OF_A_PIECE: Final = 2 * 1024
# A copy whose annotations differ from the others' stores this number of bytes for itself.
_OWN_BYTES: Final = 4 * 1024

# A consumer inside the router takes a message in one piece. A larger message is a mistake or an attack.
REQUEST_TOO_LARGE: Final = Condition(
    name="amqp:link:message-size-exceeded",
    description=f"A request to the router itself may have at most {HIGH_BYTES} bytes",
)


class Leg:
    """One receiver's copy of a streamed message. It waits in the link's queue, occupies the link, and is then over.

    It is the Origin of the copy.

    INVARIANT: `handle` is used only while the leg occupies its link (out.leg is self) or its link has a record of it.
    Later the engine may have used the object for another delivery.
    """

    __slots__ = ("handle", "has_waited", "is_decided", "is_over", "out", "own", "place", "state", "stream", "tag")

    def __init__(self, stream: "Stream", out: OutLink, own: bytes, replaced: int) -> None:
        """Sets up a copy that has not started.

        own, replaced  as in Beginning
        """
        self.stream = stream
        self.out = out
        self.handle: Handle | None = None
        # The tag and state that the sender gave, if the copy keeps them and has to wait.
        self.tag: bytes | None = None
        self.state: DeliveryState | None = None
        self.has_waited = False
        self.is_over = False  # sent, aborted or lost: takes nothing more
        self.is_decided = False  # its receiver has given the outcome, which counts when the copy has ended
        self.own = own
        self.place = Place(replaced)

    def start(self) -> None:
        """Starts the copy, because the link has credit for it. It occupies the link until the message ends."""
        out, stream = self.out, self.stream
        out.occupy(self)
        out.delivery_count += 1
        handle = self.handle = out.wire.begin()
        if out.on_sending is not None:
            out.on_sending(self.own or stream.parts.next(self.place))
        if not stream.is_settled and not out.sends_settled:
            out.unsettled[handle] = (self, stream.source, stream.since_s)
            out.load += 1
        self._carry_state(handle)
        stream.begun += 1
        self.feed()

    def _carry_state(self, handle: Handle) -> None:
        """Gives the copy's Transfers the state that the sender gave on its Transfers."""
        stream = self.stream
        if self.state is not None:
            self.out.wire.give_state(handle, self.state)
        elif not self.has_waited and (state := stream.link.wire.remote_state(stream.source)):
            self.out.wire.relay_state(handle, stream.source, state)

    def feed(self) -> bool:
        """Gives the engine the next bytes, as far as they can leave.

        Returns True if the link is now free for its next message.
        """
        handle, stream = self.handle, self.stream
        if handle is None or self.is_over:
            return False
        parts, place = stream.parts, self.place
        if self.own or place.position < parts.end:
            out, wire = self.out, self.out.wire
            if stream.is_complete and stream.has_one_copy:
                room = parts.kept + len(self.own)  # its only receiver pays for bytes that it does not read
            elif out.attachment.is_blocked:
                return False
            else:
                room = stream.piece_bytes - wire.buffered(handle)
            if room <= 0:
                return False
            out.work.touched.add(out.engine)
            if own := self.own:
                wire.append(own, 0, len(own))
                self._drop_own()
                room -= len(own)
            while room > 0 and place.position < parts.end:
                part, at = parts.next(place), place.offset
                size = min(len(part) - at, room)
                wire.append(part, at, size)
                parts.take(place, size)
                room -= size
        if stream.is_complete and place.position == parts.end:
            self._end()
            return True
        return False

    @property
    def buffered(self) -> int:
        """The bytes that the receiver has not yet taken."""
        waiting = self.stream.parts.end - self.place.position + len(self.own)
        if self.handle is None or self.is_over:
            return waiting
        return waiting + self.out.wire.buffered(self.handle)

    def may_take(self, limit: int) -> bool:
        """Returns True if this copy allows more of the message to be read."""
        return self.buffered < limit or self._may_wait_behind()

    def _may_wait_behind(self) -> bool:
        """Returns True if the copy waits for other messages or delays them, so that its sender must not wait too."""
        stream = self.stream
        link = stream.link
        if self.handle is not None or link.holds or not link.attachment.account.has_much_room():
            return False
        if self.out.leg is not None and stream.is_multicast and stream.parts.kept < BEHIND_BYTES:
            return True
        # Attack: large messages that wait fill the window of a session that another message needs to continue. For
        # example, a router of another make uses one session for all its large messages.
        return link.wire.fills_session

    @property
    def holds_back(self) -> bool:
        """True if so much waits for the receiver that no more of the message is read."""
        return self.buffered >= LOW_BYTES

    def turn_settled(self) -> None:
        """Removes the record of the copy, because it needs no outcome after all."""
        out = self.out
        if out.leg is self and self.handle is not None and out.unsettled.pop(self.handle, None) is not None:
            out.load -= 1

    def turns_settled(self, outgoing: Handle) -> bool:
        if self.is_over or self.handle != outgoing:
            return False
        self.turn_settled()
        return True

    def ends_early(self, outgoing: Handle) -> bool:
        if self.is_over or self.handle != outgoing:
            return False
        self.cut()
        self.stream.conclude(ACCEPTED)
        return True

    def _drop_own(self) -> None:
        self.stream.own_bytes -= len(self.own)
        self.own = b""

    def _leave(self) -> None:
        """Marks the copy as over: it takes nothing more."""
        self.is_over = True
        self._drop_own()
        self.stream.leave(self)

    def _end(self) -> None:
        out, stream, handle = self.out, self.stream, self.handle
        assert handle is not None  # it has occupied its link
        out.wire.finish()
        out.vacate()
        self._leave()
        if handle in out.unsettled:
            # The copy is complete. If there are several copies, its receiver may have decided before its end.
            if stream.piece_bytes > LARGE_BYTES:
                out.weigh(handle, stream.piece_bytes)
            if not stream.has_one_copy:
                self._decide(out.wire.remote_state(handle))
        else:
            out.presettled += stream.is_settled
            out.settle(handle)
            stream.conclude(ACCEPTED)

    def abort(self) -> None:
        """Aborts the copy of a message that stays incomplete: the receiver must not take its part for a message."""
        if self.is_over:
            return
        self._leave()
        out = self.out
        if out.leg is not self or self.handle is None:
            out.withdraw(self)
            return
        if out.unsettled.pop(self.handle, None) is not None:
            out.load -= 1
        out.abort(self.handle)

    def cut(self) -> None:
        """Ends the copy because the receiver settled before its end. It gets no more, and its link is free."""
        if not self.is_over and self.handle is not None:
            self._leave()
            self.out.wire.abort(self.handle)
            self.out.vacate()
            self.out.refresh_room()
            self.stream.link.work.resumable.add(self.stream)  # perhaps only this copy held the others back

    def break_off(self) -> None:
        """Aborts the delivery because the link is about to be closed: the part must not look like a message.

        `lose` follows.
        """
        if self.handle is not None:
            self.out.wire.abort(self.handle)

    def give_up(self) -> None:
        """Ends the copy of a receiver that takes nothing. The receiver does not get the rest, and its link is free."""
        if not self.is_over:
            self.abort()
            self.stream.on_leg_lost(was_sent=True)

    def lose(self, *, was_sent: bool) -> None:
        """Ends the copy because its link is gone."""
        if not self.is_over:
            self._leave()
            self.stream.on_leg_lost(was_sent=was_sent)

    def forgo_outcome(self) -> None:
        """Notes that the sender has settled: no copy of its message needs an outcome any more."""
        self.stream.is_settled = True
        self.stream.on_sender_settled()

    def settle(self) -> None:
        """Settles the delivery: the receiver has given its outcome, and the sender has settled."""
        assert self.handle is not None
        self.out.settle_early(self.handle)

    def _decide(self, state: int) -> None:
        if state >= ACCEPTED and not self.is_decided:
            self.is_decided = True
            self.stream.decide(self, effective(state))

    def _on_settled(self, state: int) -> None:
        """Handles that the receiver has settled, or is gone."""
        if self.is_decided:
            self.stream.on_settled(self)
        else:
            self.stream.conclude(effective(state))

    # Origin

    @property
    def sender(self) -> InLink:
        return self.stream.link

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self.cut()
        self._on_settled(ACCEPTED)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        stream = self.stream
        if stream.has_one_copy and stream.wants_outcome and not stream.is_over:
            stream.pass_on(state, outgoing)
            self.cut()
            return
        self.cut()
        self._on_settled(state)

    def on_progress(self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        stream = self.stream
        if stream.has_one_copy:
            if stream.wants_outcome and not stream.is_over:
                stream.link.on_progress(source, state, outgoing, settle)
        elif self.is_over:
            self._decide(state)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        if not self.is_over:
            self._leave()
        if self.is_decided:
            self.stream.on_settled(self)
        else:
            self.stream.on_leg_lost(was_sent=was_sent)

    def forgo(self, state: int, since_s: int) -> None:
        if self.stream.has_one_copy:
            self.stream.link.forgo(state, since_s)
        self.stream.on_sender_settled()


class Stream(Copies):
    """One message on its way from one incoming link to one or more receivers."""

    __slots__ = (
        *("_charged", "_live", "_paid", "_rest", "begun", "is_complete", "is_multicast", "is_over", "is_settled"),
        *("legs", "own_bytes", "parts", "piece_bytes", "received"),
    )

    def __init__(
        self, link: InLink, source: Handle, copies: "list[Beginning]", whole: bytes, *, is_multicast: bool
    ) -> None:
        """Starts the copies for which there is room, and queues the others.

        whole  the bytes that have arrived, as most of the copies get them
        """
        super().__init__(link, source, link.work.now_s, len(copies))
        self.is_multicast = is_multicast  # other routers may have more copies of it
        self.is_settled = link.is_settled(source)
        self.is_complete = False
        self.is_over = False  # aborted, or without receivers: what still arrives is discarded
        self.received = self._paid = len(whole)
        self._rest, link.rest = link.rest, None
        self.parts = Parts()
        self.parts.add(whole)
        self.legs = [Leg(self, *beginning) for beginning in copies]
        self._live = dict.fromkeys(self.legs)  # the copies that may take more
        self.begun = 0  # how many of these have started
        self.own_bytes = sum([len(leg.own) for leg in self.legs])
        self._charged = 0  # bytes
        each = min(_PIECES_BYTES // len(copies), _MOST_OF_A_PIECE)
        most = STREAMED_BYTES if len(copies) == 1 else max(each, _LEAST_OF_A_PIECE)
        # A message that has come whole is a stream because of its state: the engine never holds more than the message.
        self.piece_bytes = most if link.wire.is_partial(source) else min(most, len(whole))
        link.delivery_count += 1
        link.presettled += self.is_settled
        for leg in self.legs:
            if leg.out.room <= 0:
                leg.out.make_room()
            if leg.out.room > 0:
                leg.start()
            else:
                # Attack: a transaction that the sender names while the message waits: no check looks at that.
                leg.has_waited, leg.state = True, link.wire.state(source)
                leg.out.enqueue(Queued(leg, source, self.since_s, b"", self.is_settled, Charge(link, 0), leg))
        self._charge()

    @property
    def engine(self) -> Engine:
        return self.link.engine

    @property
    def has_one_copy(self) -> bool:
        return len(self.legs) == 1

    def leave(self, leg: Leg) -> None:
        """Removes a copy that takes nothing more."""
        del self._live[leg]
        self.begun -= leg.handle is not None
        if not self._live:
            self.parts.clear()
        self._charge()

    def _charge(self) -> None:
        """Charges the sender for the parts that are held, and for what the engine holds of copies under way."""
        held = self.parts.kept + self.own_bytes + self.begun * (RECORD_BYTES + self.piece_bytes)
        more, self._charged = held - self._charged, held
        if more:
            self.link.charge(more)

    @property
    def live_legs(self) -> list[Leg]:
        """The copies that may take more."""
        return list(self._live)

    def _feed(self) -> None:
        """Gives each receiver what it takes, and drops the parts that all receivers have taken."""
        for leg in list(self._live):
            if leg.feed():
                leg.out.refresh_room()
        if self._live:
            self.parts.forget(min([leg.place.number for leg in self._live]))

    def _may_go_on(self) -> bool:
        """Pays for the bytes that were read. Returns True if more may be read."""
        size, self._paid = self.received - self._paid, self.received
        return self.link.pay(size)

    def more(self) -> None:
        """Moves what may be moved, because frames arrived or a receiver took some."""
        self._move(HIGH_BYTES)

    def resume(self) -> None:
        """Continues because a receiver took some, or is gone."""
        self._feed()
        if self.link.is_open and not self.is_complete and self._is_below(LOW_BYTES):
            self.link.work.touched.add(self.link.engine)
            self._move(HIGH_BYTES)
        self._charge()

    def hurry(self) -> None:
        """Takes all that arrived, because the link is ending. The session's window has limited it."""
        self._move(None)

    def _is_below(self, limit: int) -> bool:
        return self._may_go_on() and all(leg.may_take(limit) for leg in self._live)

    def _move(self, limit: int | None) -> None:
        if self.is_over or self.is_complete:
            return
        link = self.link
        wire = link.wire
        if wire.is_aborted(self.source):
            self.abort()
            wire.settle(self.source)
            wire.end_stream()
            link.owe()
            return
        while limit is None or self._is_below(limit):
            size = wire.read()
            if not size:
                if not wire.is_partial(self.source):
                    if self._rest is not None and (fault := self._rest.end()) is not None:
                        self._refuse(fault)
                        break
                    self._complete()
                break
            self.received += size
            limit_bytes, before = link.max_message_bytes, self.received - size
            if limit_bytes and self.received > limit_bytes and link.on_oversize(self.source, self.received, before):
                break
            if self._rest is not None and (fault := self._rest.see(size)) is not None:
                self._refuse(fault)
                break
            self.parts.add(link.work.copy(size))
            self._feed()
        self._may_go_on()
        self._charge()

    def _complete(self) -> None:
        self.is_complete = True
        link = self.link
        link.wire.end_message()
        if not self.is_settled and self.wants_outcome and link.is_settled(self.source):
            self._turn_settled()
        if self.is_settled:
            link.settle(self.source)
        self._feed()
        if not self.is_settled and self.wants_outcome and link.is_open and link.is_settled(self.source):
            link.on_updated(self.source)  # the sender settled after an outcome that was not settled

    def _turn_settled(self) -> None:
        """Counts the message as presettled, because the sender settled with the last frame or before it.

        Every sender, also a router, that knows only that more frames follow settles like this. Does nothing if the
        sender already has an outcome, because that is counted.
        """
        if not self.link.wire.told(self.source):
            self.is_settled = True
            self.link.presettled += 1
            for leg in self.legs:
                leg.turn_settled()

    def _refuse(self, condition: Condition) -> None:
        """Refuses a malformed message. No receiver gets the rest, and the receivers learn that it is incomplete."""
        has_ended = not self.link.wire.is_partial(self.source)
        self.abort()
        self.link.refuse(self.source, condition)
        if has_ended:
            self.link.wire.end_stream()

    def abort(self) -> None:
        """Aborts all copies, because the sender aborted, is gone, or broke a limit."""
        self.is_over = True
        self.wants_outcome = False
        self.link.wire.drop_reader()
        for leg in self.legs:
            leg.abort()

    def on_leg_lost(self, *, was_sent: bool) -> None:
        self.conclude(MODIFIED if was_sent else RELEASED)
        self.link.work.resumable.add(self)

    def pass_on(self, state: int, outgoing: Handle) -> None:
        """Passes on the outcome of the only receiver."""
        self._tell_first()
        self.link.on_outcome(self.source, self.since_s, state, outgoing)

    def _end(self) -> None:
        """Concludes the message when every copy is over.

        A copy that needs no outcome counts as accepted when it is written.
        """
        self._tell_first()
        if not self.is_settled:
            super()._end()
        elif self.is_complete:
            self.link.owe()
        else:
            self.link.conclude(self.source)

    def _tell_first(self) -> None:
        """Discards what is still to come of the message, because the sender is about to get the outcome."""
        self.wants_outcome = False
        self.is_over = not self.is_complete
        if self.is_over:
            self.link.wire.end_stream()


def begin_stream(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Forwards the message whose first `size` bytes are in the buffer, unless it is refused or released."""
    link.rest = None
    if link.inspect is None or (size := link.inspect(delivery, size)) >= 0:
        _begin(link, address, delivery, size)


def begin_anonymous_stream(link: AnonymousInLink, _address: None, delivery: Handle, size: int) -> None:
    """Forwards like `begin_stream`, to the address that the message names."""
    link.rest = None
    routed = link.route(delivery, size)
    if routed is not None:
        address, size = routed
        address.retired_ingress += 1
        _begin(link, address, delivery, size)


def _begin(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    if address.is_control:
        link.release_undeliverable(delivery)
        return
    is_request = address.subscribers and (address.distribution == "closest" or not address.out_links)
    if is_request:
        link.refuse(delivery, REQUEST_TOO_LARGE)
        return
    copies = address.exchange.copies(link, size, is_streamed=True) if address.exchange is not None else None
    if copies is None:
        out_links = hops(address, link, size, is_streamed=True)
        if not out_links and (other := redirect(link, address)) is not None:
            out_links = hops(other, link, size, is_streamed=True)
        whole = link.work.copy(size)
        beginnings = [_beginning(out, out.compose(link, size) if out.compose else whole, whole) for out in out_links]
    else:
        whole = next((payload for out, payload in copies if out.compose is None), b"") or link.work.copy(size)
        beginnings = [_beginning(out, payload, whole) for out, payload in copies]
    if not beginnings:
        link.release_undeliverable(delivery)
        return
    is_multicast = address.distribution == "multicast" or len(beginnings) > 1
    stream = Stream(link, delivery, beginnings, whole, is_multicast=is_multicast)
    if not stream.is_over:
        link.wire.read_by(stream)
        stream.more()


class Beginning(NamedTuple):
    """The beginning of a copy, with its own bytes instead of the first `replaced` bytes of the message."""

    out: OutLink
    own: bytes
    replaced: int


def _beginning(out: OutLink, first: bytes, whole: bytes) -> Beginning:
    """Returns the beginning of one receiver's copy.

    first  the bytes that have arrived, as this receiver gets them
    whole  the bytes that have arrived, as most receivers get them
    """
    if first is whole:
        return Beginning(out, b"", 0)
    common = len(whole) - _OWN_BYTES
    # A function that inspects messages as they leave must get all of these bytes.
    if common > 0 and out.on_sending is None and first.endswith(whole[_OWN_BYTES:]):
        return Beginning(out, first[:-common], _OWN_BYTES)
    return Beginning(out, first, len(whole))
