"""Listening sockets: binds them and accepts connections. A socket is judged before any object is made for it.

An asyncio server would accept the whole backlog before the first socket could be judged.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from router.io.turns import turn

BACKLOG: Final = 1024
# The network of one peer failed between its call and our answer. Any other error stays, for example if no descriptor is
# left. The loop would find the port readable again at once, and do nothing else. So nothing is accepted for a moment.
_OF_ONE_PEER: Final = frozenset(
    {errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET}
    | {errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
)
PAUSE_S: Final = 1.0

Arrived = Callable[[socket.socket, Any], None]


def bound(hosts: Sequence[str] | None, port: int, family: socket.AddressFamily) -> list[socket.socket]:
    """Returns a listening socket for each address.

    hosts   numeric; None: every address of this host
    Errors  OSError
    """
    made: list[socket.socket] = []
    try:
        for host in hosts or (None,):
            found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for of_family, _, _, _, address in found:
                if (each := _bound(of_family, address, is_asked_for=host is not None)) is not None:
                    made.append(each)
        if not made:
            raise OSError(errno.EADDRNOTAVAIL, "there is no address to listen on")
    except BaseException:
        for each in made:
            each.close()
        raise
    return made


def _bound(family: int, address: Any, *, is_asked_for: bool) -> socket.socket | None:
    """Returns the socket, or None if this host has no address of this family for "every address"."""
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        if is_asked_for:
            raise
        return None
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has its own socket
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRNOTAVAIL and not is_asked_for:
            return None
        text = f"error while attempting to bind on address {address!r}: {(error.strerror or '').lower()}"
        raise OSError(error.errno, text) from None
    return made


class Listening:
    """Accepts connections, in each pass of the loop as long as a turn lasts.

    arrived  gets each socket with its peer's address, and is responsible for it from then on
    failed   gets the error that prevents accepting. Nothing is accepted for PAUSE_S after it
    """

    def __init__(self, sockets: Sequence[socket.socket], arrived: Arrived, failed: Callable[[OSError], None]) -> None:
        self.sockets = list(sockets)
        self._arrived = arrived
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._resuming: dict[socket.socket, asyncio.TimerHandle] = {}
        for each in self.sockets:
            self._resume(each)

    def _resume(self, port: socket.socket) -> None:
        self._resuming.pop(port, None)
        self._loop.add_reader(port, self._accept, port)

    def _accept(self, port: socket.socket) -> None:
        has_time = turn()
        is_first = True
        while is_first or has_time():
            is_first = False
            try:
                accepted, peer = port.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_ONE_PEER:
                    continue
                self._loop.remove_reader(port)
                self._resuming[port] = self._loop.call_later(PAUSE_S, self._resume, port)
                self._failed(error)
                return
            accepted.setblocking(False)
            self._arrived(accepted, peer)

    def close(self) -> None:
        """Stops accepting."""
        for each in self.sockets:
            if (timer := self._resuming.pop(each, None)) is not None:
                timer.cancel()
            self._loop.remove_reader(each)
            each.close()
