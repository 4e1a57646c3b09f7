"""The configuration that a bare `qdrouterd` uses: standalone, for this host, with a policy. Issue 12.19."""

from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import ROOT, Daemon
from proton.utils import BlockingConnection, LinkDetached

from policy.files.validation import load_sections
from policy.lint.findings import Level
from policy.lint.rules import check_all
from router.io import daemon as daemon_main
from router.io.options import DEFAULT_CONFIG, parse
from router.management.client import ForbiddenStatus, ManagementClient, ManagementError

DEFAULT = ROOT / "policies" / "default" / "qdrouterd.conf"
PREFIX = "org.apache.qpid.dispatch."
LISTENS = "0A"  # the state in /proc/net/tcp


def test_a_bare_command_uses_the_default_file_and_else_the_one_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DEFAULT_CONFIG == "/etc/qpid-dispatch/qdrouterd.conf"
    assert parse(["qdrouterd"]).config is None
    there = tmp_path / "etc" / "qdrouterd.conf"
    monkeypatch.setattr(daemon_main, "DEFAULT_CONFIG", str(there))
    assert daemon_main.default_config() == str(DEFAULT)
    there.parent.mkdir()
    assert daemon_main.default_config() == str(DEFAULT)
    there.symlink_to("nothing")  # a mistake to be told, not to be passed over
    assert daemon_main.default_config() == str(there)


def test_lint_finds_nothing_in_the_default_configuration() -> None:
    text = DEFAULT.read_text("utf-8")
    found = check_all(load_sections(text, str(DEFAULT)), texts={str(DEFAULT): text}, ignored=("PAL055",), now=0.0)
    assert [finding for finding in found if finding.level is not Level.NOTE] == []


@pytest.fixture
def router(daemon: Callable[..., Daemon]) -> Daemon:
    text = DEFAULT.read_text("utf-8").replace("port: 5672", "port: 0").replace("name: local", "name: plain")
    return daemon(text)


@pytest.mark.interop
def test_the_default_configuration_serves_this_host_alone(router: Daemon) -> None:
    port = router.port()
    tables = [Path("/proc/net/tcp").read_text(), *(path.read_text() for path in Path("/proc/net").glob("tcp6"))]
    local = [row.split()[1] for table in tables for row in table.splitlines()[1:] if row.split()[3] == LISTENS]
    assert [each for each in local if each.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    assert router.log(r"access rules enabled: 'true'")
    assert not router.log(r"\((warning|error|critical)\) ")


@pytest.mark.interop
def test_with_the_default_configuration_one_looks_and_changes_nothing(router: Daemon) -> None:
    with router.client() as client:
        assert client.query(f"{PREFIX}listener", ["name"]).rows == (("plain",),)
        changes: tuple[Callable[[ManagementClient], object], ...] = (
            lambda c: c.create({"host": "0.0.0.0", "port": "0"}, type="listener", name="open"),
            lambda c: c.create({"user": "x"}, type="ban", name="b"),
            lambda c: c.update({"enable": "trace+"}, type="log", name="log/DEFAULT"),
            lambda c: c.delete(type="vhost", name="vhost/$default"),
            lambda c: c.create({"certFile": "/etc/passwd"}, type="sslProfile", name="p"),
        )
        for change in changes:
            with pytest.raises(ManagementError) as caught:
                change(client)
            assert isinstance(caught.value, ForbiddenStatus)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [("closest", True), ("multicast/a", True), ("broadcast.a.b", True), ("closest2", False), ("secret", False),
     ("_local/$management", False), ("closest/:/secret", False)],
)  # fmt: skip
def test_the_default_policy_allows_its_addresses_and_no_others(router: Daemon, address: str, is_allowed: bool) -> None:
    connection = BlockingConnection(f"127.0.0.1:{router.port()}", timeout=10, allowed_mechs="ANONYMOUS")
    try:
        connection.create_receiver(address)
        is_attached = True
    except LinkDetached:
        is_attached = False
    finally:
        connection.close()
    assert is_attached is is_allowed
