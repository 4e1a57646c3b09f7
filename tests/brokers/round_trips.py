"""Clients that send a message and wait for it, again and again, and the clients that stand in their way."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from proton import ConnectionException, Delivery, LinkException, Message, ProtonException, Timeout
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached, SendException
from traffic import AGAIN_S, PATIENCE_S, wait_until

PAUSE_S = 0.01
LARGE = bytes(1_000_000)
LARGE_COUNT = 12
WINDOW = 64 * 1024


@dataclass(slots=True)
class RoundTrips:
    """accepted, got  bodies
    seconds  of each round trip in which nothing failed
    """

    url: str
    address: str
    accepted: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, count: int) -> None:
        """Until so many more were made."""
        before = len(self.seconds)
        wait_until(lambda: bool(self.wrong) or len(self.seconds) >= before + count, f"{self.address} goes on")
        assert not self.wrong, self.wrong

    def worst(self, count: int) -> float:
        """The 99th percentile, in seconds, of the next `count`."""
        before = len(self.seconds)
        self.wait_for(count)
        return sorted(self.seconds[before : before + count])[count * 99 // 100 - 1]

    def go_round(self) -> None:
        connection = BlockingConnection(self.url, timeout=PATIENCE_S)
        number = 0
        try:
            while not self.over.is_set():
                number += 1
                with contextlib.suppress(LinkException, SendException):
                    self._on_links(connection, number)
                self.over.wait(AGAIN_S)
        except (ConnectionException, Timeout, ProtonException) as error:
            self.wrong.append(f"{self.address}: {type(error).__name__} {error}")
        finally:
            with contextlib.suppress(ProtonException):
                connection.close()

    def _on_links(self, connection: BlockingConnection, name: int) -> None:
        # A name is in use until the client has answered the Detach, which proton does late.
        sender = connection.create_sender(self.address, name=f"{self.address}-to-{name}")
        receiver = connection.create_receiver(self.address, name=f"{self.address}-from-{name}", credit=10)
        number = 0
        while not self.over.is_set():
            number += 1
            body, began = f"{name}/{number}", time.monotonic()
            if sender.send(Message(body=body, durable=True)).remote_state != Delivery.ACCEPTED:
                return
            self.accepted.add(body)
            while body not in self.got:
                self.got.add(str(receiver.receive(PATIENCE_S).body))
                receiver.accept()
            self.seconds.append(time.monotonic() - began)
            self.over.wait(PAUSE_S)


@contextlib.contextmanager
def going_round(*all_: RoundTrips) -> Iterator[None]:
    threads = [threading.Thread(target=each.go_round, daemon=True) for each in all_]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in all_:
            each.over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert [line for each in all_ for line in each.wrong] == []


class _Stalled(MessagingHandler):
    """Alive, and takes nothing out of its session."""

    def __init__(self, url: str, address: str, over: threading.Event) -> None:
        super().__init__(prefetch=0)
        self.handlers = []  # which would take the messages
        self._url, self._address, self._over = url, address, over
        self.has_begun = threading.Event()

    def on_reactor_init(self, event: Any) -> None:
        self._connection = event.container.connect(self._url, reconnect=False)
        session = self._connection.session()
        session.incoming_capacity = WINDOW
        session.open()
        receiver = session.receiver("stalled")
        receiver.source.address = self._address
        receiver.open()
        receiver.flow(LARGE_COUNT // 2)
        event.container.schedule(AGAIN_S, self)

    def on_delivery(self, event: Any) -> None:
        self.has_begun.set()

    def on_timer_task(self, event: Any) -> None:
        if self._over.is_set():
            event.container.stop()
        else:
            event.container.schedule(AGAIN_S, self)


def _refused(url: str, address: str, over: threading.Event) -> None:
    """Attaches to what the broker has not."""
    with contextlib.suppress(ConnectionException, Timeout):
        connection = BlockingConnection(url, timeout=PATIENCE_S)
        number = 0
        while not over.is_set():
            number += 1
            with contextlib.suppress(LinkDetached):
                connection.create_receiver(address, name=f"refused-{number}").close()
            over.wait(AGAIN_S)
        connection.close()


@contextlib.contextmanager
def in_their_way(url: str, *, stalled: str, refused: str) -> Iterator[None]:
    """Two receivers of large messages that take nothing, and a client that is refused what it wants."""
    connection = BlockingConnection(url, timeout=PATIENCE_S)
    sender = connection.create_sender(stalled)
    for _ in range(LARGE_COUNT):
        sender.send(Message(body=LARGE, durable=True))
    over = threading.Event()
    stalling = [_Stalled(url, stalled, over) for _ in range(2)]
    threads = [threading.Thread(target=Container(each).run, daemon=True) for each in stalling]
    threads.append(threading.Thread(target=_refused, args=(url, refused, over), daemon=True))
    for thread in threads:
        thread.start()
    try:
        assert all(each.has_begun.wait(PATIENCE_S) for each in stalling)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        connection.close()


def empty(url: str, address: str) -> None:
    """Take what is there."""
    connection = BlockingConnection(url, timeout=PATIENCE_S)
    receiver = connection.create_receiver(address, credit=LARGE_COUNT)
    with contextlib.suppress(Timeout):
        while True:
            receiver.receive(1.0)
            receiver.accept()
    connection.close()
