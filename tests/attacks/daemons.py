"""Raw peers of a daemon with the test's own configuration."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import raw_peer
from daemon_process import Daemon
from raw_peer import RawPeer


@contextmanager
def peer_of(router: Daemon, listener: str = "plain") -> Iterator[RawPeer]:
    with socket.create_connection(("127.0.0.1", router.port(listener)), 10) as connected:
        yield RawPeer(connected, 0)


def logged_in(peer: RawPeer, user: str, password: str, hostname: str = "localhost") -> RawPeer:
    """Login by PLAIN, to the router's Open."""
    peer.send(raw_peer.SASL + raw_peer.plain(user, password) + raw_peer.AMQP + raw_peer.open_frame(hostname))
    peer.read_until(raw_peer.OPEN)
    return peer
