"""Connectors over TLS: who is believed to be the server, what is said of others (policy-and-auth.md §6.6)."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from certificates import Certificates
from harness import RunningRouter, eventually
from open_house import OPEN_HOUSE, connector_row
from server_peer import Call, Server, greeting, serving

from router.management.client import ManagementClient

EXPECTED_ERRORS = [
    r"SERVER \(error\) (SSL CA|SSL local certificate|SSL cipher|Permitted TLS protocols) configuration failed",
    r"Connection aborted due to internal setup error",
]
EXTRA_CONFIGURATION = OPEN_HOUSE


def server_tls(certificates: Certificates, name: str = "server", *, demands: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.pair(name))
    if demands:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def connector(
    client: ManagementClient, server: Server, profile: dict[str, Any], *, host: str = "localhost", **attributes: Any
) -> Iterator[str]:
    """A connector with an sslProfile of its own, until the end of the body."""
    client.create(profile, type="sslProfile", name="out-tls")
    given = {"host": host, "port": str(server.port), "sslProfile": "out-tls", **attributes}
    client.create(given, type="connector", name="out")
    try:
        yield f"{host}:{server.port}"
    finally:
        client.delete(type="connector", name="out")
        client.delete(type="sslProfile", name="out-tls")


def failed(client: ManagementClient) -> str:
    def found() -> str:
        message = str(client.read(type="connector", name="out")["connectionMsg"] or "")
        return message if "failed" in message else ""

    message = eventually(found, 10.0)
    assert message, client.read(type="connector", name="out")
    return str(message)


def test_a_server_of_the_right_authority_and_name_is_believed(
    client: ManagementClient, certificates: Certificates
) -> None:
    """policy 50, 52: and profile and connector come and go at run time."""
    with serving(greeting(), tls=server_tls(certificates)) as server:
        for _ in range(2):
            with connector(client, server, {"caCertFile": certificates.ca}) as place:
                row = connector_row(client, "out", connectionStatus="SUCCESS")
                message = str(row["connectionMsg"])
                assert re.search(r"encrypted=TLSv1\.[23] auth=ANONYMOUS ", message), message
                assert row["failoverUrls"] == f"amqps://{place}"
                number = message.partition("]")[0].removeprefix("[C")
                connection = client.read(type="connection", identity=number)
                assert (connection["isEncrypted"], connection["ssl"]) == (True, True)
                assert connection["sslSsf"] >= 128


def test_a_server_of_another_authority_is_not(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 50"""
    since = router.mark()
    with (
        serving(greeting(), tls=server_tls(certificates, "stranger")) as server,
        connector(client, server, {"caCertFile": certificates.ca}) as place,
    ):
        text = f"Connection to {place} failed: amqp:connection:framing-error SSL Failure: "
        assert text in failed(client)
        assert "certificate verify failed" in failed(client)
        router.wait_for_log(rf"SERVER \(info\) \[C\d+\] {text}", since=since)
        assert server.calls[0].init is None, "nothing may be said to a stranger"


@pytest.mark.parametrize("verify_hostname", [True, False])
def test_a_wrong_name_counts_unless_told_otherwise(
    client: ManagementClient, certificates: Certificates, verify_hostname: bool
) -> None:
    """policy 50: `127.1` leads there too, but is neither an address nor a name in the server's certificate."""
    profile = {"caCertFile": certificates.ca}
    with (
        serving(greeting(), tls=server_tls(certificates)) as server,
        connector(client, server, profile, host="127.1", verifyHostname=verify_hostname),
    ):
        if verify_hostname:
            assert "certificate verify failed" in failed(client)
            assert server.calls[0].init is None
        else:
            connector_row(client, "out", connectionStatus="SUCCESS")


def test_a_stranger_is_not_believed_even_without_a_name_check(
    client: ManagementClient, certificates: Certificates
) -> None:
    """policy 50: verifyHostname no switches off the name, not the chain."""
    with (
        serving(greeting(), tls=server_tls(certificates, "stranger")) as server,
        connector(client, server, {"caCertFile": certificates.ca}, verifyHostname=False),
    ):
        assert "certificate verify failed" in failed(client)


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({"caCertFile": "{folder}/nonexistent.crt"}, "SSL CA configuration failed"),
        (
            {"certFile": "{folder}/nonexistent.crt", "privateKeyFile": "{folder}/no.key"},
            "SSL local certificate configuration failed",
        ),
        ({"ciphers": "no such cipher"}, "SSL cipher configuration failed"),
        ({"protocols": "SSLv3"}, "Permitted TLS protocols configuration failed"),
    ],
)
def test_an_unusable_profile_is_said_and_never_connects(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, profile: dict[str, Any], text: str
) -> None:
    """policy 50, 47: the error, the abort and the failure, each in its line."""
    given = {key: value.format(folder=certificates.folder) for key, value in profile.items()}
    since = router.mark()
    with (
        serving(greeting(), tls=server_tls(certificates)) as server,
        connector(client, server, {"caCertFile": certificates.ca} | given) as place,
    ):
        router.wait_for_log(rf"SERVER \(error\) {text} for connection \[C\d+\] to {place}", since=since)
        router.wait_for_log(r"SERVER \(error\) \[C\d+\] Connection aborted due to internal setup error", since=since)
        wanted = (
            f"Connection to {place} failed: amqp:connection:framing-error Expected AMQP protocol header: "
            "no protocol header found (connection aborted)"
        )
        assert failed(client).endswith(wanted)
        server.wait_for_calls(1)


def test_its_certificate_is_shown_where_it_is_asked_for(client: ManagementClient, certificates: Certificates) -> None:
    """policy 48, 55: and EXTERNAL is preferred."""
    certificate, key = certificates.pair("carol")
    profile = {"caCertFile": certificates.ca, "certFile": certificate, "privateKeyFile": key}
    behaviour = greeting(mechanisms=("ANONYMOUS", "EXTERNAL"))
    with (
        serving(behaviour, tls=server_tls(certificates, demands=True)) as server,
        connector(client, server, profile),
    ):
        row = connector_row(client, "out", connectionStatus="SUCCESS")
        assert "auth=EXTERNAL " in str(row["connectionMsg"])
        assert server.calls[0].init is not None
        assert server.calls[0].init[0] == "EXTERNAL"


def test_without_a_certificate_it_is_not_let_in(client: ManagementClient, certificates: Certificates) -> None:
    """policy 50"""
    with (
        serving(greeting(), tls=server_tls(certificates, demands=True)) as server,
        connector(client, server, {"caCertFile": certificates.ca}) as place,
    ):
        assert f"Connection to {place} failed: amqp:connection:framing-error" in failed(client)


def test_a_server_without_tls_is_never_spoken_to_in_the_clear(
    client: ManagementClient, certificates: Certificates
) -> None:
    """policy 50. Attack: somebody in between who answers in the clear must not see the password."""
    seen: list[bytes] = []

    def listen(call: Call) -> None:
        seen.append(call.read(1))
        call.send(b"AMQP\x03\x01\x00\x00")
        while True:
            seen.append(call.read(1))

    with (
        serving(listen) as server,
        connector(
            client, server, {"caCertFile": certificates.ca}, saslUsername="eve", saslPassword="pass:in the open"
        ) as place,
    ):
        assert f"Connection to {place} failed: amqp:connection:framing-error SSL Failure: " in failed(client)
        said = b"".join(seen)
        assert said.startswith(b"\x16\x03")
        assert b"in the open" not in said
        assert b"AMQP" not in said


def test_a_tls_version_the_server_does_not_speak(client: ManagementClient, certificates: Certificates) -> None:
    """policy 47"""
    context = server_tls(certificates)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with (
        serving(greeting(), tls=context) as server,
        connector(client, server, {"caCertFile": certificates.ca, "protocols": "TLSv1.2"}),
    ):
        assert "SSL Failure" in failed(client)
