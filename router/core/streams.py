"""Messages of many frames, forwarded while they arrive.

A stream reads from its incoming link only while every receiver it feeds keeps up, so at most HIGH_BYTES and one read of
it wait per receiver; beyond that the sender's session window closes.

Sources: docs/spec/routing.md §10.1, §10.3, §10.4, §9.4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from router.core.forward import least_loaded, next_in_turn
from router.core.in_links import InLink
from router.core.links import Handle, Queued
from router.core.out_links import OutLink
from router.core.outcomes import ACCEPTED, MODIFIED, RELEASED, effective, merge

if TYPE_CHECKING:
    from router.core.addresses import LiveAddress

# What may wait for one receiver before the sender is held back. Stops a fast sender from filling our memory
# through a slow receiver.
HIGH_BYTES: Final = 128 * 1024
LOW_BYTES: Final = HIGH_BYTES // 2


# Takes how many bytes were read of a message, and says whether more may be.
Pay = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Problem:
    """An AMQP error condition for a message of the peer's."""

    name: str
    description: str


# A consumer inside the router takes messages in one piece; a larger one is a mistake or an attack.
REQUEST_TOO_LARGE: Final = Problem(
    "amqp:link:message-size-exceeded", f"A request to the router itself may have at most {HIGH_BYTES} bytes"
)


class Leg:
    """One receiver's copy of a streamed message: waiting in the link's queue, then occupying the link, then over.

    INVARIANT: `handle` is looked at only while the leg occupies its link (out.leg is self) or its link has a record
    of it; afterwards the engine may have made another delivery of it.
    """

    __slots__ = ("handle", "is_over", "out", "stream", "waiting", "waiting_bytes")

    def __init__(self, stream: "Stream", out: OutLink) -> None:
        self.stream = stream
        self.out = out
        self.handle: Handle = None
        self.is_over = False  # sent, aborted or lost: takes no more
        self.waiting: list[bytes] = []  # chunks held until the link has room to start
        self.waiting_bytes = 0

    def start(self) -> None:
        """The link has credit for this delivery: it is occupied until the message ends."""
        out, stream = self.out, self.stream
        out.leg = self
        out.room = 0
        out.delivery_count += 1
        self.handle = out.wire.begin()
        if out.on_sending is not None:
            out.on_sending(self.waiting[0])
        if not stream.is_settled and not out.sends_settled:
            out.unsettled[self.handle] = (stream, self, stream.since_s)
            out.load += 1
        for chunk in self.waiting:
            out.wire.append(chunk)
        self.waiting.clear()
        self.waiting_bytes = 0
        out.work.touched.add(out.engine)
        if stream.is_complete:
            self._end()

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
        return int(self.out.wire.buffered(self.handle))

    def finish(self) -> None:
        """The message is complete: the link is free for the next."""
        if self.out.leg is self:
            self._end()
            self.out.refresh_room()

    def _end(self) -> None:
        out, stream = self.out, self.stream
        out.wire.finish()
        out.leg = None
        self.is_over = True
        out.work.touched.add(out.engine)
        if self.handle in out.unsettled:
            stream.on_ended(self, out)
        else:
            out.presettled += stream.is_settled
            out.settle(self.handle)
            stream.on_written()

    def abort(self) -> None:
        """The message will never be complete: the receiver must not take what it got for one."""
        if self.is_over:
            return
        self.is_over = True
        out = self.out
        if out.leg is not self:
            out.withdraw(self)
            return
        if out.unsettled.pop(self.handle, None) is not None:
            out.load -= 1
        out.wire.abort(self.handle)
        self._leave()

    def cut(self) -> None:
        """The receiver settled before the end: it gets no more, and its link is free."""
        if not self.is_over:
            self.is_over = True
            self.out.wire.abort(self.handle)
            self._leave()

    def _leave(self) -> None:
        out = self.out
        out.leg = None
        out.work.touched.add(out.engine)
        out.refresh_room()

    def lose(self, *, was_sent: bool) -> None:
        """The link went away."""
        if not self.is_over:
            self.is_over = True
            self.waiting.clear()
            self.waiting_bytes = 0
            self.stream.on_leg_lost(was_sent=was_sent)


class Stream:
    """One message on its way from one incoming link to one or more receivers. The Origin of its copies."""

    __slots__ = ("_paid", "_pay", "_rest", "is_complete", "is_over", "is_settled", "legs", "link", "open_legs",
                 "outcome", "received", "since_s", "source", "wants_outcome")  # fmt: skip

    def __init__(
        self, link: InLink, source: Handle, out_links: list[OutLink], first: list[bytes], size: int, pay: Pay | None
    ) -> None:
        self.link = link
        self.source = source
        self.since_s = link.work.now_s
        self.is_settled = bool(link.is_settled(source))
        self.wants_outcome = True  # the sender has not been told, and has not settled first
        self.is_complete = False
        self.is_over = False  # aborted or nobody left: what still arrives is discarded
        self.outcome = RELEASED
        self.received = size
        self._rest, link.rest = link.rest, None
        self.pay_by(pay)
        self.legs = [Leg(self, out) for out in out_links]
        self.open_legs = len(self.legs)
        link.delivery_count += 1
        link.presettled += self.is_settled
        for leg, chunk in zip(self.legs, first, strict=True):
            leg.append(chunk)
        for leg in self.legs:
            if leg.out.room <= 0:
                leg.out.make_room()
            if leg.out.room > 0:
                leg.start()
            else:
                leg.out.enqueue(Queued(self, leg, self.since_s, b"", self.is_settled, leg))

    def pay_by(self, pay: Pay | None) -> None:
        """From now on what is read is paid for in this way; what has been is not."""
        self._pay = pay
        self._paid = self.received

    def _may_go_on(self) -> bool:
        """Pay for what was read. May more be?"""
        if self._pay is None:
            return True
        size, self._paid = self.received - self._paid, self.received
        return self._pay(size)

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
        return self._may_go_on() and all(leg.is_over or leg.buffered < limit for leg in self.legs)

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
            for leg in self.legs:
                if not leg.is_over:
                    leg.append(chunk)
        self._may_go_on()

    def _complete(self) -> None:
        self.is_complete = True
        self.link.wire.end_message()
        if self.is_settled:
            self.link.settle(self.source)
        for leg in self.legs:
            leg.finish()

    def _refuse(self, condition: Any) -> None:
        """What came is malformed: nobody gets the rest, and the receivers are told that it is no whole message."""
        self.abort()
        self.link.refuse(self.source, condition)
        if not self.link.wire.is_partial(self.source):
            self.link.wire.end_stream()

    def abort(self) -> None:
        """The sender aborted, vanished or broke a limit."""
        self.is_over = True
        self.wants_outcome = False
        self.link.wire.stream = self.link.wire.hold
        for leg in self.legs:
            leg.abort()

    def on_written(self) -> None:
        """A copy that needs no outcome has been written."""
        self._count(ACCEPTED)

    def on_ended(self, leg: Leg, out: OutLink) -> None:
        """A copy is complete. One of several whose receiver decided before that can be settled only now."""
        if len(self.legs) > 1 and (state := out.wire.remote_state(leg.handle)):
            self.on_progress(leg, state, out, leg.handle)

    def on_leg_lost(self, *, was_sent: bool) -> None:
        self._count(MODIFIED if was_sent else RELEASED)
        self.link.work.resumable.add(self)

    def forgo_outcome(self) -> None:
        """The sender has settled: its copies need no outcome any more."""
        self.is_settled = True
        self.wants_outcome = False

    # Origin

    def on_accepted(self, source: Leg, since_s: int) -> None:
        source.cut()
        self._count(ACCEPTED)

    def on_outcome(self, source: Leg, since_s: int, state: int, outgoing: Handle) -> None:
        if len(self.legs) == 1 and self.wants_outcome and not self.is_over:
            self.open_legs = 0
            self._tell_first()
            self.link.on_outcome(self.source, self.since_s, state, outgoing)
            source.cut()
            return
        source.cut()
        self._count(effective(state))

    def on_progress(self, source: Leg, state: int, out: OutLink, outgoing: Handle) -> None:
        if len(self.legs) == 1:
            if self.wants_outcome and not self.is_over:
                self.link.on_progress(self.source, state, out, outgoing)
        elif state >= ACCEPTED and source.is_over:
            out.settle_early(outgoing)
            self._count(effective(state))

    def on_lost(self, source: Leg, since_s: int, *, was_sent: bool) -> None:
        source.is_over = True
        self.on_leg_lost(was_sent=was_sent)

    def source_of(self, key: Leg) -> Handle:
        return self.source

    def _count(self, state: int) -> None:
        self.outcome = merge(self.outcome, state)
        self.open_legs -= 1
        if self.open_legs or not self.wants_outcome or not self.link.is_open:
            return
        self._tell_first()
        if not self.is_settled:
            self.link.on_merged(self.source, self.since_s, self.outcome)
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


def begin_stream(
    link: InLink, address: "LiveAddress", delivery: Handle, size: int, pay: Pay | None = None
) -> Stream | None:
    """Start forwarding the message whose first `size` bytes are in the buffer. None when it was refused or released."""
    link.rest = None
    if link.route is not None:
        routed = link.route(delivery, size)
        if routed is None:
            return None
        address, size = routed
        address.retired_ingress += 1
    elif link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
        return None
    if not address.out_links:
        if address.subscribers:
            link.refuse(delivery, REQUEST_TOO_LARGE)
        else:
            link.release_undeliverable(delivery)
        return None
    if address.distribution == "multicast":
        out_links = list(address.out_links)
    elif address.distribution == "closest":
        out_links = [next_in_turn(address)]
    else:
        out_links = [least_loaded(address)]
    first = [out.compose(link, size) if out.compose is not None else link.work.copy(size) for out in out_links]
    stream = Stream(link, delivery, out_links, first, size, pay)
    if not stream.is_over:
        link.wire.stream = stream
    return stream
