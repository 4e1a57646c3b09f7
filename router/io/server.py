"""Sockets: accepting connections and moving their bytes. One event loop, one read buffer for all.

Sources: docs/spec/routing.md §1.7; docs/architecture.md, three journeys.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from router.amqp.engine import READ_BUFFER
from router.connection import Connection

if TYPE_CHECKING:
    from router.io.router import Router
    from router.listener import Listener

_READ_VIEW: Final = memoryview(READ_BUFFER)
BACKLOG: Final = 1024

# Above this many unsent bytes a connection's links get no more; they wait in their queues or with their senders.
WRITE_HIGH_BYTES: Final = 512 * 1024


class Link(asyncio.BufferedProtocol):
    """asyncio's end of one accepted socket."""

    __slots__ = ("_router", "_transport", "_wake", "connection", "listener")

    def __init__(self, router: "Router", listener: "Listener") -> None:
        self._router = router
        self.listener = listener
        self._transport: asyncio.Transport | None = None
        self.connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one, but not by class
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        if peer is None:  # already gone
            transport.abort()
            return
        self.connection = self._router.accept(self.listener, peer, transport.write, self._close)
        if self.connection is None:
            transport.abort()

    def _close(self) -> None:
        if self._transport is not None:
            self._router.close_soon(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _READ_VIEW

    def buffer_updated(self, nbytes: int) -> None:
        connection = self.connection
        if connection is not None:
            connection.receive_read(nbytes)
            self._router.work.finish()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.set_blocked(True)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.set_blocked(False)
            self._router.work.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self._router.lost(connection)


class Port:
    """One listener entity's open sockets."""

    def __init__(self, listener: "Listener", server: asyncio.Server) -> None:
        self.listener = listener
        self.server = server

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(ip, port) really listened on."""
        return [sock.getsockname()[:2] for sock in self.server.sockets]

    def close(self) -> None:
        """Stop accepting; established connections stay."""
        self.server.close()


async def listen(
    router: "Router", listener: "Listener", family: socket.AddressFamily = socket.AF_UNSPEC
) -> Port:
    """Open the listener's port. Errors: OSError when it cannot be bound or the service name is unknown."""
    loop = asyncio.get_running_loop()
    make: Callable[[], Any] = lambda: Link(router, listener)  # noqa: E731
    server = await loop.create_server(
        make,
        listener.host or None,
        service_port(listener.port),
        family=family,
        backlog=BACKLOG,
        reuse_address=True,
    )
    return Port(listener, server)


_SERVICES: Final = {"amqp": 5672, "amqps": 5671}


def service_port(text: str) -> int:
    """A port number from digits or a service name. Errors: OSError."""
    if text.isascii() and text.isdigit():
        return int(text)
    return _SERVICES.get(text) or socket.getservbyname(text, "tcp")
