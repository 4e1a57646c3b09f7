"""Messages of many frames, forwarded while they arrive.

A stream reads from its incoming link only while every receiver it feeds keeps up, so at most STREAM_AT_BYTES of it
wait per receiver; beyond that the sender's session window closes.

Sources: docs/spec/routing.md §10.1, §10.3, §10.4, §9.4.
"""

from typing import TYPE_CHECKING, Any, Final

from router.core.forward import least_loaded, next_in_turn
from router.core.links import Handle, InLink, OutLink, Queued
from router.core.outcomes import ACCEPTED, MODIFIED, RELEASED, effective, merge

if TYPE_CHECKING:
    from router.core.addresses import Address

# What may wait for one receiver before the sender is held back. Stops a fast sender from filling our memory
# through a slow receiver.
HIGH_BYTES: Final = 128 * 1024
LOW_BYTES: Final = HIGH_BYTES // 2


class Leg:
    """One receiver's copy of a streamed message."""

    __slots__ = ("handle", "is_lost", "out", "stream", "waiting", "waiting_bytes")

    def __init__(self, stream: "Stream", out: OutLink) -> None:
        self.stream = stream
        self.out = out
        self.handle: Handle = None
        self.is_lost = False
        self.waiting: list[bytes] = []  # chunks held until the link has room to start
        self.waiting_bytes = 0

    def start(self) -> None:
        """The link has credit for this delivery: it is occupied until the message ends."""
        out = self.out
        out.is_busy = True
        out.room = 0
        out.delivery_count += 1
        self.handle = out.wire.begin()
        if not self.stream.is_settled and not out.sends_settled:
            out.unsettled[self.handle] = (self.stream, self, self.stream.since_s)
            out.load += 1
        for chunk in self.waiting:
            out.wire.append(chunk)
        self.waiting.clear()
        self.waiting_bytes = 0
        if self.stream.is_complete:
            self.finish()
        out.work.touched.add(out.engine)
        out.work.stalled.add(self.stream)

    def append(self, chunk: bytes) -> None:
        if self.handle is None:
            self.waiting.append(chunk)
            self.waiting_bytes += len(chunk)
        else:
            self.out.wire.append(chunk)
            self.out.work.touched.add(self.out.engine)

    @property
    def buffered(self) -> int:
        if self.handle is None:
            return self.waiting_bytes
        return int(self.out.wire.buffered(self.handle))

    def finish(self) -> None:
        """The message is complete: the link is free for the next."""
        if self.handle is None or self.is_lost:
            return
        out = self.out
        out.wire.finish()
        if self.stream.is_settled or out.sends_settled:
            out.presettled += self.stream.is_settled
            out.settle(self.handle)
            self.stream.leg_written(self)
        out.is_busy = False
        out.refresh_room()
        out.work.touched.add(out.engine)

    def abort(self) -> None:
        """The message will never be complete: the receiver must not take what it got for one."""
        if self.is_lost:
            return
        out = self.out
        if self.handle is None:
            out.queue = type(out.queue)(item for item in out.queue if item.leg is not self)
            out.load -= 1
            return
        if out.unsettled.pop(self.handle, None) is not None:
            out.load -= 1
        out.wire.abort(self.handle)
        out.settle(self.handle)
        out.is_busy = False
        out.refresh_room()
        out.work.touched.add(out.engine)

    def lose(self) -> None:
        """The link went away before this copy started."""
        self.is_lost = True
        self.stream.leg_lost(was_sent=False)


class Stream:
    """One message on its way from one incoming link to one or more receivers. The Origin of its copies."""

    __slots__ = ("is_complete", "is_dead", "is_settled", "legs", "link", "open_legs", "outcome", "received",
                 "since_s", "source")  # fmt: skip

    def __init__(self, link: InLink, source: Handle, out_links: list[OutLink], first: list[bytes], size: int) -> None:
        self.link = link
        self.source = source
        self.since_s = link.work.now_s
        self.is_settled = bool(link.is_settled(source))
        self.is_complete = False
        self.is_dead = False  # aborted, refused or lost: what still arrives is discarded by the engine
        self.outcome = RELEASED
        self.received = size
        self.legs = [Leg(self, out) for out in out_links]
        self.open_legs = len(self.legs)
        link.delivery_count += 1
        link.presettled += self.is_settled
        for leg, chunk in zip(self.legs, first, strict=True):
            leg.append(chunk)
        for leg in self.legs:
            if leg.out.room > 0:
                leg.start()
            else:
                leg.out.enqueue(Queued(self, source, self.since_s, b"", self.is_settled, leg))

    def more(self) -> None:
        """Frames came, or a receiver took some: move what may be moved."""
        if self.is_dead:
            return
        wire, work = self.link.wire, self.link.work
        if wire.is_aborted(self.source):
            self.abort()
            wire.settle(self.source)
            self.link.owe()
            return
        while all(leg.is_lost or leg.buffered < HIGH_BYTES for leg in self.legs):
            size = wire.read()
            if not size:
                break
            self.received += size
            if self.link.max_message_bytes and self.received > self.link.max_message_bytes:
                self.abort()
                if self.link.on_oversize is not None:
                    self.link.on_oversize(self.source)
                return
            chunk = work.copy(size)
            for leg in self.legs:
                if not leg.is_lost:
                    leg.append(chunk)
        else:
            work.stalled.add(self)
            return
        if not wire.is_partial(self.source):
            self._complete()

    def resume(self) -> None:
        """Look again after a flush: have the receivers taken enough?"""
        if self.is_dead or self.is_complete or not self.link.is_open:
            self.link.work.stalled.discard(self)
        elif all(leg.is_lost or leg.buffered <= LOW_BYTES for leg in self.legs):
            self.link.work.stalled.discard(self)
            self.link.work.touched.add(self.link.engine)
            self.more()

    def _complete(self) -> None:
        self.is_complete = True
        self.link.wire.stream = None
        self.link.wire.end_message()
        self.link.work.touched.add(self.link.engine)
        if self.is_settled:
            self.link.settle(self.source)
        for leg in self.legs:
            leg.finish()

    def abort(self) -> None:
        """The sender aborted, vanished or broke a limit."""
        self.is_dead = True
        self.link.wire.stream = None
        for leg in self.legs:
            leg.abort()

    def leg_written(self, leg: Leg) -> None:
        """A copy that needs no outcome has been written."""
        self._count(ACCEPTED)

    def leg_lost(self, *, was_sent: bool) -> None:
        self._count(MODIFIED if was_sent else RELEASED)

    # Origin

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self._count(ACCEPTED)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        if len(self.legs) == 1 and self.is_complete and self.link.is_open:
            self.open_legs = 0
            self.link.on_outcome(self.source, self.since_s, state, outgoing)
            return
        source.is_lost = not self.is_complete
        self._count(effective(state))

    def on_progress(self, source: Handle, state: int, out: OutLink, outgoing: Handle) -> None:
        if state >= ACCEPTED:
            out.settle_early(outgoing)
            self._count(effective(state))

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        leg: Any = source
        if isinstance(leg, Leg):
            leg.is_lost = True
        self._count(MODIFIED if was_sent else RELEASED)

    def _count(self, state: int) -> None:
        self.outcome = merge(self.outcome, state)
        self.open_legs -= 1
        if self.open_legs or self.is_dead:
            return
        link = self.link
        if not self.is_complete:
            # Nobody is left to take the rest: settling now makes the engine discard it (routing §10.1).
            self.is_dead = True
            link.wire.stream = None
        if not link.is_open:
            return
        if self.is_settled:
            if not self.is_complete:
                link.settle(self.source)
            link.owe()
        elif self.outcome == ACCEPTED:
            link.on_accepted(self.source, self.since_s)
        elif self.outcome in (MODIFIED, RELEASED):
            link.on_lost(self.source, self.since_s, was_sent=self.outcome == MODIFIED)
        else:
            link.rejected += 1
            link.update(self.source, self.outcome)
            link.settle(self.source)
            link.owe()


def begin_stream(link: InLink, address: "Address", delivery: Handle, size: int) -> "Stream | None":
    """Start forwarding the message whose first `size` bytes are in the buffer. None when it was refused or released."""
    if link.route is not None:
        routed = link.route(delivery, size)
        if routed is None:
            return None
        address, size = routed
        address.retired_ingress += 1
    elif link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
        return None
    if not address.out_links:
        link.release_undeliverable(delivery)
        return None
    if address.distribution == "multicast":
        out_links = list(address.out_links)
    elif address.distribution == "closest":
        out_links = [next_in_turn(address)]
    else:
        out_links = [least_loaded(address)]
    first = [out.compose(link, size) if out.compose is not None else link.work.copy(size) for out in out_links]
    stream = Stream(link, delivery, out_links, first, size)
    link.wire.stream = stream
    return stream
