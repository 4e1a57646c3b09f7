"""Attack: a message begins and never ends. It occupied its receiver forever, and all other messages waited for it.

Now a message that makes no progress for messageProgressTimeout is given up: aborted to its receivers, rejected to its
sender, whose link is closed. A single byte from time to time is not progress.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from daemon_process import Daemon
from daemons import logged_in, peer_of
from governed_router import governed, login, recorded
from raw_peer import RawPeer

from router.values import Described

TIMEOUT_S = 1
# A second's looks and the seconds of a busy machine.
PATIENCE_S = 30.0
SIZE = 200_000  # enough to be forwarded before the end has come
HEAD = b"\x00\x53\x75\xb0\x7f\xff\xff\xff"  # a data section of two gigabytes
PIECE = 16_000
ABORTED = 9  # the field of a Transfer


@contextmanager
def router_of(folder: Path) -> Iterator[Daemon]:
    settings = f"messageProgressTimeout: {TIMEOUT_S}"
    with governed(folder, {"mallory": {}, "alice": {}, "bob": {}}, settings=settings) as router:
        yield router


@contextmanager
def session_of(router: Daemon, user: str, *frames: bytes) -> Iterator[RawPeer]:
    with peer_of(router, "login") as peer:
        logged_in(peer, user, f"{user}'s password")
        peer.send(raw_peer.begin() + b"".join(frames))
        yield peer


def begin_message(peer: RawPeer, size: int) -> None:
    data = HEAD + bytes(size)
    for at in range(0, len(data), PIECE):
        peer.send(raw_peer.transfer(data[at : at + PIECE], is_last=False))


def transfers(peer: RawPeer) -> list[list[Any]]:
    return [fields for code, fields in peer.performatives() if code == raw_peer.TRANSFER]


def read_while(peer: RawPeer, wanted: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Read what comes until it is as wanted."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {peer.received[-200:]!r}"
        meanwhile()
        peer.socket.settimeout(0.2)
        try:
            data = peer.socket.recv(65536)
        except TimeoutError:
            continue
        assert data, "the router closed the connection"
        peer.received += data


def closed_link(peer: RawPeer) -> str:
    """The condition of the router's Detach."""
    _handle, _is_closed, error = peer.read_until(raw_peer.DETACH, PATIENCE_S)
    assert isinstance(error, Described)
    return str(error.value[0])


@pytest.mark.parametrize("is_trickle", [False, True])
def test_others_wait_no_longer_than_the_timeout(tmp_path: Path, is_trickle: bool) -> None:
    receiver = raw_peer.attach_receiver("orders"), raw_peer.flow(credit=10)
    with (
        router_of(tmp_path) as router,
        session_of(router, "bob", *receiver) as bob,
        session_of(router, "mallory", raw_peer.attach_sender("orders")) as mallory,
        session_of(router, "alice", raw_peer.attach_sender("orders")) as alice,
    ):
        mallory.read_until(raw_peer.FLOW)
        alice.read_until(raw_peer.FLOW)
        begin_message(mallory, SIZE)
        read_while(bob, lambda: bool(transfers(bob)))

        said_at = 0.0

        def trickle() -> None:
            nonlocal said_at
            if is_trickle and time.monotonic() - said_at > 0.1:
                said_at = time.monotonic()
                mallory.send(raw_peer.transfer(b"x", is_last=False))

        payload = b"\x00\x53\x75\xa0\x04fine"
        alice.send(raw_peer.transfer(payload))
        read_while(bob, lambda: bob.received.endswith(payload), trickle)
        assert sum(len(fields) > ABORTED and fields[ABORTED] is True for fields in transfers(bob)) == 1
        assert closed_link(mallory) == "amqp:resource-limit-exceeded"
        assert b"a message under way made no progress for 1 seconds" in mallory.received
        event = recorded(router, reason="message_stalled")
        assert (event["user"], event["stage"], event["address"]) == ("mallory", "transfer", "orders")
        with login(router, "alice") as client:
            row = client.read(type="router", name="governed")
        assert (row["messagesGivenUp"], row["receiversGivenUp"]) == (1, 0)


@pytest.mark.parametrize("size", [1, SIZE])
def test_a_management_request_that_never_ends(tmp_path: Path, size: int) -> None:
    """Held up to 128 kB, then refused and thrown away; given up in either case."""
    with (
        router_of(tmp_path) as router,
        session_of(router, "mallory", raw_peer.attach_sender("$management")) as mallory,
    ):
        mallory.read_until(raw_peer.FLOW)
        begin_message(mallory, size)
        assert closed_link(mallory) == "amqp:resource-limit-exceeded"
        assert recorded(router, reason="message_stalled")["address"] == "$management"
