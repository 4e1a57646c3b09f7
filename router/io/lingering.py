"""Sockets whose connection is over and whose peer still sends: what comes is read and thrown away, within bounds.

A socket that is closed while bytes wait in it resets the peer, which then never reads why it was closed. So our side
of the socket ends behind the Close, and the other is read until the peer ends it. The connection itself has given
everything back by then: a socket and these few numbers are all that is held.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# Stops a peer that never closes: it holds a descriptor for so long.
LINGER_S: Final = 5.0
# Stops a peer that floods after our Close. More than the windows of three sessions, which it may have filled before it
# could know.
LINGER_BYTES: Final = 32 * 1024 * 1024
# Stops peers that are refused over and over and never close: so many descriptors they hold in all, and of one host.
MOST: Final = 64
MOST_OF_HOST: Final = 16


@dataclass(slots=True)
class _Member:
    transport: asyncio.Transport
    host: str
    left: int  # bytes
    deadline: asyncio.Handle


class Lingering:
    """The oldest goes where there are too many: it has had the most time to read why."""

    def __init__(self) -> None:
        self._members: dict[object, _Member] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._members)

    def add(self, whose: object, transport: asyncio.Transport, host: str, on_bytes_ignored: Callable[[], None]) -> None:
        """End our side of a socket behind what is written; drop the other when it has had its time or its bytes.

        whose             names the socket in further calls
        on_bytes_ignored  called soon: from then on the socket's bytes go to `discard`
        """
        if whose in self._members:
            return
        self._make_room(host)
        transport.write_eof()
        loop = asyncio.get_running_loop()
        loop.call_soon(on_bytes_ignored)
        deadline = loop.call_later(LINGER_S, self._drop, whose)
        self._members[whose] = _Member(transport, host, LINGER_BYTES, deadline)

    def discard(self, whose: object, size: int) -> None:
        """`size` bytes have come on the socket, and nobody looks at them."""
        member = self._members.get(whose)
        if member is not None:
            member.left -= size
            if member.left < 0:
                self._drop(whose)

    def forget(self, whose: object) -> None:
        """The socket is closed, or was never added."""
        member = self._members.pop(whose, None)
        if member is not None:
            member.deadline.cancel()

    def drop_all(self) -> None:
        """Their descriptors are needed."""
        for whose in list(self._members):
            self._drop(whose)

    def _make_room(self, host: str) -> None:
        of_host = [whose for whose, member in self._members.items() if member.host == host]
        if len(of_host) >= MOST_OF_HOST:
            self._drop(of_host[0])
        elif len(self._members) >= MOST:
            self._drop(next(iter(self._members)))

    def _drop(self, whose: object) -> None:
        transport = self._members[whose].transport
        self.forget(whose)
        transport.abort()
