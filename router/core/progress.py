"""Ends messages under way that make no progress, and the links of receivers that take nothing of a message.

A message under way has begun and has not ended. A streamed message occupies the link of each receiver, so no other
message passes there. Attack: a message that never ends, or arrives one byte at a time, blocks its address for every
sender. A receiver of a multicast that takes nothing does the same. All links are checked from time to time, so that
messages have no extra cost.

Bounds, with T for `timeout_s` (if rates hold a sender back, its T is longer by `Pace.longest_wait_s`):
- at least MIN_BYTES_PER_S * T bytes of a message under way arrive in every T. So a message of n bytes is under way for
  at most T + n / MIN_BYTES_PER_S seconds
- a receiver takes at least that many bytes of a copy that holds back the message. What its socket sends counts for
  _SOCKET_S
- a violation is noticed between T and 5/4 T, and at most two seconds later

These do not limit a message without an end: router.core.occupation limits messages that make others wait.

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

# Attack: one byte from time to time would be progress forever.
MIN_BYTES_PER_S: Final = 1024
# A full socket (router.io.sockets) needs this time to become empty at that rate. Meanwhile it takes nothing of a
# message.
_SOCKET_S: Final = 512 * 1024 / MIN_BYTES_PER_S
# A link is checked this number of times in T.
_LOOKS: Final = 8
# A slice of this size takes a fraction of a millisecond.
LINKS_AT_ONCE: Final = 250


_Waited = InLink | Leg | Connection  # a message (by its link), a copy, or a socket


class _Mark:
    """The time since when a message, copy or socket has been waited for, and the bytes that had moved by then."""

    __slots__ = ("bytes", "message", "since")

    def __init__(self, message: tuple[int, Reader | None] | None, since: float, size: int) -> None:
        self.message = message
        self.since = since
        self.bytes = size


class Progress:
    """Checks the links of one core.

    timeout_s  how long a message may make no progress; 0: forever
    messages_given_up, receivers_given_up  counts since the start
    """

    __slots__ = (
        *("_clock", "_links", "_marks", "_next", "_occupation", "messages_given_up", "receivers_given_up", "timeout_s"),
    )

    def __init__(self, links: Mapping[int, InLink | OutLink], clock: Callable[[], float]) -> None:
        """Sets up a check that never gives up a message until `timeout_s` is set.

        clock  monotonic seconds
        """
        self.timeout_s = 0
        self.messages_given_up = self.receivers_given_up = 0
        self._links = links
        self._clock = clock
        self._marks: dict[_Waited, _Mark] = {}  # of the last check only
        self._occupation = Occupation(clock)
        self._next = 0.0

    def on_second(self) -> Iterator[None]:
        """Checks all links, if it is time. Yields wherever messages may be routed in between."""
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
                yield  # giving up one costs as much as checking hundreds
        self._marks = marks
        for link, seconds, holds_up_others in self._occupation.overdue(self.timeout_s):
            try:
                self._give_up(link, seconds, holds_up_others=holds_up_others)
            except Exception as error:
                link.engine.owner.crash(error)
            yield

    def _look(self, link: InLink, marks: dict[_Waited, _Mark]) -> None:
        """Gives up stalled messages and receivers of one link. Stores in `marks` those that continue."""
        wire, stream = link.wire, link.wire.reader
        holding: list[Leg] = []
        if isinstance(stream, Stream):
            # A link that it waits for may be occupied now, or its account may have room.
            link.work.resumable.add(stream)
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
            # The message has arrived completely, or its sender may not send. In the second case the received part waits
            # for receivers that are checked above, or no receiver waits for the message.
            return
        message = (link.delivery_count + link.passed_over, stream)
        pacing = link.attachment.pacing
        patience_s = self.timeout_s * link.patience + (pacing.longest_wait_s if pacing is not None else 0.0)
        come = unread + (stream.received if stream is not None else 0)
        if self._is_late(link, message, come, patience_s, marks):
            self._give_up(link, patience_s, holds_up_others=False)

    def _is_stalled(self, leg: Leg, stream: Stream, marks: dict[_Waited, _Mark], *, others_go_on: bool) -> bool:
        """Returns True if the receiver of a copy that holds its stream back has taken too little of it for too long.

        others_go_on  True if other receivers of the message could take more
        """
        if leg.handle is None and (leg.out.leg is not None or not others_go_on):
            # Another message blocks it, which is checked itself. Or only the sender waits for the receiver, which may
            # grant its credit when it likes.
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
        """Returns True if too few bytes have moved for `patience_s`. `size` is the total so far."""
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
