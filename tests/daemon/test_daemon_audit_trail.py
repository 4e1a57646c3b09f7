"""The audit log of a running router as `qdaudit verify` finds it, and what happens while it cannot be written."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from daemon_process import LISTENER, Daemon, Started, audit_events, eventually, run_configuration
from proton.utils import BlockingConnection, LinkDetached

from router.management.client import ManagementClient

pytestmark = pytest.mark.interop

POLICY = """
policy {
    enableVhostPolicy: yes
}
vhost {
    hostname: $default
    allowUnknownUser: true
    groups: {
        $default: {
            remoteHosts: *
            targets: a, $management
            allowDynamicSource: true
        }
    }
}
"""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The private key; the public one beside it has the suffix .pem."""
    made = Ed25519PrivateKey.generate()
    path = tmp_path / "audit.key"
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pem").write_bytes(public)
    return path


def configuration(folder: Path, key: Path, more: str = "", policy: str = POLICY) -> str:
    router = (
        f"router {{\n id: R1\n auditDir: {folder}\n auditSigningKey: {key}\n auditMaxFileBytes: 65536\n {more}\n}}\n"
    )
    return f"{router}{LISTENER}{policy}"


def verified(folder: Path, key: Path, *options: str) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "spark.cli",
        "verify",
        str(folder),
        "--key",
        str(key.with_suffix(".pem")),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def be_denied(router: Daemon, times: int) -> None:
    connection = BlockingConnection(f"127.0.0.1:{router.port()}", timeout=10, allowed_mechs="ANONYMOUS")
    for n in range(times):
        with pytest.raises(LinkDetached):
            connection.create_sender(f"secret.{n}")
    connection.close()


def test_kill_9_a_restart_and_sighup_leave_a_trail_that_is_whole(daemon: Started, tmp_path: Path, key: Path) -> None:
    folder = tmp_path / "audit"
    text = configuration(folder, key, "auditCompress: gzip\n auditAllows: link")
    for round_ in range(3):
        router = daemon(text)
        be_denied(router, 20)
        router.signal(signal.SIGHUP)
        be_denied(router, 20)
        with router.client() as client:
            eventually(partial(is_all_written, client))
            assert (state(client)["auditState"], state(client)["auditLost"]) == ("writing", 0)
        if round_ < 2:
            router.signal(signal.SIGKILL)
            router.wait()
        else:
            router.end()
    status, output = verified(folder, key)
    assert (status, re.search(r"\d+ of them signed: whole", output) is not None) == (0, True), output
    path = min(folder.glob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"secret.7", b"public.7", 1))
    status, output = verified(folder, key)
    assert status == 1
    assert f"FOUND {path.name}:" in output


def test_a_key_that_others_may_use_stops_the_start(tmp_path: Path, key: Path) -> None:
    key.chmod(0o644)
    done = run_configuration(tmp_path, configuration(tmp_path / "audit", key))
    assert done.status == 1
    assert f"auditSigningKey {key}: others may use it; make it 0600" in done.out + done.err
    assert "PRIVATE" not in done.out + done.err


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is easily full."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return filler


def state(client: ManagementClient) -> Mapping[str, Any]:
    """The attributes of the router."""
    result = client.query("router", ["auditState", "auditPending", "auditLost"])
    return dict(zip(result.attribute_names, result.rows[0], strict=True))


def is_all_written(client: ManagementClient) -> bool:
    return bool(state(client)["auditPending"] == 0)


def be_refused(router: Daemon) -> None:
    """With or without policy, and while nobody is let in."""
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", router.port()), timeout=10) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        peer.recv(100)


def is_let_in(router: Daemon) -> bool:
    with socket.create_connection(("127.0.0.1", router.port()), timeout=10) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        try:
            return peer.recv(8) != b""
        except ConnectionError:
            return False


@pytest.mark.parametrize(
    ("more", "policy", "refuses"),
    [
        ("", POLICY, True),
        ("", "", False),
        ("onAuditFailure: count", POLICY, False),
        ("onAuditFailure: refuse", "", True),
    ],
    ids=["policy", "no policy", "count", "refuse"],
)
def test_while_the_disk_is_full_nobody_comes_in_where_that_is_so_set(
    more: str, policy: str, refuses: bool, daemon: Started, tmp_path: Path, key: Path, disk: Path
) -> None:
    folder = disk / "audit"
    router = daemon(configuration(folder, key, more, policy))
    assert is_let_in(router)
    with router.client() as client:
        be_refused(router)
        eventually(partial(is_all_written, client))
        filler = fill(disk)
        for _ in range(10):  # the file's last page has room for some
            be_refused(router)
        router.wait_for_log("audit log: cannot write to .*(No space left on device|the disk is full)")
        assert state(client)["auditState"] == "failing"
        assert is_let_in(router) != refuses
        filler.unlink()
        router.wait_for_log("audit log: writing works again")
        assert is_let_in(router)
        assert state(client)["auditLost"] == 0
    router.end()
    reasons = [event["reason"] for event in audit_events(folder)]
    assert ("audit_unavailable" in reasons) == refuses
    status, output = verified(folder, key)
    assert status == 0, output
