"""Attack: one host keeps the threads busy that verify passwords, so that no other client can log in."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, Started, write_users
from raw_peer import RawPeer

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost

pytestmark = pytest.mark.timing

ATTACKER, OTHER_ATTACKER, HONEST = "127.0.0.2", "127.0.0.3", "127.0.0.1"
LOGINS = 2100
WAITING = 250
PATIENCE_S = 30.0
CONFIGURATION = """
router {{
    id: patient
    saslConfigDir: {sasl}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
WRONG = raw_peer.SASL + raw_peer.plain("mallory", "wrong")
OUTCOME = 0x44


@pytest.fixture
def router(tmp_path: Path, daemon: Started) -> Daemon:
    """The hash is the one that `qdpasswd` makes: some 40 ms of a processor for each login."""
    sasl = write_users(tmp_path, {"alice": "cheap"}, "PLAIN")
    set_user(str(tmp_path / "users"), "alice", Secret("alice's"), cost=Argon2idCost())
    return daemon(CONFIGURATION.format(sasl=sasl))


@contextmanager
def peer_from(router: Daemon, source: str) -> Iterator[RawPeer]:
    with socket.create_connection(("127.0.0.1", router.port()), PATIENCE_S, source_address=(source, 0)) as connected:
        yield RawPeer(connected, 0)


def seconds_to_log_in(router: Daemon) -> float:
    """The slowest of three honest logins, one after the other."""
    times = []
    for _ in range(3):
        started = time.monotonic()
        with peer_from(router, HONEST) as peer:
            peer.send(raw_peer.SASL + raw_peer.plain("alice", "alice's"))
            assert peer.read_until(OUTCOME, PATIENCE_S)[0] == 0
        times.append(time.monotonic() - started)
    return max(times)


def bearable_s(at_rest_s: float) -> float:
    """A second; more on a machine that is slow even when nobody attacks."""
    return max(1.0, 16 * at_rest_s)


def break_off(router: Daemon, count: int, source: str) -> None:
    """Logins whose peer resets its connection once it has sent the password."""
    for _ in range(count):
        with contextlib.suppress(OSError), peer_from(router, source) as peer:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.sendall(WRONG)
            peer.socket.recv(1)  # the router has read it, or is about to


def test_logins_that_were_broken_off_keep_nobody_waiting(router: Daemon) -> None:
    at_rest_s = seconds_to_log_in(router)
    break_off(router, LOGINS, ATTACKER)
    assert seconds_to_log_in(router) < bearable_s(at_rest_s)


@pytest.mark.parametrize("hosts", [(ATTACKER,), (ATTACKER, OTHER_ATTACKER)], ids=["one host", "two hosts"])
def test_logins_that_wait_make_no_other_host_wait(router: Daemon, hosts: tuple[str, ...]) -> None:
    at_rest_s = seconds_to_log_in(router)
    with ExitStack() as attack:
        for number in range(WAITING):
            peer = attack.enter_context(peer_from(router, hosts[number % len(hosts)]))
            peer.send(WRONG)
        assert seconds_to_log_in(router) < bearable_s(at_rest_s)
