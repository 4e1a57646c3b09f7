"""Limits the messages and bytes that one connection may send in a second. Messages are delayed and never dropped.

All senders of the connection share one token bucket for each rate, which holds the tokens of one second. While a bucket
is empty, nothing is taken from the engine. Further messages then fill the peer's session window, and returning credit
is withheld. Links have this cost only while their connection has a rate.

Precision, over any time T: at most rate * T plus the messages of one second. For bytes the same, plus one piece: a
message of up to 256 KiB, or 128 KiB of a larger one. A link that ends takes all its received messages at once. The
connection pays for them before it may send again.

Source: docs/policy.md, Extensions.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from router.core.in_links import OVER_RATE, InLink
from router.core.links import Connection
from router.core.rates import Bucket, Rates, followed
from router.core.work import SetTimer

# The largest piece that is taken at once.
PIECE_BYTES: Final = 256 * 1024


class _Paced:
    """The state of one paced link."""

    __slots__ = ("link", "missing", "withheld")

    def __init__(self, link: InLink, missing: int) -> None:
        self.link = link
        self.missing = missing  # credit that the link's window lacks because of the rate
        self.withheld = 0  # credit that is granted when something may be taken again


class Pacing:
    """The rates of one connection, and its senders.

    is_open  True if something may be taken
    """

    __slots__ = (
        *("_attachment", "_bytes", "_clock", "_deadline", "_messages", "_paced", "_refilled_at", "_set_timer"),
        "is_open",
    )

    def __init__(
        self, attachment: Connection, rates: Rates, *, clock: Callable[[], float], set_timer: SetTimer
    ) -> None:
        """Sets the rates, which apply from now on.

        clock  monotonic seconds
        """
        self._attachment = attachment
        self._clock = clock
        self._set_timer = set_timer
        self._messages: Bucket | None = None
        self._bytes: Bucket | None = None
        self._refilled_at = clock()
        self._deadline: float | None = None
        self._paced: dict[InLink, _Paced] = {}  # in the order in which they are served next
        self.is_open = True
        self.follow(rates)

    # Rates

    def follow(self, rates: Rates) -> None:
        """Sets new rates. Senders that waited continue as soon as they may."""
        self._refill(self._clock())
        self._messages = followed(self._messages, rates.messages)
        self._bytes = followed(self._bytes, rates.bytes)
        for paced in self._paced.values():
            more = self._window - (self._attachment.capacity - paced.missing)
            if more > 0:  # granted credit is never taken back
                paced.missing -= more
                paced.link.offer(more)
        self._look(self._clock())

    @property
    def _window(self) -> int:
        """The credit of one second for each link: so only few messages wait in the engine."""
        capacity = self._attachment.capacity
        return capacity if self._messages is None else min(capacity, max(self._messages.rate, 1))

    def end(self) -> None:
        """Removes the rates: every sender continues without limits."""
        self._messages = self._bytes = None
        self.is_open = True
        self._rest()
        for paced in list(self._paced.values()):
            link = paced.link
            link.grant = link.wire.grant
            link.wire.pay_by(None)
            link.offer(paced.missing + paced.withheld)
            link.go_on(OVER_RATE)
        self._paced.clear()

    # Links

    def attach(self, link: InLink) -> int:
        """Adds a sender that has just attached. Returns its window, in credit."""
        window = self._window
        self.adopt(link, self._attachment.capacity - window)
        return window

    def adopt(self, link: InLink, missing: int = 0) -> None:
        """Applies the rates to a sender from now on.

        missing  the credit that its window lacks because of the rate
        """
        paced = self._paced[link] = _Paced(link, missing)
        wire = link.wire

        def grant(credit: int) -> None:
            if self.is_open:
                wire.grant(credit)
            else:
                paced.withheld += credit

        link.grant = grant
        wire.pay_by(self.take)
        if not self.is_open:
            link.hold(OVER_RATE)
            self._look(self._clock())

    def forget(self, link: InLink) -> None:
        """Removes a sender that is gone."""
        self._paced.pop(link, None)
        if not self._paced:
            self._rest()

    # Taking

    def take(self, size: int) -> None:
        """Pays for a message, or the beginning of a streamed one, of `size` bytes. Hot for connections with a rate."""
        now = self._clock()
        self._refill(now)
        messages, bytes_ = self._messages, self._bytes
        is_empty = False
        if messages is not None:
            messages.level -= 1
            is_empty = messages.level < 1
        if bytes_ is not None:
            bytes_.level -= size
            is_empty |= bytes_.level < 1
        if is_empty and self.is_open:
            self._close(now)

    def pay(self, size: int) -> bool:
        """Pays for further bytes of a message that does not arrive in one piece. Returns True if more may be taken."""
        if self._bytes is not None and size:
            now = self._clock()
            self._refill(now)
            self._bytes.level -= size
            if self.is_open and self._wait_s > 0:
                self._close(now)
        return self.is_open

    @property
    def longest_wait_s(self) -> float:
        """The longest time that a link which sends alone may have to wait: until its last piece is paid."""
        if self._bytes is None:
            return 0.0
        return PIECE_BYTES / self._bytes.rate if self._bytes.rate else inf

    @property
    def bytes_per_s(self) -> float:
        """The bytes that may arrive in a second; infinite if there is no limit."""
        return self._bytes.rate if self._bytes is not None else inf

    @property
    def _wait_s(self) -> float:
        return max(bucket.wait_s if bucket is not None else 0.0 for bucket in (self._messages, self._bytes))

    def _refill(self, now: float) -> None:
        passed, self._refilled_at = now - self._refilled_at, now
        if self._messages is not None:
            self._messages.refill(passed)
        if self._bytes is not None:
            self._bytes.refill(passed)

    # Waiting

    def _close(self, now: float) -> None:
        self.is_open = False
        self._attachment.held_back_count += 1
        for paced in self._paced.values():
            paced.link.hold(OVER_RATE)
        self._wait(now)

    def _wait(self, now: float) -> None:
        wait_s = self._wait_s
        self._deadline = now + wait_s if wait_s < inf and self._paced else None
        self._set_timer(self, self._deadline)

    def _rest(self) -> None:
        """Removes the timer, because no link waits."""
        if self._deadline is not None:
            self._deadline = None
            self._set_timer(self, None)

    def on_timer(self, now: float) -> float | None:
        try:
            self._look(now)
        except Exception as error:
            self._attachment.engine.owner.crash(error)
        return self._deadline

    def _look(self, now: float) -> None:
        """Lets the waiting links continue, if it is time."""
        if self.is_open:
            if self._wait_s > 0:
                self._close(now)
            return
        self._refill(now)
        if self._wait_s > 0:
            self._wait(now)
            return
        self.is_open = True
        self._rest()
        # The links take turns: the first one may leave nothing for the others, and is then the last one next time.
        waiting = deque(self._paced.values())
        while waiting and self.is_open:
            paced = waiting.popleft()
            if paced.link in self._paced:
                self._paced[paced.link] = self._paced.pop(paced.link)
                paced.link.work.touched.add(paced.link.engine)
                paced.link.go_on(OVER_RATE)
        if self.is_open:
            for paced in self._paced.values():
                if paced.withheld:
                    credit, paced.withheld = paced.withheld, 0
                    paced.link.offer(credit)
