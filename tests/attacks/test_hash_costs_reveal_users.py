"""Attack: a peer finds out which users exist by the work that a login costs the router."""

import os
import statistics
import time
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, Started, write_users
from daemons import peer_of

from auth.credentials import CheckPassword
from auth.secrets import Secret
from auth.verifiers import files
from auth.verifiers.files import UserFileVerifier, set_user
from auth.verifiers.hashes import Argon2idCost, Cost, ScryptCost, check_hash, verify_hash

pytestmark = pytest.mark.timing

LOGINS = 6
DEAR = Argon2idCost()
CONFIGURATION = """
router {{
    id: discreet
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
# Two users of the cheap hash, one of the dear, and a name made up.
NAMES = ("alice", "ben", "bob", "nobody")


def processor_s(router: Daemon) -> float:
    fields = Path(f"/proc/{router.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_of_logins(router: Daemon, user: str) -> float:
    """Processor seconds of the router for wrong passwords of one name, one login after the other."""
    before = processor_s(router)
    for _ in range(LOGINS):
        with peer_of(router) as peer:
            peer.send(raw_peer.SASL + raw_peer.plain(user, "wrong"))
            peer.seconds_until_closed(10)
    return processor_s(router) - before


def test_the_work_of_a_login_says_nothing_of_the_name(tmp_path: Path, daemon: Started) -> None:
    sasl = write_users(tmp_path, {"alice": "alice's", "ben": "ben's"}, "PLAIN")
    set_user(str(tmp_path / "users"), "bob", Secret("bob's"), cost=DEAR)
    router = daemon(CONFIGURATION.format(sasl=sasl))
    cost_of_logins(router, "warm up")
    spent = {name: cost_of_logins(router, name) for name in NAMES}
    assert min(spent.values()) > max(spent.values()) / 2, spent
    router.wait_for_log(r"AUTHSERVICE \(warning\) .*/users: hashes of 2 different costs")


def test_the_time_of_a_verification_says_nothing_of_the_name(tmp_path: Path) -> None:
    """Processor time of the verifying thread, names in turns, so that a busy machine slows all alike."""
    write_users(tmp_path, {"alice": "alice's", "ben": "ben's"})
    set_user(str(tmp_path / "users"), "bob", Secret("bob's"), cost=DEAR)
    set_user(str(tmp_path / "users"), "carol", Secret("carol's"), cost=ScryptCost(log2_n=12))
    verifier = UserFileVerifier(str(tmp_path / "users"))
    spent: dict[str, list[float]] = {name: [] for name in (*NAMES, "carol")}
    for _ in range(25):
        for name, times in spent.items():
            before = time.thread_time()
            assert not verifier.verify(CheckPassword(user=name, password=Secret("wrong"))).is_valid
            times.append(time.thread_time() - before)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    assert max(medians.values()) < min(medians.values()) * 1.4, medians


def test_the_same_hashes_are_computed_for_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_users(tmp_path, {"alice": "alice's", "ben": "ben's"})
    set_user(str(tmp_path / "users"), "bob", Secret("bob's"), cost=ScryptCost(log2_n=4, r=1, p=1))
    computed: list[Cost] = []

    def count(password: Secret, phc: str) -> bool:
        computed.append(check_hash(phc))
        return verify_hash(password, phc)

    monkeypatch.setattr(files, "verify_hash", count)
    verifier = UserFileVerifier(str(tmp_path / "users"))
    work = set()
    for name in NAMES:
        for password in ("wrong", f"{name}'s"):
            computed.clear()
            verifier.verify(CheckPassword(user=name, password=Secret(password)))
            work.add(tuple(computed))
    assert len(work) == 1, work
