"""Servers that connectors of the router connect to, from well-behaved to hostile, on plain sockets and one thread.

A Server answers each connection with a behaviour: a function that is given the accepted socket and may do what it likes
until it returns, when the socket is closed. What it gets wrong fails the test that asks for `failures`.
"""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from raw_peer import AMQP, CLOSE, OPEN, SASL, frame

from router.amqp.codec import decode
from router.values import Array, Described, symbol, ubyte, uint, ulong, ushort

MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
WAIT_S = 10.0

Behaviour = Callable[["Call"], None]


class Hangup(Exception):
    """The router closed."""


@dataclass
class Call:
    """One connection the router made.

    peer_open  fields of the router's Open, as the codec gives them
    init       fields of its sasl-init
    """

    socket: socket.socket
    at_s: float
    received: bytes = b""
    peer_open: list[Any] | None = None
    init: list[Any] | None = None

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        while len(self.received) < size:
            try:
                data = self.socket.recv(65536)
            except (OSError, ValueError):
                raise Hangup from None
            if not data:
                raise Hangup
            self.received += data
        found, self.received = self.received[:size], self.received[size:]
        return found

    def read_frame(self) -> tuple[int, list[Any]]:
        """Code and fields; empty frames are passed over."""
        while True:
            size = int.from_bytes(self.read(4), "big")
            body = self.read(size - 4)[4:]
            if body:
                value, _ = decode(body)
                assert isinstance(value, Described)
                return int(value.descriptor), value.value

    def expect(self, code: int) -> list[Any]:
        """The fields of the next frame of that code; others are passed over."""
        while True:
            found, fields = self.read_frame()
            if found == code:
                return fields

    def sasl(self, mechanisms: Sequence[str] = ("ANONYMOUS",), *, outcome: int = 0) -> None:
        """The server's side of an exchange without challenges."""
        assert self.read(8) == SASL
        self.send(SASL + frame(MECHANISMS, Array(symbol, tuple(map(symbol, mechanisms))), kind=1))
        self.init = self.expect(INIT)
        self.send(frame(OUTCOME, ubyte(outcome), kind=1))

    def open(self, *, properties: dict[str, Any] | None = None, container: str = "server") -> None:
        """Both AMQP headers and both Opens."""
        assert self.read(8) == AMQP
        self.send(AMQP)
        self.peer_open = self.expect(OPEN)
        named = {symbol(key): value for key, value in (properties or {}).items()}
        self.send(frame(OPEN, container, None, uint(65536), ushort(100), None, None, None, None, None, named))

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close, and wait for the router's."""
        error = Described(ulong(0x1D), [symbol(condition), description]) if condition else None
        self.send(frame(CLOSE, error))
        with contextlib.suppress(Hangup):
            self.expect(CLOSE)

    def stay(self) -> None:
        """Until the router goes."""
        with contextlib.suppress(Hangup):
            while True:
                self.read(1)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@dataclass
class Server:
    """Listens on 127.0.0.1 until closed.

    calls  every connection that came, in order
    """

    behaviour: Behaviour
    tls: ssl.SSLContext | None = None
    calls: list[Call] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        self.changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self.listening.accept()
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        accepted.settimeout(60)
        call = Call(accepted, time.monotonic())
        try:
            with self.changed:
                self.calls.append(call)
                self.changed.notify_all()
            if self.tls is not None:
                call.socket = self.tls.wrap_socket(accepted, server_side=True)
            self.behaviour(call)
        except (Hangup, OSError):
            return
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            call.socket.close()

    def wait_for_calls(self, count: int, timeout_s: float = WAIT_S) -> list[Call]:
        """The first `count` connections; fails when fewer came."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls) >= count, timeout_s), f"{len(self.calls)} of {count}"
            return self.calls[:count]

    def close(self) -> None:
        # A blocked accept() outlives close(); shutdown wakes it.
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()


@contextlib.contextmanager
def serving(behaviour: Behaviour, *, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server until the end of the body; fails with what its behaviours got wrong."""
    server = Server(behaviour, tls)
    try:
        yield server
    finally:
        server.close()
        for call in server.calls:
            call.socket.close()
    assert server.failures == [], server.failures


def greeting(properties: dict[str, Any] | None = None, mechanisms: Sequence[str] = ("ANONYMOUS",)) -> Behaviour:
    """Takes the router in and stays."""

    def behave(call: Call) -> None:
        call.sasl(mechanisms)
        call.open(properties=properties)
        call.stay()

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first connection gets the first, the last also all that follow."""
    left = list(behaviours)
    lock = threading.Lock()

    def behave(call: Call) -> None:
        with lock:
            chosen = left.pop(0) if len(left) > 1 else left[0]
        chosen(call)

    return behave


def failover_list(*servers: tuple[str, object]) -> dict[str, Any]:
    """Open properties of a server with alternatives."""
    maps = [{symbol("network-host"): host, symbol("port"): port} for host, port in servers]
    return {"failover-server-list": maps}
