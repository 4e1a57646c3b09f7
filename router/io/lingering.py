"""Sockets whose connection is over and whose peer still sends: bytes that arrive are read and discarded, within limits.

If a socket is closed while bytes wait in it, it resets the peer, which then never reads why it was closed. So our side
of the socket ends after the Close, and the other side is read until the peer ends it. The connection itself has already
released everything. Only the socket and these few numbers are kept.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# Attack: a peer that never closes. It keeps a descriptor for this time.
LINGER_S: Final = 5.0
# Attack: a peer that floods after our Close. This is more than the windows of three sessions, which the peer may have
# filled before it got the Close.
LINGER_BYTES: Final = 32 * 1024 * 1024
# Attack: peers that are refused repeatedly and never close. The limits of descriptors for all of them, and for one
# host.
MOST: Final = 64
MOST_OF_HOST: Final = 16


@dataclass(slots=True)
class _Member:
    transport: asyncio.Transport
    host: str
    left: int  # bytes
    deadline: asyncio.Handle


class Lingering:
    """The lingering sockets.

    If there are too many, the oldest is dropped: it has had the most time to read the reason.
    """

    def __init__(self) -> None:
        self._members: dict[object, _Member] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._members)

    def add(self, whose: object, transport: asyncio.Transport, host: str, on_bytes_ignored: Callable[[], None]) -> None:
        """Ends our side of a socket after the written bytes. Drops the other side at its limit of time or bytes.

        whose             identifies the socket in further calls
        on_bytes_ignored  called soon. From then on the socket's bytes go to `discard`
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
        """Counts `size` bytes that arrived on the socket and are ignored."""
        member = self._members.get(whose)
        if member is not None:
            member.left -= size
            if member.left < 0:
                self._drop(whose)

    def forget(self, whose: object) -> None:
        """Removes a socket that is closed, or was never added."""
        member = self._members.pop(whose, None)
        if member is not None:
            member.deadline.cancel()

    def drop_all(self) -> None:
        """Drops all sockets, because their descriptors are needed."""
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
