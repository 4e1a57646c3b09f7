"""A small PKI, made once for all tests of this folder."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from auth.tls import TlsProfile

# The issuer of tokens of the tests against real peers serves here too.
sys.path.append(str(Path(__file__).resolve().parent.parent / "interop"))

NOW = datetime.now(UTC)
CLIENT_NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Client"),
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Dev"),
        x509.NameAttribute(NameOID.LOCALITY_NAME, "Raleigh"),
        x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "NC"),
        x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
    ]
)


_AUTHORITY_KEYS: dict[str, ec.EllipticCurvePrivateKey] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """Paths of PEM files and the certificates in them."""

    ca: str
    other_ca: str
    server_cert: str
    server_key: str
    locked_key: str  # the server's key under the password "sesame"
    client_cert: str
    client_key: str
    stranger_cert: str  # a client of the other CA
    stranger_key: str
    client: x509.Certificate

    def key_of(self, authority: str) -> ec.EllipticCurvePrivateKey:
        """The key of an authority by its file."""
        return _AUTHORITY_KEYS[authority]

    def server_profile(self, **changes: object) -> TlsProfile:
        attributes: dict[str, object] = {
            "name": "server",
            "ca_cert_file": self.ca,
            "cert_file": self.server_cert,
            "private_key_file": self.server_key,
        }
        return TlsProfile(**(attributes | changes))  # type: ignore[arg-type]

    def client_profile(self, **changes: object) -> TlsProfile:
        attributes: dict[str, object] = {"name": "client", "ca_cert_file": self.ca}
        return TlsProfile(**(attributes | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    ca_key, ca = _authority("Test CA")
    other_key, other = _authority("Other CA")
    server_key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    server = _issue(_name("localhost"), server_key, ca, ca_key, names)
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = _issue(CLIENT_NAME, client_key, ca, ca_key)
    stranger = _issue(CLIENT_NAME, client_key, other, other_key)
    locked = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame"))
    _AUTHORITY_KEYS.update({str(folder / "ca.pem"): ca_key, str(folder / "other-ca.pem"): other_key})
    return Pki(
        ca=_write(folder / "ca.pem", _pem(ca)),
        other_ca=_write(folder / "other-ca.pem", _pem(other)),
        server_cert=_write(folder / "server.pem", _pem(server)),
        server_key=_write(folder / "server-key.pem", _key_pem(server_key)),
        locked_key=_write(folder / "locked-key.pem", locked),
        client_cert=_write(folder / "client.pem", _pem(client)),
        client_key=_write(folder / "client-key.pem", _key_pem(client_key)),
        stranger_cert=_write(folder / "stranger.pem", _pem(stranger)),
        stranger_key=_write(folder / "stranger-key.pem", _key_pem(client_key)),
        client=client,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _authority(common_name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _builder(_name(common_name), _name(common_name), key, is_ca=True).sign(key, hashes.SHA256())


def _issue(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName | None = None,
) -> x509.Certificate:
    builder = _builder(subject, ca.subject, key, is_ca=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
