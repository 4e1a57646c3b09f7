"""Passwords without TLS: docs/spec/policy-and-auth.md §8.11."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import raw_peer
from certificates import Certificates
from daemon_process import Daemon, audit_events, eventually, start, write_users
from raw_peer import RawPeer

pytestmark = pytest.mark.interop

CONFIGURATION = """
router {{
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
sslProfile {{
    name: tls
    certFile: {certificate}
    privateKeyFile: {key}
}}
listener {{
    name: plain
    host: {host}
    port: 0
    authenticatePeer: yes
    {profile}
    {settings}
}}
"""
WARNING = r"CONN_MGR \(warning\) listener {host}:0: PLAIN without TLS: passwords cross the network in the clear"
OUTCOME = 0x44


def configured(
    folder: Path,
    certificates: Certificates,
    settings: str,
    *,
    host: str = "127.0.0.1",
    profile: str = "sslProfile: tls",
) -> str:
    (folder / "audit").mkdir()
    sasl = write_users(folder, {"alice": "x"}, "PLAIN")
    certificate, key = certificates.pair("server")
    return CONFIGURATION.format(
        sasl=sasl, folder=folder, certificate=certificate, key=key, host=host, settings=settings, profile=profile
    )


def outcome(router: Daemon, certificates: Certificates, *, is_encrypted: bool) -> int:
    with socket.create_connection(("127.0.0.1", router.port()), 10) as connected:
        if is_encrypted:
            context = ssl.create_default_context(cafile=certificates.ca)
            connected = context.wrap_socket(connected, server_hostname="localhost")
        peer = RawPeer(connected, 0)
        peer.send(raw_peer.SASL + raw_peer.plain("alice", "x"))
        return int(peer.read_until(OUTCOME)[0])


@pytest.mark.parametrize(("settings", "in_the_clear"), [("", 0), ("allowPlainWithoutTls: no", 1)])
def test_a_listener_takes_passwords_inside_tls_and_where_it_is_told_to_nowhere_else(
    settings: str, in_the_clear: int, daemon: Callable[..., Daemon], tmp_path: Path, certificates: Certificates
) -> None:
    router = daemon(configured(tmp_path, certificates, settings))
    assert outcome(router, certificates, is_encrypted=True) == 0
    assert outcome(router, certificates, is_encrypted=False) == in_the_clear
    if in_the_clear:
        assert eventually(lambda: [e for e in audit_events(tmp_path / "audit") if e["reason"] == "sasl_mechanism"])
    assert not router.log("in the clear"), "nobody else hears what is said on the loopback address"


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [("", 1), ("allowPlainWithoutTls: no", 0), ("requireSsl: yes", 0), ("saslMechanisms: PLAIN", 1)],
)
def test_a_listener_on_the_network_is_warned_about_once(
    settings: str, warnings: int, daemon: Callable[..., Daemon], tmp_path: Path, certificates: Certificates
) -> None:
    router = daemon(configured(tmp_path, certificates, settings, host="0.0.0.0"))
    router.wait_for_log(r"Listening on 0\.0\.0\.0:")
    assert len(router.log(WARNING.format(host=r"0\.0\.0\.0"))) == warnings


def test_a_listener_that_could_take_nobody_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    settings = "saslMechanisms: PLAIN\n allowPlainWithoutTls: no"
    router = start(tmp_path, configured(tmp_path, certificates, settings, profile=""))
    assert router.wait() == 1
    assert router.log(r"none of its saslMechanisms can be served: they want TLS: there is no sslProfile, and allow")
