"""`qdaudit comply`, in a process of its own, on the signed trail of a router: what it writes is read (issue 15)."""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "interop"))
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))
sys.path.insert(0, str(Path(__file__).parent.parent / "attacks"))
sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))
sys.path.insert(0, str(Path(__file__).parent.parent / "audit"))

import raw_peer
import wire
from daemon_process import Daemon, daemon, write_users
from daemons import logged_in, peer_of
from test_chain import make_key

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow]

__all__ = ["daemon"]

ROOT = Path(__file__).parents[2]
SECRETS, GUESSES = 12, 12
CONFIGURATION = """
router {{
    id: evidence
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
    auditSigningKey: {key}
    auditAllows: link
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
GROUP = {"users": "alice, carol", "remoteHosts": "*", "sources": "orders.*, never", "targets": "orders.new"}


def qdaudit(*arguments: object, status: int = 0) -> str:
    command = [sys.executable, "-m", "spark.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return done.stdout


def attach(number: int, address: str) -> bytes:
    return wire.frame(wire.attach(f"l{number}", number, is_receiver=True, address=address))


@pytest.fixture
def trail(daemon: Callable[..., Daemon], tmp_path: Path) -> Path:
    """A folder: audit, policy, audit.pem. Alice receives, probes, and somebody guesses her password."""
    sasl = write_users(tmp_path, {"alice": "alice's", "carol": "carol's"}, "PLAIN")
    private, _ = make_key(tmp_path)
    (tmp_path / "policy").mkdir()
    vhost = {"hostname": "localhost", "groups": {"staff": GROUP}}
    (tmp_path / "policy" / "all.json").write_text(json.dumps([["vhost", vhost]]))
    router = daemon(CONFIGURATION.format(sasl=sasl, folder=tmp_path, key=private))
    with peer_of(router) as alice:
        logged_in(alice, "alice", "alice's").send(raw_peer.begin())
        alice.send(attach(0, "orders.new"))
        alice.read_until(raw_peer.ATTACH)
        secrets = [f"secret.{n}" for n in range(SECRETS)]
        for number, address in enumerate(secrets, 1):
            alice.received = b""
            alice.send(attach(number, address))
            alice.read_until(0x16)  # Detach
    for _ in range(GUESSES):
        with peer_of(router) as stranger:
            stranger.send(raw_peer.SASL + raw_peer.plain("carol", "wrong"))
            stranger.read_until(0x44)  # the outcome
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    return tmp_path


def test_the_evidence_of_a_signed_trail(trail: Path) -> None:
    table, key = trail / "table", trail / "audit.pem"
    qdaudit("ingest", trail / "audit", table)

    qdaudit("comply", table, "--trail", trail / "audit", "--key", key, "--out", trail / "pack")
    pack = json.loads((trail / "pack" / "pack.json").read_text())
    controls = {f"{each['standard']} {each['control']}": each for each in pack["controls"]}
    assert (pack["chain"]["is_whole"], pack["chain"]["is_signed"]) == (True, True)
    assert controls["nist-800-53 AU-10"]["gaps"] == ["no change by management is on record"]
    assert controls["pci-dss-4.0 10.2.1.4"]["result"] == "shown"
    assert controls["pci-dss-4.0 10.2.1.1"]["result"] == "shown"  # auditAllows
    assert controls["nist-800-53 AU-6"]["result"] == "gap"
    assert (pack["events"]["lost"], pack["events"]["missing"]) == (0, 0)
    for folder, hashes in ((trail / "audit", pack["inputs"]["trail"]), (trail / "pack", pack["outputs"])):
        assert hashes
        for name, digest in hashes.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert set(pack["inputs"]["trail"]) == {path.name for path in (trail / "audit").iterdir()}
    assert pack["chain"]["apart"] == ""
    failed = [json.loads(line) for line in (trail / "pack" / "failed_logins.json").read_text().splitlines()]
    assert sum(row["requests"] for row in failed if row["user"] == "carol") == GUESSES
