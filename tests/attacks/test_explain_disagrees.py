"""Attack: a policy that passes `qdpolicy test`, and a daemon that decides something else.

`explain` and `test` judged an address only by its text, and reported addresses as allowed that the router denied.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon, start
from process_log import PATIENCE_S
from proton.utils import BlockingConnection, LinkDetached

from policy.cli.main import main

GROUPS = {
    "open": {"targets": "*", "denyTargets": "$management"},
    "orders": {"targets": "orders*, amqp:/free.*", "denyTargets": "_local/x"},
    "words": {"targetPattern": "orders/#, amqp:/free/#"},
    "secret": {"targets": "*", "denyTargets": "_topo/0/QDR/*, secret"},
}
ADDRESSES = [
    *("$management", "amqp:/$management", "/$management", "$management/", "$management.", "amqp://h/$management"),
    *("_local/$management", "_topo/0/QDR/$management", "_topo/all/QDR/$management", "_edge/QDR/$management"),
    *("_local/$_management_internal", "_topo/0/QDR/$_management_internal", "x:/$management", "/_local/$management"),
    *("orders.x:/forbidden", "orders/x:/orders/y:/$management", "orders/new", "amqp:/orders/new", "orders/", "orders"),
    *("amqp:/free.a", "free.a", "amqp:/free/a", "x:/free/a", "_local/x", "_topo/0/QDR/x", "_edge/QDR/x", "secret/"),
    *("amqp:/secret", "_topo/0/QDR", "_edge/QDR", "orders//", "/orders/x:/y"),
]


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "policy").mkdir()
    everybody = {"users": "*", "remoteHosts": "*"}
    vhosts = [["vhost", {"hostname": name, "groups": {"g": {**everybody, **group}}}] for name, group in GROUPS.items()]
    (tmp_path / "policy" / "rules.json").write_text(json.dumps(vhosts))
    policy = f"policy {{\n enableVhostPolicy: yes\n policyDir: {tmp_path / 'policy'}\n}}\n"
    made = start(tmp_path, f"router {{\n id: QDR\n}}\n{policy}{LISTENER}")
    yield made
    made.end()


def taken(router: Daemon, vhost: str) -> dict[str, bool]:
    """Which addresses the daemon lets a client send to."""
    url = f"127.0.0.1:{router.port()}"
    client = BlockingConnection(url, timeout=PATIENCE_S, virtual_host=vhost, allowed_mechs="ANONYMOUS")
    found = {}
    for address in ADDRESSES:
        try:
            client.create_sender(address).close()
            found[address] = True
        except LinkDetached:
            found[address] = False
    client.close()
    return found


@pytest.mark.parametrize("vhost", list(GROUPS))
def test_explain_and_test_say_what_the_daemon_does(
    router: Daemon, vhost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decided = taken(router, vhost)
    assert len(set(decided.values())) == 2
    policy = tmp_path / "qdrouterd.conf"
    said = {}
    for address in ADDRESSES:
        arguments = ["explain", str(policy), "--host", "127.0.0.1", "--vhost", vhost, "--user", "anonymous"]
        said[address] = main([*arguments, "--send", address]) == 0
    assert said == decided
    expected = [
        {"user": "anonymous", "host": "127.0.0.1", "vhost": vhost, "send": address, "is": "allow" if is_in else "deny"}
        for address, is_in in decided.items()
    ]
    (tmp_path / "expectations.json").write_text(json.dumps({"policy": "qdrouterd.conf", "expect": expected}))
    capsys.readouterr()
    assert main(["test", str(tmp_path / "expectations.json")]) == 0, capsys.readouterr().out


def test_lint_knows_every_name_of_management(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each alone lets whoever is not named reach the agent."""
    missed = []
    names = [address for address in ADDRESSES if "anagement" in address and "orders" not in address]
    for item in (*names, "amqp:/_topo/*", "/*", "amqp:/*", "amqp://h/*", "_topo/*", "_edge/*", "_local/*", "$*", "*"):
        group = {"users": "*", "remoteHosts": "127.0.0.1", "targets": item}
        file = tmp_path / "policy.json"
        file.write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))
        main(["lint", str(file)])
        if "PAL012" not in capsys.readouterr().out:
            missed.append(item)
    assert missed == []
    group = {"users": "*", "remoteHosts": "127.0.0.1", "targets": "*", "denyTargets": "/$management"}
    file.write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))
    main(["lint", str(file)])
    assert "PAL012" not in capsys.readouterr().out
