"""Ports: listening and accepting.

Source: docs/spec/routing.md §1.7.
"""

import socket
from functools import partial
from typing import Final

from policy.configuration.references import MAX_PORT, WELL_KNOWN_SERVICES
from router.connection.terms import Listener
from router.control.accepting import Accepting
from router.io.host_names import numeric
from router.io.listening import Listening, bound

# The values of socketAddressFamily and protocolFamily.
ADDRESS_FAMILIES: Final = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}


class Port:
    """The open sockets of one listener entity."""

    def __init__(self, listener: Listener, listening: Listening) -> None:
        self.listener = listener
        self._listening = listening

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(ip, port) of each open socket."""
        return [sock.getsockname()[:2] for sock in self._listening.sockets]

    def close(self) -> None:
        """Stops accepting; established connections stay."""
        self._listening.close()


async def listen(accepting: Accepting, listener: Listener, family: socket.AddressFamily = socket.AF_UNSPEC) -> Port:
    """Opens the listener's port. Errors: OSError when it cannot be bound or the service name is unknown."""
    hosts = await numeric(listener.host, family) if listener.host else None
    sockets = bound(hosts, service_port(listener.port), family)
    arrived, failed = partial(accepting.arrived, listener), partial(accepting.failed, listener)
    return Port(listener, Listening(sockets, arrived, failed))


def service_port(text: str) -> int:
    """Returns a port number from digits or a service name. Errors: OSError."""
    if text.isascii() and text.isdigit():
        # The resolver would take a greater number modulo 65536 and open a port that was not configured.
        if len(text) > len(str(MAX_PORT)) or int(text) > MAX_PORT:
            raise OSError(f"no port has the number {text[:20]}: the greatest is {MAX_PORT}")
        return int(text)
    return WELL_KNOWN_SERVICES.get(text) or socket.getservbyname(text, "tcp")
