"""Messages of 200 MB pass through the router to real Artemis and back, and the router does not hold them."""

import hashlib
from pathlib import Path
from typing import Any, Final

import pytest
from broker_process import Broker
from daemon_process import Daemon, start
from proton import Delivery
from proton.handlers import MessagingHandler
from proton.reactor import Container
from router_text import LISTENER, link_routes, waypoint

SIZE: Final = 200 * 1024 * 1024
PIECE: Final = bytes(range(256)) * 1024
# A durable message of one section of data.
FRONT: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
DATA: Final = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4, "big")
GROWTH_KB = 32 * 1024
PATIENCE_S = 120.0


class Client(MessagingHandler):
    """Neither sends nor receives the message in one piece."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(auto_accept=False, auto_settle=False)
        self.url = url
        self.address = address
        self.outcome: Any = None

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        self.begin(event.container)
        event.container.schedule(PATIENCE_S, self)

    def begin(self, container: Container) -> None:
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:
        self.connection.close()

    def run(self) -> Any:
        Container(self).run()
        return self.outcome

    def end(self, event: Any, outcome: Any) -> None:
        self.outcome = outcome
        event.container.stop()


class Giver(Client):
    """`outcome` is the message's state."""

    left = SIZE
    delivery: Any = None

    def begin(self, container: Container) -> None:
        self.sender = container.create_sender(self.connection, self.address)

    def on_link_flow(self, event: Any) -> None:
        if event.link != self.sender or (self.sender.credit <= 0 and self.delivery is None):
            return
        if self.delivery is None:
            self.delivery = self.sender.delivery("large")
            self.sender.stream(FRONT + DATA)
        while self.left and self.delivery.pending < 4 * len(PIECE):
            self.sender.stream(PIECE)
            self.left -= len(PIECE)
            if not self.left:
                self.sender.advance()

    def on_delivery(self, event: Any) -> None:
        if event.link == self.sender and event.delivery.updated:
            self.end(event, event.delivery.remote_state)


class Taker(Client):
    """`outcome` is the digest of the data."""

    begun = b""

    def begin(self, container: Container) -> None:
        self.digest = hashlib.sha256()
        self.receiver = container.create_receiver(self.connection, self.address)

    def on_delivery(self, event: Any) -> None:
        if event.link != self.receiver or not event.delivery.readable:
            return
        data = self.receiver.recv(event.delivery.pending) or b""
        if DATA in self.begun:
            self.digest.update(data)
        else:
            self.begun += data
            self.digest.update(self.begun.partition(DATA)[2])
        if not event.delivery.partial:
            event.delivery.update(Delivery.ACCEPTED)
            event.delivery.settle()
            self.end(event, self.digest.digest())


def highest_kb(daemon: Daemon) -> int:
    """The most memory that the process has had."""
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


@pytest.mark.parametrize("address", ["orders", "parts"])
def test_a_message_of_200_mb_goes_both_ways(address: str, artemis: Broker, tmp_path: Path) -> None:
    """`orders` by auto links, `parts` by link routes."""
    wanted = hashlib.sha256(PIECE * (SIZE // len(PIECE))).digest()
    daemon = start(tmp_path, LISTENER + artemis.connector + waypoint("orders", "broker") + link_routes("parts"))
    try:
        daemon.wait_for_log("Auto Link Activated .* on connection broker", timeout_s=PATIENCE_S)
        url = f"amqp://127.0.0.1:{daemon.port('clients')}"
        before_kb = highest_kb(daemon)
        assert Giver(url, address).run() == Delivery.ACCEPTED
        assert Taker(url, address).run() == wanted
        assert highest_kb(daemon) - before_kb < GROWTH_KB
    finally:
        daemon.end()
