"""Clients that see whether what they are told is true, however connections and routers die around them.

Senders number their messages and send again what was released or modified. Receivers answer most messages with
accepted, some otherwise, some late. A ledger compares what all of them saw.
"""

import random
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from proton import Collector, Connection, Delivery, Event, Link, Transport

from router.amqp.codec import decode_message, encode_message

CREDIT = 30
MAX_UNSETTLED = 60
MAX_TRIES = 4
# The last but one takes several frames, the last is passed on before it is complete (128 KiB, routing §10.1).
SIZES = (10, 100, 1000, 10_000, 40_000, 300_000)

OUTCOMES = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)
WEIGHTS = (90, 3, 4, 3)
NAMES = {0: "none", **{int(state): state.name.lower() for state in OUTCOMES}}


@dataclass
class Ledger:
    """What everybody saw, by message: `<sender>/<number>/<try>`.

    received  who got it whole, in order
    verdicts  what receivers answered whose answer has left for the router
    told      what its sender was told, each change once
    alive     unsettled messages of living senders
    """

    received: dict[str, list[str]] = field(default_factory=dict)
    verdicts: dict[str, set[int]] = field(default_factory=dict)
    told: dict[str, list[int]] = field(default_factory=dict)
    address: dict[str, str] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    unexpected: list[str] = field(default_factory=list)
    sent: int = 0
    kills: int = 0

    def check(self) -> Iterator[str]:
        """Everything that is wrong."""
        yield from self.unexpected
        for message, states in self.told.items():
            if len(states) != 1 or states[0] not in NAMES or states[0] == 0:
                yield f"{message}: its sender was told {[NAMES.get(state, state) for state in states]}"
            if Delivery.ACCEPTED in states and Delivery.ACCEPTED not in self.verdicts.get(message, ()):
                yield f"{message}: accepted by nobody, but its sender was told so"
        for message, receivers in self.received.items():
            if message not in self.address:
                yield f"{message}: nobody sent that"
                continue
            is_multicast = self.address[message].startswith("multicast")
            if len(set(receivers) if is_multicast else [0]) != len(receivers):
                yield f"{message} on {self.address[message]}: delivered to {receivers}"
        for message in sorted(self.alive):
            yield f"{message} on {self.address[message]}: no outcome"


class Client:
    """One connection: a socket that can be reset, and proton's engine on it."""

    numbers: ClassVar[int] = 0

    def __init__(self, port: int, address: str, ledger: Ledger, luck: random.Random) -> None:
        Client.numbers += 1
        self.name = f"{type(self).__name__.lower()}{Client.numbers}"
        self.port, self.address, self.ledger, self.luck = port, address, ledger, luck
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setblocking(False)
        self.collector, self.connection, self.transport = Collector(), Connection(), Transport()
        self.connection.collect(self.collector)
        self.connection.container = self.name
        self.transport.bind(self.connection)
        self.connection.open()
        self.is_leaving = self.is_gone = False
        self.begin()

    def begin(self) -> None:
        session = self.connection.session()
        session.open()
        self.link = self.attach(session)
        self.link.open()

    def attach(self, session: Any) -> Link:
        raise NotImplementedError

    def on_delivery(self, delivery: Delivery) -> None:
        raise NotImplementedError

    def work(self) -> None:
        """What is to be done whatever came."""

    def on_written(self) -> None:
        """Everything said so far has left."""

    def successor(self) -> "Client":
        return type(self)(self.port, self.address, self.ledger, self.luck)

    def read(self) -> None:
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            self.ledger.unexpected.append(f"{self.name}: {error}")
        if not data:
            was_gone, self.is_gone = self.is_gone, True
            if not self.is_leaving and not was_gone:
                self.ledger.unexpected.append(f"{self.name} on {self.address} was dropped")
            return
        while data and (room := self.transport.capacity()) > 0:
            self.transport.push(data[:room])
            data = data[room:]
            self.take_events()

    def take_events(self) -> None:
        while (event := self.collector.peek()) is not None:
            if event.type == Event.DELIVERY:
                assert event.delivery is not None
                self.on_delivery(event.delivery)
            elif event.type in (Event.LINK_REMOTE_CLOSE, Event.CONNECTION_REMOTE_CLOSE) and not self.is_leaving:
                assert isinstance(event.context, Link | Connection)
                self.on_closed(event.context)
            elif event.type == Event.TRANSPORT_ERROR:
                self.on_broken()
            elif event.type in (Event.SESSION_REMOTE_OPEN, Event.LINK_REMOTE_OPEN):
                self.on_opened(event.context)
            self.collector.pop()

    def on_closed(self, end: Link | Connection) -> None:
        """By the router, while nobody leaves."""
        self.ledger.unexpected.append(f"{self.name} on {self.address} was closed: {end.remote_condition}")

    def on_broken(self) -> None:
        """The client's own engine takes what the router said for an error."""
        self.ledger.unexpected.append(f"{self.name} on {self.address} breaks off: {self.transport.condition}")

    def on_opened(self, end: Any) -> None:
        """The router has begun a session, or attached a link, or answered."""

    def write(self, at_most: int | None = None) -> None:
        while (size := self.transport.pending()) > 0 and (at_most is None or at_most > 0):
            data = self.transport.peek(size if at_most is None else min(size, at_most))
            assert data is not None
            try:
                sent = self.socket.send(data)
            except (BlockingIOError, OSError):
                return
            self.transport.pop(sent)
            at_most = None if at_most is None else at_most - sent
        if self.transport.pending() == 0:
            self.on_written()

    def tick(self) -> None:
        self.transport.tick(time.monotonic())

    def kill(self) -> None:
        """RST, after a part of what there was to say."""
        self.ledger.kills += 1
        self.write(at_most=self.luck.choice((0, 1, 100, 20_000)))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.end()

    def end(self) -> None:
        self.socket.close()
        self.transport.unbind()
        self.connection.free()

    def leave(self) -> None:
        self.is_leaving = True
        self.connection.close()


class Sender(Client):
    """Sends numbered messages, and once more what was released or modified."""

    def attach(self, session: Any) -> Link:
        self.is_anonymous = self.luck.random() < 0.25
        self.is_presettling = self.luck.random() < 0.15
        self.is_stopping = False
        self.count = 0
        self.unsettled: dict[str, Delivery] = {}
        self.again: list[tuple[int, int]] = []
        link: Link = session.sender(self.name)
        if not self.is_anonymous:
            link.target.address = self.address
        return link

    def work(self) -> None:
        while (
            not self.is_stopping
            and self.link.credit > 0
            and len(self.unsettled) < MAX_UNSETTLED
            and self.transport.pending() < 65536
        ):
            number, tries = self.again.pop() if self.again else (self.count, 1)
            self.count += tries == 1
            self.send(f"{self.name}/{number}/{tries}")

    def send(self, message: str) -> None:
        body = message.encode() + b" " + bytes(self.luck.choices(SIZES, (40, 30, 20, 8, 1, 1))[0])
        self.ledger.address[message] = self.address
        self.ledger.sent += 1
        delivery = self.link.delivery(message)
        self.link.stream(encode_message(to=self.address if self.is_anonymous else None, body=body))
        self.link.advance()
        if self.is_presettling:
            delivery.settle()
        else:
            self.unsettled[message] = delivery
            self.ledger.alive.add(message)

    def on_delivery(self, delivery: Delivery) -> None:
        message = delivery.tag
        state = int(delivery.remote_state)
        if message not in self.unsettled:
            # Of a long message the router first says the outcome, then settles. Where both came in one read, proton
            # shows the second with the first and has an event left over.
            if self.ledger.told.get(message) != [state]:
                self.ledger.unexpected.append(f"{message}: {NAMES.get(state, state)} after it was settled")
            return
        told = self.ledger.told.setdefault(message, [])
        if (state and state not in told) or (delivery.settled and not told):
            told.append(state)
        if delivery.settled:
            del self.unsettled[message]
            self.ledger.alive.discard(message)
            _, number, tries = message.split("/")
            if state in (Delivery.RELEASED, Delivery.MODIFIED) and int(tries) < MAX_TRIES:
                self.again.append((int(number), int(tries) + 1))
            delivery.settle()

    def forget(self) -> None:
        """Nobody waits for outcomes any more."""
        self.ledger.alive -= self.unsettled.keys()
        for message in self.unsettled:
            if self.ledger.told.get(message) == []:
                del self.ledger.told[message]
        self.unsettled.clear()

    def end(self) -> None:
        self.forget()
        super().end()


class Receiver(Client):
    """Answers most messages with accepted, some otherwise, some late."""

    def attach(self, session: Any) -> Link:
        self.part = bytearray()
        self.held: list[tuple[float, Delivery, str]] = []
        self.answered: list[tuple[str, int]] = []
        link: Link = session.receiver(self.name)
        link.source.address = self.address
        link.flow(CREDIT)
        return link

    def on_delivery(self, delivery: Delivery) -> None:
        if delivery.aborted:
            self.part.clear()
            delivery.settle()
            self.link.flow(1)
            return
        if not delivery.readable:
            return
        self.part += self.link.recv(delivery.pending) or b""
        if delivery.partial:
            return
        self.link.advance()
        body = decode_message(bytes(self.part)).body
        self.part.clear()
        message = bytes(body).partition(b" ")[0].decode()
        self.ledger.received.setdefault(message, []).append(self.name)
        is_late = self.luck.random() < 0.1
        if is_late and not self.is_leaving:
            self.held.append((time.monotonic() + self.luck.random() * 0.1, delivery, message))
        else:
            self.answer(delivery, message)

    def answer(self, delivery: Delivery, message: str) -> None:
        outcome = self.luck.choices(OUTCOMES, WEIGHTS)[0]
        self.answered.append((message, int(outcome)))
        if not delivery.settled:
            delivery.update(outcome)
        delivery.settle()
        self.link.flow(1)

    def work(self) -> None:
        now = time.monotonic()
        due = [item for item in self.held if item[0] <= now]
        if due:
            self.held = [item for item in self.held if item[0] > now]
            for _, delivery, message in due:
                self.answer(delivery, message)

    def on_written(self) -> None:
        for message, outcome in self.answered:
            self.ledger.verdicts.setdefault(message, set()).add(outcome)
        self.answered.clear()

    def end(self) -> None:
        # What part of it has left is not known; the router may have taken any of it for true.
        self.on_written()
        self.held.clear()
        super().end()
