"""Attack: a receiver of a multicast takes nothing of a large message: the sender and all other receivers waited for it.

It granted credit and stopped reading, opened no session window, or granted no credit at all. Now its link is closed
after messageProgressTimeout, and the other receivers continue.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon
from daemons import logged_in
from governed_router import governed, recorded
from raw_peer import RawPeer
from test_message_that_never_ends import PIECE, TIMEOUT_S, closed_link, read_while, session_of

from router.values import Described, uint, ulong

NEWS = "address {\n    prefix: news\n    distribution: multicast\n}\n"
SIZE = 6_000_000  # more than sockets hold
NARROW_BEGIN = raw_peer.frame(raw_peer.BEGIN, None, uint(0), uint(2), uint(2048))
WIDE_BEGIN = raw_peer.frame(raw_peer.BEGIN, None, uint(0), uint(1 << 30), uint(2048))
END = b"the end of the news"
DISPOSITION = 0x15
ACCEPTED = Described(ulong(0x24), [])


def flow(window: int, credit: int) -> bytes:
    return raw_peer.frame(raw_peer.FLOW, uint(0), uint(window), uint(0), uint(2048), uint(0), uint(0), uint(credit))


@contextmanager
def mallory_of(router: Daemon, how: str) -> Iterator[RawPeer]:
    with socket.socket() as connected:
        if how == "socket":
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connected.settimeout(10)
        connected.connect(("127.0.0.1", router.port("login")))
        peer = RawPeer(connected, 0)
        logged_in(peer, "mallory", "mallory's password")
        window = 2 if how == "window" else 1 << 30
        peer.send(NARROW_BEGIN if how == "window" else WIDE_BEGIN)
        peer.send(raw_peer.attach_receiver("news.today"))
        if how != "credit":
            peer.send(flow(window, 10))
        peer.read_until(raw_peer.ATTACH)
        yield peer


@pytest.mark.parametrize("how", ["socket", "window", "credit"])
def test_the_others_get_the_message(tmp_path: Path, how: str) -> None:
    settings = f"messageProgressTimeout: {TIMEOUT_S}"
    users: dict[str, dict[str, object]] = {"mallory": {}, "alice": {}, "bob": {}}
    receiver = raw_peer.attach_receiver("news.today"), flow(1 << 20, 10)
    with (
        governed(tmp_path, users, settings=settings, extra=NEWS) as router,
        session_of(router, "bob", *receiver) as bob,
        mallory_of(router, how) as mallory,
        session_of(router, "alice", raw_peer.attach_sender("news.today")) as alice,
    ):
        bob.read_until(raw_peer.ATTACH)
        alice.read_until(raw_peer.FLOW)
        data = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4, "big") + bytes(SIZE - len(END)) + END
        for at in range(0, len(data), PIECE):
            alice.send(raw_peer.transfer(data[at : at + PIECE], is_last=at + PIECE >= len(data)))
        read_while(bob, lambda: bob.received.endswith(END))
        event = recorded(router, reason="receiver_stalled")
        assert (event["user"], event["address"], event["direction"]) == ("mallory", "news.today", "receive")
        bob.send(raw_peer.frame(DISPOSITION, True, uint(0), None, True, ACCEPTED))
        alice.read_until(DISPOSITION)
        if how == "credit":
            assert closed_link(mallory) == "amqp:resource-limit-exceeded"
