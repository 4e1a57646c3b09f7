"""onPolicyChange: enforce in the daemon: reload and management end what the new rules deny. Issue 5."""

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, denials
from raw_peer import ATTACH, CLOSE, DETACH, IN_SESSION, OPEN, RawPeer, attach_sender, open_frame

pytestmark = pytest.mark.interop

VHOST = "org.apache.qpid.dispatch.vhost"
DONE = r"POLICY \(info\) Open connections decided again after policy_change: (\d+) connections closed, .* (\d+) links"


def rules(hostname: str, **settings: Any) -> dict[str, Any]:
    group = {"users": "*", "remoteHosts": "*", "allowDynamicSource": True, "targets": "$management, a, b"}
    return {"hostname": hostname, "groups": {"g": {**group, **settings}}}


class House:
    """A router whose rules are in one file of its policyDir."""

    def __init__(self, daemon: Callable[..., Daemon], folder: Path, mode: str) -> None:
        self.file, self.audit = folder / "policy" / "rules.json", folder / "audit"
        self.file.parent.mkdir()
        self.write(rules("$default"), rules("other"))
        watched = f"policyDirWatchSeconds: 1\n policyDir: {self.file.parent}"
        policy = f"policy {{\n enableVhostPolicy: yes\n {mode}\n {watched}\n}}\n"
        self.router = daemon(f"router {{\n auditDir: {self.audit}\n}}\n" + policy + LISTENER)

    def write(self, *vhosts: dict[str, Any]) -> None:
        self.file.write_text(json.dumps([["vhost", each] for each in vhosts]))

    def reload(self, *vhosts: dict[str, Any]) -> list[str]:
        """The lines a change of the file led to."""
        since = self.router.mark()
        self.write(*vhosts)
        self.router.signal(signal.SIGHUP)
        self.router.wait_for_log(r"Reload on SIGHUP finished", since)
        return self.router.log(since=since)

    @contextmanager
    def peer(self, address: str, hostname: str = "localhost") -> Iterator[RawPeer]:
        """A peer that sends to `address`."""
        with socket.create_connection(("127.0.0.1", self.router.port())) as connected:
            peer = RawPeer(connected, 0)
            peer.send(IN_SESSION.replace(open_frame(), open_frame(hostname)) + attach_sender(address))
            peer.read_until(ATTACH)
            yield peer

    def events(self) -> list[dict[str, Any]]:
        return denials(self.audit)


def test_enforced_rules_end_what_they_deny(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """A link after a reload, a connection after a change by management; who is permitted still does not notice."""
    house = House(daemon, tmp_path, "onPolicyChange: enforce")
    router = house.router
    with (
        router.client() as client,
        house.peer("a") as stays,
        house.peer("b") as detached,
        house.peer("a", "other") as gone,
    ):
        since = router.mark()
        house.reload(rules("$default", targets="$management, a"), rules("other"))
        assert router.wait_for_log(DONE, since).groups() == ("0", "1")
        error = detached.read_until(DETACH)[2]
        assert str(error.value[0]) == "amqp:unauthorized-access"
        since = router.mark()
        client.update({"groups": rules("other", remoteHosts="192.0.2.1")["groups"]}, type=VHOST, name="vhost/other")
        assert router.wait_for_log(DONE, since).groups() == ("1", "0")
        error = gone.read_until(CLOSE)[0]
        assert str(error.value[0]) == "amqp:resource-limit-exceeded"
        gone.seconds_until_closed(10.0)
        assert client.query("router").rows
        seen = [code for code, _ in stays.performatives()]
        assert OPEN in seen
        assert not {DETACH, CLOSE} & set(seen)
    router.end()
    assert [(each["stage"], each["reason"], each["redecision"]) for each in house.events()] == [
        ("attach", "target_not_allowed", "policy_change"),
        ("open", "host_not_allowed", "policy_change"),
    ]


def test_without_it_open_connections_keep_what_they_have(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """policy 26"""
    house = House(daemon, tmp_path, "")
    with house.peer("b") as peer:
        lines = house.reload(rules("$default", targets="$management"))
        assert any("Reload of policyDir: 0 vhosts created, 1 updated, 1 deleted" in line for line in lines)
        with house.router.client() as client:
            assert client.query("router").rows  # a connection later, nobody has been detached
        assert not any("decided again" in line for line in house.router.log())
        assert DETACH not in [code for code, _ in peer.performatives()]


def test_a_changed_file_is_noticed(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """policyDir is watched: no signal is needed, a broken file is told of once, and changes nothing"""
    house = House(daemon, tmp_path, "onPolicyChange: enforce")
    router = house.router
    with house.peer("a") as stays, house.peer("b") as detached:
        since = router.mark()
        house.file.write_text("[")
        router.wait_for_log(r"POLICY \(error\) Reload of policyDir failed, .*rules\.json:1\)", since)
        house.write(rules("$default", targets="$management, a"))
        router.wait_for_log(r"POLICY \(info\) Reload of policyDir: 0 vhosts created, 1 updated, 1 deleted", since)
        detached.read_until(DETACH)
        assert DETACH not in [code for code, _ in stays.performatives()]
        (house.file.parent / "more.json").write_text(json.dumps([["vhost", rules("more")]]))
        router.wait_for_log(r"POLICY \(info\) Reload of policyDir: 1 vhosts created, 0 updated, 0 deleted", since)
        assert len(router.log(r"Reload of policyDir failed", since)) == 1
    router.end()
    assert [each["reason"] for each in house.events()] == ["invalid_policy", "target_not_allowed"]


def test_a_reload_that_changes_no_rule_decides_nothing_again(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    house = House(daemon, tmp_path, "onPolicyChange: enforce")
    lines = house.reload(rules("other"), rules("$default"))
    assert any("Reload of policyDir: 0 vhosts created, 0 updated, 0 deleted" in line for line in lines)
    assert not any("decided again" in line for line in lines)


def test_connections_end_with_their_group(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """validUntil comes: the connection is closed, although onPolicyChange is keep"""
    house = House(daemon, tmp_path, "")
    with house.peer("a") as stays:
        until = datetime.fromtimestamp(time.time() + 2, UTC).isoformat()
        house.reload(rules("$default"), rules("other", validUntil=until))
        with house.peer("a", "other") as peer:
            error = peer.read_until(CLOSE)[0]
            assert str(error.value[0]) == "amqp:resource-limit-exceeded"
        house.router.wait_for_log(DONE.replace("policy_change", "expiry"))
        with house.router.client() as client:
            assert client.query("router").rows
        assert CLOSE not in [code for code, _ in stays.performatives()]
    house.router.end()
    assert [(each["reason"], each["redecision"]) for each in house.events()] == [("group_not_valid", "expiry")]


def test_open_connections_follow_a_rate_that_is_set_and_lifted(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    house = House(daemon, tmp_path, "onPolicyChange: enforce")
    with house.peer("a", "other") as peer, house.router.client() as client:

        def counts() -> list[int]:
            """How often each of the two connections was held back: the management client's own never is."""
            return sorted(row[0] for row in client.query("connection", ["heldBackCount"]).rows)

        assert counts() == [0, 0]
        for rate, held_back in ((0, [0, 1]), (None, [0, 1]), (0, [0, 2])):
            since = house.router.mark()
            house.reload(rules("$default"), rules("other", **({} if rate is None else {"maxMessageRate": rate})))
            assert house.router.wait_for_log(DONE, since).groups() == ("0", "0")
            assert counts() == held_back
        assert not {DETACH, CLOSE} & {code for code, _ in peer.performatives()}
    house.router.end()
    assert house.events() == []
