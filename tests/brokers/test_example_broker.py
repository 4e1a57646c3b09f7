"""The example policies/broker, with the Artemis of deploy/examples/artemis: it starts, lints clean and does its work.

Both are as they stand there, but for their ports and the folders of their files.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from artemis import Artemis
from broker_process import PASSWORD, ROOT
from certificates import Certificates
from daemon_process import COMMAND, Daemon, start

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost
from policy.cli.main import main as qdpolicy

EXAMPLE = ROOT / "policies" / "broker"
BROKER = ROOT / "deploy" / "examples" / "artemis" / "broker.xml"
BROKER_PORT = "5673"
PATIENCE_S = 60.0


def test_it_lints_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In its folder, where it finds its policy."""
    monkeypatch.chdir(EXAMPLE)
    assert qdpolicy(["lint", "qdrouterd.conf", "--fail-level", "note"]) == 0, capsys.readouterr().out
    assert qdpolicy(["test", "tests/expectations.json"]) == 0, capsys.readouterr().out


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    daemon: Daemon
    certificates: Certificates

    def send_or_receive(self, user: str, only: str, address: str) -> tuple[int, str]:
        """By qdsend or qdreceive. Returns its status and what it printed."""
        place = f"amqps://127.0.0.1:{self.daemon.port('clients')}"
        options = ["-b", place, "--ssl-trustfile", self.certificates.ca, "--sasl-username", user, "-a", address]
        ran = subprocess.run(
            [sys.executable, "-m", f"router.tools.qd{only}", *options, "--sasl-password-file", "/dev/stdin", "-c", "5"],
            input=user, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env={"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def site(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("example")
    certificates = Certificates.make(folder)
    home = folder / "router"
    shutil.copytree(EXAMPLE, home)
    (home / "tls").mkdir()
    for path, name in zip((*certificates.pair("server"), certificates.ca), ("front.crt", "front.key", "broker-ca.crt"),
                          strict=True):  # fmt: skip
        shutil.copy(path, home / "tls" / name)
    (home / "broker-password").touch(mode=0o600)
    (home / "broker-password").write_text(PASSWORD)
    for user in ("shop", "store"):
        cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
        set_user(str(home / "users"), user, Secret(user), cost=cost, must_exist=False, scram=("SHA-256",))
    broker = Artemis(folder / "broker", distribution, certificate=certificates.pair("server"), user="router")
    text = BROKER.read_text().replace(f"127.0.0.1:{BROKER_PORT}", f"127.0.0.1:{broker.port}")
    text = text.replace("broker.p12", str(broker.folder / "keys.p12")).replace("change-me", "of-the-test")
    (broker.folder / "etc" / "broker.xml").write_text(text)
    broker.start()
    try:
        text = (home / "qdrouterd.conf").read_text().replace("port: 5671", "port: 0")
        text = text.replace(f"port: {BROKER_PORT}", f"port: {broker.port}")
        command = ("env", "-C", str(home), *COMMAND)
        daemon = start(home, text, command=command, environment={"PYTHONPATH": str(ROOT)})
        try:
            daemon.wait_for_log("Auto Link Activated .* on connection broker", timeout_s=PATIENCE_S)
            daemon.wait_for_log("Link Route Activated .* on connection broker")
            yield Site(daemon=daemon, certificates=certificates)
        finally:
            daemon.end()
        assert daemon.process.returncode == 0
        assert not daemon.log(r"\((error|critical)\) ")
    finally:
        broker.stop()


def test_orders_wait_in_the_broker_for_the_store(site: Site) -> None:
    status, printed = site.send_or_receive("shop", "send", "orders")
    assert status == 0, printed
    status, printed = site.send_or_receive("store", "receive", "orders")
    assert status == 0, printed
    status, printed = site.send_or_receive("shop", "send", "archive.shop")
    assert status == 0, printed


@pytest.mark.parametrize(
    ("user", "only", "address"),
    [("shop", "receive", "orders"), ("store", "send", "orders"), ("shop", "send", "archive.store")],
)
def test_nobody_uses_a_queue_that_is_not_his(site: Site, user: str, only: str, address: str) -> None:
    status, printed = site.send_or_receive(user, only, address)
    assert status == 1, printed
    assert f"{address}: amqp:unauthorized-access: link disallowed by local policy" in printed
