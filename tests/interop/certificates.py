"""A certificate authority of the tests: a server, clients by name, and a stranger whom nobody vouches for."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files ca.crt, NAME.crt and NAME.key in one folder. `server` is for localhost, 127.0.0.1 and ::1; the clients are
    carol and dave; `stranger` claims to be carol too, but signed by another authority.
    """

    folder: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.crt")

    def pair(self, name: str) -> tuple[str, str]:
        """Paths of certificate and key."""
        return str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key")

    @classmethod
    def make(cls, folder: Path, *others: str) -> "Certificates":
        """others  further names that the authority vouches for"""
        ca_key, other_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        ca_name, other_name = _name("tests"), _name("others")
        _write(folder / "ca.crt", _sign(ca_name, ca_key.public_key(), ca_name, ca_key, is_ca=True))
        for file, common_name, issuer, issuer_key in (
            ("server", "localhost", ca_name, ca_key),
            ("carol", "carol", ca_name, ca_key),
            ("dave", "dave", ca_name, ca_key),
            ("stranger", "carol", other_name, other_key),
            *((name, name, ca_name, ca_key) for name in others),
        ):
            key = ec.generate_private_key(ec.SECP256R1())
            _write(folder / f"{file}.crt", _sign(_name(common_name), key.public_key(), issuer, issuer_key))
            (folder / f"{file}.key").touch(mode=0o600)
            (folder / f"{file}.key").write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
            )
        return cls(folder=folder)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
