"""`qdmanage export`: what management has changed was lost at the next start, unless somebody wrote it into the file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import LISTENER, ROOT, Daemon

from policy.files.conf import conf_sections
from router.io.daemon import main as qdrouterd

pytestmark = pytest.mark.interop

CONFIGURATION = """
router {
    id: X
    workerThreads: 3
    metadata: with \\u0023 and { in it
}
log {
    module: AGENT
    enable: debug+
}
connector {
    name: broker
    host: 127.0.0.1
    port: 1
    role: route-container
    saslPassword: literal:hush
    openProperties: {"a": {"b": [1, true]}}
}
address {
    pattern: a/*/#
    distribution: multicast
}
linkRoute {
    prefix: q
    direction: in
    connection: broker
}
exchange {
    name: e
    address: e
}
binding {
    exchangeName: e
    bindingKey: a.#
    nextHopAddress: r
}
policy {
    policyDir: policies
}
vhost {
    hostname: v
    allowUnknownUser: yes
    groups: {
        "$default": {"remoteHosts": "*", "sources": "*"},
        "b": {"users": "a, c", "remoteHosts": "*", "sourcePattern": "x.#"}
    }
}
"""


def exported(router: Daemon) -> str:
    ran = router.tool("qdmanage", "export")
    assert (ran.status, ran.err) == (0, "")
    return ran.out


def test_the_same_router_starts_from_it(
    daemon: Callable[..., Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "p.json").write_text('[["vhost", {"hostname": "w", "groups": {}}]]')
    first = daemon(CONFIGURATION.replace("policyDir: policies", f"policyDir: {policies}") + LISTENER)
    created = first.tool("qdmanage", "create", "--type", "address", "prefix=new#one", "distribution=closest")
    assert created.status == 0, created.out
    banned = first.tool("qdmanage", "create", "--type", "ban", "user=eve", "reason=no # comment")
    assert banned.status == 0, banned.out
    text = exported(first)
    assert "hush" not in text
    assert "# 'saslPassword' of the next section is secret" in text
    assert f"# policyDir: {policies}: its vhosts stand below instead" in text
    (path := tmp_path / "exported.conf").write_text(text)
    assert qdrouterd(["qdrouterd", "--check", str(path)]) == 0, capsys.readouterr().err
    sections = [(each.type, each.attributes) for each in conf_sections(text, "x.conf")]
    assert {each["hostname"] for kind, each in sections if kind == "vhost"} == {"v", "w"}
    assert [each["prefix"] for kind, each in sections if kind == "address" and "prefix" in each] == ["new#one"]
    assert [each["reason"] for kind, each in sections if kind == "ban"] == ["no # comment"]
    first.end()
    again = exported(daemon(text))
    without_notes = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in again.splitlines() if not line.startswith("#")] == without_notes


@pytest.mark.parametrize("name", ["old-clients", "old-standalone"])
def test_old_configurations_survive_it(
    name: str, daemon: Callable[..., Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "tests" / "management" / "configs" / f"{name}.conf").read_text()
    path = tmp_path / "exported.conf"
    path.write_text(exported(daemon(text + LISTENER)))
    assert qdrouterd(["qdrouterd", "--check", str(path)]) == 0, capsys.readouterr().err
