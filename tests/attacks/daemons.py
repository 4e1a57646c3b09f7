"""A daemon with a configuration of the test's own, and raw peers of it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, start
from raw_peer import RawPeer

Started = Callable[..., Daemon]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Started]:
    """`daemon(configuration)`: a qdrouterd in tmp_path that serves; ended with the test."""
    started: list[Daemon] = []

    def run(configuration: str) -> Daemon:
        made = start(tmp_path, configuration)
        started.append(made)
        made.wait_for_log(r"SERVER \(notice\) Operational")
        return made

    yield run
    for each in started:
        each.end()


@contextmanager
def peer_of(router: Daemon, listener: str = "plain") -> Iterator[RawPeer]:
    with socket.create_connection(("127.0.0.1", router.port(listener)), 10) as connected:
        yield RawPeer(connected, 0)


def logged_in(peer: RawPeer, user: str, password: str, hostname: str = "localhost") -> RawPeer:
    """Login by PLAIN, to the router's Open."""
    peer.send(raw_peer.SASL + raw_peer.plain(user, password) + raw_peer.AMQP + raw_peer.open_frame(hostname))
    peer.read_until(raw_peer.OPEN)
    return peer
