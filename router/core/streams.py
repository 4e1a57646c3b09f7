"""Messages of many frames, forwarded while they arrive.

A stream reads from its incoming link only while every receiver it feeds keeps up, so at most HIGH_BYTES and one read of
it wait per receiver, BEHIND_BYTES of a multicast behind another; beyond that the sender's session window closes.

Sources: docs/spec/routing.md §10.1, §10.3, §10.4, §9.4.
"""

from collections.abc import Callable
from typing import Final

from router.core.addresses import LiveAddress
from router.core.budget import Charge
from router.core.copies import Copies
from router.core.fallback import redirect
from router.core.in_links import InLink
from router.core.links import Queued
from router.core.out_links import OutLink
from router.core.outcomes import ACCEPTED, MODIFIED, RELEASED, effective
from router.core.ports import Engine
from router.core.selection import AnonymousInLink, hops
from router.core.weights import STREAMED_BYTES
from router.values import Condition, Handle

# Bytes that may wait for one receiver before the sender is held back. Stops a fast sender from filling our memory
# through a slow receiver.
HIGH_BYTES: Final = 128 * 1024
LOW_BYTES: Final = HIGH_BYTES // 2
# Bytes of a multicast that may wait for receivers which other streamed messages occupy, of all its copies together,
# while its sender's account has much room. Attack: two large multicasts that enter the network at different routers,
# each of which occupies the receivers near its sender and waits for those near the other, would wait for each other.
# A copy gives all that waited to the engine in one go when its turn comes: 2 MiB take half a millisecond, 8 MiB five.
BEHIND_BYTES: Final = 2 * 1024 * 1024

# A consumer inside the router takes messages in one piece; a larger one is a mistake or an attack.
REQUEST_TOO_LARGE: Final = Condition(
    name="amqp:link:message-size-exceeded",
    description=f"A request to the router itself may have at most {HIGH_BYTES} bytes",
)


class Leg:
    """One receiver's copy of a streamed message: waiting in the link's queue, then occupying the link, then over.

    It is the Origin of the copy.

    INVARIANT: `handle` is looked at only while the leg occupies its link (out.leg is self) or its link has a record
    of it; afterwards the engine may have made another delivery of it.
    """

    __slots__ = ("handle", "has_waited", "is_decided", "is_over", "out", "stream", "tag", "waiting", "waiting_bytes")

    def __init__(self, stream: "Stream", out: OutLink) -> None:
        self.stream = stream
        self.out = out
        self.handle: Handle | None = None
        self.tag: bytes | None = None  # the sender's, where the copy has it and waits
        self.is_over = False  # sent, aborted or lost: takes no more
        self.is_decided = False  # its receiver has given the outcome, which counts from the end of the copy
        self.waiting: list[bytes] = []  # chunks held until the link has room to start
        self.waiting_bytes = 0
        self.has_waited = False  # its chunks are held no longer

    def start(self) -> None:
        """The link has credit for this delivery: it is occupied until the message ends."""
        out, stream = self.out, self.stream
        out.occupy(self)
        out.delivery_count += 1
        handle = self.handle = out.wire.begin()
        if out.on_sending is not None:
            out.on_sending(self.waiting[0])
        if not stream.is_settled and not out.sends_settled:
            out.unsettled[handle] = (self, stream.source, stream.since_s)
            out.load += 1
            out.weigh(handle, STREAMED_BYTES)
        self._carry_state(handle)
        for chunk in self.waiting:
            out.wire.append(chunk)
        self._stop_waiting()
        out.work.touched.add(out.engine)
        if stream.is_complete:
            self._end()

    def _carry_state(self, handle: Handle) -> None:
        """The state that the sender gives on its Transfers goes on with those of the copy."""
        stream = self.stream
        if stream.wants_outcome and stream.link.is_open and (state := stream.link.wire.remote_state(stream.source)):
            self.out.wire.relay_state(handle, stream.source, state)

    def _stop_waiting(self) -> None:
        """The chunks go to the engine, or nowhere."""
        if not self.has_waited:
            self.has_waited = True
            self.waiting.clear()
            self.waiting_bytes = 0
            self.stream.free_waiting()

    def append(self, chunk: bytes) -> None:
        if self.handle is None:
            self.waiting.append(chunk)
            self.waiting_bytes += len(chunk)
        else:
            self.out.wire.append(chunk)
            self.out.work.touched.add(self.out.engine)

    @property
    def buffered(self) -> int:
        """Bytes that the receiver has yet to take."""
        if self.handle is None or self.is_over:
            return self.waiting_bytes
        return self.out.wire.buffered(self.handle)

    def may_take(self, limit: int) -> bool:
        """May more of the message be read, as far as this copy goes?"""
        return self.is_over or self.buffered < limit or self._may_wait_behind()

    def _may_wait_behind(self) -> bool:
        stream = self.stream
        return (
            self.handle is None
            and self.out.leg is not None
            and stream.is_multicast
            and self.waiting_bytes * stream.waiting_legs < BEHIND_BYTES
            and not stream.link.holds
            and stream.link.attachment.account.has_much_room()
        )

    @property
    def holds_back(self) -> bool:
        """Has the receiver so much to take that no more of the message is read?"""
        return self.buffered >= LOW_BYTES

    def turn_settled(self) -> None:
        """The copy needs no outcome after all."""
        out = self.out
        if out.leg is self and self.handle is not None and out.unsettled.pop(self.handle, None) is not None:
            out.load -= 1

    def finish(self) -> None:
        """The message is complete: the link is free for the next."""
        if self.out.leg is self:
            self._end()
            self.out.refresh_room()

    def _end(self) -> None:
        out, stream, handle = self.out, self.stream, self.handle
        assert handle is not None  # it has occupied its link
        out.wire.finish()
        out.vacate()
        self.is_over = True
        if handle in out.unsettled:
            # A copy is complete. Of one of several the receiver may have decided before that.
            if not stream.has_one_copy:
                self._decide(out.wire.remote_state(handle))
        else:
            out.presettled += stream.is_settled
            out.settle(handle)
            stream.conclude(ACCEPTED)

    def abort(self) -> None:
        """The message will never be complete: the receiver must not take its part for one."""
        if self.is_over:
            return
        self.is_over = True
        self._stop_waiting()
        out = self.out
        if out.leg is not self or self.handle is None:
            out.withdraw(self)
            return
        if out.unsettled.pop(self.handle, None) is not None:
            out.load -= 1
            out.unweigh(self.handle)
        out.abort(self.handle)

    def cut(self) -> None:
        """The receiver settled before the end: it gets no more, and its link is free."""
        if not self.is_over and self.handle is not None:
            self.is_over = True
            self.out.wire.abort(self.handle)
            self.out.vacate()
            self.out.refresh_room()
            self.stream.link.work.resumable.add(self.stream)  # perhaps it alone held the others back

    def break_off(self) -> None:
        """The link is about to be closed: what it has of the message is no message. `lose` follows."""
        if self.handle is not None:
            self.out.wire.abort(self.handle)

    def give_up(self) -> None:
        """The receiver takes nothing: it does not get the rest, and its link is free for the next message."""
        if not self.is_over:
            self.abort()
            self.stream.on_leg_lost(was_sent=True)

    def lose(self, *, was_sent: bool) -> None:
        """The link went away."""
        if not self.is_over:
            self.is_over = True
            self._stop_waiting()
            self.stream.on_leg_lost(was_sent=was_sent)

    def forgo_outcome(self) -> None:
        """The sender has settled: no copy of its message needs an outcome any more."""
        self.stream.is_settled = True
        self.stream.on_sender_settled()

    def settle(self) -> None:
        """The receiver has given its outcome, and the sender has settled."""
        assert self.handle is not None
        self.out.settle_early(self.handle)

    def _decide(self, state: int) -> None:
        if state >= ACCEPTED and not self.is_decided:
            self.is_decided = True
            self.stream.decide(self, effective(state))

    def _on_settled(self, state: int) -> None:
        """The receiver has settled, or is gone."""
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
        self.is_over = True
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
        *("_charged", "_paid", "_rest", "waiting_legs", "is_complete", "is_multicast", "is_over", "is_settled"),
        *("legs", "received"),
    )

    def __init__(
        self,
        link: InLink,
        source: Handle,
        out_links: list[OutLink],
        first: list[bytes],
        size: int,
        *,
        is_multicast: bool,
    ) -> None:
        super().__init__(link, source, link.work.now_s, len(out_links))
        self.is_multicast = is_multicast  # elsewhere there may be other copies of it
        self.is_settled = link.is_settled(source)
        self.is_complete = False
        self.is_over = False  # aborted or nobody left: what still arrives is discarded
        self.received = self._paid = size
        self._rest, link.rest = link.rest, None
        self.legs = [Leg(self, out) for out in out_links]
        link.delivery_count += 1
        link.presettled += self.is_settled
        self.waiting_legs = len(self.legs)
        self._charged = 0  # bytes of the chunks that wait; legs share them
        self._charge(size)
        for leg, chunk in zip(self.legs, first, strict=True):
            leg.append(chunk)
        for leg in self.legs:
            if leg.out.room <= 0:
                leg.out.make_room()
            if leg.out.room > 0:
                leg.start()
            else:
                leg.out.enqueue(Queued(leg, source, self.since_s, b"", self.is_settled, Charge(link, 0), leg))

    @property
    def engine(self) -> Engine:
        return self.link.engine

    @property
    def has_one_copy(self) -> bool:
        return len(self.legs) == 1

    def _charge(self, size: int) -> None:
        """`size` bytes more are held for legs that wait to start."""
        if self.waiting_legs:
            self._charged += size
            self.link.charge(size)

    def free_waiting(self) -> None:
        """A leg waits no longer."""
        self.waiting_legs -= 1
        if not self.waiting_legs:
            self.link.charge(-self._charged)
            self._charged = 0

    @property
    def live_legs(self) -> list[Leg]:
        """The copies that may take more."""
        return [leg for leg in self.legs if not leg.is_over]

    def _may_go_on(self) -> bool:
        """Pay for the bytes that were read. May more be?"""
        size, self._paid = self.received - self._paid, self.received
        return self.link.pay(size)

    def more(self) -> None:
        """Frames came, or a receiver took some: move what may be moved."""
        self._move(HIGH_BYTES)

    def resume(self) -> None:
        """A receiver took some, or went away."""
        if self.link.is_open and not self.is_complete and self._is_below(LOW_BYTES):
            self.link.work.touched.add(self.link.engine)
            self._move(HIGH_BYTES)

    def hurry(self) -> None:
        """The link is going: take all that came. The session's window has bounded it."""
        self._move(None)

    def _is_below(self, limit: int) -> bool:
        return self._may_go_on() and all(leg.may_take(limit) for leg in self.legs)

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
            chunk = link.work.copy(size)
            self._charge(size)
            for leg in self.legs:
                if not leg.is_over:
                    leg.append(chunk)
        self._may_go_on()

    def _complete(self) -> None:
        self.is_complete = True
        link = self.link
        link.wire.end_message()
        if not self.is_settled and self.wants_outcome and link.is_settled(self.source):
            self._turn_settled()
        if self.is_settled:
            link.settle(self.source)
        for leg in self.legs:
            leg.finish()
        if not self.is_settled and self.wants_outcome and link.is_open and link.is_settled(self.source):
            link.on_updated(self.source)  # the sender settled behind an outcome that was not settled

    def _turn_settled(self) -> None:
        """The sender settled by the last frame, or before it: the message is as presettled as one that began so.

        Every sender that knows no more of a frame than that others follow does so, routers among them. Not where the
        sender has an outcome, which is what is counted.
        """
        if not self.link.wire.told(self.source):
            self.is_settled = True
            self.link.presettled += 1
            for leg in self.legs:
                leg.turn_settled()

    def _refuse(self, condition: Condition) -> None:
        """Refuse a malformed message: nobody gets the rest, and the receivers learn that it is not whole."""
        self.abort()
        self.link.refuse(self.source, condition)
        if not self.link.wire.is_partial(self.source):
            self.link.wire.end_stream()

    def abort(self) -> None:
        """The sender aborted, vanished or broke a limit."""
        self.is_over = True
        self.wants_outcome = False
        self.link.wire.drop_reader()
        for leg in self.legs:
            leg.abort()

    def on_leg_lost(self, *, was_sent: bool) -> None:
        self.conclude(MODIFIED if was_sent else RELEASED)
        self.link.work.resumable.add(self)

    def pass_on(self, state: int, outgoing: Handle) -> None:
        """The only receiver decided."""
        self._tell_first()
        self.link.on_outcome(self.source, self.since_s, state, outgoing)

    def _end(self) -> None:
        """Every copy is over; one that needs no outcome counts as accepted when it is written."""
        self._tell_first()
        if not self.is_settled:
            super()._end()
        elif self.is_complete:
            self.link.owe()
        else:
            self.link.conclude(self.source)

    def _tell_first(self) -> None:
        """The sender is about to learn the outcome: whatever of the message is still to come goes nowhere."""
        self.wants_outcome = False
        self.is_over = not self.is_complete
        if self.is_over:
            self.link.wire.end_stream()


def begin_stream(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Forward the message whose first `size` bytes are in the buffer, unless it is refused or released."""
    link.rest = None
    if link.inspect is None or (size := link.inspect(delivery, size)) >= 0:
        _begin(link, address, delivery, size)


def begin_anonymous_stream(link: AnonymousInLink, _address: None, delivery: Handle, size: int) -> None:
    """The same, by the address in the message."""
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
        copies = [(out, out.compose(link, size) if out.compose else link.work.copy(size)) for out in out_links]
    if not copies:
        link.release_undeliverable(delivery)
        return
    is_multicast = address.distribution == "multicast" or len(copies) > 1
    outs, first = [out for out, _ in copies], [payload for _, payload in copies]
    stream = Stream(link, delivery, outs, first, size, is_multicast=is_multicast)
    if not stream.is_over:
        link.wire.read_by(stream)
        stream.more()
