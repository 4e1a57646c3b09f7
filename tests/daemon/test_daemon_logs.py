"""Log lines of the real process: form, files, levels at run time, frame traces. Management §2.5 to §4, items 24-37."""

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, Ran, eventually, start, write_users
from free_ports import free_port

from auth.secrets import Secret
from router.management.client import InternalServerErrorStatus, ManagementClient

pytestmark = pytest.mark.interop

LOG = "org.apache.qpid.dispatch.log"
CONNECTION = "org.apache.qpid.dispatch.connection"
DEFAULT_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} [+-]\d{4} [A-Z_]+ \((trace|debug|info|notice|warning|error|critical)\) \S"
)
FRAME = re.compile(r"\S+ \S+ \S+ PROTOCOL \(trace\) \[C(\d+)\]:FRAME: +\d* *(<-|->) (@\w+\(\d+\)|AMQP|EOS)")


def log(module: str, **settings: str) -> str:
    lines = "".join(f" {name}: {value}\n" for name, value in settings.items())
    return f"log {{\n module: {module}\n{lines}}}\n"


def update(client: ManagementClient, module: str, **settings: Any) -> dict[str, Any]:
    return client.update(settings, type=LOG, name=f"log/{module}")


def test_every_line_has_the_default_form(daemon: Callable[..., Daemon]) -> None:
    """Management 24, 26."""
    router = daemon(log("DEFAULT", enable="trace+") + "router {\n workerThreads: 7\n}\n" + LISTENER)
    with router.client() as client:
        client.query("router")
    operational = router.wait_for_log(r"SERVER \(notice\) Operational, (\d+) Threads Running \(process ID (\d+)\)$")
    assert operational.groups() == ("1", str(router.process.pid))
    router.wait_for_log(r"SERVER \(notice\) Process VmSize \d+\.\d\d \w+ \(\d+\.\d\d \w+ available memory\)$")
    # A line break is left in a text where the next line cannot pass for an entry.
    lines = [line for line in router.log() if not line.startswith((" ", ">"))]
    assert [line for line in lines if not DEFAULT_LINE.match(line)] == []


def test_the_start_is_logged_in_its_order(daemon: Callable[..., Daemon]) -> None:
    """Management 16, 27; policy 3; management §2.5: a port opens when everything else is in place."""
    router = daemon(
        "router {\n id: r1\n}\nlistener {\n name: first\n host: 127.0.0.1\n port: 0\n}\n"
        "vhost {\n hostname: example.com\n}\nsslProfile {\n name: p\n}\n"
        f"connector {{\n name: c\n host: 127.0.0.1\n port: {free_port()}\n}}\n"
    )
    with socket.create_connection(("127.0.0.1", router.port("first")), timeout=5):
        pass  # it is the real port
    lines = "\n".join(router.log())
    expected = [
        r"SERVER \(info\) Container Name: r1$",
        r"ROUTER \(info\) Router started in Standalone mode$",
        r"ROUTER \(info\) Version: \S+$",
        r"ROUTER_CORE \(info\) Router Core thread running. 0/r1$",
        r"AGENT \(info\) Activating management agent on \$_management_internal$",
        r"POLICY \(info\) Policy configured maxConnections: 65535, policyDir: '',access rules enabled: 'false', "
        r"use hostname patterns: 'false'$",
        r"POLICY \(info\) Policy fallback defaultVhost is defined: '\$default'$",
        r"CONN_MGR \(info\) Created SSL Profile with name p $",
        r"POLICY \(info\) Created policy rules for vhost example.com$",
        r"CONN_MGR \(info\) Configured Listener: 127.0.0.1:0 proto=any, role=normal$",
        r"SERVER \(notice\) Operational, 1 Threads Running",
        r"SERVER \(notice\) Listening on 127.0.0.1:\d+ \(first\)$",
    ]
    at = 0
    for pattern in expected:
        found = re.compile(pattern, re.MULTILINE).search(lines, at)
        assert found is not None, f"{pattern} after\n{lines[:at]}"
        at = found.end()
    router.wait_for_log(r"CONN_MGR \(info\) Configured Connector: 127.0.0.1:\d+ proto=any, role=normal$")


def test_a_listener_on_a_fixed_port_is_logged_as_configured(daemon: Callable[..., Daemon]) -> None:
    """Management 27."""
    port = free_port()
    router = daemon(f"listener {{\n host: 127.0.0.1\n port: {port}\n}}\n")
    router.wait_for_log(rf"SERVER \(notice\) Listening on 127\.0\.0\.1:{port}$")


def test_timestamp_and_source_can_be_chosen(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 25: in one module's file, from the start and at run time."""
    path = tmp_path / "agent.log"
    router = daemon(
        log("AGENT", enable="debug+", includeTimestamp="no", includeSource="yes", outputFile=str(path)) + LISTENER
    )
    with router.client() as client:
        client.query("router")
        lines = path.read_text().splitlines()
        assert lines
        assert all(re.match(r"AGENT \(\w+\) ", line) for line in lines if not line.startswith(" "))
        assert re.search(r"^AGENT \(debug\) Agent request QUERY .* \(\S+/agent\.py:\d+\)$", "\n".join(lines), re.M)
        update(client, "AGENT", includeTimestamp=True, includeSource=False)
        size = path.stat().st_size
        client.query("router")
        newest = path.read_text()[size:].splitlines()
        assert newest
        assert all(DEFAULT_LINE.match(line) for line in newest if not line.startswith(" "))


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ("timestampsInUTC: yes", r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} \+0000 SERVER "),
        ("timestampFormat: %a %b %d %H:%M:%S %Y", r"^[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \d{4} SERVER "),
        ("timestampFormat: %H:%M:%S.%%06lu", r"^\d\d:\d\d:\d\d\.\d{6} SERVER "),
    ],
)
def test_the_clock_is_shown_as_configured(daemon: Callable[..., Daemon], settings: str, pattern: str) -> None:
    """Management §3."""
    router = daemon(f"router {{\n {settings}\n}}\n{LISTENER}", environment={"TZ": "Asia/Kolkata"})
    assert re.match(pattern, router.log("Operational")[0])


def test_local_time_is_the_default(daemon: Callable[..., Daemon]) -> None:
    router = daemon(LISTENER, environment={"TZ": "XYZ-05:30"})
    assert " +0530 " in router.log("Operational")[0]


def test_modules_have_files_of_their_own_or_share_one(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Management 28."""
    agent, shared = tmp_path / "agent.log", tmp_path / "shared.log"
    router = start(
        tmp_path,
        log("AGENT", enable="debug+", outputFile=str(agent))
        + log("SERVER", enable="info+", outputFile=str(shared))
        + log("ROUTER_CORE", enable="info+", outputFile=str(shared))
        + LISTENER,
    )
    request.addfinalizer(router.end)
    port_line = re.compile(r"Listening on 127\.0\.0\.1:(\d+)")
    assert eventually(lambda: shared.exists() and port_line.search(shared.read_text()))
    found = port_line.search(shared.read_text())
    assert found is not None
    with socket.create_connection(("127.0.0.1", int(found[1])), timeout=5) as raw:
        raw.sendall(b"AMQP\0\1\0\0")
    assert eventually(lambda: "Accepted connection" in shared.read_text())

    def modules(text: str) -> set[str]:
        return {line.split(" ")[3] for line in text.splitlines() if DEFAULT_LINE.match(line)}

    assert modules(agent.read_text()) == {"AGENT"}
    assert modules(shared.read_text()) == {"SERVER", "ROUTER_CORE"}
    assert not modules("\n".join(router.log())) & {"AGENT", "SERVER", "ROUTER_CORE"}


@pytest.mark.parametrize(
    ("enable", "logged"),
    [
        ("TRACE , Error info", {"debug": False, "info": True}),
        ("none", {"debug": False, "info": False}),
        ("", {"debug": False, "info": False}),
        ("trace+", {"debug": True, "info": True}),
        ("debug", {"debug": True, "info": False}),
        ("default", {"debug": False, "info": True}),
    ],
)
def test_levels_change_at_run_time(daemon: Callable[..., Daemon], enable: str, logged: dict[str, bool]) -> None:
    """Management 29, on the modules that a request and a connection log to."""
    router = daemon(LISTENER)
    with router.client() as client:
        for module in ("AGENT", "SERVER"):
            assert update(client, module, enable=enable)["enable"] == enable
        since = router.mark()
        with router.client() as other:
            other.query("router")
        router.wait_for_log(r"ROUTER_CORE \(info\) .*Connection Closed", since)
        assert bool(router.log(r"AGENT \(debug\) Agent request QUERY", since)) == logged["debug"]
        assert bool(router.log(r"SERVER \(info\) .*Accepted connection", since)) == logged["info"]


def test_a_level_that_is_none_is_refused_and_changes_nothing(daemon: Callable[..., Daemon]) -> None:
    """Management 29."""
    router = daemon(LISTENER)
    with router.client() as client:
        update(client, "AGENT", enable="debug+")
        text = "^CError: Configuration: 'foo' is not a valid log level. Should be one of {none, trace, "
        with pytest.raises(InternalServerErrorStatus, match=text):
            update(client, "AGENT", enable="foo")
        assert client.read(type=LOG, name="log/AGENT")["enable"] == "debug+"
        assert router.log(r"AGENT \(error\) Error performing UPDATE: CError: Configuration: 'foo'")


def test_a_bad_output_file_is_refused_and_changes_nothing(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 98, §4.3."""
    router = daemon(LISTENER)
    with router.client() as client:
        for name in ("", "/no/such/folder/x.log", str(tmp_path)):
            with pytest.raises(
                InternalServerErrorStatus, match=f"^CError: Configuration: Failed to open log file '{name}'$"
            ):
                update(client, "DEFAULT", outputFile=name)
        assert client.read(type=LOG, name="log/DEFAULT")["outputFile"] == "stderr"
        good = tmp_path / "good.log"
        update(client, "DEFAULT", outputFile=str(good), enable="debug+")
        assert eventually(lambda: good.read_text())


def test_log_entries_are_kept_for_management(daemon: Callable[..., Daemon]) -> None:
    """Management 32."""
    router = daemon(log("AGENT", enable="debug+") + LISTENER)
    with router.client() as client:
        for _ in range(600):
            client.query("org.apache.qpid.dispatch.policy", ["name"])
        entries = client.node("GET-LOG")
        assert len(entries) == 1000
        assert all(len(entry) == 6 for entry in entries)
        for module, level, text, file, line, time_s in entries:
            assert (type(module), type(level), type(text), type(file)) == (str, str, str, str)
            assert isinstance(line, int)
            assert isinstance(time_s, int)
        assert [entry[5] for entry in entries] == sorted(entry[5] for entry in entries)
        latest = client.node("GET-LOG", limit=5)
        assert len(latest) == 5
        assert "GET-LOG" in latest[-1][2]
        assert latest[-1][:2] == ["AGENT", "debug"]
        assert len(client.node("GET-LOG", limit="7")) == 7


# Frames


def frames(router: Daemon, connection: str, since: int = 0) -> list[str]:
    """The performatives of a connection's traced frames, with their direction."""
    found = (FRAME.match(line) for line in router.log(r" PROTOCOL \(trace\) ", since))
    return [f"{frame[2]} {frame[3]}" for frame in found if frame is not None and frame[1] == connection]


def own_id(client: ManagementClient) -> str:
    return str(max(int(row[0]) for row in client.query(CONNECTION, ["identity"]).rows))


def test_a_frame_line_splits_as_scripts_expect(daemon: Callable[..., Daemon]) -> None:
    """Management §2.6."""
    router = daemon(log("PROTOCOL", enable="trace+") + LISTENER)
    with router.client() as client:
        client.query("router")
    line = router.log(r"<- @transfer")[0]
    tokens = line.split(" ")
    assert (tokens[3], tokens[4], tokens[5], tokens[7], tokens[8]) == (
        "PROTOCOL",
        "(trace)",
        "[C1]:FRAME:",
        "<-",
        "@transfer(20)",
    )
    assert not router.log(r" (SERVER|AGENT) \(trace\)")


def test_an_open_names_its_connection(daemon: Callable[..., Daemon]) -> None:
    """Management 34."""
    router = daemon(log("PROTOCOL", enable="trace+") + LISTENER)
    for _ in range(3):
        router.client().close()
    opens = router.log(r" -> @open\(16\)")
    assert len(opens) == 3
    for line in opens:
        found = re.search(r'\[C(\d+)\]:FRAME: 0 -> @open\(16\) \[.*"qd\.conn-id"=(\d+)', line)
        assert found is not None
        assert found[1] == found[2]


def test_the_level_starts_and_stops_the_trace_of_connections_that_exist(daemon: Callable[..., Daemon]) -> None:
    """Management 30."""
    router = daemon(log("DEFAULT", enable="trace+") + LISTENER)
    with router.client() as client:
        own = own_id(client)
        assert "<- @attach(18)" in frames(router, own)
        assert client.query(CONNECTION, ["enableProtocolTrace"]).rows == ((True,),)
        update(client, "DEFAULT", enable="info+")
        since = router.mark()
        with router.client() as other:
            client.query("router")
            other.query("router")
        assert router.log(r" PROTOCOL ", since) == []
        update(client, "DEFAULT", enable="trace+")
        since = router.mark()
        client.query("router")
        assert "<- @transfer(20)" in frames(router, own, since)
        with router.client():
            pass
        router.wait_for_log(r"<- @attach\(18\)", since)


def test_one_connection_is_traced_whatever_the_level(daemon: Callable[..., Daemon]) -> None:
    """Management 31."""
    router = daemon(log("PROTOCOL", enable="error+") + LISTENER)
    with router.client() as quiet, router.client() as loud:
        own = own_id(loud)
        answer = loud.update({"enableProtocolTrace": True}, type=CONNECTION, identity=own)
        assert answer["enableProtocolTrace"] is True
        since = router.mark()
        quiet.query("router")
        loud.query("router")
        assert "<- @transfer(20)" in frames(router, own, since)
        assert {re.findall(r"\[C(\d+)\]", line)[0] for line in router.log(" PROTOCOL ", since)} == {own}
        states = dict(loud.query(CONNECTION, ["identity", "enableProtocolTrace"]).rows)
        assert states == {own: True, str(int(own) - 1): False}
        loud.update({"enableProtocolTrace": False}, type=CONNECTION, identity=own)
        since = router.mark()
        loud.query("router")
        assert router.log(" PROTOCOL ", since) == []


def test_a_connection_can_be_left_out_of_the_trace(daemon: Callable[..., Daemon]) -> None:
    """Management §8.8: false, while the level traces all."""
    router = daemon(log("PROTOCOL", enable="trace+") + LISTENER)
    with router.client() as quiet, router.client() as loud:
        own = own_id(loud)
        loud.update({"enableProtocolTrace": False}, type=CONNECTION, identity=str(int(own) - 1))
        since = router.mark()
        quiet.query("router")
        loud.query("router")
        assert {re.findall(r"\[C(\d+)\]", line)[0] for line in router.log(" PROTOCOL ", since)} == {own}


def test_no_secret_is_in_any_log(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 72: neither of a configuration, nor of a request, nor of a login, at the finest level."""
    secrets = ("hunter-in-file", "hunter-on-wire", "hunter-at-login", "hunter-for-key")
    (tmp_path / "qdrouterd.conf.d").mkdir()
    sasl = write_users(tmp_path, {"alice": secrets[2]})
    router = daemon(
        log("DEFAULT", enable="trace+")
        + f"router {{\n saslConfigDir: {sasl}\n}}\n"
        + f"connector {{\n name: c\n port: {free_port()}\n saslUsername: u\n saslPassword: {secrets[0]}\n}}\n"
        + "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslMechanisms: PLAIN\n}\n"
        + LISTENER
    )
    with router.client("login", username="alice", password=Secret(secrets[2])) as client:
        connector = {"host": "127.0.0.1", "port": "1", "saslUsername": "u", "saslPassword": secrets[1]}
        made = client.create(connector, type="org.apache.qpid.dispatch.connector", name="d")
        assert made["saslPassword"] == "*******"
        made = client.create({"password": secrets[3]}, type="org.apache.qpid.dispatch.sslProfile", name="p")
        assert made["password"] == "*******"
        rows = client.query().rows
        entries = client.node("GET-LOG")
    assert not [secret for secret in secrets if secret in str(rows) + str(entries)]
    assert not [line for line in router.log() if any(secret in line for secret in secrets)]


def test_what_a_peer_says_cannot_forge_a_line(daemon: Callable[..., Daemon]) -> None:
    router = daemon(log("DEFAULT", enable="trace+") + LISTENER)
    forged = "2026-01-01 00:00:00.000000 +0000 SERVER (notice) forged"
    with router.client() as client:
        with pytest.raises(Exception, match="No entity"):
            client.read(name=f"x\n{forged}\x1b[2J")
        client.query("router")
    assert not [line for line in router.log() if line.startswith(forged) or "\x1b" in line]


def test_a_failed_login_is_logged_with_its_mechanism(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 37, the listener's side; the connector's is in tests/interop/test_connectors.py. Policy §8.2."""
    sasl = write_users(tmp_path, {"alice": "right"}, "PLAIN")
    router = daemon(
        f"router {{\n saslConfigDir: {sasl}\n}}\n"
        "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslMechanisms: PLAIN\n}\n"
    )
    with pytest.raises(Exception, match="amqp:unauthorized-access"):
        router.client("login", username="alice", password=Secret("wrong"))
    router.wait_for_log(
        r"SERVER \(info\) \[C1\] Connection from 127\.0\.0\.1:\d+ \(to 127\.0\.0\.1:0\) failed: "
        r"amqp:unauthorized-access .+ \(Failed to authenticate client \[mech=PLAIN\]\)$"
    )


def test_a_connector_with_a_bad_authority_file_says_so(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 36."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        router = daemon(
            f"sslProfile {{\n name: p\n caCertFile: {tmp_path}/missing.crt\n}}\n"
            f"connector {{\n name: c\n host: 127.0.0.1\n port: {port}\n sslProfile: p\n}}\n"
        )
        router.wait_for_log(
            rf"SERVER \(error\) SSL CA configuration failed for connection \[C\d+\] to 127\.0\.0\.1:{port}$"
        )


def test_a_host_that_does_not_resolve_is_logged_and_tried_again(daemon: Callable[..., Daemon]) -> None:
    """Management 15."""
    router = daemon("connector {\n name: c\n host: no-such-host.invalid\n port: amqp\n}\n" + LISTENER)
    router.wait_for_log(r"SERVER \(info\) \[C\d+\] Connection to no-such-host\.invalid:amqp failed: ")
    with router.client() as client:
        assert client.query("router").rows


def test_a_full_disk_stops_no_message(daemon: Callable[..., Daemon]) -> None:
    router = daemon(log("AGENT", enable="debug+", outputFile="/dev/full") + LISTENER)
    ran: Ran = router.tool("qdstat", "-g")
    assert ran.status == 0
    assert router.log("Cannot write log output to '/dev/full'")
