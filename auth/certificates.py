"""Derives the user name from a client certificate.

Pure. The certificates are DER that TLS has already verified.
Sources: docs/spec/policy-and-auth.md §6.3, §6.4; RFC 2253 in the rendering of OpenSSL's `-nameopt RFC2253`.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import NameOID, ObjectIdentifier

# RSA, DSA and EC keys with fewer bits can be broken.
MIN_KEY_BITS = 2048
MIN_EC_BITS = 224

# Longer formats are ignored, as is one with an unknown character (§6.3).
MAX_FORMAT_CHARACTERS = 7

# Caps the user name that a certificate can put into every log line and audit event.
MAX_USER_CHARACTERS = 4096

_COMPONENTS: Mapping[str, ObjectIdentifier] = {
    "c": NameOID.COUNTRY_NAME,
    "s": NameOID.STATE_OR_PROVINCE_NAME,
    "l": NameOID.LOCALITY_NAME,
    "o": NameOID.ORGANIZATION_NAME,
    "u": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "n": NameOID.COMMON_NAME,
}
_FINGERPRINTS: Mapping[str, hashes.HashAlgorithm] = {
    "1": hashes.SHA1(),  # noqa: S303  names a certificate that TLS has verified; nothing rests on its strength alone
    "2": hashes.SHA256(),
    "5": hashes.SHA512(),
}

# OpenSSL's short names. Other types are written as a dotted number with their text; OpenSSL would dump the DER.
_SHORT_NAMES: Mapping[ObjectIdentifier, str] = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "street",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.SERIAL_NUMBER: "serialNumber",
    NameOID.SURNAME: "SN",
    NameOID.GIVEN_NAME: "GN",
    NameOID.INITIALS: "initials",
    NameOID.TITLE: "title",
    NameOID.GENERATION_QUALIFIER: "generationQualifier",
    NameOID.X500_UNIQUE_IDENTIFIER: "x500UniqueIdentifier",
    NameOID.DN_QUALIFIER: "dnQualifier",
    NameOID.PSEUDONYM: "pseudonym",
    NameOID.USER_ID: "UID",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.EMAIL_ADDRESS: "emailAddress",
    NameOID.BUSINESS_CATEGORY: "businessCategory",
    NameOID.POSTAL_ADDRESS: "postalAddress",
    NameOID.POSTAL_CODE: "postalCode",
    NameOID.UNSTRUCTURED_NAME: "unstructuredName",
}


# The beginning of a subject. A subject is the user name if uidFormat yields nothing.
_LIKE_A_SUBJECT = re.compile(r"[A-Za-z][A-Za-z0-9]*=|[0-9]+(?:\.[0-9]+)+=")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateId:
    """Identifies a certificate as a revocation list does.

    issuer  SHA-256 of the issuer's name
    """

    issuer: bytes
    serial: int


class CertificateError(ValueError):
    """The certificate yields no usable user name. The connection then has no user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateUser:
    """user          the name policy sees
    built_id      the result of uidFormat before the mapping; None when the user is the subject
    unrecognized  the first character of uidFormat that names no component (SERVER critical), else None
    """

    user: str
    built_id: str | None = None
    unrecognized: str | None = None


def certificate_user(
    der: bytes, *, uid_format: str | None, display_names: Mapping[str, str] | None = None
) -> CertificateUser:
    """Returns the user for SASL EXTERNAL.

    uid_format     §6.3; None, "" or an invalid one yields the subject
    display_names  id -> name, looked up only for an id that uidFormat built
    Errors         CertificateError: the certificate cannot be parsed; or a component is not printable, such as a name
    with
                   a NUL or a line break, by which one certificate could pass for another in logs and rules; or the name
                   is not a key of display_names and is the display name of another id.
    """
    certificate = _parse(der)
    wanted = uid_format or ""
    unrecognized = next((each for each in wanted if each not in _COMPONENTS and each not in _FINGERPRINTS), None)
    built = None
    if unrecognized is None and len(wanted) <= MAX_FORMAT_CHARACTERS:
        built = _joined([_component(certificate, each) for each in wanted])
    names = display_names or {}
    if not built:
        return CertificateUser(user=_own(_subject(certificate), names), unrecognized=unrecognized)
    if not built.isprintable():
        raise CertificateError("the certificate's subject has an unprintable character")
    return CertificateUser(user=_limited(names.get(built) or _own(built, names)), built_id=built)


def _joined(parts: list[str]) -> str:
    """Joins the components to one text. Different components give different texts.

    An empty component before a later one keeps its place. A `;` or `\\` in a component is escaped with `\\`. So is the
    `=` of a text that would otherwise look like a subject.
    """
    while parts and not parts[-1]:
        parts.pop()
    joined = ";".join(part.replace("\\", "\\\\").replace(";", "\\;") for part in parts)
    return joined.replace("=", "\\=", 1) if _LIKE_A_SUBJECT.match(joined) else joined


def _own(name: str, display_names: Mapping[str, str]) -> str:
    """Returns a name that the mapping did not replace. Errors: CertificateError if it is another id's display name."""
    if name in display_names.values():
        raise CertificateError(f"'{name}' is not in the mapping file, and is the display name of another there")
    return name


def certificate_subject(der: bytes, *, display_names: Mapping[str, str] | None = None) -> str:
    """Returns the subject as an RFC 2253 string: the user name of a TLS client that skips SASL (§8.3).

    Errors  CertificateError, also for a certificate without a subject, and as for certificate_user.
    """
    return _own(_subject(_parse(der)), display_names or {})


def certificate_weakness(der: bytes) -> str | None:
    """Returns why OpenSSL's default security level, 2, would refuse a certificate. Returns None if it would not."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        key, signed_with = certificate.public_key(), certificate.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return "a certificate that cannot be read"
    bits = key.key_size if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey | ec.EllipticCurvePublicKey) else None
    least = MIN_EC_BITS if isinstance(key, ec.EllipticCurvePublicKey) else MIN_KEY_BITS
    if bits is not None and bits < least:
        return f"its key has {bits} bits, fewer than {least}"
    if isinstance(signed_with, hashes.MD5 | hashes.SHA1):
        return f"it is signed with {signed_with.name}"
    return None


def expiry_s(der: bytes) -> float:
    """Returns the end of a certificate, in seconds since 1970 UTC. Errors: CertificateError."""
    return _parse(der).not_valid_after_utc.timestamp()


def certificate_id(der: bytes) -> CertificateId:
    """Returns the issuer and serial number of a certificate. Errors: CertificateError."""
    certificate = _parse(der)
    try:
        return CertificateId(issuer=issuer_digest(certificate.issuer), serial=certificate.serial_number)
    except (ValueError, TypeError):
        raise CertificateError("the certificate's issuer cannot be parsed") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The data that is kept of the certificates that TLS verified for a peer.

    shown    each certificate that a revocation list may name, the peer's own first
    signers  DER of those that have signed another one, and so may sign lists
    is_whole false for a resumed session, which yields the peer's own certificate only
    """

    shown: tuple[CertificateId, ...]
    signers: tuple[bytes, ...] = ()
    is_whole: bool = True


def chain_of(own: bytes, verified: Sequence[bytes]) -> Chain:
    """Returns the chain to keep for a peer.

    own       DER of the peer's certificate
    verified  DER of the certificates that TLS has verified, the peer's own first; empty for a resumed session
    Errors    CertificateError
    """
    if not verified:
        return Chain(shown=(certificate_id(own),), is_whole=False)
    return Chain(
        shown=(certificate_id(own), *map(_id_of_signer, verified[1:])), signers=tuple(map(_kept, verified[1:]))
    )


# Ten thousand peers share a few authorities: each is parsed and kept once. Bounded, since peers send intermediate
# certificates.
@lru_cache(maxsize=256)
def _id_of_signer(der: bytes) -> CertificateId:
    return certificate_id(der)


@lru_cache(maxsize=256)
def _kept(der: bytes) -> bytes:
    """Returns one shared object for all equal byte strings."""
    return der


def issuer_digest(name: x509.Name) -> bytes:
    """Returns SHA-256 of the issuer's name, as in CertificateId."""
    return hashlib.sha256(name.public_bytes()).digest()


def chain_ends_at_s(pem: bytes) -> float | None:
    """Returns the earliest end of the certificates in a PEM file, in seconds since 1970 UTC, or None."""
    try:
        return min(each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(pem))
    except (ValueError, x509.InvalidVersion):
        return None


def end_point_binding(der: bytes) -> bytes | None:
    """Returns the `tls-server-end-point` channel binding of a server's certificate. None if its signature has no hash.

    Errors  CertificateError. Source: RFC 5929 §4.1.
    """
    certificate = _parse(der)
    try:
        algorithm = certificate.signature_hash_algorithm
    except UnsupportedAlgorithm:
        return None
    if algorithm is None:
        return None
    is_weak = isinstance(algorithm, hashes.MD5 | hashes.SHA1)
    return certificate.fingerprint(hashes.SHA256() if is_weak else algorithm)


def _parse(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion):
        raise CertificateError("the client certificate cannot be parsed") from None


def _component(certificate: x509.Certificate, each: str) -> str:
    if each in _FINGERPRINTS:
        return certificate.fingerprint(_FINGERPRINTS[each]).hex()
    found = _name(certificate).get_attributes_for_oid(_COMPONENTS[each])
    return _value(found[0]) if found else ""


def _subject(certificate: x509.Certificate) -> str:
    rdns = [
        "+".join(f"{_type_name(attribute)}={_escape(_value(attribute))}" for attribute in reversed(list(rdn)))
        for rdn in reversed(_name(certificate).rdns)
    ]
    if not rdns:
        raise CertificateError("the client certificate has an empty subject")
    return _limited(",".join(rdns))


def _name(certificate: x509.Certificate) -> x509.Name:
    try:
        return certificate.subject
    except (ValueError, TypeError):  # TypeError: a bit string where the attribute needs text
        raise CertificateError("the client certificate's subject cannot be parsed") from None


def _type_name(attribute: x509.NameAttribute[str | bytes]) -> str:
    return _SHORT_NAMES.get(attribute.oid, attribute.oid.dotted_string)


def _value(attribute: x509.NameAttribute[str | bytes]) -> str:
    value = attribute.value
    return value.hex() if isinstance(value, bytes) else value


def _escape(value: str) -> str:
    """Escapes a value as in RFC 2253 §2.4. Each UTF-8 byte of a character that is not printable ASCII becomes \\XX."""
    last = len(value) - 1
    escaped = []
    for at, character in enumerate(value):
        if not " " <= character <= "~":
            escaped.append("".join(f"\\{byte:02X}" for byte in character.encode("utf-8", "surrogatepass")))
        elif character in ',+"\\<>;' or (character == " " and at in (0, last)) or (character == "#" and at == 0):
            escaped.append(f"\\{character}")
        else:
            escaped.append(character)
    return "".join(escaped)


def _limited(user: str) -> str:
    if len(user) > MAX_USER_CHARACTERS:
        raise CertificateError(f"the certificate's user name is longer than {MAX_USER_CHARACTERS} characters")
    return user
