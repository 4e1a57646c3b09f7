"""The fake neighbour of network §21.1: bytes on a socket, no AMQP library; one session, the control pair alone."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from router_network import Processes, processes

from router.amqp.codec import decode, decode_message
from router.network.envelope import encode_control
from router.values import Described, int_, long, symbol, uint, ulong

PATIENCE_S = 40.0
_SENDER, _RECEIVER = 0, 1  # handles


def attach(handle: int, *, is_receiver: bool) -> bytes:
    """Both termini have the capability of a control link and no address."""
    source = Described(ulong(0x28), [None] * 10 + [symbol("qd.router")])
    target = Described(ulong(0x29), [None] * 6 + [symbol("qd.router")])
    name = "control-in" if is_receiver else "control-out"
    count = None if is_receiver else uint(0)
    return raw_peer.frame(
        raw_peer.ATTACH, name, uint(handle), is_receiver, None, None, source, target, None, None, count
    )


class FakeNeighbour:
    """heard  opcode and body of each control message, in their order"""

    def __init__(self, port: int) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._number = 0
        self._buffer = b""
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.settimeout(1.0)
        opened = raw_peer.frame(raw_peer.OPEN, "TEST", "localhost")
        credit = raw_peer.frame(
            raw_peer.FLOW, uint(0), uint(2048), uint(0), uint(2048), uint(_RECEIVER), uint(0), uint(1000)
        )
        self.socket.sendall(
            raw_peer.SASL
            + raw_peer.sasl_init("ANONYMOUS", b"fake")
            + raw_peer.AMQP
            + opened
            + raw_peer.begin()
            + attach(_RECEIVER, is_receiver=True)
            + attach(_SENDER, is_receiver=False)
            + credit
        )

    def listen(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Control messages as they come, for as long as a test has patience."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                continue
            assert data, "the router has closed the connection"
            self._buffer += data
            for found in self._whole_frames():
                self.heard.append(found)
                yield found
        raise AssertionError(f"it did not come; heard {self.heard}")

    def _whole_frames(self) -> Iterator[tuple[str, dict[str, Any]]]:
        while len(self._buffer) >= 8:
            if self._buffer[:4] == b"AMQP":
                self._buffer = self._buffer[8:]
                continue
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < size:
                return
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            if size == 8:
                continue
            performative, body_at = decode(frame, 8)
            if performative.descriptor == raw_peer.TRANSFER:
                message = decode_message(frame[body_at:])
                yield message.application_properties["opcode"], {str(k): v for k, v in message.body.items()}

    def say(self, to: str, opcode: str, body: dict[str, Any]) -> None:
        """Unsettled, and settled at once."""
        number, self._number = self._number, self._number + 1
        payload = encode_control("0/TEST", to, opcode, body)
        self.socket.sendall(
            raw_peer.transfer(payload, number=number)
            + raw_peer.frame(0x15, False, uint(number), uint(number), True)  # disposition
        )

    def hello(self, version: int, router: str) -> None:
        body = {"id": "TEST", "pv": int_(version), "area": "0", "instance": int_(100), "seen": [router]}
        self.say("_local/qdhello", "HELLO", body)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as found:
        found.start("A")
        yield found


@pytest.fixture
def fake(running: Processes) -> Iterator[FakeNeighbour]:
    neighbour = FakeNeighbour(running["A"].routers)
    yield neighbour
    neighbour.socket.close()


def test_a_neighbour_of_a_later_version_is_never_seen(running: Processes, fake: FakeNeighbour) -> None:
    """network 13, 19"""
    hellos = 0
    for opcode, body in fake.listen():
        assert opcode in ("HELLO", "RA")
        if opcode == "HELLO":
            assert body["seen"] == []
            fake.hello(2, "A")
            hellos += 1
        if hellos == 4:
            break
    running["A"].wait_for_log(r"ROUTER \(warning\) Received HELLO at protocol version 2 from TEST\.  Ignoring\.")


def test_a_neighbour_that_answers_no_request_is_a_neighbour(running: Processes, fake: FakeNeighbour) -> None:
    """network 13, 21, 27, 28, 50: without data links; and a request of a later version is not answered"""
    running.start("B", to=["A"])
    running["A"].wait_for_way_to("B")
    wanted = {"LSR": 3, "RA": 3}
    others: set[str] = set()
    for opcode, body in fake.listen():
        if opcode == "HELLO":
            fake.hello(1, "A")
        elif opcode in wanted:
            wanted[opcode] -= 1
            others.add(body["id"])
        if max(wanted.values()) <= 0 and others == {"A", "B"}:
            break
    assert any(opcode == "HELLO" and "TEST" in body["seen"] for opcode, body in fake.heard)
    body = {symbol("id"): "TEST", symbol("pv"): long(2), symbol("area"): "0", symbol("have_seq"): long(0)}
    fake.say("_topo/0/A/qdrouter.ma", "MAR", body)
    quiet = 0
    for opcode, _ in fake.listen():
        assert opcode != "MAU"
        if opcode == "HELLO":
            fake.hello(1, "A")
            quiet += 1
        if quiet == 3:
            break
    running["A"].wait_for_log(r"ROUTER_MA \(warning\) Received MAR at protocol version 2 from TEST\.  Ignoring\.")
