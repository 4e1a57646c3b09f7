"""The common part of links of both directions, as the core uses them. `in_links` and `out_links` contain the two kinds.

A wire is the engine's link object (`ports`). An unsettled delivery in flight is one tuple in the receiving link's
`unsettled`: handle → (origin, source, since_s). `origin` learns the outcome: it is the sending link itself, a Fanout or
DecidedCopy (multicast) or a Leg (of a stream). `source` is the sender's delivery.

Sources: docs/spec/routing.md §8, §9.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

from router.core.budget import Account, Charge, Level
from router.core.outcomes import ACCEPTED, MODIFIED, REJECTED, RELEASED, TRANSACTIONAL
from router.core.ports import Engine, Wire
from router.core.ways import Way
from router.core.work import Resumable, Work
from router.values import Handle


class Origin(Protocol):
    """Learns the outcome of a copy of a message."""

    @property
    def sender(self) -> "Link":
        """The link that the message arrived on."""
        ...

    def on_accepted(self, source: Handle, since_s: int) -> None: ...
    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None: ...
    def on_progress(
        self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]
    ) -> "Origin | None":
        """Handles that the receiver gave a state and has not settled. settle(outgoing) ends the copy, now or later.

        Returns  the origin that learns about the copy from now on; None: the same as before
        """
        ...

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None: ...
    def forgo(self, state: int, since_s: int) -> None:
        """Handles that the sender has settled; the receiver had given this copy `state`. The copy is settled next."""
        ...


class Counted(Origin, Protocol):
    """The origin of messages that are counted until they have their outcome (router.core.crossings)."""

    @property
    def way(self) -> Way: ...


class Lender(Protocol):
    """A link to another router, as the senders see it whose presettled messages leave by it (router.core.remotes)."""

    def share(self, link: "Lent", owed: int, /) -> int:
        """Returns the part of the credit owed to a link that is given now. The rest follows (`Lent.lent`)."""
        ...


class Lent(Protocol):
    """A sender's link (router.core.in_links).

    lent  credit that waits until the lender has some
    """

    lender: Lender | None
    lent: int

    @property
    def wire(self) -> Wire: ...
    def owe(self, credit: int, /) -> None: ...


class Growing(Protocol):
    """A copy of a message that is being streamed, as its receiver's link uses it."""

    @property
    def stream(self) -> Resumable: ...
    def start(self) -> None: ...
    def lose(self, *, was_sent: bool) -> None: ...
    def break_off(self) -> None: ...
    def give_up(self) -> None: ...
    def forgo_outcome(self) -> None: ...
    def turns_settled(self, outgoing: Handle, /) -> bool:
        """If the delivery is this copy, and is not sent completely: note that it needs no outcome.

        Returns True in that case.
        """
        ...

    def ends_early(self, outgoing: Handle, /) -> bool:
        """If the delivery is this copy, and is not sent completely: end it, as its receiver has settled.

        Returns True then.
        """
        ...


class Node(Protocol):
    """The live address that a link is bound to, as the link uses it (router.core.addresses)."""

    @property
    def key(self) -> str: ...
    @property
    def has_path(self) -> bool:
        """True if there is a receiver, or a fallback destination with a receiver."""
        ...

    @property
    def has_own_path(self) -> bool:
        """True if there is a receiver other than the fallback destination."""
        ...


class Pace(Protocol):
    """The rates of a connection, as its streams use them (router.core.pacing)."""

    @property
    def longest_wait_s(self) -> float:
        """How long a link may have to wait before any of its data is taken."""
        ...

    @property
    def bytes_per_s(self) -> float:
        """The bytes that may arrive in a second; infinite if there is no limit."""
        ...

    def pay(self, size: int, /) -> bool: ...


class Connection(Protocol):
    """The common state of the links of one connection, as they use it (router.core.attachments)."""

    held_back_count: int

    @property
    def connection_id(self) -> int: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def capacity(self) -> int: ...
    @property
    def is_route_container(self) -> bool: ...
    @property
    def can_drain(self) -> bool:
        """True if its links may be asked to give up their credit."""
        ...

    @property
    def is_edge(self) -> bool:
        """True if the connection is between an edge and an interior router.

        No message goes back on such a connection.
        """
        ...

    @property
    def is_trunk(self) -> bool:
        """True if the connection is between interior routers."""
        ...

    @property
    def vouches(self) -> bool:
        """True if the peer is a router that checks the reply-to addresses of its clients."""
        ...

    @property
    def is_neighbour(self) -> bool:
        """True if the peer is a router: `is_edge` or `is_trunk`."""
        ...

    @property
    def is_blocked(self) -> bool: ...
    @property
    def pacing(self) -> Pace | None: ...
    @property
    def account(self) -> Account: ...
    @property
    def is_crowded(self) -> bool:
        """True if its receivers have too much that they neither read nor settle."""
        ...

    @property
    def unsent_bytes(self) -> Callable[[], int]:
        """Returns the number of bytes that wait for the socket while it is blocked."""
        ...

    def refuse_to_keep(self, level: Level, /) -> None:
        """Notes that a message from another router may not wait for a receiver."""
        ...

    def forget(self, link: "Link", /) -> None:
        """Removes a link that is gone."""
        ...


class Answer(bytes):
    """A message that the router itself made as an answer. It is not dropped: the requester gets credit back for it."""

    __slots__ = ()


class Queued(NamedTuple):
    """A delivery that waits for credit on an outgoing link."""

    origin: Origin | None  # None for messages that the router itself makes
    source: Handle | None  # None if no sender waits for an outcome
    since_s: int
    payload: bytes
    is_settled: bool
    charge: Charge
    leg: Growing | None = None  # set instead of payload for a message being streamed
    has_state: bool = False  # its sender has given a state, which is sent with it


class Link:
    """The common part of both directions.

    link_type  as management shows it
    patience   a factor for the usual time that the link may make no progress
    """

    link_type: ClassVar[str] = "endpoint"
    patience: ClassVar[int] = 1

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
        "is_fallback",
        "is_open",
        "modified",
        "name",
        "on_foreign",
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

    def __init__(self, identity: int, wire: Wire, attachment: Connection, work: Work) -> None:
        self.identity = identity
        self.name = wire.name
        self.wire = wire
        self.attachment = attachment
        self.engine = attachment.engine
        self.work = work
        self.address: Node | None = None
        self.is_open = True
        # True if the link is, or serves, a fallback destination. A receiver gets another address's messages, and a
        # sender's messages never go to a fallback destination.
        self.is_fallback = False
        self.settle: Callable[[Handle], None] = wire.settle
        self.delivery_count = self.accepted = self.rejected = self.released = self.modified = 0
        self.presettled = self.delayed_1s = self.delayed_10s = 0
        # Called if its peer names a transaction that is unknown here. None if the peer is another router, which may do
        # so.
        self.on_foreign: Callable[[], None] | None = None
        # Maintained by core.watch:
        self.stuck = 0  # deliveries now counted as stuck
        self.settle_rate = 0  # deliveries settled per second, mean of the last seconds
        self.rate_samples: tuple[int, ...] = ()
        self.zero_credit_since_s: int | None = work.now_s
        self.is_blocked = False

    def may_transact(self, delivery: Handle) -> bool:
        """Returns True if the link's peer may name the transaction in the state of this delivery."""
        return False

    def is_foreign(self, delivery: Handle, *, ends_link: bool = True) -> bool:
        """Returns True if the peer's state names a transaction that no container here gave to this peer."""
        if self.wire.remote_state(delivery) != TRANSACTIONAL or self.may_transact(delivery):
            return False
        self.work.touched.add(self.engine)
        if ends_link and self.on_foreign is not None:
            self.engine.afterwards.append(self.on_foreign)
        return True

    @property
    def priority(self) -> int:
        """The priority of messages between routers, as management shows it."""
        return 4

    @property
    def owning_key(self) -> str | None:
        """The key of the address that the link is bound to, or None."""
        return self.address.key if self.address is not None else None

    @property
    def capacity(self) -> int:
        """The window of the link's sender, in messages."""
        return self.attachment.capacity

    @property
    def payer(self) -> tuple[Account, int]:
        """The account that pays for waiting messages of the link, and the limit of their bytes; 0: no limit."""
        return self.attachment.account, self.attachment.account.link_limit

    @property
    def peer(self) -> str | None:
        """The identity of the link at the other side of a link route."""
        return None

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
        """Counts a delivery that was settled after more than a second, and that may have been counted as stuck."""
        if seconds > 10:
            self.delayed_10s += 1
        else:
            self.delayed_1s += 1
        self.count_unstuck(self.work.now_s - seconds)

    def count_unstuck(self, since_s: int) -> None:
        """Removes a delivery of that time, which is settled or gone, from the stuck ones."""
        if self.stuck and since_s < self.work.stuck_before_s:
            self.stuck -= 1
