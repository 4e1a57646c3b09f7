"""Listeners of a real router: their Open, their limits, their life (docs/spec/routing.md §1.1 to §1.11)."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, RunningRouter, die_with_parent, eventually, router_command
from open_house import OPEN_HOUSE, port_of
from raw_peer import (
    AMQP,
    ATTACH,
    BEGIN,
    CLOSE,
    IN_SESSION,
    OPEN,
    RawPeer,
    attach_receiver,
    attach_sender,
    flow,
    frame,
    open_frame,
    raw_peer,
    transfer,
)

from router.control.server import service_port
from router.management.client import BadRequestStatus, ForbiddenStatus, ManagementClient, ManagementError
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect
from router.values import Array, Described, symbol, ulong

EXPECTED_ERRORS = [
    r"AGENT \(error\) Error performing (CREATE|UPDATE)",
    r"Listener error on",
    r"Timeout waiting for initial handshake",
]
MESSAGE = b"\x00\x53\x75\xa0\x05hello"
# A vhost whose members may not drop connections.
NO_ADMINISTRATORS = """
vhost {
    hostname: modest
    groups: {
        everybody: {
            users: anonymous
            remoteHosts: *
            sources: *
            targets: *
            allowDynamicSource: true
            allowAdminStatusUpdate: false
        }
    }
}
"""
EXTRA_CONFIGURATION = OPEN_HOUSE + NO_ADMINISTRATORS


@contextmanager
def listener(router: RunningRouter, client: ManagementClient, name: str, **attributes: Any) -> Iterator[int]:
    """A listener on a port of the system's choice, its name known to `raw_peer`, until the end of the body."""
    since = router.mark()
    given = {"host": "127.0.0.1", "port": "0", "policyVhost": "open-house", **attributes}
    client.create(given, type="listener", name=name)
    try:
        yield port_of(router, name, since=since)
    finally:
        router.ports.pop(name, None)
        if client.query("listener", ["name"]).rows.count((name,)):
            client.delete(type="listener", name=name)


def greeted(router: RunningRouter, name: str) -> list[Any]:
    """The fields of the router's Open to a peer that skips SASL."""
    with raw_peer(router, name) as peer:
        peer.send(AMQP + open_frame())
        return peer.read_until(OPEN)


# The Open


def test_the_open_answers_the_peers(router: RunningRouter, client: ManagementClient) -> None:
    """routing 1, 2, 3, 4, 5, 6, 7, 8, 11, 20"""
    with raw_peer(router, "free") as peer:
        peer.send(AMQP)
        peer.socket.settimeout(0.3)
        assert peer.socket.recv(65536) == AMQP
        with pytest.raises(TimeoutError):
            peer.socket.recv(65536)  # nothing more: who comes has to say first who they are
        peer.send(open_frame())
        fields = peer.read_until(OPEN)
        container, hostname, frame_bytes, channels, idle_ms, _, _, offered, desired, properties = fields
        assert (container, hostname) == ("interop", None)
        assert (frame_bytes, channels, idle_ms) == (16384, 32767, 8000)
        assert offered == desired == Array(symbol, (symbol("ANONYMOUS-RELAY"), symbol("qd.streaming-links")))
        assert list(properties) == ["product", "version", "qd.conn-id"]
        assert all(isinstance(key, symbol) for key in properties)
        number = properties["qd.conn-id"]
        row = client.read(type="connection", identity=str(number))
        assert (row["host"], row["container"], row["dir"], row["operStatus"]) == (peer.name, "raw", "in", "up")
        text = "vhost= encrypted=no auth=no user=anonymous container_id=raw props={}"
        router.wait_for_log(
            rf"ROUTER_CORE \(info\) \[C{number}\] Connection Opened: dir=in host={peer.name} {text}", since=peer.since
        )


def test_configured_limits_cost_and_properties(router: RunningRouter, client: ManagementClient) -> None:
    """routing 6, 7, 8, 11, 12: types are kept, the router's own entries come first."""
    given = {"text": "a", "number": 7, "big": 2**40, "real": 1.5, "truth": True, "none": None, "list": [1, "x"],
             "map": {"deep": {"er": 1}}}  # fmt: skip
    attributes = {"maxFrameSize": 300, "maxSessions": 10, "idleTimeoutSeconds": 0, "cost": 5, "openProperties": given}
    with listener(router, client, "custom", **attributes):
        fields = greeted(router, "custom")
        assert (fields[2], fields[3], fields[4]) == (512, 9, None)
        properties = fields[9]
        assert list(properties) == ["product", "version", "qd.conn-id", "qd.inter-router-cost", *given]
        assert properties["qd.inter-router-cost"] == 5
        assert {key: properties[key] for key in given} == given
        assert properties["truth"] is True
        assert isinstance(properties["real"], float)


@pytest.mark.parametrize(("frames", "window"), [(0, 512), (10, 10)])
def test_the_incoming_window(router: RunningRouter, client: ManagementClient, frames: int, window: int) -> None:
    """routing 10"""
    with listener(router, client, "window", maxSessionFrames=frames), raw_peer(router, "window") as peer:
        peer.send(IN_SESSION)
        assert peer.read_until(BEGIN)[2] == window


RESERVED = ("product", "version", "failover-server-list", "network-host", "port", "scheme", "hostname", "qd.x",
            "x-opt-qd.x")  # fmt: skip


@pytest.mark.parametrize("entity", ["listener", "connector"])
@pytest.mark.parametrize("key", RESERVED)
def test_reserved_open_properties_are_refused(client: ManagementClient, entity: str, key: str) -> None:
    """routing 13"""
    given = {"host": "127.0.0.1", "port": "0", "openProperties": {key: "x"}}
    with pytest.raises(BadRequestStatus, match=f"Reserved key '{key}' not allowed in openProperties"):
        client.create(given, type=entity, name="refused")


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_open_properties_are_not_for_routers(client: ManagementClient, role: str) -> None:
    """routing 14, 26: whichever of the two is found first."""
    given = {"host": "127.0.0.1", "port": "0", "role": role, "openProperties": {"a": "x"}}
    with pytest.raises(BadRequestStatus, match=f"not allowed for role {role}|role='standalone' not allowed"):
        client.create(given, type="listener", name="refused")


@pytest.mark.parametrize("entity", ["listener", "connector"])
@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_a_standalone_router_speaks_to_no_routers(client: ManagementClient, entity: str, role: str) -> None:
    """routing 26"""
    text = "role='standalone' not allowed to connect to or accept connections from other routers."
    with pytest.raises(BadRequestStatus, match=text):
        client.create({"host": "127.0.0.1", "port": "0", "role": role}, type=entity, name="refused")


def test_failover_servers_are_advertised(router: RunningRouter, client: ManagementClient) -> None:
    """routing 15"""
    with listener(router, client, "failover", failoverUrls="a:1, amqps://b"):
        maps = greeted(router, "failover")[9]["failover-server-list"]
        assert maps == [{"network-host": "a", "port": "1"}, {"network-host": "b", "port": "5672", "scheme": "amqps"}]
        assert all(isinstance(key, symbol) for entry in maps for key in entry)
        assert all(type(value) is str for entry in maps for value in entry.values())


def test_any_open_properties_can_be_shown(router: RunningRouter, client: ManagementClient) -> None:
    """routing 5, management 70. Attack: properties of a peer that break the management answer everybody else gets."""
    nasty = {
        symbol("symbol"): symbol("s"),
        "string": "text",
        symbol("zero"): 0,
        symbol("number"): 7,
        symbol("real"): 1.5,
        symbol("described"): Described(symbol("d"), [1]),
        symbol("map"): {symbol("k"): [1, Described(ulong(1), "x")]},
        ulong(5): "number as key",
        symbol("bytes"): b"\xff\x00",
        symbol("control"): "\x1b[2J\nforged",
    }
    with raw_peer(router, "free") as peer:
        peer.send(AMQP + frame(OPEN, "nasty", "localhost", *[None] * 7, nasty))
        number = peer.read_until(OPEN)[9]["qd.conn-id"]
        shown = client.read(type="connection", identity=str(number))["properties"]
        assert (shown["symbol"], shown["string"], shown["number"]) == ("s", "text", 7)
        assert client.query("connection").rows
        assert not router.has_logged("^forged")


# Time


def test_a_silent_peer_is_closed(router: RunningRouter, client: ManagementClient) -> None:
    """routing 9: by the same clock as after 16 s."""
    with listener(router, client, "impatient", idleTimeoutSeconds=2), raw_peer(router, "impatient") as peer:
        peer.send(AMQP + open_frame())
        assert peer.read_until(OPEN)[4] == 1000
        took_s = peer.seconds_until_closed(12)
        assert 1.5 < took_s < 6
        (condition,) = peer.read_until(CLOSE)
        assert condition.value[:2] == ["amqp:resource-limit-exceeded", "local-idle-timeout expired"]


def test_a_peer_that_says_nothing_is_cut(router: RunningRouter, client: ManagementClient) -> None:
    """routing 27"""
    attributes = {"initialHandshakeTimeoutSeconds": 1}
    with listener(router, client, "hurried", **attributes), raw_peer(router, "hurried") as peer:
        assert 0.9 < peer.seconds_until_closed(8) < 4
        router.wait_for_log(r"ERROR \(error\) Run Time: Timeout waiting for initial handshake", since=peer.since)
        router.wait_for_log(rf"from {peer.name} .* failed: amqp:not-allowed Timeout waiting", since=peer.since)


def test_last_delivery(router: RunningRouter, client: ManagementClient) -> None:
    """routing 28, management 71: null before the first delivery, then it counts."""
    with raw_peer(router, "free") as peer, raw_peer(router, "free") as other:
        other.send(IN_SESSION + attach_receiver("last.delivery") + flow(credit=10))
        peer.send(IN_SESSION + attach_sender("last.delivery"))
        number = str(peer.read_until(OPEN)[9]["qd.conn-id"])
        peer.read_until(ATTACH)
        assert client.read(type="connection", identity=number).get("lastDlvSeconds") is None
        peer.send(transfer(MESSAGE))

        def seen() -> bool:
            return client.read(type="connection", identity=number).get("lastDlvSeconds") is not None

        assert eventually(seen, 5.0)
        assert client.read(type="connection", identity=number)["lastDlvSeconds"] <= 3


# Ports


def test_port_0_logs_the_real_port_and_the_name(router: RunningRouter, client: ManagementClient) -> None:
    """routing 21"""
    since = router.mark()
    with listener(router, client, "ephemeral") as port:
        router.wait_for_log(rf"SERVER \(notice\) Listening on 127\.0\.0\.1:{port} \(ephemeral\)", since=since)
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_a_listener_made_later_on_a_busy_port_only_logs(router: RunningRouter, client: ManagementClient) -> None:
    """routing 22"""
    since = router.mark()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        client.create({"host": "127.0.0.1", "port": str(port)}, type="listener", name="late")
        router.wait_for_log(
            rf"SERVER \(error\) Listener error on 127\.0\.0\.1:{port}: .*in use.* \(proton:io\)", since=since
        )
        assert client.read(type="listener", name="late")["port"] == str(port)
        client.delete(type="listener", name="late")


@pytest.mark.parametrize("port", ["no-such-service", "99999", "-1"])
def test_a_port_that_cannot_be_only_logs(router: RunningRouter, client: ManagementClient, port: str) -> None:
    """routing 22: refused at once, or logged as an error; the router serves on."""
    since = router.mark()
    try:
        client.create({"host": "127.0.0.1", "port": port}, type="listener", name="odd")
    except ManagementError:
        return
    router.wait_for_log(rf"SERVER \(error\) Listener error on 127\.0\.0\.1:{port}", since=since, timeout_s=5)
    client.delete(type="listener", name="odd")


def test_a_required_listener_that_fails_ends_the_router(tmp_path: Path, router_python: Path) -> None:
    """routing 22"""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        number = busy.getsockname()[1]
        configuration = tmp_path / "qdrouterd.conf"
        configuration.write_text(f"router {{\n id: busy\n}}\nlistener {{\n host: 127.0.0.1\n port: {number}\n}}\n")
        ended = subprocess.run(
            [*router_command(router_python), "-c", str(configuration)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            preexec_fn=die_with_parent,
        )
    assert ended.returncode == 1, ended.stderr
    assert f"Listener error on 127.0.0.1:{number}" in ended.stderr
    assert f"SERVER (critical) Shutting down, required listener failed 127.0.0.1:{number}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_deleting_a_listener_leaves_its_connections(router: RunningRouter, client: ManagementClient) -> None:
    """routing 23"""
    with listener(router, client, "short-lived") as port, raw_peer(router, "short-lived") as peer:
        peer.send(IN_SESSION + attach_receiver("still.there") + flow(credit=10))
        peer.read_until(ATTACH)
        client.delete(type="listener", name="short-lived")
        assert eventually(lambda: not is_listening(port), 5.0)
        with raw_peer(router, "free") as other:
            other.send(IN_SESSION + attach_sender("still.there"))
            other.read_until(ATTACH)
            other.send(transfer(MESSAGE))
            peer.read_until(0x14)


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def test_adminstatus_deleted_drops_without_a_close(router: RunningRouter, client: ManagementClient) -> None:
    """routing 25, management 60"""
    with raw_peer(router, "free") as peer:
        peer.send(AMQP + open_frame())
        number = str(peer.read_until(OPEN)[9]["qd.conn-id"])
        client.update({"adminStatus": "deleted"}, type="connection", identity=number)
        peer.seconds_until_closed(5)
        assert CLOSE not in [code for code, _ in peer.performatives()]
        router.wait_for_log(
            rf"ROUTER_CORE \(info\) \[C{number}\] Connection force-closed by request from connection \[C\d+\]",
            since=peer.since,
        )


def test_who_may_not_drop_connections_does_not(router: RunningRouter, client: ManagementClient) -> None:
    """policy 43"""
    with (
        listener(router, client, "modest", policyVhost="modest", authenticatePeer=False) as port,
        raw_peer(router, "free") as peer,
    ):
        peer.send(AMQP + open_frame())
        number = str(peer.read_until(OPEN)[9]["qd.conn-id"])
        with connect(ConnectionOptions(host="127.0.0.1", port=port)) as modest, pytest.raises(ForbiddenStatus):
            modest.update({"adminStatus": "deleted"}, type="connection", identity=number)
        assert client.read(type="connection", identity=number)["adminStatus"] == "enabled"


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("family", [None, "IPv6"])
def test_an_ipv6_listener(router: RunningRouter, client: ManagementClient, family: str | None) -> None:
    """routing 21: its peers are called as they are."""
    since = router.mark()
    more = {} if family is None else {"socketAddressFamily": family}
    with listener(router, client, "six", host="::1", **more) as port:
        router.wait_for_log(rf"Configured Listener: ::1:0 proto={family or 'any'}, role=normal", since=since)
        with socket.create_connection(("::1", port), 5) as connected:
            peer = RawPeer(connected, since)
            peer.send(AMQP + open_frame())
            number = str(peer.read_until(OPEN)[9]["qd.conn-id"])
            assert client.read(type="connection", identity=number)["host"] == f"::1:{connected.getsockname()[1]}"


def test_a_family_restricts_a_name_to_it(router: RunningRouter, client: ManagementClient) -> None:
    """routing §1.1 recommends to honour it"""
    with listener(router, client, "four", host="localhost", socketAddressFamily="IPv4") as port:
        assert is_listening(port)
        if has_ipv6():
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("::1", port), 5)


def test_service_names_are_ports() -> None:
    """routing 21, routing §1.1: the two of AMQP also where /etc/services does not know them."""
    assert (service_port("amqp"), service_port("amqps"), service_port("0")) == (5672, 5671, 0)
    with pytest.raises(OSError, match="not found"):
        service_port("no-such-service")
    for wrong in ("65536", "99999", "9" * 5000):
        with pytest.raises(OSError, match="the greatest is 65535"):
            service_port(wrong)


def test_the_session_of_a_peer_ends_in_kind(router: RunningRouter) -> None:
    """routing 1: Begin is answered with Begin, Close with Close."""
    with raw_peer(router, "free") as peer:
        peer.send(IN_SESSION)
        peer.read_until(BEGIN)
        peer.send(frame(CLOSE))
        assert peer.read_until(CLOSE) in ([], [None])
        peer.seconds_until_closed(5)


# Addresses


@pytest.mark.parametrize("form", ["amqp:/same.a", "amqp://h:1/same.a", "/same.a", "same.a", "same.a/", "same.a."])
def test_forms_of_one_address(router: RunningRouter, client: ManagementClient, form: str) -> None:
    """routing 36: over the wire, one address object `M0same.a`."""
    with raw_peer(router, "free") as peer, raw_peer(router, "free") as other:
        other.send(IN_SESSION + attach_receiver("same.a") + flow(credit=10))
        other.read_until(ATTACH)
        peer.send(IN_SESSION + attach_sender(form))
        peer.read_until(ATTACH)
        names = [row[0] for row in client.query("router.address", ["name"]).rows]
        assert [name for name in names if "same" in name] == ["M0same.a"]
        peer.send(transfer(MESSAGE))
        other.read_until(0x14)


def test_address_configurations_conflict_by_meaning(client: ManagementClient) -> None:
    """routing 41, 43, 44"""
    client.create({"pattern": "clash.b", "distribution": "closest"}, type="address", name="first")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"pattern": "clash/b"}, "Already exists"),
        ({"pattern": "a", "prefix": "b"}, "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        ({}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        ({"pattern": "p", "ingressPhase": 10, "egressPhase": 1}, "Phase values must be between 0 and 9"),
        ({"pattern": "p", "priority": 10}, "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"),
    ]
    try:
        for attributes, text in refused:
            with pytest.raises(BadRequestStatus, match=text):
                client.create(attributes, type="address", name="second")
    finally:
        client.delete(type="address", name="first")


def test_existing_addresses_keep_their_treatment(router: RunningRouter, client: ManagementClient) -> None:
    """routing 45"""

    def distribution() -> Any:
        rows = client.query("router.address", ["name", "distribution"]).rows
        return dict(rows).get("M0kept.a")

    with raw_peer(router, "free") as peer:
        peer.send(IN_SESSION + attach_receiver("kept.a"))
        peer.read_until(ATTACH)
        assert distribution() == "balanced"
        client.create({"prefix": "kept", "distribution": "multicast"}, type="address", name="late")
        assert distribution() == "balanced"
    assert eventually(lambda: distribution() is None, 5.0)
    with raw_peer(router, "free") as peer:
        peer.send(IN_SESSION + attach_receiver("kept.a"))
        peer.read_until(ATTACH)
        assert distribution() == "multicast"
    client.delete(type="address", name="late")
