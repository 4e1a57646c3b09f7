"""Attack: a client stays connected after its user was removed or got another password, or stays connected forever."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Started, audit_events, eventually, write_users
from daemons import logged_in, peer_of
from raw_peer import RawPeer

from auth.secrets import Secret
from auth.verifiers.files import remove_user, set_user
from auth.verifiers.hashes import Argon2idCost
from router.values import Described

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
CONFIGURATION = """
router {{
    id: revoking
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
    onPolicyChange: {change}
    policyDirWatchSeconds: {watch}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
    {age}
}}
"""
VHOST = [["vhost", {"hostname": "localhost", "groups": {"$default": {
    "users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}}}]]  # fmt: skip


def write(tmp_path: Path, *, change: str = "enforce", watch: int = 1, age: int = 0) -> str:
    sasl = write_users(tmp_path, {"alice": "alice's", "bob": "bob's"}, "PLAIN")
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "all.json").write_text(json.dumps(VHOST))
    limit = f"maxConnectionAgeSeconds: {age}" if age else ""
    return CONFIGURATION.format(sasl=sasl, folder=tmp_path, change=change, watch=watch, age=limit)


def closed_with(peer: RawPeer, at_most_s: float = 10.0) -> tuple[str, str]:
    """Condition and description of the router's Close."""
    (error,) = peer.read_until(raw_peer.CLOSE, at_most_s)
    assert isinstance(error, Described)
    return str(error.value[0]), str(error.value[1])


def is_open(peer: RawPeer) -> bool:
    peer.received = b""
    peer.send(raw_peer.begin())
    peer.read_until(raw_peer.BEGIN)
    return True


@pytest.mark.parametrize("how", ["removed", "another password", "removed, by SIGHUP"])
def test_whoever_is_out_of_the_file_is_out(how: str, tmp_path: Path, daemon: Started) -> None:
    users = str(tmp_path / "users")
    router = daemon(write(tmp_path, watch=0 if "SIGHUP" in how else 1))
    with peer_of(router) as alice, peer_of(router) as bob:
        logged_in(alice, "alice", "alice's")
        logged_in(bob, "bob", "bob's")
        if how == "another password":
            set_user(users, "alice", Secret("another"), cost=CHEAP)
        else:
            remove_user(users, "alice")
        if "SIGHUP" in how:
            os.kill(router.process.pid, signal.SIGHUP)
        assert closed_with(alice) == ("amqp:connection:forced", "The user was removed or has another password")
        assert is_open(bob)
    (event,) = eventually(lambda: audit_events(tmp_path / "audit"))
    assert (event["reason"], event["user"], event["decision"]) == ("credentials_revoked", "alice", "deny")
    router.wait_for_log(r"SERVER \(info\) \[C\d+\] Connection from .* failed: amqp:connection:forced The user was")
    router.wait_for_log(r"POLICY \(info\) File of users read anew: 1 connections closed")


def test_who_opens_after_the_change_by_a_login_before_it_is_out(tmp_path: Path, daemon: Started) -> None:
    """The file is read anew while a connection stands between its login and its Open."""
    router = daemon(write(tmp_path))
    with peer_of(router) as alice:
        alice.send(raw_peer.SASL + raw_peer.plain("alice", "alice's"))
        alice.read_until(0x44)  # the outcome
        remove_user(str(tmp_path / "users"), "alice")
        router.wait_for_log(r"File of users read anew: 0 connections closed")
        alice.send(raw_peer.AMQP + raw_peer.open_frame())
        assert closed_with(alice)[0] == "amqp:connection:forced"


def test_a_change_of_others_and_a_file_that_cannot_be_used_end_nobody(tmp_path: Path, daemon: Started) -> None:
    users = tmp_path / "users"
    router = daemon(write(tmp_path))
    with peer_of(router) as alice:
        logged_in(alice, "alice", "alice's")
        set_user(str(users), "carol", Secret("carol's"), cost=CHEAP, must_exist=False)
        router.wait_for_log(r"File of users read anew: 0 connections closed")
        users.write_text(users.read_text() + "no colon\n")
        router.wait_for_log(r"POLICY \(error\) File of users: .*users:\d+: expected user:hash; open connections stay")
        assert is_open(alice)


def test_with_keep_open_connections_stay(tmp_path: Path, daemon: Started) -> None:
    """As in 1.20; the next login is refused."""
    router = daemon(write(tmp_path, change="keep"))
    with peer_of(router) as alice, peer_of(router) as again:
        logged_in(alice, "alice", "alice's")
        remove_user(str(tmp_path / "users"), "alice")
        again.send(raw_peer.SASL + raw_peer.plain("alice", "alice's"))
        again.seconds_until_closed(10)
        assert is_open(alice)


def test_no_connection_becomes_older_than_the_listener_allows(tmp_path: Path, daemon: Started) -> None:
    router = daemon(write(tmp_path, age=2))
    with peer_of(router) as alice:
        started = time.monotonic()
        logged_in(alice, "alice", "alice's")
        assert closed_with(alice) == ("amqp:connection:forced", "The connection is older than 2 seconds")
        assert 1.5 < time.monotonic() - started < 6
    (event,) = eventually(lambda: audit_events(tmp_path / "audit"))
    assert (event["reason"], event["user"]) == ("connection_too_old", "alice")
