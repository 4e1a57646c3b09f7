"""The engine as the core uses it, and the core as the engine uses it.

The core imports nothing of the engine and the engine nothing of the core. Each names the members it calls; the type
checker compares the two where a `router.connection.peer` hands the engine's objects to the core.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from policy.addressing.address import Address
from router.values import Condition, DeliveryState, Handle


class Owner(Protocol):
    """The connection that an engine belongs to."""

    def crash(self, error: Exception, /) -> None:
        """Serving the connection raised: it ends, and nothing else does."""
        ...

    def note_deliveries(self) -> None:
        """Called about once a second while the connection is busy."""
        ...


class Engine(Protocol):
    """One connection's AMQP engine."""

    @property
    def owner(self) -> Owner: ...
    @property
    def is_freed(self) -> bool: ...
    @property
    def afterwards(self) -> list[Callable[[], None]]:
        """The calls to make when the events of this read have been worked off."""
        ...

    @property
    def details_bytes(self) -> int:
        """The memory of the state that the peer has just given, for each delivery, beside the delivery's record."""
        ...

    def flush(self) -> None:
        """Write every byte that is ready."""
        ...

    def write_early(self) -> None:
        """The same in the midst of a pass, before its end."""
        ...

    def release_settled(self) -> Iterator[None]:
        """Release, in steps, what is kept of settled deliveries."""
        ...


class Reader(Protocol):
    """Takes a message that is not taken in one piece."""

    @property
    def received(self) -> int:
        """The bytes that it has taken."""
        ...

    def more(self) -> None:
        """Something came: take what may be taken."""
        ...

    def hurry(self) -> None:
        """The link is going: take all that came."""
        ...

    def abort(self) -> None:
        """Nothing more of the message comes."""
        ...


class Taker(Protocol):
    """The core's link, as its incoming wire calls it."""

    def on_excess(self) -> None:
        """More has come than there was credit for, and waits."""
        ...

    def on_aborted(self) -> None:
        """The sender aborted a message of which nothing was taken."""
        ...

    def on_drained(self, credit: int, /) -> None:
        """The sender gave up `credit`."""
        ...

    @property
    def relays_states(self) -> bool:
        """Returns True if the receiver gets the state that is on a message's Transfers, even when it gets it later."""
        ...

    def refuses(self, delivery: Handle, /) -> bool:
        """Was the message, which is not forwarded yet and has a state, refused for that?"""
        ...


class Wire(Protocol):
    """A link of the engine, of either direction. Settling a delivery ends its handle."""

    @property
    def name(self) -> str: ...
    @property
    def named(self) -> Address | None:
        """The address that the link is bound to; None for an anonymous sender's."""
        ...

    @property
    def credit(self) -> int: ...
    @property
    def unsettled_count(self) -> int: ...
    def settle(self, delivery: Handle, /) -> None: ...
    def is_settled(self, delivery: Handle, /) -> bool:
        """Has the peer settled it?"""
        ...

    def remote_state(self, delivery: Handle, /) -> int:
        """The state that the peer gave, 0 for none (router.core.outcomes)."""
        ...

    def told(self, delivery: Handle, /) -> int:
        """The state that the peer was given, 0 for none."""
        ...

    def transaction(self, delivery: Handle, /) -> bytes | None:
        """Returns the transaction that the state names which the peer gave, a coordinator's outcome too."""
        ...

    def told_transaction(self, delivery: Handle, /) -> bytes | None:
        """The same of the state that the peer was given."""
        ...

    def relay_state(self, delivery: Handle, origin: Handle, state: int, /) -> None:
        """Give `delivery` the state that the other side gave `origin`, with its data."""
        ...

    def release_core(self) -> None:
        """The core has let go of the link."""
        ...


T = TypeVar("T", bound=Taker)
A = TypeVar("A")


class IncomingWire(Wire, Protocol):
    """A link on which the router receives. The engine has the table of its states."""

    def admit(
        self,
        taker: T,
        address: A,
        forward: Callable[[T, A, Handle, int], None],
        begin: Callable[[T, A, Handle, int], None],
        on_updated: Callable[[Handle], None],
    ) -> None: ...
    def forward_by(self, forward: Callable[..., None], /) -> None:
        """Replace the `forward` that `admit` was given by another for the same taker and address."""
        ...

    def pay_by(self, pay: Callable[[int], None] | None, /) -> None: ...
    def hold(self) -> None: ...
    def go_on(self) -> None: ...
    def read_on(self) -> None: ...
    def read_by(self, reader: Reader, /) -> None: ...
    def drop_reader(self) -> None: ...
    def end_message(self) -> None: ...
    def end_stream(self) -> None: ...
    def abort_stream(self) -> None: ...
    def read_out(self) -> None: ...
    def reading_out(self) -> Iterator[None]: ...
    def take_no_more(self) -> None: ...
    @property
    def reader(self) -> Reader | None:
        """Takes the current message, where that does not come in one piece."""
        ...

    @property
    def unread_bytes(self) -> int:
        """Bytes that wait of the message whose end has not come; -1: there is none."""
        ...

    @property
    def has_full_session(self) -> bool:
        """May the sender send nothing more on the session until some of what it sent has been read?"""
        ...

    @property
    def fills_session(self) -> bool:
        """Is the session full, so that its other links are held up?"""
        ...

    def tag(self, delivery: Handle, /) -> bytes: ...
    def state(self, delivery: Handle, /) -> DeliveryState | None:
        """Returns the state that the sender gave, to be kept; None if it gave none."""
        ...

    def read(self) -> int:
        """Read what has come of the current delivery into the message buffer. Returns bytes, 0 for none."""
        ...

    def is_partial(self, delivery: Handle, /) -> bool: ...
    def is_aborted(self, delivery: Handle, /) -> bool: ...
    def grant(self, credit: int, /) -> None: ...
    def start_drain(self) -> None: ...
    def stop_drain(self) -> None: ...
    def tell_outcome(self) -> None:
        """The end of the message has come, or its link is about to be closed: say its outcome, if it has one."""
        ...

    def accept_delivery(self, delivery: Handle, /) -> None:
        """Accept and settle it."""
        ...

    def reject(self, delivery: Handle, condition: Condition, /) -> None: ...
    def give(self, delivery: Handle, state: int, /) -> None:
        """Give an outcome, or what the sender's source offers in its place."""
        ...


class OutgoingWire(Wire, Protocol):
    """A link on which the router sends.

    next_tag     of the delivery that is begun next, or sent from bytes; None: one of the router's own
    drain_limit  not None: the receiver drains the link, and was not told yet that it has no credit left
    """

    next_tag: bytes | None

    def give_state(self, delivery: Handle, state: DeliveryState, /) -> None:
        """Give `delivery` a state that was kept. As `relay_state`, it may lose data that the peer has no room for."""
        ...

    @property
    def drain_limit(self) -> int | None: ...
    def session_cores(self) -> Iterator[object]:
        """The core's links of the session that it is on, its own among them."""
        ...

    def drop_unsent(self, latest: Iterable[Handle], /) -> None:
        """The link is gone: free what has not left of its unsettled deliveries, the latest first."""
        ...

    @property
    def backlog_bytes(self) -> int:
        """Bytes of that session that have not left, for want of window or credit."""
        ...

    def admit(
        self,
        core: object,
        *,
        on_delivery: Callable[[Handle], None],
        on_accepted: Callable[[Handle], None],
        on_credit: Callable[[], None],
    ) -> None: ...
    @property
    def wants_settled(self) -> bool: ...
    @property
    def is_congested(self) -> bool: ...
    @property
    def is_draining(self) -> bool: ...
    def drained(self) -> None:
        """Give up the credit that is left, if any, and say so."""
        ...

    def send(self, size: int, /) -> Handle:
        """Send the first `size` bytes of the message buffer as one delivery."""
        ...

    def send_as(self, size: int, origin: Handle, /) -> Handle:
        """As `send`, with the tag of another delivery."""
        ...

    def inserting(self) -> Callable[[int, int, bytes, int], Handle]:
        """(size, at, inserted, its bytes): as `send`, with `inserted` before the byte at `at`, not behind `size`."""
        ...

    def send_bytes(self, payload: bytes, /) -> Handle: ...
    def begin(self) -> Handle:
        """Start a delivery that grows by `append` until `finish` or `abort`."""
        ...

    def append(self, payload: bytes, at: int, size: int, /) -> None:
        """`size` bytes of `payload` more, from `at` on."""
        ...

    def finish(self) -> None: ...
    def abort(self, delivery: Handle, /) -> None: ...
    def buffered(self, delivery: Handle, /) -> int:
        """Bytes of a growing delivery that are not yet in a frame."""
        ...
