"""Attack: one peer sends as fast as it can: its socket was read 32 times, two megabytes, before any other socket.

uvloop does so with a socket that fills each read. Now a socket that has more is read once in a pass of the loop.
"""

import asyncio
import contextlib
import socket
from types import SimpleNamespace
from typing import Any

from router.amqp.buffers import MOST_READ_BYTES
from router.io.read_share import ReadShare
from router.io.runner import new_runner
from router.io.sockets import Socket

READS = 16


class End(Socket[Any]):
    """Takes note of the pass in which each read came."""

    passes: list[int]

    def begin(self, transport: asyncio.Transport) -> None:
        self.passes = []

    def let_go(self) -> None:
        """There is no connection."""

    def discard(self, size: int) -> None:
        self.passes.append(self.router.number)  # type: ignore[attr-defined]


async def flood(ours: socket.socket, reads: int) -> list[int]:
    loop = asyncio.get_running_loop()
    router = SimpleNamespace(reads=ReadShare(loop.call_soon), number=0)
    _, end = await loop.create_connection(lambda: End(router), sock=ours)
    while len(end.passes) < reads:
        router.number += 1
        await asyncio.sleep(0)  # the loop looks at its sockets once meanwhile
    end._transport.abort()  # type: ignore[union-attr]
    return end.passes


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """A peer's socket and ours, with room for the attack."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * READS * MOST_READ_BYTES)
        peer = socket.create_connection(server.getsockname())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * READS * MOST_READ_BYTES)
        return peer, server.accept()[0]


def test_a_full_socket_is_read_once_in_a_pass() -> None:
    peer, ours = tcp_pair()
    with peer, ours, new_runner() as runner:
        peer.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < READS * MOST_READ_BYTES:
                sent += peer.send(bytes(MOST_READ_BYTES))
        reads = min(READS, sent // MOST_READ_BYTES)
        assert reads > 2, "the system's buffers hold no attack"
        passes = runner.run(flood(ours, reads))
    assert len(set(passes)) == len(passes)
