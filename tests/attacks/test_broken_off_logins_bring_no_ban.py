"""Attack: a peer guesses passwords, or uses up processor time, and avoids a ban by leaving before the answer."""

import contextlib
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, Started, write_users

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost

ATTACKER = "127.0.0.2"
LOGINS = 60
CONFIGURATION = """
router {{
    id: counting
    saslConfigDir: {sasl}
}}
policy {{
    banAfterFailures: 3
    banAllowList: 127.0.0.1
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
WRONG = raw_peer.SASL + raw_peer.plain("alice", "wrong")


def started(tmp_path: Path, daemon: Started) -> Daemon:
    """The hash takes about a tenth of a second."""
    sasl = write_users(tmp_path, {"alice": "cheap"}, "PLAIN")
    set_user(str(tmp_path / "users"), "alice", Secret("alice's"), cost=Argon2idCost(iterations=8))
    return daemon(CONFIGURATION.format(sasl=sasl))


def processor_s(router: Daemon) -> float:
    fields = Path(f"/proc/{router.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connected(router: Daemon) -> socket.socket:
    return socket.create_connection(("127.0.0.1", router.port()), 10, source_address=(ATTACKER, 0))


def log_in_and_leave(router: Daemon) -> None:
    with contextlib.suppress(OSError), connected(router) as peer:
        peer.sendall(WRONG)


def all_at_once(router: Daemon) -> None:
    with ExitStack() as attack:
        peers = [attack.enter_context(connected(router)) for _ in range(LOGINS)]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.sendall(WRONG)


def one_after_the_other(router: Daemon) -> None:
    for _ in range(LOGINS):
        log_in_and_leave(router)


def with_garbage_behind(router: Daemon) -> None:
    """The router is the one that closes: more is sent than it keeps while it verifies."""
    for _ in range(LOGINS):
        with contextlib.suppress(OSError), connected(router) as peer:
            peer.sendall(WRONG + bytes(70_000))
            while peer.recv(1000):
                pass


def is_banned(router: Daemon) -> bool:
    with connected(router) as peer:
        try:
            peer.sendall(raw_peer.SASL)
            return peer.recv(1) == b""
        except ConnectionError:
            return True


@pytest.mark.parametrize("attack", [all_at_once, one_after_the_other, with_garbage_behind])
def test_three_of_them_bring_the_ban_and_no_more_are_verified(
    attack: Callable[[Daemon], None], tmp_path: Path, daemon: Started
) -> None:
    router = started(tmp_path, daemon)
    before = processor_s(router)
    attack(router)
    router.wait_for_log(r"POLICY \(notice\) Ban 'automatic-127\.0\.0\.2' .*: 3 failures within 60 seconds")
    assert is_banned(router)
    assert processor_s(router) - before < LOGINS * 0.1 / 3
