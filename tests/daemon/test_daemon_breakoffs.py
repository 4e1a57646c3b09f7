"""Peers that leave on their way in are on record. Spec: docs/spec/policy-and-auth.md §8.6 (ours)."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from daemon_process import LISTENER, Daemon, audit_events, eventually, write_users
from process_log import PATIENCE_S

from auth.sasl_frames import Init, encode

pytestmark = pytest.mark.interop

SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # its first bytes
ANONYMOUS = SASL + encode(Init(mechanism="ANONYMOUS", initial_response=b""))
ACCEPTED = b"\x00\x53\x44"


def configuration(folder: Path, certificates: Certificates) -> str:
    sasl = write_users(folder, {"alice": "right"})
    certificate, key = certificates.pair("server")
    return (
        f"router {{\n id: breakoffs\n saslConfigDir: {sasl}\n auditDir: {folder}/audit\n}}\n"
        f"sslProfile {{\n name: p\n certFile: {certificate}\n privateKeyFile: {key}\n}}\n"
        "listener {\n name: tls\n host: 127.0.0.1\n port: 0\n sslProfile: p\n requireSsl: yes\n}\n" + LISTENER
    )


def events(folder: Path) -> list[dict[str, Any]]:
    return audit_events(folder / "audit")


@contextmanager
def peer_of(router: Daemon, name: str = "plain") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", router.port(name)), PATIENCE_S) as peer:
        yield peer


def says_and_leaves(router: Daemon, data: bytes, name: str = "plain", until: bytes = b"") -> None:
    """until  what the router has to say before the peer leaves"""
    with peer_of(router, name) as peer:
        peer.sendall(data)
        heard = b""
        while until not in heard:
            heard += peer.recv(1000)


def test_who_leaves_on_the_way_in_is_on_record_once_and_then_by_number(
    daemon: Callable[..., Daemon], tmp_path: Path, certificates: Certificates
) -> None:
    router = daemon(configuration(tmp_path, certificates))
    for _ in range(4):
        says_and_leaves(router, CLIENT_HELLO, "tls")
        says_and_leaves(router, SASL, until=SASL)
        says_and_leaves(router, ANONYMOUS, until=ACCEPTED)
        says_and_leaves(router, ANONYMOUS + AMQP, until=ACCEPTED)
    says_and_leaves(router, b"")  # somebody who looks whether the port is open
    says_and_leaves(router, b"AMQP")
    with router.client() as client:
        assert client.query("router").rows  # and one who comes in and leaves as one should
    router.end()
    found = [event for event in events(tmp_path) if event["reason"] == "handshake_aborted"]
    counts: dict[str, list[int]] = {}
    for event in found:
        counts.setdefault(event["stage"], []).append(event.get("attempts", 1))
    assert counts == {"tls": [1, 3], "sasl": [1, 3], "header": [1, 3], "engine": [1, 3]}
    assert {event["remote_host"] for event in found} == {"127.0.0.1"}
    assert {event["user"] for event in found if event["stage"] == "header"} == {"anonymous", None}
    assert len(events(tmp_path)) == len(found)


def test_a_password_that_nobody_waits_to_hear_about_is_on_record(
    daemon: Callable[..., Daemon], tmp_path: Path, certificates: Certificates
) -> None:
    """The name that was claimed stands there; whether the password was right does not."""
    text = configuration(tmp_path, certificates).replace("saslMechanisms: ANONYMOUS", "saslMechanisms: PLAIN")
    router = daemon(text)
    with peer_of(router) as peer:
        peer.sendall(SASL + encode(Init(mechanism="PLAIN", initial_response=b"\0alice\0perhaps")))
    assert eventually(lambda: len(events(tmp_path)) == 1)
    (event,) = events(tmp_path)
    assert event["user"] == "alice"
    assert (event["stage"], event["reason"]) in {("sasl", "handshake_aborted"), ("sasl", "sasl_failed")}
    assert "perhaps" not in json.dumps(event)
