"""Entities of a running router that come, change and go. Management §8; items 53, 60-63, 70-71."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, eventually, start, write_users
from free_ports import free_port
from management_peer import CONNECTION, CONNECTOR, LISTENER_TYPE, PREFIX, VHOST
from process_log import PATIENCE_S

from router.management.client import (
    BadRequestStatus,
    ConnectionException,
    ForbiddenStatus,
    LinkDetached,
    ManagementClient,
    ManagementError,
    NotFoundStatus,
)
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

pytestmark = pytest.mark.interop


def test_a_connection_shows_who_is_on_it(router: Daemon) -> None:
    """Management 60, 70, 71."""
    with router.client() as client:
        client.query("router")
        (row,) = client.query(CONNECTION).entities()
        assert row["identity"].isdecimal()
        assert (row["role"], row["dir"], row["isAuthenticated"], row["isEncrypted"]) == ("normal", "in", False, False)
        assert row["name"] == f"connection/{row['host']}"
        assert (row["adminStatus"], row["operStatus"], row["opened"], row["active"]) == ("enabled", "up", True, True)
        assert row["container"].startswith("palisade-tools-")
        assert row["properties"] == {}
        assert row["uptimeSeconds"] >= 0

        def later() -> bool:
            (now,) = client.query(CONNECTION).entities()
            return now["uptimeSeconds"] > 0 and now["lastDlvSeconds"] is not None

        assert eventually(later)


def test_a_connection_is_closed_by_update(router: Daemon) -> None:
    """Management 60."""
    with router.client() as client, router.client() as victim:
        ids = {row[0] for row in victim.query(CONNECTION, ["identity"]).rows}
        own = str(max(map(int, ids)))
        with pytest.raises(ForbiddenStatus):
            client.delete(type=CONNECTION, identity=own)
        for identity in ("99999", "none"):
            with pytest.raises(BadRequestStatus):
                client.update({"adminStatus": "deleted"}, type=CONNECTION, identity=identity)
        with pytest.raises(BadRequestStatus):
            client.update({"adminStatus": "sleepy"}, type=CONNECTION, identity=own)
        assert client.update({"adminStatus": "enabled"}, type=CONNECTION, identity=own)["adminStatus"] == "enabled"
        assert client.update({"adminStatus": "deleted"}, type=CONNECTION, identity=own)["identity"] == own
        with pytest.raises((ConnectionException, LinkDetached)):
            victim.query("router")
        assert own not in {row[0] for row in client.query(CONNECTION, ["identity"]).rows}
        text = rf"ROUTER_CORE \(info\) \[C{own}\] Connection force-closed by request from connection \[C\d+\]"
        assert router.log(text)


def test_who_may_not_update_connections_is_told(daemon: Callable[..., Daemon]) -> None:
    """Management 60: allowAdminStatusUpdate."""
    group = "remoteHosts: *\n allowDynamicSource: true\n targets: $management\n allowAdminStatusUpdate: false\n"
    guarded = daemon(
        "policy {\n enableVhostPolicy: yes\n}\n"
        f"vhost {{\n hostname: $default\n allowUnknownUser: yes\n groups: {{\n $default: {{\n {group} }}\n }}\n}}\n"
        + LISTENER
    )
    with guarded.client() as client:
        own = client.query(CONNECTION, ["identity"]).rows[0][0]
        with pytest.raises(ForbiddenStatus, match=r"^You are not allowed to perform this operation.$"):
            client.update({"adminStatus": "deleted"}, type=CONNECTION, identity=own)
        client.query("router")


def test_a_listener_comes_and_goes(router: Daemon) -> None:
    """Management 53, 92, 49, 50."""
    port = free_port()
    with router.client() as client:
        made = client.create({"host": "127.0.0.1", "port": str(port)}, type=LISTENER_TYPE, name="extra")
        assert (made["identity"], made["role"], made["maxFrameSize"]) == (
            f"listener/127.0.0.1:{port}:extra",
            "normal",
            16384,
        )
        router.wait_for_log(rf"Listening on 127\.0\.0\.1:{port}")
        options = ConnectionOptions(host="127.0.0.1", port=port, timeout_s=PATIENCE_S)
        with ManagementClient(SocketTransport(options)) as through:
            assert through.read(type=LISTENER_TYPE, identity=made["identity"])["port"] == str(port)
            with pytest.raises(ManagementError) as refused:
                client.update({"port": "1"}, type=LISTENER_TYPE, name="extra")
            assert refused.value.status == 501
            client.delete(type=LISTENER_TYPE, name="extra")
            assert through.query("router").rows  # who is in stays in
            with pytest.raises(ConnectionException):
                SocketTransport(options)
        with pytest.raises(NotFoundStatus, match=r"^No entity with name=extra$"):
            client.delete(type=LISTENER_TYPE, name="extra")


def test_a_listener_whose_port_is_taken_stays_an_entity(router: Daemon) -> None:
    """Management §1.5: 201, and an error in the log."""
    with router.client() as client:
        taken = {"host": "127.0.0.1", "port": str(router.port())}
        client.create(taken, type=LISTENER_TYPE, name="second")
        router.wait_for_log(rf"SERVER \(error\) Listener error on 127\.0\.0\.1:{router.port()}: ")
        assert client.read(type=LISTENER_TYPE, name="second")["listening"] is False
        assert client.read(type=LISTENER_TYPE, name="plain")["listening"] is True
        assert "listening" in client.query(LISTENER_TYPE).attribute_names
        client.delete(type=LISTENER_TYPE, name="second")
        assert client.query(LISTENER_TYPE, ["name", "listening"]).rows == (("plain", True),)


def test_a_connector_tells_how_it_is_doing(router: Daemon, daemon: Callable[..., Daemon]) -> None:
    """Management 63, 91."""
    other = daemon("router {\n id: other\n}\n" + LISTENER)
    with router.client() as client:
        made = client.create({"host": "127.0.0.1", "port": str(other.port())}, type=CONNECTOR, name="out")
        assert made["role"] == "normal"

        def status() -> str:
            return str(client.read(type=CONNECTOR, name="out")["connectionStatus"])

        assert eventually(lambda: status() == "SUCCESS")
        message = client.read(type=CONNECTOR, name="out")["connectionMsg"]
        assert "Connection Opened: dir=out" in message
        assert "container_id=other" in message
        assert client.read(type=CONNECTOR, name="out")["failoverUrls"] == f"amqp://127.0.0.1:{other.port()}"
        with pytest.raises(BadRequestStatus, match="duplicates unique attribute 'name'"):
            client.create({"host": "127.0.0.1", "port": "1"}, type=CONNECTOR, name="out")
        other.end()
        assert eventually(lambda: status() == "CONNECTING")
        assert eventually(lambda: "failed" in client.read(type=CONNECTOR, name="out")["connectionMsg"])
        client.delete(type=CONNECTOR, name="out")
        with pytest.raises(NotFoundStatus):
            status()


def test_sasl_plugins_are_entities(router: Daemon) -> None:
    """Management §8.3."""
    plugin = f"{PREFIX}authServicePlugin"
    with router.client() as client:
        with pytest.raises(ManagementError, match="Cannot find sasl plugin"):
            client.create({"port": "0", "saslPlugin": "p"}, type=LISTENER_TYPE, name="x")
        made = client.create({"authService": "127.0.0.1:5671"}, type=plugin, name="p")
        assert (made["identity"], made["port"]) == ("authServicePlugin/p", "amqp")
        assert router.log("CONN_MGR .info. Created SASL plugin config with name p")
        client.delete(type=plugin, name="p")
        assert client.query(plugin).rows == ()


def test_open_properties_are_sent_as_configured(daemon: Callable[..., Daemon]) -> None:
    """Management 10."""
    traced = daemon(
        "log {\n module: PROTOCOL\n enable: trace+\n}\n"
        'listener {\n name: plain\n host: 127.0.0.1\n port: 0\n openProperties: {\n  "site": "north",\n'
        '  "nested": {"list": [1, true, null], "text": "# no comment"}\n }\n}\n'
    )
    traced.client().close()
    line = traced.wait_for_log(r"-> @open\(16\) (.*)")[1]
    assert ':site="north"' in line
    assert ':nested={"list"=[1, true, null], "text"="# no comment"}' in line


def test_vhosts_come_change_and_go(router: Daemon) -> None:
    """Management 62."""
    groups = {"g": {"users": "u", "remoteHosts": "*", "maxMessageSize": 5}}
    with router.client() as client:
        before = len(client.query(VHOST).rows)
        client.create({"id": "v.example.com", "groups": groups}, type=VHOST, name="v")
        assert len(client.query(VHOST).rows) == before + 1
        with pytest.raises(BadRequestStatus, match=r"^Cannot update attribute 'id' in UPDATE$"):
            client.update({"id": "w"}, type=VHOST, name="v")
        with pytest.raises(BadRequestStatus, match=r"^Cannot set attribute 'maxMessageSize' in CREATE$"):
            client.create({"hostname": "w", "maxMessageSize": 5}, type=VHOST, name="w")
        with pytest.raises(ManagementError, match=r"^PolicyError: Policy 'bad' is invalid: ") as refused:
            client.create({"hostname": "bad", "maxConnections": -1}, type=VHOST, name="bad")
        assert refused.value.status == 500
        assert client.update({"maxConnections": 3}, type=VHOST, name="v")["maxConnections"] == 3
        client.delete(type=VHOST, name="v")
        assert len(client.query(VHOST).rows) == before


def test_host_names_in_rules_are_looked_up_without_holding_anybody_up(router: Daemon) -> None:
    """Management §8.10: a name server may take its time; the request waits, messages do not."""

    def rules(*hosts: str) -> dict[str, Any]:
        return {"hostname": "named", "groups": {"g": {"users": "u", "remoteHosts": ", ".join(hosts)}}}

    with router.client() as client:
        for host in ("nosuchhost.invalid", "x" * 300 + ".invalid"):
            with pytest.raises(ManagementError, match=r"^PolicyError: Policy 'named' is invalid: .*failed to resolve"):
                client.create(rules("10.0.0.1", host), type=VHOST, name="named")
        assert "named" not in str(client.query(VHOST, ["name"]).rows)
        client.create(rules("10.0.0.1", "127.0.0.1"), type=VHOST, name="named")
        with pytest.raises(ManagementError, match="failed to resolve"):
            client.update(rules("nosuchhost.invalid"), type=VHOST, name="named")
        assert client.read(type=VHOST, name="named")["groups"]["g"]["remoteHosts"] == "10.0.0.1, 127.0.0.1"
        client.delete(type=VHOST, name="named")


def test_passwords_of_connectors_in_all_their_forms(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 14, §8.5: literal: is no prefix here; env:, file: and pass: are; deleting closes the connection."""
    folder = tmp_path / "server"
    folder.mkdir()
    sasl = write_users(folder, {"plain": "secret-1", "literal": "literal:secret-2"})
    (tmp_path / "password").write_text("secret-1\nnot this line\n")
    server = start(
        folder,
        f"router {{\n id: server\n saslConfigDir: {sasl}\n}}\n"
        "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslMechanisms: PLAIN\n}\n"
        + LISTENER,
    )
    try:
        forms = {
            "bare": ("plain", "secret-1"),
            "pass": ("plain", "pass:secret-1"),
            "env": ("plain", "env: PALISADE_TEST_PASSWORD"),
            "file": ("plain", f"file:{tmp_path}/password"),
            "literal": ("literal", "literal:secret-2"),
            "missing": ("plain", f"file:{tmp_path}/no-such-file"),
        }
        sections = [
            f"connector {{\n name: {name}\n host: 127.0.0.1\n port: {server.port('login')}\n saslMechanisms: PLAIN\n"
            f" saslUsername: {user}\n saslPassword: {password}\n}}\n"
            for name, (user, password) in forms.items()
        ]
        environment = {"PALISADE_TEST_PASSWORD": "secret-1"}
        client_router = daemon("".join(sections) + LISTENER, environment=environment)
        client_router.wait_for_log(r"CONN_MGR \(error\) Unable to open password file \S+/no-such-file, error: ")
        with client_router.client() as client, server.client() as at_server:

            def statuses() -> dict[str, str]:
                return dict(client.query(CONNECTOR, ["name", "connectionStatus"]).rows)

            good = dict.fromkeys(("bare", "pass", "env", "file", "literal"), "SUCCESS")
            assert eventually(lambda: statuses().items() >= good.items()), statuses()
            assert statuses()["missing"] != "SUCCESS"
            assert len(at_server.query(CONNECTION).rows) == 6
            for name in good:
                client.delete(type=CONNECTOR, name=name)
            assert eventually(lambda: len(at_server.query(CONNECTION).rows) == 1)
        assert not [line for line in client_router.log() + server.log() if "secret-" in line]
    finally:
        server.end()


def test_what_would_fail_the_first_client_is_said_when_the_listener_is_made(daemon: Callable[..., Daemon]) -> None:
    router = daemon(
        "sslProfile {\n name: broken\n certFile: /no/such.pem\n}\n"
        "listener {\n name: tls\n host: 127.0.0.1\n port: 0\n sslProfile: broken\n}\n"
        "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n}\n"
    )
    router.wait_for_log(
        r"CONN_MGR \(warning\) listener 127\.0\.0\.1:0: TLS will fail until sslProfile broken can be used: .*"
        r"\(certFile /no/such\.pem: No such file or directory\)$"
    )
    router.wait_for_log(
        r"CONN_MGR \(warning\) listener 127\.0\.0\.1:0: nobody can log in, none of its SASL mechanisms can be offered: "
        r"none given$"
    )
