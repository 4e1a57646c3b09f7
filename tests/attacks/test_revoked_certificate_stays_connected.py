"""Attack: a client connects or stays connected with a certificate that was revoked or that another authority issued."""

import datetime
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import raw_peer
from certificates import Certificates, _name, _sign, _write
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from daemon_process import Daemon, Started, audit_events, eventually
from daemons import peer_of
from raw_peer import RawPeer
from test_resumed_certificates import Authority

from router.values import Described

CONFIGURATION = """
router {{
    id: revoking
    auditDir: {folder}/audit
}}
policy {{
    onPolicyChange: {change}
    policyDirWatchSeconds: 1
}}
sslProfile {{
    name: tls
    caCertFile: {ca}
    certFile: {server}
    privateKeyFile: {key}
    uidFormat: n
    {lists}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    {trusted}
}}
"""


def configured(folder: Path, certificates: Certificates, *, change: str = "enforce", **more: str) -> str:
    server, key = certificates.pair("server")
    given = {"ca": f"{folder}/second-ca.crt", "lists": f"crlFile: {folder}/list.crl", "trusted": "", **more}
    return CONFIGURATION.format(folder=folder, server=server, key=key, change=change, **given)


def write_list(authority: Authority, *revoked: str, days: float = 1) -> None:
    """revoked  paths of certificates"""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(_name("second"))
    builder = builder.last_update(now - datetime.timedelta(days=2)).next_update(now + datetime.timedelta(days=days))
    for path in revoked:
        serial = x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    pem = builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    new = authority.folder / "list.new"
    new.write_bytes(pem)
    os.replace(new, authority.folder / "list.crl")


@contextmanager
def logged_in(router: Daemon, pair: tuple[str, str], ca: str) -> Iterator[RawPeer]:
    """Errors: OSError where the handshake fails."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(*pair)
    with peer_of(router) as outside, context.wrap_socket(outside.socket, server_hostname="localhost") as inside:
        peer = RawPeer(inside, 0)
        peer.send(raw_peer.SASL + raw_peer.sasl_init("EXTERNAL", b"") + raw_peer.AMQP + raw_peer.open_frame())
        peer.read_until(raw_peer.OPEN)
        yield peer


def comes_in(router: Daemon, pair: tuple[str, str], ca: str) -> bool:
    try:
        with logged_in(router, pair, ca):
            return True
    except (OSError, AssertionError):
        return False


def error_of(peer: RawPeer) -> tuple[str, str]:
    """Condition and description of the router's Close."""
    (error,) = peer.read_until(raw_peer.CLOSE, 10.0)
    assert isinstance(error, Described)
    return str(error.value[0]), str(error.value[1])


def is_open(peer: RawPeer) -> bool:
    peer.received = b""
    peer.send(raw_peer.begin())
    peer.read_until(raw_peer.BEGIN)
    return True


def test_whose_certificate_is_revoked_is_out(tmp_path: Path, certificates: Certificates, daemon: Started) -> None:
    authority = Authority.make(tmp_path)
    carol, dave = authority.issue("carol", 3600), authority.issue("dave", 3600)
    write_list(authority)
    router = daemon(configured(tmp_path, certificates))
    with logged_in(router, carol, certificates.ca) as first, logged_in(router, dave, certificates.ca) as second:
        write_list(authority, carol[0])
        assert error_of(first) == ("amqp:connection:forced", "The client certificate was revoked")
        assert is_open(second)
        assert not comes_in(router, carol, certificates.ca)
        assert comes_in(router, dave, certificates.ca)
    router.wait_for_log(r"SSL Failure: certificate verify failed: certificate revoked")
    router.wait_for_log(r"POLICY \(info\) Revocation lists of sslProfile tls read anew: 1 connections closed at plain")
    events = eventually(lambda: [each for each in audit_events(tmp_path / "audit") if each["decision"] == "deny"])
    assert (events[0]["reason"], events[0]["user"]) == ("certificate_revoked", "carol")
    assert [each["reason"] for each in events[1:]] == ["tls_handshake_failed"]


def lists_of(folder: Path, *revoking: tuple[str, ec.EllipticCurvePrivateKey, list[str]]) -> None:
    """list.crl, with a list of each: (name of the authority, its key, paths of the certificates it revokes)."""
    now = datetime.datetime.now(datetime.UTC)
    pem = b""
    for name, key, revoked in revoking:
        builder = x509.CertificateRevocationListBuilder().issuer_name(_name(name))
        builder = builder.last_update(now - datetime.timedelta(days=2)).next_update(now + datetime.timedelta(days=1))
        for path in revoked:
            serial = x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        pem += builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "list.new").write_bytes(pem)
    os.replace(folder / "list.new", folder / "list.crl")


@pytest.mark.parametrize("what", ["the intermediate authority", "the certificate below it"])
def test_a_chain_is_revoked_in_any_of_its_certificates(
    what: str, tmp_path: Path, certificates: Certificates, daemon: Started
) -> None:
    """Only the root is in caCertFile; the client sends the intermediate one, whose own list is in the file as well."""
    root = Authority.make(tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "below").mkdir()
    _write(tmp_path / "middle.crt", _sign(_name("middle"), key.public_key(), _name("second"), root.key, is_ca=True))
    below = Authority(tmp_path / "below", key, "middle")
    erin, dave = below.issue("erin", 3600), root.issue("dave", 3600)
    alone = Path(erin[0]).read_bytes()
    Path(tmp_path / "erin.crt").write_bytes(alone)
    Path(erin[0]).write_bytes(alone + (tmp_path / "middle.crt").read_bytes())
    lists_of(tmp_path, ("second", root.key, []), ("middle", key, []))
    router = daemon(configured(tmp_path, certificates))
    with logged_in(router, erin, certificates.ca) as first, logged_in(router, dave, certificates.ca) as second:
        is_middle = what == "the intermediate authority"
        by_root, by_middle = ([str(tmp_path / "middle.crt")], []) if is_middle else ([], [str(tmp_path / "erin.crt")])
        lists_of(tmp_path, ("second", root.key, by_root), ("middle", key, by_middle))
        assert error_of(first) == ("amqp:connection:forced", "The client certificate was revoked")
        assert is_open(second)
        assert not comes_in(router, erin, certificates.ca)


def test_a_server_whose_certificate_is_revoked_is_left(
    tmp_path: Path, certificates: Certificates, daemon: Started
) -> None:
    """By a connector, which does not come back while the server has that certificate."""
    authority = Authority.make(tmp_path)
    shown, key = authority.issue("broker", 3600)
    write_list(authority)
    listener = "listener {\n name: NAME\n host: 127.0.0.1\n port: 0\n saslMechanisms: ANONYMOUS\n"
    server = daemon(
        f"sslProfile {{\n name: own\n certFile: {shown}\n privateKeyFile: {key}\n}}\n"
        + listener.replace("NAME", "tls") + " sslProfile: own\n requireSsl: yes\n}\n"
    )  # fmt: skip
    (tmp_path / "audit").mkdir()
    router = daemon(
        f"router {{\n auditDir: {tmp_path}/audit\n}}\n"
        "policy {\n onPolicyChange: enforce\n policyDirWatchSeconds: 1\n}\n"
        f"sslProfile {{\n name: out\n caCertFile: {tmp_path}/second-ca.crt\n crlFile: {tmp_path}/list.crl\n}}\n"
        f"connector {{\n name: to-broker\n host: 127.0.0.1\n port: {server.port('tls')}\n sslProfile: out\n"
        " verifyHostname: no\n}\n" + listener.replace("NAME", "plain") + "}\n"
    )
    router.wait_for_log(r"Connection Opened: dir=out .* encrypted=TLSv1.3")
    write_list(authority, shown)
    router.wait_for_log(r"Connection to 127\.0\.0\.1:\d+ failed: .*The server's certificate was revoked")
    router.wait_for_log(r"Connection to .* failed: .*certificate verify failed: certificate revoked")
    events = eventually(
        lambda: [each for each in audit_events(tmp_path / "audit") if each["reason"] == "certificate_revoked"]
    )
    (event,) = events
    assert event["stage"] == "engine"
    assert event["detail"].startswith("The server's certificate was revoked")
    assert event["connection_name"] == f"127.0.0.1:{server.port('tls')}"


def test_with_keep_only_the_next_login_fails(tmp_path: Path, certificates: Certificates, daemon: Started) -> None:
    authority = Authority.make(tmp_path)
    carol = authority.issue("carol", 3600)
    write_list(authority)
    router = daemon(configured(tmp_path, certificates, change="keep"))
    with logged_in(router, carol, certificates.ca) as peer:
        write_list(authority, carol[0])
        router.wait_for_log("Reload of sslProfile tls for plain: new connections use its files")
        assert not comes_in(router, carol, certificates.ca)
        assert is_open(peer)


@pytest.mark.parametrize("how", ["gone", "nonsense", "forged"])
def test_a_list_that_cannot_be_used_lets_in_nobody_new_and_ends_nobody(
    how: str, tmp_path: Path, certificates: Certificates, daemon: Started
) -> None:
    """Gone or nonsense: the old one stays. By another key: it is read, and OpenSSL believes it no more than we do."""
    authority = Authority.make(tmp_path)
    carol, dave = authority.issue("carol", 3600), authority.issue("dave", 3600)
    write_list(authority, carol[0])
    router = daemon(configured(tmp_path, certificates))
    with logged_in(router, dave, certificates.ca) as peer:
        if how == "gone":
            (tmp_path / "list.crl").unlink()
        elif how == "nonsense":
            (tmp_path / "list.crl").write_text("nonsense")
        else:
            (tmp_path / "other").mkdir()
            forger = Authority.make(tmp_path / "other")
            write_list(forger, dave[0])
            os.replace(tmp_path / "other" / "list.crl", tmp_path / "list.crl")
        if how == "forged":
            router.wait_for_log("Reload of sslProfile tls for plain: new connections use its files")
            assert not comes_in(router, dave, certificates.ca)
        else:
            router.wait_for_log(r"CONN_MGR \(error\) Reload of sslProfile tls for plain failed, .* revocation lists: ")
            assert comes_in(router, dave, certificates.ca)
            (event,) = [each for each in audit_events(tmp_path / "audit") if each["reason"] == "tls_configuration"]
            assert event["stage"] == "tls"
        assert not comes_in(router, carol, certificates.ca)
        assert is_open(peer)


def test_an_expired_list_lets_nobody_in_and_says_so(
    tmp_path: Path, certificates: Certificates, daemon: Started
) -> None:
    authority = Authority.make(tmp_path)
    write_list(authority, days=-1)
    router = daemon(configured(tmp_path, certificates))
    router.wait_for_log(r"CONN_MGR \(error\) sslProfile tls: a revocation list in \S+list.crl has expired: ")
    assert not comes_in(router, authority.issue("carol", 3600), certificates.ca)
    router.wait_for_log("certificate verify failed: CRL has expired")


def test_a_client_of_an_authority_that_is_not_in_trusted_certs_file(
    tmp_path: Path, certificates: Certificates, daemon: Started
) -> None:
    """policy 48: 1.20 lets it in."""
    authority = Authority.make(tmp_path)
    both = tmp_path / "both.crt"
    both.write_bytes((tmp_path / "second-ca.crt").read_bytes() + Path(certificates.ca).read_bytes())
    trusted = f"trustedCertsFile: {tmp_path}/second-ca.crt"
    router = daemon(configured(tmp_path, certificates, ca=str(both), lists="", trusted=trusted))
    assert comes_in(router, authority.issue("carol", 3600), certificates.ca)
    assert not comes_in(router, certificates.pair("dave"), certificates.ca)
    assert not router.log("trustedCertsFile")
