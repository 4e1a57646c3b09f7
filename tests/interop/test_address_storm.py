"""Ten thousand addresses appear on one router of three and vanish: the others follow, and messages go on passing.

Printed: how long the others took, and the round trips of established traffic before and meanwhile.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
import raw_peer
from proton import Message
from proton.utils import BlockingConnection
from router_network import Node, Processes, processes

from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect
from router.values import Described, uint, ulong

pytestmark = [pytest.mark.slow, pytest.mark.timing]
ADDRESSES = 10_000
FOLLOWED_S = 2.0
GROWTH = 1.2
# Routers, clients and other tests share the processors: a growth of the round trip is asked about only above this.
SLOW_S = 0.02


class Crowd:
    """One connection with a receiver on each of many addresses."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.sendall(raw_peer.IN_SESSION)
        self.answers = 0
        self._reader = threading.Thread(target=self._count, daemon=True)
        self._reader.start()

    def _count(self) -> None:
        """Counts Attaches, by their descriptor; reading is all that matters."""
        rest = b""
        while data := self._receive():
            rest += data
            *whole, rest = rest.split(b"\x00\x53\x12")
            self.answers += len(whole)

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(1 << 20)
        except OSError:
            return b""

    def appear(self) -> None:
        target = Described(ulong(0x29), [])
        for first in range(0, ADDRESSES, 100):
            frames = [
                raw_peer.frame(
                    *(raw_peer.ATTACH, f"storm-{number}", uint(number), True, None, None),
                    *(Described(ulong(0x28), [f"storm/{number}"]), target),
                )
                for number in range(first, first + 100)
            ]
            self.socket.sendall(b"".join(frames))

    def vanish(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._reader.join(10)


class Traffic:
    """Messages from one router to another, one after the other. round_trips  seconds, with the time of their end"""

    def __init__(self, near: Node, far: Node) -> None:
        self.round_trips: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._receive, args=(far,)),
            threading.Thread(target=self._send, args=(near,)),
        ]
        self._is_receiving = threading.Event()
        for thread in self._threads:
            thread.start()

    def _receive(self, node: Node) -> None:
        connection = BlockingConnection(f"amqp://127.0.0.1:{node.clients}", timeout=30, allowed_mechs="ANONYMOUS")
        receiver = connection.create_receiver("established", credit=100)
        self._is_receiving.set()
        while receiver.receive(30).body != "over":
            receiver.accept()
        receiver.accept()
        connection.close()

    def _send(self, node: Node) -> None:
        self._is_receiving.wait(30)
        connection = BlockingConnection(f"amqp://127.0.0.1:{node.clients}", timeout=30, allowed_mechs="ANONYMOUS")
        sender = connection.create_sender("established")
        while not self._is_over.is_set():
            begun = time.monotonic()
            sender.send(Message(body="x"), timeout=30)
            now = time.monotonic()
            self.round_trips.append((now, now - begun))
            self._is_over.wait(0.002)
        sender.send(Message(body="over"), timeout=30)
        connection.close()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)

    def between(self, begin: float, end: float) -> list[float]:
        return [seconds for at, seconds in self.round_trips if begin < at <= end]


@contextmanager
def management(node: Node) -> Iterator[ManagementClient]:
    with connect(ConnectionOptions(host="127.0.0.1", port=node.clients, timeout_s=30)) as client:
        yield client


def count(client: ManagementClient) -> int:
    """Addresses that the router knows."""
    (row,) = client.query("router", ("addrCount",)).entities()
    return int(row["addrCount"])


def wait(claim: Callable[[], bool], what: str, timeout_s: float = 120.0) -> float:
    """Until it holds; the time when it did."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return time.monotonic()


def wait_for(client: ManagementClient, claim: Callable[..., bool]) -> float:
    """Until the router knows so many addresses as `claim` wants; the time when it did."""
    return wait(lambda: claim(count(client)), "the addresses did not follow")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as running:
        running.start("A")
        running.start("B", to=["A"])
        running.start("C", to=["A", "B"])
        for name, other in (("A", "C"), ("C", "A"), ("B", "C"), ("C", "B")):
            running[name].wait_for_way_to(other)
        yield running


def test_others_follow_ten_thousand_addresses_and_messages_go_on(network: Processes) -> None:
    """network 45, 46, 58"""
    with management(network["B"]) as near, management(network["C"]) as far:
        managed = {"B": near, "C": far}
        traffic = Traffic(network["B"], network["C"])
        try:
            wait(lambda: len(traffic.round_trips) > 100, "no traffic")
            before = {name: count(client) for name, client in managed.items()}
            quiet = time.monotonic()
            wait(lambda: time.monotonic() > quiet + 3, "")
            begun = time.monotonic()
            crowd = Crowd(network["A"].clients)
            crowd.appear()
            attached = wait(lambda: crowd.answers >= ADDRESSES, "not all attached")
            took: dict[str, float] = {}
            for name, client in managed.items():
                took[f"{name} follows"] = (
                    wait_for(client, lambda now, at=before[name]: now >= at + ADDRESSES) - attached
                )
            there = time.monotonic()
            crowd.vanish()
            gone = time.monotonic()
            for name, client in managed.items():
                took[f"{name} forgets"] = wait_for(client, lambda now, at=before[name]: now <= at) - gone
            over = time.monotonic()
        finally:
            traffic.stop()
    usual = median(traffic.between(quiet, begun))
    parts = {"attaching": (begun, attached), "followed": (attached, there), "vanishing": (gone, over)}
    meanwhile = {name: median(traffic.between(*part) or [0.0]) for name, part in parts.items()}
    longest = max(traffic.between(begun, over))
    waits = {name: round(seconds, 2) for name, seconds in took.items()}
    slower = {name: round(each * 1e3, 2) for name, each in meanwhile.items()}
    text = (
        f"attached in {attached - begun:.1f} s; {waits} s; round trip {usual * 1e3:.2f} ms, then {slower}, "
        f"at most {longest * 1e3:.0f} ms"
    )
    print(text)
    assert max(took.values()) < FOLLOWED_S, text
    assert all(each < max(GROWTH * usual, SLOW_S) for each in meanwhile.values()), text
