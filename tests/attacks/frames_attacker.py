"""A peer that writes any frames and reads the router's answers; also daemons for attacks on the engine."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from certificates import Certificates
from companion import companion_of
from harness import RunningRouter, running_router
from open_house import OPEN_HOUSE, management, port_of
from raw_peer import SASL, frames_in
from server_peer import Call, serving

from router.values import Described

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

__all__ = [
    "GREETING", "NARROW", "Attacker", "Broker", "attacker", "besieged_router", "clock_of", "hostile_broker",
    "say_in_turn", "send_to_router", "wire",
]  # fmt: skip

# All that comes before AMQP's first frame, said in one go.
GREETING = SASL + wire.frame(wire.performative(0x41, wire.symbol("ANONYMOUS")), kind=1) + wire.HEADER
CLOSED_WITHIN_S = 5.0
# For a module's EXTRA_CONFIGURATION: a listener whose clients may have one session.
NARROW = """
vhost {
    hostname: narrow
    groups: {
        everybody: {
            users: anonymous
            remoteHosts: *
            sources: *
            targets: *
            maxSessions: 1
        }
    }
}
listener {
    name: narrow
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    policyVhost: narrow
}
"""


class Attacker:
    """One connection to the router, through the SASL layer. `received` is all the router said."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.received = b""
        self.is_connected = True

    def say(self, *frames: bytes) -> None:
        """A router that has closed already is no news here."""
        self.socket.settimeout(CLOSED_WITHIN_S)
        try:
            self.socket.sendall(b"".join(frames))
        except OSError:
            return

    def converse(self, data: bytes, clock: "Attacker") -> None:
        """Say one frame after the other, each in a read of its own, and the next when the router has dealt with it.

        clock  another connection. The router has one loop: when it has answered there twice, it has read here.
        """
        while data and self.is_connected:
            size = int.from_bytes(data[:4], "big")
            if not 8 <= size <= len(data):
                size = len(data)
            self.say(data[:size])
            data = data[size:]
            self.look()
            clock.turn()
            clock.turn()

    def look(self) -> None:
        """Take what has come, and notice whether the router has closed."""
        self.socket.setblocking(False)
        try:
            while self.is_connected:
                self.received += (data := self.socket.recv(1 << 18))
                self.is_connected = bool(data)
        except BlockingIOError:
            return
        except ConnectionError:
            self.is_connected = False

    def turn(self) -> None:
        """One round trip: begin a session and end it."""
        self.say(wire.frame(wire.begin()), wire.frame(wire.end()))
        while not any(code == wire.END for code, _ in self.performatives()):
            assert self.read_some(CLOSED_WITHIN_S), "the router closed the clock's connection"
        self.received = b""

    def read_some(self, at_most_s: float) -> bool:
        """False at the end."""
        self.socket.settimeout(max(at_most_s, 0.001))
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionError:
            data = b""
        self.is_connected = bool(data)
        self.received += data
        return bool(data)

    def read_some_for(self, seconds: float) -> None:
        """Read what comes within that time, if anything does."""
        try:
            self.read_some(seconds)
        except TimeoutError:
            return

    def performatives(self) -> Iterator[tuple[int, list[object]]]:
        """Code and fields of every whole AMQP frame received, SASL's passed over."""
        return ((code, fields) for kind, code, fields in frames_in(self.received) if kind == 0)

    def wait_for(self, code: int, at_most_s: float = CLOSED_WITHIN_S) -> list[object]:
        """The fields of the first performative of that code."""
        deadline = time.monotonic() + at_most_s
        while True:
            for found, fields in self.performatives():
                if found == code:
                    return fields
            name = wire.NAMES[code - 0x10]
            assert time.monotonic() < deadline, f"no {name} within {at_most_s:g} s: {self.received!r}"
            assert self.read_some(deadline - time.monotonic()), f"closed without: {self.received!r}"

    def condition_of_close(self, at_most_s: float = CLOSED_WITHIN_S) -> str:
        """Wait until the router closes the socket, and return the condition that its Close named, "" without any."""
        deadline = time.monotonic() + at_most_s
        try:
            while self.read_some(deadline - time.monotonic()):
                pass
        except TimeoutError:
            raise AssertionError(f"not closed within {at_most_s:g} s; received {self.received!r}") from None
        for code, fields in self.performatives():
            if code == wire.CLOSE:
                error = fields[0] if fields else None
                return str(error.value[0]) if isinstance(error, Described) else ""
        raise AssertionError(f"the socket was closed without a Close; received {self.received!r}")


@contextmanager
def attacker(router: RunningRouter, listener: str = "clear") -> Iterator[Attacker]:
    """A new connection that has said what comes before AMQP."""
    with socket.create_connection(("127.0.0.1", port_of(router, listener)), 10) as connected:
        peer = Attacker(connected)
        peer.say(GREETING)
        yield peer


@contextmanager
def clock_of(router: RunningRouter) -> Iterator[Attacker]:
    """A connection for Attacker.converse to tell the time by."""
    with attacker(router, "free") as clock:
        clock.say(wire.frame(wire.open_("clock")))
        clock.wait_for(wire.OPEN)
        yield clock


def say_in_turn(router: RunningRouter, peer: Attacker, *frames: bytes) -> None:
    """Each frame in a read of its own."""
    with clock_of(router) as clock:
        peer.converse(b"".join(frames), clock)


@pytest.fixture(scope="module")
def besieged_router(
    request: pytest.FixtureRequest, router_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRouter]:
    """A router with a companion that must go on being served; the listener `clear` is for attackers.

    The module may say in EXTRA_CONFIGURATION what the router has besides.
    """
    certificates = Certificates.make(tmp_path_factory.mktemp("tls"))
    extra = OPEN_HOUSE + getattr(request.module, "EXTRA_CONFIGURATION", "")
    with (
        running_router(tmp_path_factory.mktemp("router"), certificates, python=router_python, extra=extra) as router,
        companion_of(router) as companion,
    ):
        yield router
        assert router.process.poll() is None, f"the router died with status {router.process.returncode}"
        companion.assert_undisturbed()


def send_to_router(router: RunningRouter, *frames: bytes, is_hasty: bool = False) -> str:
    """One connection that says all this: the condition of the router's Close.

    is_hasty  all in one go, where otherwise each frame is in a read of its own
    """
    with attacker(router) as peer:
        if is_hasty:
            peer.say(*frames)
        else:
            say_in_turn(router, peer, *frames)
        return peer.condition_of_close()


class Broker(Attacker):
    """The attacker's side of a connection that the router made."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.socket)
        self.received = call.received


@contextmanager
def hostile_broker(
    router: RunningRouter, behaviour: Callable[[Broker], None]
) -> Iterator[Callable[[], list[AssertionError]]]:
    """A connector of the router's to a server that opens as it should and then does as `behaviour` says.

    Yields what waits until `behaviour` has been through once and returns what it found wrong. The connector is gone at
    the end of the body.
    """
    failures: list[AssertionError] = []
    is_done = threading.Event()

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        try:
            behaviour(Broker(call))
        except AssertionError as failure:
            failures.append(failure)
        is_done.set()

    def wait() -> list[AssertionError]:
        assert is_done.wait(2 * CLOSED_WITHIN_S + 5), "the router did not come, or the broker is not done"
        return failures

    with management(router) as client, serving(behave) as server:
        client.create({"host": "127.0.0.1", "port": str(server.port)}, type="connector", name="hostile")
        try:
            yield wait
        finally:
            client.delete(type="connector", name="hostile")
