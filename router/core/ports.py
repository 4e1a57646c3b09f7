"""The engine as the core uses it, and the core as the engine uses it.

The core imports nothing from the engine, and the engine nothing from the core. Each declares the members that it calls.
The type checker compares the two where `router.connection.peer` gives the engine's objects to the core.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from policy.addressing.address import Address
from router.values import Condition, DeliveryState, Handle


class Owner(Protocol):
    """The connection that an engine belongs to."""

    def crash(self, error: Exception, /) -> None:
        """Ends the connection, and nothing else, because serving it raised an error."""
        ...

    def note_deliveries(self) -> None:
        """Called about once a second while the connection is busy."""
        ...


class Engine(Protocol):
    """The AMQP engine of one connection."""

    @property
    def owner(self) -> Owner: ...
    @property
    def is_freed(self) -> bool: ...
    @property
    def afterwards(self) -> list[Callable[[], None]]:
        """The functions to call after all events of this read are handled."""
        ...

    @property
    def details_bytes(self) -> int:
        """The memory for the state that the peer has just given, for each delivery, without the delivery's record."""
        ...

    def flush(self) -> None:
        """Writes every byte that is ready."""
        ...

    def write_early(self) -> None:
        """Writes the bytes that are ready during a pass, before its end."""
        ...

    def release_settled(self) -> Iterator[None]:
        """Releases, in steps, the memory that is kept for settled deliveries."""
        ...


class Reader(Protocol):
    """Takes a message that does not arrive in one piece."""

    @property
    def received(self) -> int:
        """The number of bytes that it has taken."""
        ...

    def more(self) -> None:
        """Takes what may be taken, because data arrived."""
        ...

    def hurry(self) -> None:
        """Takes everything that arrived, because the link is ending."""
        ...

    def abort(self) -> None:
        """Stops, because nothing more of the message comes."""
        ...


class Taker(Protocol):
    """The core's link, as its incoming wire calls it."""

    def on_excess(self) -> None:
        """Handles that more has arrived than the sender had credit for."""
        ...

    def on_aborted(self) -> None:
        """Handles that the sender aborted a message of which nothing was taken."""
        ...

    def on_drained(self, credit: int, /) -> None:
        """Handles that the sender gave up `credit`."""
        ...

    @property
    def relays_states(self) -> bool:
        """True if the receiver gets the state that is on a message's Transfers, even if it gets it later."""
        ...

    def refuses(self, delivery: Handle, /) -> bool:
        """Refuses the message, which has a state and is not yet forwarded, if it must be refused.

        Returns True if it was.
        """
        ...


class Wire(Protocol):
    """A link of the engine, of either direction. Settling a delivery ends its handle."""

    @property
    def name(self) -> str: ...
    @property
    def named(self) -> Address | None:
        """The address that the link is bound to, or None for an anonymous sender."""
        ...

    @property
    def credit(self) -> int: ...
    @property
    def unsettled_count(self) -> int: ...
    def settle(self, delivery: Handle, /) -> None: ...
    def is_settled(self, delivery: Handle, /) -> bool:
        """Returns True if the peer has settled it."""
        ...

    def remote_state(self, delivery: Handle, /) -> int:
        """Returns the state that the peer gave, 0 for none (router.core.outcomes)."""
        ...

    def told(self, delivery: Handle, /) -> int:
        """Returns the state that the router gave the peer, 0 for none."""
        ...

    def transaction(self, delivery: Handle, /) -> bytes | None:
        """Returns the transaction that the peer's state names. The outcome of a coordinator counts too."""
        ...

    def told_transaction(self, delivery: Handle, /) -> bytes | None:
        """Returns the transaction in the state that the router gave the peer."""
        ...

    def relay_state(self, delivery: Handle, origin: Handle, state: int, /) -> None:
        """Gives `delivery` the state that the other peer gave `origin`, with its data."""
        ...

    def release_core(self) -> None:
        """Detaches the link from the core."""
        ...


T = TypeVar("T", bound=Taker)
A = TypeVar("A")


class IncomingWire(Wire, Protocol):
    """A link on which the router receives. Its class in the engine documents its states."""

    def admit(
        self,
        taker: T,
        address: A,
        forward: Callable[[T, A, Handle, int], None],
        begin: Callable[[T, A, Handle, int], None],
        on_updated: Callable[[Handle], None],
    ) -> None: ...
    def forward_by(self, forward: Callable[..., None], /) -> None:
        """Replaces the `forward` given to `admit` by another one for the same taker and address."""
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
        """The reader of the current message, if that does not arrive in one piece."""
        ...

    @property
    def unread_bytes(self) -> int:
        """The unread bytes of the message that is still incomplete, or -1 if no message is incomplete."""
        ...

    @property
    def has_full_session(self) -> bool:
        """True if the sender may send nothing more on the session until some of its data has been read."""
        ...

    @property
    def fills_session(self) -> bool:
        """True if the session is full, so that this link delays the other links of the session."""
        ...

    def tag(self, delivery: Handle, /) -> bytes: ...
    def state(self, delivery: Handle, /) -> DeliveryState | None:
        """Returns the state that the sender gave, in a form that can be kept; None if it gave none."""
        ...

    def read(self) -> int:
        """Reads what has arrived of the current delivery into the message buffer. Returns its bytes, 0 for none."""
        ...

    def is_partial(self, delivery: Handle, /) -> bool: ...
    def is_aborted(self, delivery: Handle, /) -> bool: ...
    def grant(self, credit: int, /) -> None: ...
    def start_drain(self) -> None: ...
    def stop_drain(self) -> None: ...
    def tell_outcome(self) -> None:
        """Sends the outcome that waits, because the message has ended or its link is about to be closed."""
        ...

    def accept_delivery(self, delivery: Handle, /) -> None:
        """Accepts and settles the delivery."""
        ...

    def reject(self, delivery: Handle, condition: Condition, /) -> None: ...
    def give(self, delivery: Handle, state: int, /) -> None:
        """Gives an outcome, or the one that the sender's source offers instead."""
        ...


class OutgoingWire(Wire, Protocol):
    """A link on which the router sends.

    next_tag     the tag of the next delivery that is begun or sent from bytes; None: the router chooses one
    drain_limit  not None: the receiver drains the link, and the router has not yet reported that no credit is left
    """

    next_tag: bytes | None

    def give_state(self, delivery: Handle, state: DeliveryState, /) -> None:
        """Gives `delivery` a stored state.

        Like `relay_state`, it may lose data that does not fit into the peer's frames.
        """
        ...

    @property
    def drain_limit(self) -> int | None: ...
    def session_cores(self) -> Iterator[object]:
        """Returns the core's links of this link's session, including its own."""
        ...

    def drop_unsent(self, latest: Iterable[Handle], /) -> None:
        """Frees the unsent unsettled deliveries of a link that is gone, the latest first."""
        ...

    @property
    def backlog_bytes(self) -> int:
        """The bytes of the link's session that have not left, because window or credit is missing."""
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
        """Gives up the remaining credit, if any, and sends that to the receiver."""
        ...

    def send(self, size: int, /) -> Handle:
        """Sends the first `size` bytes of the message buffer as one delivery."""
        ...

    def send_as(self, size: int, origin: Handle, /) -> Handle:
        """Sends like `send`, with the tag of another delivery."""
        ...

    def inserting(self) -> Callable[[int, int, bytes, int], Handle]:
        """Returns a function (size, at, inserted, its length) that sends like `send`, with `inserted` before byte `at`.

        `at` must not be greater than `size`.
        """
        ...

    def send_bytes(self, payload: bytes, /) -> Handle: ...
    def begin(self) -> Handle:
        """Starts a delivery that grows by `append` until `finish` or `abort`."""
        ...

    def append(self, payload: bytes, at: int, size: int, /) -> None:
        """Adds `size` bytes of `payload`, from `at` on."""
        ...

    def finish(self) -> None: ...
    def abort(self, delivery: Handle, /) -> None: ...
    def buffered(self, delivery: Handle, /) -> int:
        """Returns the bytes of a growing delivery that are not yet in a frame."""
        ...
