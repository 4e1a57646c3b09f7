"""Attack: a client resumes a TLS session, and EXTERNAL with it, although its certificate is no longer valid.

The certificate has expired, or its authority was removed. The client resumes with a ticket or by the session's number,
while the first connection is open or later, in TLSv1.2 and TLSv1.3.
"""

import datetime
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import raw_peer
from certificates import Certificates, _name, _sign, _write
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from harness import RunningRouter, connect, eventually, running_router

EXTERNAL = raw_peer.SASL + raw_peer.sasl_init("EXTERNAL", b"") + raw_peer.AMQP + raw_peer.open_frame()
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
LIFE_S = 4


@dataclass(frozen=True, slots=True)
class Authority:
    """One that can be taken out of the router's caCertFile, and whose certificates last as long as it says."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    name: str = "second"

    @classmethod
    def make(cls, folder: Path) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / "second-ca.crt", _sign(_name("second"), key.public_key(), _name("second"), key, is_ca=True))
        return cls(folder, key)

    def issue(self, name: str | x509.Name, life_s: float) -> tuple[str, str]:
        """Paths of certificate and key. name  the common name, or the subject"""
        own = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(name) if isinstance(name, str) else name)
            .issuer_name(_name(self.name))
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(seconds=life_s))
            .sign(self.key, hashes.SHA256())
        )
        number = len(list(self.folder.iterdir()))
        certificate, key = self.folder / f"{number}.crt", self.folder / f"{number}.key"
        _write(certificate, made)
        key.write_bytes(
            own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(certificate), str(key)


@pytest.fixture
def router(certificates: Certificates, router_python: Path, tmp_path: Path) -> Iterator[RunningRouter]:
    with running_router(tmp_path / "router", own_authorities(certificates, tmp_path), python=router_python) as running:
        yield running


def own_authorities(certificates: Certificates, tmp_path: Path) -> Certificates:
    """A copy of the certificates, whose ca.crt the test may change."""
    folder = tmp_path / "tls"
    folder.mkdir()
    for path in certificates.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return Certificates(folder=folder)


@pytest.fixture
def authority(router: RunningRouter, tmp_path: Path) -> Authority:
    """Trusted by the router."""
    made = Authority.make(tmp_path)
    ca = Path(router.certificates.ca)
    ca.write_bytes(ca.read_bytes() + (tmp_path / "second-ca.crt").read_bytes())
    reload(router)
    return made


def reload(router: RunningRouter) -> None:
    since = router.mark()
    os.kill(router.pid, signal.SIGHUP)
    router.wait_for_log("Reload on SIGHUP finished", since=since)


def context_of_carol(
    router: RunningRouter, authority: Authority, version: str, *, uses_tickets: bool, life_s: float = 3600
) -> ssl.SSLContext:
    """Of a client with a certificate that lasts for `life_s`. version  one of VERSIONS"""
    context = ssl.create_default_context(cafile=router.certificates.ca)
    context.load_cert_chain(*authority.issue("carol", life_s))
    context.minimum_version = context.maximum_version = VERSIONS[version]
    if not uses_tickets:
        context.options |= ssl.OP_NO_TICKET
    return context


class Client:
    """A client that logs in by EXTERNAL; `session` is what it would resume."""

    def __init__(self, router: RunningRouter, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.socket = context.wrap_socket(connect(router, "certificate"), server_hostname="localhost", session=session)
        self.is_resumed = bool(self.socket.session_reused)
        self.socket.sendall(EXTERNAL)
        received = b""
        while b"\x00S\x10" not in received:  # the router's Open
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("refused")
            received += data
        self.session = self.socket.session

    def close(self, *, politely: bool) -> None:
        if politely:
            self.socket.settimeout(1)
            try:
                self.socket.sendall(raw_peer.frame(raw_peer.CLOSE))
                while self.socket.recv(65536):
                    pass
                self.socket.unwrap()
            except OSError:
                pass
        self.socket.close()


def is_admitted(router: RunningRouter, context: ssl.SSLContext, session: ssl.SSLSession | None) -> bool:
    try:
        Client(router, context, session).close(politely=False)
    except OSError:
        return False
    return True


WAYS = [("1.2", True), ("1.2", False), ("1.3", True), ("1.3", False)]


@pytest.mark.parametrize("state", ["open", "closed", "broken off"])
@pytest.mark.parametrize(("version", "uses_tickets"), WAYS)
def test_an_expired_certificate_is_not_resumed(
    version: str, uses_tickets: bool, state: str, router: RunningRouter, authority: Authority
) -> None:
    ends_at = time.monotonic() + LIFE_S
    context = context_of_carol(router, authority, version, uses_tickets=uses_tickets, life_s=LIFE_S)
    first = Client(router, context)
    if state != "open":
        first.close(politely=state == "closed")
    eventually(lambda: time.monotonic() > ends_at + 1, LIFE_S + 5)
    assert not is_admitted(router, context, None), "a new handshake with the certificate still succeeds"
    assert not is_admitted(router, context, first.session)
    first.close(politely=False)


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(("version", "uses_tickets"), WAYS)
def test_a_certificate_of_an_authority_that_was_taken_out_is_not_resumed(
    version: str, uses_tickets: bool, is_open: bool, router: RunningRouter, authority: Authority
) -> None:
    context = context_of_carol(router, authority, version, uses_tickets=uses_tickets)
    first = Client(router, context)
    if not is_open:
        first.close(politely=True)
    ca = Path(router.certificates.ca)
    ca.write_bytes(ca.read_bytes().replace((authority.folder / "second-ca.crt").read_bytes(), b""))
    reload(router)
    assert not is_admitted(router, context, first.session)
    first.close(politely=False)


@pytest.mark.parametrize("politely", [True, False])
@pytest.mark.parametrize(("version", "uses_tickets"), WAYS)
def test_no_session_outlives_its_connection(
    version: str, uses_tickets: bool, politely: bool, router: RunningRouter, authority: Authority
) -> None:
    """Nor does a client that tries pay for it: it shakes hands in full."""
    context = context_of_carol(router, authority, version, uses_tickets=uses_tickets)
    first = Client(router, context)
    name = ":".join(map(str, first.socket.getsockname()[:2]))
    first.close(politely=politely)
    assert eventually(lambda: not is_known(router, name), 10)
    again = Client(router, context, first.session)
    assert not again.is_resumed
    again.close(politely=False)


def is_known(router: RunningRouter, name: str) -> bool:
    """Does the router still have that end of a connection open?"""
    opened = router.wait_for_log(rf"\[C(\d+)\] Connection Opened: dir=in host={name} ")[1]
    return not router.has_logged(rf"\[C{opened}\] Connection Closed")


def test_s_client_does_not_resume(router: RunningRouter, authority: Authority, tmp_path: Path) -> None:
    """With the session of a connection that the router has seen end."""
    certificate, key = authority.issue("carol", 3600)
    session = str(tmp_path / "session")

    def shown(*options: str) -> str:
        return subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{router.ports['certificate']}", "-tls1_2", *options,
             "-cert", certificate, "-key", key, "-CAfile", router.certificates.ca],
            input="", capture_output=True, text=True, timeout=60, check=False,
        ).stdout  # fmt: skip

    assert "New, TLSv1.2" in shown("-sess_out", session)
    assert eventually(lambda: "New, TLSv1.2" in shown("-sess_in", session), 10)
    assert "Reused" not in shown("-sess_in", session)
