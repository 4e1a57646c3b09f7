"""Ends messages under way that make no progress, and the links of receivers that take nothing of one.

A message under way has begun and has not ended. Streamed, it occupies the link of each receiver, and no other message
passes it there. Attack: a message that never ends, or comes a byte at a time, blocks its address for everybody; so does
a receiver of a multicast that takes nothing. All links are looked at from time to time, so that no message pays for it.

Bounds, with T for `timeout_s` (T of a sender is longer by `Pace.longest_wait_s` where rates hold it back):
- of a message under way at least MIN_BYTES_PER_S * T bytes come in every T, so that a message of n bytes is under way
  for at most T + n / MIN_BYTES_PER_S seconds
- a receiver takes at least as many of a copy that holds back the message; what its socket sends counts for _SOCKET_S
- it is noticed between T and 5/4 T, and at most two seconds later

That is no bound where a message has no end: router.core.occupation has those of a message for which others wait.

Source: docs/spec/routing.md §10.6.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from router.core.in_links import Discard, InLink
from router.core.links import Connection
from router.core.occupation import Occupation
from router.core.out_links import OutLink
from router.core.ports import Reader
from router.core.streams import Leg, Stream

# Attack: a byte now and then would be progress for ever.
MIN_BYTES_PER_S: Final = 1024
# A full socket (router.io.sockets) takes so long to be empty at that rate. It takes nothing of a message meanwhile.
_SOCKET_S: Final = 512 * 1024 / MIN_BYTES_PER_S
# So often a link is looked at in T.
_LOOKS: Final = 8
# A slice takes a fraction of a millisecond.
LINKS_AT_ONCE: Final = 250


_Waited = InLink | Leg | Connection  # a message, by its link; a copy; a socket


class _Mark:
    """Since when a message, a copy or a socket has been waited for, and how many bytes had come or gone by then."""

    __slots__ = ("bytes", "message", "since")

    def __init__(self, message: tuple[int, Reader | None] | None, since: float, size: int) -> None:
        self.message = message
        self.since = since
        self.bytes = size


class Progress:
    """Looks at the links of one core.

    timeout_s  how long a message may be without progress; 0: for ever
    messages_given_up, receivers_given_up  counts since the start
    """

    __slots__ = (
        *("_clock", "_links", "_marks", "_next", "_occupation", "messages_given_up", "receivers_given_up", "timeout_s"),
    )

    def __init__(self, links: Mapping[int, InLink | OutLink], clock: Callable[[], float]) -> None:
        """clock  monotonic seconds"""
        self.timeout_s = 0
        self.messages_given_up = self.receivers_given_up = 0
        self._links = links
        self._clock = clock
        self._marks: dict[_Waited, _Mark] = {}  # of the last look, and nothing older
        self._occupation = Occupation(clock)
        self._next = 0.0

    def on_second(self) -> Iterator[None]:
        """Look, when it is time. Yields wherever messages may be routed before it goes on."""
        if not self.timeout_s or (now := self._clock()) < self._next:
            return
        self._next = now + self.timeout_s / _LOOKS
        marks: dict[_Waited, _Mark] = {}
        for at, link in enumerate(list(self._links.values()), 1):
            given_up = self.messages_given_up + self.receivers_given_up
            if isinstance(link, InLink) and link.is_open:
                try:
                    self._look(link, marks)
                except Exception as error:
                    link.engine.owner.crash(error)
            if at % LINKS_AT_ONCE == 0 or self.messages_given_up + self.receivers_given_up > given_up:
                yield  # one that is given up costs as much as hundreds that are not
        self._marks = marks
        for link, seconds, holds_up_others in self._occupation.overdue(self.timeout_s):
            try:
                self._give_up(link, seconds, holds_up_others=holds_up_others)
            except Exception as error:
                link.engine.owner.crash(error)
            yield

    def _look(self, link: InLink, marks: dict[_Waited, _Mark]) -> None:
        """Give up what stalls on one link; remember in `marks` what goes on."""
        wire, stream = link.wire, link.wire.reader
        holding: list[Leg] = []
        if isinstance(stream, Stream):
            link.work.resumable.add(stream)  # a link that it waits for may be occupied now, or its account have room
            live = stream.live_legs
            holding = [leg for leg in live if leg.holds_back]
            is_free = len(holding) < len(live)
            stalled = [leg for leg in holding if self._is_stalled(leg, stream, marks, others_go_on=is_free)]
            for leg in stalled:
                self._give_up_receiver(leg.out)
            if stalled:
                return
        if isinstance(stream, Stream | Discard):
            self._occupation.see(link, stream, is_slowed=bool(holding))
        unread = wire.unread_bytes
        if unread < 0 or (wire.has_full_session and (holding or not isinstance(stream, Stream))):
            # It has come whole, or its sender may not send: what it did send waits for receivers looked at above, or
            # nobody waits for the message.
            return
        message = (link.delivery_count + link.passed_over, stream)
        pacing = link.attachment.pacing
        patience_s = self.timeout_s * link.patience + (pacing.longest_wait_s if pacing is not None else 0.0)
        come = unread + (stream.received if stream is not None else 0)
        if self._is_late(link, message, come, patience_s, marks):
            self._give_up(link, patience_s, holds_up_others=False)

    def _is_stalled(self, leg: Leg, stream: Stream, marks: dict[_Waited, _Mark], *, others_go_on: bool) -> bool:
        """Has the receiver of a copy that holds its stream back taken too little of it for too long?

        others_go_on  other receivers of the message could take more
        """
        if leg.handle is None and (leg.out.leg is not None or not others_go_on):
            # Another message is in its way, which is looked at itself; or nobody but the sender waits for the receiver,
            # and that may grant its credit when it likes.
            return False
        patience_s = self.timeout_s * leg.out.patience
        is_late = self._is_late(leg, None, stream.received - leg.buffered, patience_s, marks)
        connection = leg.out.attachment
        if not connection.is_blocked:
            return is_late
        is_shut = self._is_late(connection, None, -connection.unsent_bytes(), patience_s, marks)
        return is_late and (is_shut or self._clock() - marks[leg].since >= patience_s + _SOCKET_S)

    def _is_late(
        self,
        of: _Waited,
        message: tuple[int, Reader | None] | None,
        size: int,
        patience_s: float,
        marks: dict[_Waited, _Mark],
    ) -> bool:
        """Have too few bytes of it moved for `patience_s`, `size` being all so far?"""
        now, mark = self._clock(), self._marks.get(of)
        is_same = mark is not None and mark.message == message and size >= mark.bytes
        if mark is None or not is_same or size - mark.bytes >= MIN_BYTES_PER_S * self.timeout_s:
            marks[of] = _Mark(message, now, size)
            return False
        marks[of] = mark
        return now - mark.since >= patience_s

    def _give_up(self, link: InLink, seconds: float, *, holds_up_others: bool) -> None:
        if link.on_stalled is not None:
            self.messages_given_up += 1
            link.on_stalled(seconds, holds_up_others)

    def _give_up_receiver(self, out: OutLink) -> None:
        if out.is_open and out.on_stalled is not None:
            self.receivers_given_up += 1
            out.on_stalled(self.timeout_s)
