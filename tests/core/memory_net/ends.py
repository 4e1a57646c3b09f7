"""The senders and receivers of tests: proton links, with the state of each delivery."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import proton
from proton import Delivery

if TYPE_CHECKING:
    from memory_net.clients import Client

ACCEPTED, REJECTED, RELEASED, MODIFIED = (
    Delivery.ACCEPTED,
    Delivery.REJECTED,
    Delivery.RELEASED,
    Delivery.MODIFIED,
)


class Refusable:
    """An end or a connection that the router may end or answer with an error."""

    condition: proton.Condition | None

    @property
    def refusal(self) -> proton.Condition:
        """The error. There must be one."""
        assert self.condition is not None
        return self.condition


@dataclass
class Outcome(Refusable):
    """The state of a delivery as its sender sees it, one for each change."""

    state: int
    is_settled: bool
    condition: proton.Condition | None = None
    failed: bool = False
    undeliverable: bool = False
    annotations: Any = None
    data: Any = None


class Sending:
    """One delivery on the sender's side.

    Settling releases proton's object: while it exists, the client never answers a drain.
    """

    def __init__(self, sender: "Sender", delivery: Delivery) -> None:
        self.sender = sender
        self._delivery: Delivery | None = delivery
        self.updates: list[Outcome] = []

    @property
    def delivery(self) -> Delivery:
        assert self._delivery is not None, "already settled"
        return self._delivery

    @property
    def is_settled_here(self) -> bool:
        return self._delivery is None

    @property
    def outcome(self) -> int | None:
        """The final state; None while unsettled."""
        return self.updates[-1].state if self.updates and self.updates[-1].is_settled else None

    def settle(self) -> None:
        if self._delivery is not None:
            self._delivery.settle()
            self._delivery = None

    def abort(self) -> None:
        self.delivery.abort()
        self._delivery = None

    def update(self, state: int, data: Any = None) -> None:
        """Sends a state without settling."""
        if data is not None:
            self.delivery.local.data = data
        self.delivery.update(state)

    def _on_update(self) -> None:
        delivery = self.delivery
        remote = delivery.remote
        self.updates.append(
            Outcome(
                state=int(delivery.remote_state),
                is_settled=delivery.settled,
                condition=remote.condition,
                failed=remote.failed,
                undeliverable=remote.undeliverable,
                annotations=remote.annotations,
                data=remote.data if int(delivery.remote_state) > 0x27 else None,
            )
        )
        if delivery.settled and self.sender.settles_back:
            self.settle()


class _End(Refusable):
    """The common part of a test's sender and receiver."""

    def __init__(self, client: "Client", link: Any) -> None:
        self.client = client
        self.link = link
        self.is_detached = False  # the router detached or closed it
        self.was_closed = False
        self.condition: proton.Condition | None = None

    @property
    def is_attached(self) -> bool:
        return bool(self.link.state & proton.Endpoint.REMOTE_ACTIVE)

    def detach(self) -> None:
        self.link.detach()

    def close(self) -> None:
        self.link.close()


class Sender(_End):
    def __init__(self, client: "Client", link: Any) -> None:
        super().__init__(client, link)
        self.sent: list[Sending] = []
        self.settles_back = True
        self._tags = itertools.count(1)
        self._by_tag: dict[str, Sending] = {}

    @property
    def credit(self) -> int:
        return int(self.link.credit)

    def start(self) -> Sending:
        """Begins a delivery that `append` and `finish` complete."""
        tag = str(next(self._tags))
        sending = self._by_tag[tag] = Sending(self, self.link.delivery(tag))
        self.sent.append(sending)
        return sending

    def append(self, data: bytes) -> None:
        self.link.stream(data)

    def finish(self) -> None:
        self.link.advance()

    def send(self, body: bytes = b"x", *, is_settled: bool = False, **fields: Any) -> Sending:
        """Sends a message with a binary body; `fields` are proton.Message attributes."""
        return self.send_bytes(encoded(body, **fields), is_settled=is_settled)

    def send_bytes(self, payload: bytes, *, is_settled: bool = False) -> Sending:
        sending = self.start()
        self.append(payload)
        if is_settled:
            sending.settle()  # settling also ends the delivery
        else:
            self.finish()
        return sending

    @property
    def outcomes(self) -> list[int | None]:
        return [sending.outcome for sending in self.sent]


class Received:
    """One delivery on the receiver's side."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery: Delivery | None = delivery
        self.payload = bytearray()
        self.is_complete = False
        self.is_aborted = False
        self.came_settled = False
        self.states: list[int] = []  # the sender's states, in order

    @property
    def delivery(self) -> Delivery:
        assert self._delivery is not None, "already settled"
        return self._delivery

    @property
    def is_settled_here(self) -> bool:
        return self._delivery is None

    @property
    def message(self) -> proton.Message:
        message = proton.Message()
        message.decode(bytes(self.payload))
        return message

    @property
    def body(self) -> bytes:
        message = self.message  # its body is a view into it
        assert isinstance(message.body, bytes | memoryview)
        return bytes(message.body)

    def accept(self) -> None:
        self.give(ACCEPTED)

    def give(self, state: int, *, is_settled: bool = True, **local: Any) -> None:
        """Sends a disposition; `local` are attributes of proton.Disposition."""
        for name, value in local.items():
            setattr(self.delivery.local, name, value)
        self.delivery.update(state)
        if is_settled:
            self.settle()

    def settle(self) -> None:
        if self._delivery is not None:
            self._delivery.settle()
            self._delivery = None


class Receiver(_End):
    """A test's receiver. With `accepts` it accepts and settles each complete message when it comes."""

    def __init__(self, client: "Client", link: Any, *, accepts: bool) -> None:
        super().__init__(client, link)
        self.accepts = accepts
        self.received: list[Received] = []
        self._open: Received | None = None

    def flow(self, credit: int) -> None:
        self.link.flow(credit)

    def drain(self, credit: int = 0) -> None:
        self.link.drain(credit)

    @property
    def credit(self) -> int:
        return int(self.link.credit)

    @property
    def complete(self) -> list[Received]:
        return [item for item in self.received if item.is_complete and not item.is_aborted]

    @property
    def bodies(self) -> list[bytes]:
        return [item.body for item in self.complete]

    def accept_all(self) -> None:
        for item in self.complete:
            if not item.is_settled_here and not item.delivery.local_state:
                item.accept()

    def _on_readable(self, delivery: Delivery) -> None:
        if self._open is None or self._open._delivery != delivery:
            self._open = Received(delivery)
            self.received.append(self._open)
        item = self._open
        item.came_settled = delivery.settled
        while not delivery.aborted and (data := self.link.recv(1 << 20)):
            item.payload += data
        if delivery.aborted:
            item.is_aborted = item.is_complete = True
            item.settle()
            self._open = None
        elif not delivery.partial:
            item.is_complete = True
            self.link.advance()
            self._open = None
            if self.accepts:
                item.accept()
            elif delivery.settled:
                item.settle()


def encoded(body: bytes = b"x", **fields: Any) -> bytes:
    """Returns a message as proton encodes it, with a binary body in one data section."""
    message = proton.Message(body=body, inferred=True, **fields)
    payload = message.encode()
    del message
    return bytes(payload)
