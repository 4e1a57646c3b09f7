"""Attack: a second `targets` further down in a vhost silently replaces the one that was reviewed.

The daemon used the last one; `qdpolicy` refused the file. Now both refuse, and name the same place.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import ROOT, Started, audit_events, eventually, run_configuration

TWICE = """[
 ["vhost", {
  "hostname": "localhost",
  "groups": {
   "$default": {"users": "*", "remoteHosts": "*", "sources": "news",
                "targets": "orders",
                "targets": "*"}
  }
 }]
]
"""
ONCE = TWICE.replace('"targets": "orders",\n', "")
FOLDER = """
router {{
    id: twice
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
listener {{
    host: 127.0.0.1
    port: 0
    name: plain
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
GROUPS = """
vhost {
    hostname: localhost
    groups: {
        $default: {
            users: *
            remoteHosts: *
            targets: orders
            targets: *
        }
    }
}
"""
GROUPS_IN_JSON = """
vhost {
    hostname: localhost
    groups: {
        "$default": {
            "users": "*",
            "remoteHosts": "*",
            "targets": "orders", "targets": "*"
        }
    }
}
"""


def write(tmp_path: Path, policy: str) -> str:
    (tmp_path / "policy").mkdir(exist_ok=True)
    (tmp_path / "policy" / "orders.json").write_text(policy)
    return FOLDER.format(folder=tmp_path)


def qdpolicy(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).parent / "qdpolicy"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_neither_takes_such_a_file_of_policy_dir(tmp_path: Path) -> None:
    configuration = write(tmp_path, TWICE)
    file = tmp_path / "policy" / "orders.json"
    ran = run_configuration(tmp_path, configuration)
    assert ran.status == 1
    assert "key 'targets' stands here a second time" in ran.err
    assert f"(column 17) ({file}:7)" in ran.err
    linted = qdpolicy("lint", str(file))
    assert linted.returncode != 0
    assert f"{file}:7:17" in linted.stdout + linted.stderr
    assert "key 'targets' stands here a second time" in linted.stdout + linted.stderr


def test_such_a_file_changes_nothing_while_the_router_runs(tmp_path: Path, daemon: Started) -> None:
    router = daemon(write(tmp_path, ONCE))
    (tmp_path / "policy" / "orders.json").write_text(TWICE)
    router.wait_for_log(r"POLICY \(error\) Reload of policyDir failed, the rules in force stay: .*second time.*:7\)")
    (event,) = eventually(lambda: audit_events(tmp_path / "audit"))
    assert event["reason"] == "invalid_policy"


@pytest.mark.parametrize("groups", [GROUPS, GROUPS_IN_JSON], ids=["as .conf", "as JSON"])
def test_neither_takes_such_a_group_of_the_configuration(groups: str, tmp_path: Path) -> None:
    router = FOLDER.format(folder=tmp_path).replace(f"policyDir: {tmp_path}/policy", "")
    ran = run_configuration(tmp_path, router + groups)
    assert ran.status == 1
    assert "key 'targets' stands here a second time" in ran.err
    path = tmp_path / "qdrouterd.conf"
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if ('"*"' in text and "targets" in text)
                or text.strip() == "targets: *")  # fmt: skip
    assert f"({path}:{line})" in ran.err
    linted = qdpolicy("lint", str(path))
    assert linted.returncode != 0
    assert f"{path}:{line}:" in linted.stdout + linted.stderr


@pytest.mark.parametrize(
    "section",
    ['listener {\n name: x\n port: 0\n openProperties: {"a": {"b": 1, "b": 2}}\n}\n',
     'listener {\n name: x\n port: 0\n openProperties: {"a": [{"b": 1, "b": 2}]}\n}\n'],
)  # fmt: skip
def test_no_map_of_the_configuration_may_have_a_key_twice(section: str, tmp_path: Path) -> None:
    ran = run_configuration(tmp_path, section)
    assert ran.status == 1
    assert "key 'b' stands here a second time" in ran.err
    assert f"({tmp_path / 'qdrouterd.conf'}:4)" in ran.err


def test_a_configuration_in_json_may_not_either(tmp_path: Path) -> None:
    path = tmp_path / "qdrouterd.json"
    path.write_text('[["listener", {"name": "x", "port": "0",\n "authenticatePeer": true, "authenticatePeer": false}]]')
    ran = subprocess.run(
        [sys.executable, "-m", "router.io.daemon", "-c", str(path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "key 'authenticatePeer' stands here a second time" in ran.stderr
    path.write_text('[["listener", {"name": "x", "port": "0",\n "requireSsl": true, "require-ssl": false}]]')
    ran = subprocess.run(
        [sys.executable, "-m", "router.io.daemon", "-c", str(path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "in two spellings" in ran.stderr


def test_qdmanage_sends_no_such_map(tmp_path: Path, daemon: Started) -> None:
    router = daemon(FOLDER.format(folder=tmp_path).replace(f"policyDir: {tmp_path}/policy", "")
                    .replace("enableVhostPolicy: yes", ""))  # fmt: skip
    vhost = '{"type": "vhost", "hostname": "h", "groups": {"$default": {"users": "*", "users": "me"}}}'
    ran = router.tool("qdmanage", "CREATE", "--stdin", stdin=vhost)
    assert ran.status != 0
    assert "key 'users' stands twice in one map" in ran.err + ran.out
    assert '"h"' not in router.tool("qdmanage", "QUERY", "--type", "vhost").out
