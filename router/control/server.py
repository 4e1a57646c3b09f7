"""Ports: listening and accepting.

Source: docs/spec/routing.md §1.7.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from router.connection.stack import Stack
from router.connection.terms import Listener
from router.io.host_names import numeric
from router.io.sockets import Socket, SocketOwner

BACKLOG: Final = 1024
# The values of socketAddressFamily and protocolFamily.
ADDRESS_FAMILIES: Final = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}


class Acceptor(SocketOwner[Stack], Protocol):
    """The part of the router that a port needs (router.control.router)."""

    def accept(
        self, listener: Listener, peer: tuple[Any, ...], write: Callable[[bytes], None], close: Callable[[], None]
    ) -> Stack | None: ...


class Accepted(Socket[Stack]):
    """asyncio's end of one accepted socket."""

    def __init__(self, router: Acceptor, listener: Listener) -> None:
        super().__init__(router)
        self._acceptor = router
        self.listener = listener

    def begin(self, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")
        if peer is not None:  # None: already gone
            self.connection = self._acceptor.accept(self.listener, peer, transport.write, self.close)
        if self.connection is None:
            transport.abort()


class Port:
    """One listener entity's open sockets."""

    def __init__(self, listener: Listener, server: asyncio.Server) -> None:
        self.listener = listener
        self.server = server

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(ip, port) really listened on."""
        return [sock.getsockname()[:2] for sock in self.server.sockets]

    def close(self) -> None:
        """Stop accepting; established connections stay."""
        self.server.close()


async def listen(router: Acceptor, listener: Listener, family: socket.AddressFamily = socket.AF_UNSPEC) -> Port:
    """Open the listener's port. Errors: OSError when it cannot be bound or the service name is unknown."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Accepted(router, listener),
        await numeric(listener.host, family) if listener.host else None,
        service_port(listener.port),
        family=family,
        backlog=BACKLOG,
        reuse_address=True,
    )
    return Port(listener, server)


_SERVICES: Final = {"amqp": 5672, "amqps": 5671}
_MAX_PORT: Final = 65535


def service_port(text: str) -> int:
    """A port number from digits or a service name. Errors: OSError."""
    if text.isascii() and text.isdigit():
        # The resolver would take a greater number modulo 65536 and open a port that nobody has asked for.
        if len(text) > len(str(_MAX_PORT)) or int(text) > _MAX_PORT:
            raise OSError(f"no port has the number {text[:20]}: the greatest is {_MAX_PORT}")
        return int(text)
    return _SERVICES.get(text) or socket.getservbyname(text, "tcp")
