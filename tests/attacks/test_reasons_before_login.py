"""Attack: peers try to overload the router before their login.

Three reason codes for that were documented but never used, so that an auditor who searched for them found nothing.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import raw_peer
from certificates import Certificates
from daemon_process import Daemon, audit_events, eventually, start, write_users

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost

CONFIGURATION = """
router {{
    id: pressed
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
    maxHandshakesPerHost: 5
}}
sslProfile {{
    name: p
    certFile: {certificate}
    privateKeyFile: {key}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
listener {{
    name: tls
    host: 127.0.0.1
    port: 0
    sslProfile: p
    requireSsl: yes
}}
"""
# Takes a good part of a second: time enough to send on while it is compared.
SLOW = Argon2idCost(memory_kib=128 * 1024, iterations=8, lanes=1)
MIBIBYTE = 1 << 20


@contextmanager
def pressed(folder: Path, certificates: Certificates) -> Iterator[Daemon]:
    sasl = write_users(folder, {"alice": "right"})
    set_user(str(folder / "users"), "alice", Secret("right"), cost=SLOW, must_exist=True)
    certificate, key = certificates.pair("server")
    router = start(folder, CONFIGURATION.format(sasl=sasl, folder=folder, certificate=certificate, key=key))
    try:
        router.wait_for_log(r"Listening on \S+ \(tls\)")
        yield router
    finally:
        router.end()


def recorded(router: Daemon, reason: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        events = audit_events(router.folder / "audit")
        return next((event for event in events if event["reason"] == reason), None)

    event: dict[str, Any] | None = eventually(found)
    assert event is not None, audit_events(router.folder / "audit")
    assert event["decision"] == "deny"
    return event


def read_to_end(connected: socket.socket) -> bytes:
    received = b""
    try:
        while data := connected.recv(65536):
            received += data
    except ConnectionError:
        return received
    return received


def connect(router: Daemon, name: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", router.port(name)), 10)


def test_who_announces_tls_and_sends_none(tmp_path: Path, certificates: Certificates) -> None:
    with pressed(tmp_path, certificates) as router, connect(router, "tls") as peer:
        peer.sendall(raw_peer.TLS + raw_peer.AMQP)
        assert read_to_end(peer).startswith(raw_peer.TLS)
        assert recorded(router, "not_tls")["stage"] == "tls"
        router.wait_for_log(r"failed: amqp:connection:framing-error SSL Failure: ")


def test_who_sends_a_broken_handshake_has_begun_one(tmp_path: Path, certificates: Certificates) -> None:
    with pressed(tmp_path, certificates) as router, connect(router, "tls") as peer:
        peer.sendall(b"\x16\x03\x01\x00\x05hello")
        read_to_end(peer)
        assert recorded(router, "tls_handshake_failed")["stage"] == "tls"


def test_who_sends_on_before_the_password_is_compared(tmp_path: Path, certificates: Certificates) -> None:
    with pressed(tmp_path, certificates) as router, connect(router, "plain") as peer:
        peer.sendall(raw_peer.SASL + raw_peer.plain("alice", "wrong"))
        with suppress(ConnectionError):  # the router may have had enough
            peer.sendall(b"x" * MIBIBYTE)
        read_to_end(peer)
        event = recorded(router, "preauth_buffer_exceeded")
        assert (event["stage"], event["user"], event["remote_host"]) == ("sasl", "alice", "127.0.0.1")


def test_who_begins_too_many_logins(tmp_path: Path, certificates: Certificates) -> None:
    with pressed(tmp_path, certificates) as router, ExitStack() as stack:
        peers = [stack.enter_context(connect(router, "plain")) for _ in range(6)]
        assert read_to_end(peers[-1]) == b""
        event = recorded(router, "too_many_handshakes")
        assert (event["stage"], event["limit"], event["remote_host"]) == ("accept", 5, "127.0.0.1")
