"""Attack: hundreds of sockets that send nothing took all file descriptors.

No other client could connect, the audit log could not begin its file, and changed policies could not be read.
"""

import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from daemon_process import Daemon, audit_events, eventually, start, write_users
from raw_peer import RawPeer

LIMIT = 256
SILENT = 400
CONFIGURATION = """
router {{
    id: besieged
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
    {settings}
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
    {policy}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""


def write_policy(folder: Path, sources: str) -> None:
    """In one step, as a deployment would."""
    group = {"users": "alice", "remoteHosts": "*", "sources": sources, "targets": "*", "allowDynamicSource": True}
    vhost = {"hostname": "$default", "groups": {"alices": group}}
    (folder / "policy").mkdir(exist_ok=True)
    (folder / "policy" / "new").write_text(json.dumps([["vhost", vhost]]))
    os.replace(folder / "policy" / "new", folder / "policy" / "policy.json")


@contextmanager
def few_descriptors(folder: Path, *, settings: str = "", policy: str = "") -> Iterator[Daemon]:
    """settings  of the router's section; policy  of the policy's"""
    sasl = write_users(folder, {"alice": "right"})
    write_policy(folder, "*")
    text = CONFIGURATION.format(sasl=sasl, folder=folder, settings=settings, policy=policy)
    preparation = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))  # noqa: E731
    router = start(folder, text, preparation=preparation)
    try:
        router.wait_for_log(r"Listening on \S+ \(plain\)")
        yield router
    finally:
        router.end()


def call(router: Daemon, host: str) -> socket.socket:
    """A connection from one of the addresses of this machine."""
    return socket.create_connection(("127.0.0.1", router.port()), 10, source_address=(host, 0))


def is_closed(connected: socket.socket) -> bool:
    """Has the router closed it by now?"""
    connected.setblocking(False)
    try:
        return connected.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def log_in(router: Daemon, host: str) -> RawPeer:
    peer = RawPeer(call(router, host), 0)
    peer.send(raw_peer.SASL + raw_peer.plain("alice", "right") + raw_peer.AMQP + raw_peer.open_frame())
    peer.read_until(raw_peer.OPEN)
    return peer


def events(router: Daemon, reason: str) -> list[dict[str, Any]]:
    return [event for event in audit_events(router.folder / "audit") if event["reason"] == reason]


def descriptors_of(router: Daemon) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{router.process.pid}/fd").iterdir()]


def silent_from(router: Daemon, stack: ExitStack, hosts: list[str], count: int) -> list[socket.socket]:
    """All of them, accepted or refused."""
    called = [stack.enter_context(call(router, hosts[number % len(hosts)])) for number in range(count)]
    # A port is read in order: who comes behind them, and is dealt with, comes when they are.
    with call(router, "127.0.0.99") as last:
        last.sendall(b"no AMQP")
        last.sendall(b" at all")
        assert b"AMQP" in last.recv(100)
    return called


@pytest.mark.parametrize("hosts", [1, 5, 40])
def test_who_says_nothing_keeps_nobody_out(hosts: int, tmp_path: Path) -> None:
    with few_descriptors(tmp_path) as router, ExitStack() as stack:
        silent_from(router, stack, [f"127.0.1.{number}" for number in range(1, hosts + 1)], SILENT)
        for _ in range(20):
            stack.enter_context(log_in(router, "127.0.0.2").socket)
        assert max(descriptors_of(router)) < LIMIT - 30
        assert eventually(lambda: events(router, "too_many_handshakes"))
        (first, *_) = events(router, "too_many_handshakes")
        assert (first["decision"], first["remote_host"][:8]) == ("deny", "127.0.1.")
        assert first["limit"] is not None


def test_who_says_nothing_does_not_use_up_the_connections_of_the_policy(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, policy="maxConnections: 60") as router, ExitStack() as stack:
        silent_from(router, stack, ["127.0.1.1"], 100)
        for _ in range(10):
            stack.enter_context(log_in(router, "127.0.0.2").socket)
        assert not events(router, "router_connection_limit")


def test_rules_and_records_go_on_meanwhile(tmp_path: Path) -> None:
    with few_descriptors(tmp_path) as router, ExitStack() as stack:
        silent_from(router, stack, ["127.0.1.1"], SILENT)
        write_policy(tmp_path, "orders")
        router.wait_for_log(r"Reload of policyDir: 0 vhosts created, 1 updated")
        since = router.mark()
        router.signal(signal.SIGHUP)
        router.wait_for_log("Reload on SIGHUP finished", since=since)
        assert not router.log(r"\(error\)|\(critical\)|[Tt]oo many open files")
        peer = stack.enter_context(log_in(router, "127.0.0.2").socket)
        assert not is_closed(peer)


def test_refusals_are_counted_and_not_told_one_by_one(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, settings="maxHandshakesPerHost: 10") as router, ExitStack() as stack:
        called = silent_from(router, stack, ["127.0.1.1"], 110)
        assert sum(is_closed(each) for each in called) == 100
        router.end()
        told = events(router, "too_many_handshakes")
        assert [event.get("attempts", 1) for event in told] == [1, 99]
        assert {(event["stage"], event["remote_host"]) for event in told} == {("accept", "127.0.1.1")}
        assert told[0]["limit"] == 10
        assert len(router.log(r"too_many_handshakes")) == 2


def test_who_is_in_is_not_counted_any_more(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, settings="maxHandshakesPerHost: 2") as router, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(log_in(router, "127.0.0.1").socket)
        assert not events(router, "too_many_handshakes")


def test_a_place_is_free_again_when_its_connection_is_gone(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, settings="maxHandshakesPerHost: 2") as router, ExitStack() as stack:
        for _ in range(2):
            called = silent_from(router, stack, ["127.0.1.1"], 3)
            assert [is_closed(each) for each in called] == [False, False, True]
            names = [each.getsockname() for each in called[:2]]
            since = router.mark()
            for each in called:
                each.close()
            for host, port in names:
                router.wait_for_log(f"Connection from {host}:{port} .*connection aborted", since=since)
            with log_in(router, "127.0.1.1").socket:
                pass


def test_all_together_have_a_limit_and_who_has_most_gives_way(tmp_path: Path) -> None:
    settings = "maxHandshakesPerHost: 10\n    maxHandshakes: 12"
    with few_descriptors(tmp_path, settings=settings) as router, ExitStack() as stack:
        many = silent_from(router, stack, ["127.0.1.1"], 10)
        few = [silent_from(router, stack, [f"127.0.2.{number}"], 1)[0] for number in range(1, 6)]
        assert [is_closed(each) for each in few] == [False] * 5
        assert eventually(lambda: sum(is_closed(each) for each in many) >= 3)
        assert is_closed(many[0])  # the oldest
        assert not is_closed(many[-1])
