"""Attack: many hosts guess one user's password, and each host fails too seldom for a ban."""

import socket
import time
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, Started, audit_events, write_users
from raw_peer import RawPeer

pytestmark = pytest.mark.timing

ALICES_OFFICE = "127.0.1.1"
CONFIGURATION = """
router {{
    id: patient
    saslConfigDir: {sasl}
    auditDir: {audit}
}}
policy {{
    banAfterFailures: 10
    banAllowList: 127.0.0.1
    maxLoginDelaySeconds: {delay}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
DELAY_S = 2
OK, AUTH, TEMPORARY = 0, 1, 4
OUTCOME = 0x44


def started(tmp_path: Path, daemon: Started, delay: int = DELAY_S) -> Daemon:
    sasl = write_users(tmp_path, {"alice": "alice's", "bob": "bob's"}, "PLAIN")
    audit = tmp_path / "audit"
    audit.mkdir()
    return daemon(CONFIGURATION.format(sasl=sasl, audit=audit, delay=delay))


def asking(router: Daemon, host: str, user: str, password: str) -> RawPeer:
    connected = socket.create_connection(("127.0.0.1", router.port()), 10, source_address=(host, 0))
    peer = RawPeer(connected, 0)
    peer.send(raw_peer.SASL + raw_peer.plain(user, password))
    return peer


def log_in(router: Daemon, host: str, user: str, password: str) -> tuple[int, float]:
    """The outcome, and after how many seconds it came."""
    began = time.monotonic()
    peer = asking(router, host, user, password)
    with peer.socket:
        (code, *_) = peer.read_until(OUTCOME)
    return int(code), time.monotonic() - began


def spray(router: Daemon, user: str) -> None:
    """Sixty hosts try a password each; none waits for its answer, for it would wait long."""
    peers = [asking(router, f"127.0.2.{number}", user, "perhaps") for number in range(1, 61)]
    router.wait_for_log(r"127\.0\.2\.1:\d+ .*Failed to authenticate client")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(not peer.received for peer in peers):
        for peer in peers:
            peer.socket.settimeout(10)
            peer.received += peer.socket.recv(65536)
    log_in(router, "127.0.2.99", user, "perhaps")  # when this was verified, all before have been
    for peer in peers:
        peer.socket.close()


def test_many_hosts_on_one_user_wait_and_the_user_gets_in_where_he_did_before(tmp_path: Path, daemon: Started) -> None:
    router = started(tmp_path, daemon)
    assert log_in(router, ALICES_OFFICE, "alice", "alice's")[0] == OK
    spray(router, "alice")
    outcome, seconds = log_in(router, ALICES_OFFICE, "alice", "alice's")
    assert outcome == OK
    assert seconds < DELAY_S / 2, "alice is not locked out, nor slowed, where she has logged in"
    for password, expected in (("perhaps", AUTH), ("alice's", OK)):
        outcome, seconds = log_in(router, f"127.0.3.{expected + 1}", "alice", password)
        assert outcome == expected
        assert seconds > DELAY_S * 0.9, "right or wrong, it waits"
    outcome, seconds = log_in(router, "127.0.3.9", "bob", "bob's")
    assert outcome == OK
    assert seconds < DELAY_S / 2, "nobody else is slowed"


def test_a_name_that_nobody_has_is_slowed_as_well(tmp_path: Path, daemon: Started) -> None:
    router = started(tmp_path, daemon)
    spray(router, "nobody")
    outcome, seconds = log_in(router, "127.0.3.1", "nobody", "perhaps")
    assert outcome == AUTH
    assert seconds > DELAY_S * 0.9


def test_guesses_side_by_side_are_not_answered(tmp_path: Path, daemon: Started) -> None:
    """Attack: fifty at a time, all of which wait together; the failures bring the ban all the same."""
    router = started(tmp_path, daemon)
    for _ in range(7):
        log_in(router, "127.0.4.1", "alice", "perhaps")
    peers = [asking(router, "127.0.4.1", "alice", f"perhaps {number}") for number in range(50)]
    router.wait_for_log(r"POLICY \(notice\) Ban 'automatic-127\.0\.4\.1'")
    for peer in peers:
        peer.seconds_until_closed(15)
        peer.socket.close()
        assert (OUTCOME, [OK]) not in [(code, fields[:1]) for code, fields in peer.performatives()]


def test_without_bans_of_fifty_guesses_side_by_side_eight_are_answered(tmp_path: Path, daemon: Started) -> None:
    router = started(tmp_path, lambda text: daemon(text.replace("banAfterFailures: 10", "banAfterFailures: 0")))
    for _ in range(7):
        log_in(router, "127.0.4.1", "alice", "perhaps")
    peers = [asking(router, "127.0.4.1", "alice", f"perhaps {number}") for number in range(50)]
    outcomes = []
    for peer in peers:
        with peer.socket:
            outcomes.append(int(peer.read_until(OUTCOME)[0]))
    assert outcomes.count(AUTH) < 25, outcomes
    assert outcomes.count(TEMPORARY) > 25, outcomes
    assert any(event["reason"] == "too_many_guesses" for event in audit_events(tmp_path / "audit"))
