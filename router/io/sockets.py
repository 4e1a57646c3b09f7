"""The loop's end of a connection: moving its bytes. One event loop, one read buffer for all.

Source: docs/architecture.md, three journeys.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, Final, cast

from router.amqp.engine import READ_BUFFER
from router.stack import Stack

if TYPE_CHECKING:
    from router.io.router import Router

_READ_VIEW: Final = memoryview(READ_BUFFER)

# Above this many unsent bytes a connection's links get no more; they wait in their queues or with their senders.
WRITE_HIGH_BYTES: Final = 512 * 1024


class Socket(asyncio.BufferedProtocol):
    """One socket. Subclasses make the connection in `begin`."""

    def __init__(self, router: "Router") -> None:
        self.router = router
        self.connection: Stack | None = None
        self._transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """The socket is connected."""
        raise NotImplementedError

    def ended(self) -> None:
        """The socket is closed and its connection has given everything back."""

    def close(self) -> None:
        """Close after what was written has left."""
        if self._transport is not None:
            self.router.close_soon(self._transport)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one, but not by class
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _READ_VIEW

    def buffer_updated(self, nbytes: int) -> None:
        connection = self.connection
        if connection is not None:
            connection.receive_read(nbytes)
            self.router.work.finish()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.set_blocked(True)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.set_blocked(False)
            self.router.work.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self.router.lost(connection)
        self.ended()
