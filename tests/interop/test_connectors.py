"""Connectors to servers of every character (docs/spec/routing.md §1.9, policy-and-auth.md §3.5, §8b)."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness import RunningRouter, eventually
from open_house import OPEN_HOUSE, connector_row, port_of
from raw_peer import (
    AMQP,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    IN_SESSION,
    SASL,
    TRANSFER,
    attach_receiver,
    attach_sender,
    begin,
    flow,
    frame,
    raw_peer,
    transfer,
)
from server_peer import Call, Hangup, Server, failover_list, greeting, in_turn, serving

from router.management.client import BadRequestStatus, InternalServerErrorStatus, ManagementClient, NotFoundStatus
from router.values import Array, Described, symbol, uint, ulong

END = 0x17
# Errors that tests of this module cause.
EXPECTED_ERRORS = [
    r"Error performing CREATE: connector 127\.0\.0\.1:\w+: '\w+' is no port",
    r"Failed to find policyVhost settings",
    r"Unable to open password file",
    r"AGENT \(error\) Error performing READ: No entity with name=out",
    r"in the environment variable",
]

EXTRA_CONFIGURATION = (
    OPEN_HOUSE
    + """
log {
    module: CONN_MGR
    enable: debug+
}
log {
    module: ROUTER
    enable: debug+
}
vhost {
    hostname: partners
    groups: {
        "$connector": {
            sources: orders.*
            targets: replies.*
            maxSessions: 2
        }
    }
}
"""
)


@pytest.fixture(scope="module", autouse=True)
def password_of_the_environment() -> Iterator[None]:
    """Set before the router starts, which gets this process's environment."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PALISADE_TEST_PASSWORD", "from the environment")
        yield


@contextmanager
def connector(client: ManagementClient, server: Server | int, name: str = "out", **attributes: Any) -> Iterator[str]:
    """A connector to the server, or to a port, until the end of the body."""
    port = server if isinstance(server, int) else server.port
    client.create({"host": "127.0.0.1", "port": str(port), **attributes}, type="connector", name=name)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        client.delete(type="connector", name=name)


def opened(client: ManagementClient, name: str = "out") -> dict[str, Any]:
    return connector_row(client, name, connectionStatus="SUCCESS")


def failed(client: ManagementClient, pattern: str, name: str = "out") -> str:
    """connectionMsg, once it has the pattern."""

    def found() -> str:
        message = str(client.read(type="connector", name=name)["connectionMsg"])
        return message if pattern in message else ""

    message = eventually(found, 10.0)
    assert message, client.read(type="connector", name=name)
    return str(message)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def connections_counted(client: ManagementClient) -> int:
    (row,) = client.query("policy").entities()
    return int(row["connectionsCurrent"])


# The Open


def test_the_open_goes_first_and_says_who_we_are(client: ManagementClient) -> None:
    """routing 1, 2, 3, 4, 5, 7, 8, 11: the server here says nothing but its header before it has read our Open."""
    with serving(greeting()) as server, connector(client, server):
        row = opened(client)
        fields = server.calls[0].peer_open
        assert fields is not None
        container, hostname, frame_bytes, channels, idle_ms, _, _, offered, desired, properties = fields
        assert (container, hostname) == ("interop", "127.0.0.1")
        assert (frame_bytes, channels, idle_ms) == (16384, 32767, 8000)
        names = (symbol("ANONYMOUS-RELAY"), symbol("qd.streaming-links"))
        assert offered == desired == Array(symbol, names)
        assert list(properties) == ["product", "version", "qd.conn-id"]
        assert all(isinstance(key, symbol) for key in properties)
        assert properties["product"] == "qpid-dispatch-router"
        number = properties["qd.conn-id"]
        assert str(row["connectionMsg"]).startswith(f"[C{number}] ")
        connection = client.read(type="connection", identity=str(number))
        assert (connection["dir"], connection["container"], connection["host"]) == (
            "out",
            "server",
            f"127.0.0.1:{server.port}",
        )


def test_configured_limits_cost_and_properties_are_in_the_open(client: ManagementClient) -> None:
    """routing 6, 7, 8, 11, 12: types are kept, the router's own entries come first."""
    given = {"text": "a", "number": 7, "big": 2**40, "real": 1.5, "truth": True, "none": None, "list": [1, "x"],
             "map": {"deep": {"er": 1}}}  # fmt: skip
    limits: dict[str, Any] = {"maxFrameSize": 300, "maxSessions": 10, "idleTimeoutSeconds": 0, "cost": 5}
    with serving(greeting()) as server, connector(client, server, openProperties=given, **limits):
        opened(client)
        fields = server.calls[0].peer_open
        assert fields is not None
        assert (fields[2], fields[3], fields[4]) == (512, 9, None)
        properties = fields[9]
        assert list(properties) == ["product", "version", "qd.conn-id", "qd.inter-router-cost", *given]
        assert properties["qd.inter-router-cost"] == 5
        assert {key: properties[key] for key in given} == given
        assert properties["truth"] is True
        assert isinstance(properties["real"], float)


def test_what_it_says_when_it_is_open(router: RunningRouter, client: ManagementClient) -> None:
    """routing 19, 20"""
    since = router.mark()
    with serving(greeting()) as server, connector(client, server) as place:
        row = opened(client)
        text = rf"host={place} vhost= encrypted=no auth=ANONYMOUS user=\(null\) container_id=server props=\{{\}}"
        router.wait_for_log(rf"ROUTER_CORE \(info\) \[C\d+\] Connection Opened: dir=out {text}", since=since)
        assert "Connection Opened: dir=out" in str(row["connectionMsg"])
        assert row["failoverUrls"] == f"amqp://{place}"
        router.wait_for_log(rf"CONN_MGR \(info\) Configured Connector: {place} proto=any, role=normal", since=since)


def test_deleting_it_closes_the_connection_in_good_order(client: ManagementClient) -> None:
    """routing 24"""
    ends: list[Any] = []

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        ends.append(call.expect(CLOSE))

    with serving(behave) as server:
        with connector(client, server):
            opened(client)
        assert eventually(lambda: ends, 5.0), "no Close came"
        assert ends == [[]] or ends == [[None]]
        with pytest.raises(NotFoundStatus):
            client.read(type="connector", name="out")


def test_a_forced_close_is_a_bare_end_and_it_comes_back(router: RunningRouter, client: ManagementClient) -> None:
    """routing 18, 25: two seconds later."""
    saw_close: list[Any] = []

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        try:
            saw_close.append(call.expect(CLOSE))
        except Hangup:
            return

    with serving(behave) as server, connector(client, server):
        number = str(opened(client)["connectionMsg"]).split("]")[0].removeprefix("[C")
        client.update({"adminStatus": "deleted"}, type="connection", identity=number)
        router.wait_for_log(rf"\[C{number}\] Connection force-closed by request from connection \[C\d+\]")
        first, second = server.wait_for_calls(2)
        assert 1.9 < second.at_s - first.at_s < 5
        opened(client)
    assert len(saw_close) <= 1, "only the deletion at the end may say Close"


# Failures


def test_a_refused_connection_is_said_in_the_systems_words(router: RunningRouter, client: ManagementClient) -> None:
    """routing 19"""
    since = router.mark()
    with connector(client, unused_port()) as place:
        message = failed(client, "Connection to")
        wanted = f"Connection to {place} failed: proton:io Connection refused - disconnected {place}"
        assert message.partition("] ")[2] == wanted
        router.wait_for_log(rf"SERVER \(info\) \[C\d+\] {wanted}", since=since)
        assert client.read(type="connector", name="out")["connectionStatus"] == "CONNECTING"


@pytest.mark.parametrize(
    ("host", "port"),
    [("no-such.invalid", "5672"), ("a" * 64 + ".example", "5672")],
)
def test_places_that_cannot_be_are_a_failure_like_others(client: ManagementClient, host: str, port: str) -> None:
    """routing 19: the connector lives, and says so."""
    client.create({"host": host, "port": port}, type="connector", name="out")
    try:
        assert f"Connection to {host}:{port} failed: proton:io " in failed(client, "Connection to")
    finally:
        client.delete(type="connector", name="out")


@pytest.mark.parametrize("port", ["99999", "nosuch", "0"])
def test_a_port_that_is_none_is_refused(client: ManagementClient, port: str) -> None:
    """Issue 12, point 11: with its status, before anything is made."""
    with pytest.raises(BadRequestStatus, match=f"'{port}' is no port"):
        client.create({"host": "127.0.0.1", "port": port}, type="connector", name="out")


def reset_at_once(call: Call) -> None:
    call.reset()


def close_at_once(call: Call) -> None:
    return


def speak_without_sasl(call: Call) -> None:
    call.send(AMQP)
    call.stay()


def speak_http(call: Call) -> None:
    call.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    call.stay()


def send_noise_after_sasl(call: Call) -> None:
    call.sasl()
    call.send(AMQP + b"\xff" * 100)
    call.stay()


def speak_sasl_twice(call: Call) -> None:
    call.sasl()
    call.send(SASL)
    call.stay()


def offer_nothing(call: Call) -> None:
    call.sasl(())


def end_in_the_middle_of_sasl(call: Call) -> None:
    call.read(8)
    call.send(SASL)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (close_at_once, "failed: amqp:connection:framing-error connection aborted"),
        (reset_at_once, "failed: "),  # by the system while connecting, or by us just after
        (speak_without_sasl, "failed: amqp:connection:framing-error Expected SASL protocol header but found"),
        (speak_http, "failed: amqp:connection:framing-error Expected SASL protocol header but found"),
        (send_noise_after_sasl, "failed: amqp:connection:framing-error"),
        (speak_sasl_twice, "failed: amqp:connection:framing-error Expected AMQP protocol header but found"),
        (offer_nothing, "failed: amqp:unauthorized-access Authentication failed [mech=none]"),
        (end_in_the_middle_of_sasl, "failed: amqp:connection:framing-error connection aborted"),
    ],
)
def test_servers_without_manners(client: ManagementClient, behaviour: Callable[[Call], None], text: str) -> None:
    """routing 19: each is said, none costs more than its own connection."""
    with serving(behaviour) as server, connector(client, server) as place:
        assert f"Connection to {place} {text}" in failed(client, "failed")
        assert client.read(type="connector", name="out")["connectionStatus"] in ("CONNECTING", "FAILED")


def test_a_redirect_is_an_ordinary_loss(client: ManagementClient) -> None:
    """routing 29, 18: the same server again after two seconds; where it points to is not asked."""

    def redirect(call: Call) -> None:
        call.sasl()
        call.open()
        call.close("amqp:connection:redirect", "elsewhere")

    with serving(in_turn(redirect, greeting())) as server, connector(client, server) as place:
        message = failed(client, "failed")
        assert message.endswith(f"Connection to {place} failed: amqp:connection:redirect elsewhere")
        first, second = server.wait_for_calls(2)
        assert 1.9 < second.at_s - first.at_s < 5
        opened(client)


def test_a_close_without_a_condition_is_a_loss_too(client: ManagementClient) -> None:
    """routing 19"""

    def leave(call: Call) -> None:
        call.sasl()
        call.open()
        call.close()

    with serving(leave) as server, connector(client, server) as place:
        assert failed(client, "failed").endswith(f"Connection to {place} failed")


def test_a_server_that_falls_silent_is_left(client: ManagementClient) -> None:
    """routing 9, 19: our idle timeout holds in this direction too."""
    with serving(greeting()) as server, connector(client, server, idleTimeoutSeconds=2) as place:
        opened(client)
        text = "amqp:resource-limit-exceeded local-idle-timeout expired"
        assert failed(client, "failed").endswith(f"Connection to {place} failed: {text}")
        server.wait_for_calls(2)


def test_a_server_that_does_not_read_costs_only_itself(router: RunningRouter, client: ManagementClient) -> None:
    """routing 19: twenty servers that never answer, and another connector still opens."""

    def never_read(call: Call) -> None:
        threading.Event().wait(3)

    with serving(never_read) as silent, serving(greeting()) as server, contextlib.ExitStack() as several:
        for number in range(20):
            several.enter_context(connector(client, silent, name=f"silent{number}"))
        with connector(client, server):
            opened(client)
        assert client.read(type="connector", name="silent0")["connectionStatus"] == "CONNECTING"


# Failover


def test_it_rotates_to_the_advertised_server(router: RunningRouter, client: ManagementClient) -> None:
    """routing 16, 18: the same server once more after a second, then the next; the list reads back current first."""
    since = router.mark()
    with serving(greeting()) as backup:

        def lose(call: Call) -> None:
            call.sasl()
            call.open(properties=failover_list(("127.0.0.1", backup.port)))

        with serving(in_turn(lose, close_at_once)) as first, connector(client, first) as place:
            backup.wait_for_calls(1)
            opened(client)
            urls = client.read(type="connector", name="out")["failoverUrls"]
            assert urls == f"amqp://127.0.0.1:{backup.port}, amqp://{place}"
            assert len(first.calls) == 2
            assert 0.9 < first.calls[1].at_s - first.calls[0].at_s < 4
            assert 0.9 < backup.calls[0].at_s - first.calls[1].at_s < 4
            router.wait_for_log(
                rf"ROUTER \(debug\) Added 127\.0\.0\.1:{backup.port} as backup host", since=since, timeout_s=5
            )
            # A failover server's name is in its connection, the configured one's in what is said of the connector.
            assert f"host=127.0.0.1:{backup.port}" in str(client.read(type="connector", name="out")["connectionMsg"])


@pytest.mark.parametrize(
    "hostile",
    [("127.0.0.1", "99999999"), ("a" * 100 + ".example", "1"), (".leading.dot", "5672"), ("127.0.0.1", "x" * 20)],
)
def test_hostile_entries_of_a_failover_list_only_cost_their_turn(
    client: ManagementClient, hostile: tuple[str, str]
) -> None:
    """routing 16. Attack: an entry that cannot be a place must not end the connector for good."""

    def lose(call: Call) -> None:
        call.sasl()
        call.open(properties=failover_list(hostile))

    with serving(in_turn(lose, close_at_once, greeting())) as server, connector(client, server) as place:
        assert failed(client, f"disconnected {hostile[0]}:{hostile[1]}").startswith("[C")
        server.wait_for_calls(3)
        opened(client)
        assert str(client.read(type="connector", name="out")["failoverUrls"]).startswith(f"amqp://{place}")


def test_an_empty_list_takes_the_alternatives_away(client: ManagementClient) -> None:
    """routing 17"""

    def lose(call: Call) -> None:
        call.sasl()
        call.open(properties=failover_list(("other.invalid", 1), ("another.invalid", 2)))

    empty = greeting({"failover-server-list": []})
    with serving(in_turn(lose, empty)) as server, connector(client, server) as place:
        server.wait_for_calls(2)
        connector_row(client, "out", connectionStatus="SUCCESS", failoverUrls=f"amqp://{place}")


def test_a_listeners_failover_list_reaches_a_connector(router: RunningRouter, client: ManagementClient) -> None:
    """routing 15, 16: from one end to the other; the router is its own server here."""
    since = router.mark()
    given = {"host": "127.0.0.1", "port": "0", "policyVhost": "open-house"}
    urls = "amqps://b.invalid, c.invalid:1"
    client.create({**given, "failoverUrls": urls}, type="listener", name="advertising")
    try:
        port = port_of(router, "advertising", since=since)
        with connector(client, port) as place:
            urls = f"amqp://{place}, amqps://b.invalid:5672, amqp://c.invalid:1"
            connector_row(client, "out", connectionStatus="SUCCESS", failoverUrls=urls)
    finally:
        router.ports.pop("advertising", None)
        client.delete(type="listener", name="advertising")


# SASL


def test_credentials_are_sent_as_configured(client: ManagementClient) -> None:
    """policy 51, 56"""
    with (
        serving(greeting(mechanisms=("PLAIN", "ANONYMOUS"))) as server,
        connector(client, server, saslUsername="eve", saslPassword="pass:s3cret"),
    ):
        message = opened(client)["connectionMsg"]
        assert server.calls[0].init is not None
        assert server.calls[0].init[:2] == ["PLAIN", b"\0eve\0s3cret"]
        assert "auth=PLAIN user=eve " in str(message)


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ("literal:x", b"literal:x"),
        ("plain text", b"plain text"),
        ("file:{file}", b"from a file"),
        ("env:PALISADE_TEST_PASSWORD", b"from the environment"),
        ("env:  PALISADE_TEST_PASSWORD", b"from the environment"),
    ],
)
def test_forms_of_the_password(router: RunningRouter, client: ManagementClient, form: str, sent: bytes) -> None:
    """policy 51: `literal:` is no form of saslPassword."""
    file = router.folder / "password"
    file.write_text("from a file\nnot this\n")
    given = form.format(file=file)
    with (
        serving(greeting(mechanisms=("PLAIN",))) as server,
        connector(client, server, saslUsername="eve", saslPassword=given),
    ):
        opened(client)
        assert server.calls[0].init is not None
        assert server.calls[0].init[1] == b"\0eve\0" + sent


def test_a_missing_variable_fails_the_connector(client: ManagementClient) -> None:
    """policy 51: rather than to send the words `env:…` as a password."""
    given = {"host": "127.0.0.1", "port": "1", "saslUsername": "eve", "saslPassword": "env:PALISADE_NO_SUCH"}
    text = "Failed to find a password in the environment variable 'PALISADE_NO_SUCH'"
    with pytest.raises(InternalServerErrorStatus, match=text):
        client.create(given, type="connector", name="out")


def test_an_unreadable_password_file_is_said(router: RunningRouter, client: ManagementClient) -> None:
    """policy 51"""
    path, since = router.folder / "none", router.mark()
    with (
        serving(greeting(mechanisms=("PLAIN",))) as server,
        connector(client, server, saslUsername="eve", saslPassword=f"file:{path}"),
    ):
        text = f"Unable to open password file {path}, error: No such file or directory"
        router.wait_for_log(rf"CONN_MGR \(error\) {text}", since=since)


def test_a_wrong_password_is_said(router: RunningRouter, client: ManagementClient) -> None:
    """policy 57, management 37"""
    since = router.mark()

    def refuse(call: Call) -> None:
        call.sasl(("PLAIN",), outcome=1)

    with serving(refuse) as server, connector(client, server, saslUsername="eve", saslPassword="pass:wrong") as place:
        text = f"Connection to {place} failed: amqp:unauthorized-access Authentication failed [mech=PLAIN]"
        assert failed(client, "failed").endswith(text)
        router.wait_for_log(rf"SERVER \(info\) \[C\d+\] {re.escape(text)}$", since=since)
    assert not router.has_logged("pass:wrong|eve.*wrong")


def test_mechanisms_it_may_not_use_are_not_used(client: ManagementClient) -> None:
    """policy 55"""
    with (
        serving(greeting(mechanisms=("ANONYMOUS", "PLAIN"))) as server,
        connector(client, server, saslMechanisms="EXTERNAL"),
    ):
        assert "Authentication failed [mech=none]" in failed(client, "failed")
        assert server.calls[0].init is None


# Policy


def test_a_missing_connector_group_ends_the_connection(router: RunningRouter, client: ManagementClient) -> None:
    """policy 44: Close, an error line, and another attempt two seconds later; 45: nothing is counted."""
    closes: list[Any] = []
    before = connections_counted(client)

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        closes.append(call.expect(CLOSE))

    since = router.mark()
    with serving(behave) as server, connector(client, server, policyVhost="open-house") as place:
        router.wait_for_log(
            r"POLICY \(error\) \[C(\d+)\] Failed to find policyVhost settings for connection '\1', "
            r"policyVhost: 'open-house'",
            since=since,
        )
        wanted = "amqp:resource-limit-exceeded connection disallowed by local policy"
        assert failed(client, "failed").endswith(f"Connection to {place} failed: {wanted}")
        first, second = server.wait_for_calls(2)
        assert 1.9 < second.at_s - first.at_s < 4.5
    assert closes[0][0].value[:2] == ["amqp:resource-limit-exceeded", "connection disallowed by local policy"]
    assert connections_counted(client) == before


def test_the_connector_group_limits_what_the_server_asks_for(client: ManagementClient) -> None:
    """policy 44, 45"""
    answers: list[list[Any]] = []
    before = connections_counted(client)

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        call.send(begin())
        call.expect(BEGIN)
        call.send(attach_receiver("orders.new"))
        assert call.expect(ATTACH)[5].value[0] == "orders.new"
        source, target = Described(ulong(0x28), ["secret"]), Described(ulong(0x29), [])
        call.send(frame(ATTACH, "second", uint(1), True, None, None, source, target))
        answers.append(call.expect(DETACH))
        call.stay()

    with serving(behave) as server, connector(client, server, policyVhost="partners"):
        assert eventually(lambda: answers, 10.0)
        assert answers[0][2].value[0] == "amqp:unauthorized-access"
        assert connections_counted(client) == before
    assert connections_counted(client) == before


def test_the_connector_group_limits_targets_and_sessions_too(client: ManagementClient) -> None:
    """policy 44"""
    answers: list[list[Any]] = []

    def on_channel(number: int, data: bytes) -> bytes:
        return data[:6] + number.to_bytes(2, "big") + data[8:]

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        call.send(begin() + attach_sender("replies.new"))
        assert call.expect(ATTACH)[6].value[0] == "replies.new"
        source, target = Described(ulong(0x28), []), Described(ulong(0x29), ["orders.new"])
        call.send(frame(ATTACH, "second", uint(1), False, None, None, source, target, None, None, uint(0)))
        answers.append(call.expect(DETACH))
        call.send(on_channel(1, begin()))
        call.expect(BEGIN)
        call.send(on_channel(2, begin()))
        answers.append(call.expect(END))
        call.stay()

    with serving(behave) as server, connector(client, server, policyVhost="partners"):
        assert eventually(lambda: len(answers) == 2, 10.0), answers
        assert answers[0][2].value[:2] == ["amqp:unauthorized-access", "link disallowed by local policy"]
        assert answers[1][0].value[:2] == ["amqp:resource-limit-exceeded", "session disallowed by local policy"]


def test_messages_reach_a_server_it_connected_to(router: RunningRouter, client: ManagementClient) -> None:
    """routing 1: a server may attach links to our connection as any client does."""
    got: list[Any] = []

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        call.send(begin() + attach_receiver("through.connector"))
        call.expect(ATTACH)
        call.send(flow(credit=10))
        while True:
            got.append(call.expect(TRANSFER))

    with serving(behave) as server, connector(client, server):
        opened(client)
        port_of(router, "free")
        with raw_peer(router, "free") as peer:
            peer.send(IN_SESSION + attach_sender("through.connector"))
            peer.read_until(ATTACH)
            peer.send(transfer(b"\x00\x53\x75\xa0\x05hello"))
            assert eventually(lambda: got, 5.0)
