"""Finds messages under way that delay other messages for too long.

A message that streams occupies the link of its receiver. It can make progress (router.core.progress) so slowly that it
takes forever. Attack: one such message for each receiver of an address. 7 kB/s blocked five receivers for all senders.

Bounds, with T for the timeout (`Link.patience` times that for a neighbour). Time counts while other messages wait and
the message arrives more slowly than its receivers take it:
- a message may delay others for T, and a second more for each BYTES_PER_S that arrive of it, but no longer than LONGEST
  * T
- while other users wait, one user's messages may hold half of an address's receivers, or one. If they hold more, the
  awaited and the slowest of them may do so for T
- a message that already has its outcome and is discarded may be under way for T, and a second more for each BYTES_PER_S

Source: docs/spec/routing.md §10.6.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final

from router.core.addresses import LiveAddress
from router.core.budget import Level
from router.core.in_links import Discard, InLink
from router.core.out_links import OutLink
from router.core.streams import Stream

# A message of 1 GiB needs 4.7 hours at this rate, but it gets no more than LONGEST * T.
BYTES_PER_S: Final = 64 * 1024
LONGEST: Final = 10
# The number of waiting messages searched for one of another connection. A single connection has no longer queue.
_MOST_LOOKED_AT: Final = 10_000

# Senders of another router are distinguished by the link; None: the sender is not known.
_User = Level | InLink | None


@dataclass(slots=True, kw_only=True)
class _Hold:
    """A message that delays others.

    seconds  how long it has delayed them, as far as its sender is the reason
    begin    the bytes that had arrived of it when that began
    """

    link: InLink
    message: Stream | Discard
    is_slowed: bool
    address: LiveAddress | None = None
    is_awaited: bool = False
    seconds: float = 0.0
    begin: int = 0

    @property
    def come(self) -> int:
        return self.message.received - self.begin


class Occupation:
    """Gets every message under way at each check, and then returns those that have delayed others for too long."""

    __slots__ = ("_before", "_clock", "_looked_at", "_seen", "_waiting")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Sets up the first check.

        clock  monotonic seconds
        """
        self._clock = clock
        self._looked_at = 0.0
        self._before: dict[Stream | Discard, _Hold] = {}  # of the check before
        self._seen: list[_Hold] = []
        self._waiting: dict[LiveAddress, set[_User]] = {}  # users who wait for receivers that are held

    def see(self, link: InLink, message: Stream | Discard, *, is_slowed: bool) -> None:
        """Records one message under way.

        is_slowed  True if a receiver takes it more slowly than it arrives
        """
        hold = _Hold(link=link, message=message, is_slowed=is_slowed, begin=message.received)
        if isinstance(message, Stream):
            self._look(hold, message)
        else:
            hold.is_awaited = True
        self._seen.append(hold)

    def _look(self, hold: _Hold, stream: Stream) -> None:
        link = hold.link
        for leg in stream.live_legs:
            if leg.handle is None:
                continue
            out = leg.out
            address = out.address if isinstance(out.address, LiveAddress) and not stream.is_multicast else None
            hold.address = address
            for sender in _waiting(out):
                if sender is None or sender.attachment is not link.attachment or link.attachment.is_neighbour:
                    hold.is_awaited = True
                    if address is None:
                        return
                    if (user := _user_of(sender)) is not _user_of(link):
                        self._waiting.setdefault(address, set()).add(user)
                        break

    def overdue(self, timeout_s: float) -> Iterator[tuple[InLink, float, bool]]:
        """Iterates over links whose message is under way for too long: link, seconds, and True if others wait for it.

        Each link still exists, and the message is still under way on it.
        """
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        before, self._before = self._before, {}
        waiting, self._waiting = self._waiting, {}
        seen, self._seen = self._seen, []
        shares: dict[tuple[LiveAddress, _User], list[_Hold]] = {}
        for hold in seen:
            user = _user_of(hold.link)
            is_wanted = hold.address is not None and bool(waiting.get(hold.address, set()) - {user})
            if not (hold.is_awaited or is_wanted):
                continue
            if (known := before.get(hold.message)) is not None:
                hold.begin = known.begin
                hold.seconds = known.seconds + (0.0 if hold.is_slowed else passed)
            self._before[hold.message] = hold
            if hold.address is not None and is_wanted:
                shares.setdefault((hold.address, user), []).append(hold)
        late = {hold.message: hold for hold in self._before.values() if hold.seconds >= _allowed_s(hold, timeout_s)}
        for (address, _), holds in shares.items():
            surplus = len(holds) - max(1, len(address.out_links) // 2)
            if surplus > 0:
                holds.sort(key=lambda hold: (not hold.is_awaited, hold.come))
                surplus = max(surplus, sum(hold.is_awaited for hold in holds))
                late |= {
                    hold.message: hold for hold in holds[:surplus] if hold.seconds >= timeout_s * hold.link.patience
                }
        for message, hold in late.items():
            del self._before[message]
            if hold.link.is_open and hold.link.wire.reader is message:
                yield hold.link, hold.seconds, isinstance(message, Stream)


def _allowed_s(hold: _Hold, timeout_s: float) -> float:
    link = hold.link
    patience_s, pacing, rate = timeout_s * link.patience, link.attachment.pacing, float(BYTES_PER_S)
    longest_s = LONGEST * patience_s if isinstance(hold.message, Stream) else inf
    if pacing is not None:
        rate = min(rate, pacing.bytes_per_s)
        patience_s += pacing.longest_wait_s
    return min(patience_s + hold.come / rate, longest_s) if rate else inf


def _user_of(link: InLink | None) -> _User:
    return link if link is None or link.attachment.is_neighbour else link.attachment.account.user


def _waiting(out: OutLink) -> Iterator[InLink | None]:
    """Iterates over the sending links of messages that wait for a receiver, latest first; None: not known."""
    for item in islice(reversed(out.queue), _MOST_LOOKED_AT):
        sender = item.origin.sender if item.origin is not None else None
        yield sender if isinstance(sender, InLink) else None
    if len(out.queue) > _MOST_LOOKED_AT:
        yield None
