"""Makes the certificates of a private certificate authority. Writes no files."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of different machines differ a little.
_EARLIER: Final = datetime.timedelta(minutes=5)


class AuthorityError(ValueError):
    """The certificate cannot be made. The text names the cause and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority: its certificate and the key that it signs with."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def make_authority(name: str, days: int) -> Authority:
    """Returns an authority that may sign certificates of routers and clients, but no other authority.

    Errors  AuthorityError
    """
    key = new_key()
    subject = _subject(name)
    builder = _builder(subject, subject, key.public_key(), key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed = builder.add_extension(_usage(is_authority=True), critical=True).sign(key, hashes.SHA256())
    return Authority(certificate=signed, key=key)


def sign(
    authority: Authority,
    name: str,
    key: ec.EllipticCurvePublicKey,
    days: int,
    *,
    hosts: Sequence[str] = (),
    is_client: bool = True,
) -> x509.Certificate:
    """Returns a certificate that the authority has signed. It ends no later than the authority's own certificate.

    hosts      names and addresses of the holder; if there are none, the certificate is not for a server
    is_client  the holder logs in to other routers
    Errors     AuthorityError
    """
    issuer = authority.certificate
    builder = _builder(
        _subject(name), issuer.subject, key, authority.key.public_key(), days, issuer.not_valid_after_utc
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
    purposes += [ExtendedKeyUsageOID.CLIENT_AUTH] if is_client else []
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_host(text) for text in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Returns the hosts that a certificate names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def name_of(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else certificate.subject.rfc4514_string()


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: int,
    latest: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    if latest is not None and latest <= now:
        raise AuthorityError(f"the certificate of the authority ended on {latest:%Y-%m-%d}: renew it first")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(end if latest is None else min(end, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError:
        raise AuthorityError(f"'{name[:80]}': a name has 1 to 64 characters") from None


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError:
        raise AuthorityError(f"'{text[:80]}' is no host: write its name in ASCII (xn--...), or its address") from None
