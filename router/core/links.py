"""What links of both directions share, as the core sees them. `in_links` and `out_links` have the two.

A wire is the engine's link object. The core calls its functions and never looks inside a delivery handle. In flight,
an unsettled delivery is one tuple in the receiving link's `unsettled`: handle → (origin, source, since_s), where
`origin` is told the outcome: the sending link itself, a Fanout (multicast) or a Stream.

Sources: docs/spec/routing.md §8, §9.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from router.core.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED

if TYPE_CHECKING:
    from router.core.addresses import LiveAddress
    from router.core.in_links import InLink
    from router.core.out_links import OutLink
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


class Link:
    """What both directions share."""

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
        self.address: LiveAddress | None = None
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
