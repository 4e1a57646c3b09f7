"""Explains to the operator why the files of an sslProfile cannot be used.

For most files OpenSSL only reports that it cannot load them. Used after such a failure, and never for a decision.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from auth.tls import TlsProfile
from policy.files.regular import MAX_OTHER_BYTES, read_regular, why_unreadable


def file_faults(profile: TlsProfile) -> Iterator[str]:
    """Yields texts that name the attribute, the file and its fault. Yields none if no fault is found."""
    named = {
        "caCertFile": profile.ca_cert_file,
        "certFile": profile.cert_file,
        "privateKeyFile": profile.private_key_file,
        "crlFile": profile.crl_file,
    }
    contents: dict[str, bytes] = {}
    for attribute, path in named.items():
        if not path or os.path.isdir(path):
            continue
        if (why := why_unreadable(path)) is not None:
            yield f"{attribute} {path}: {why}"
            continue
        with suppress(OSError):
            contents[attribute] = read_regular(path, MAX_OTHER_BYTES)
    certificate = None
    for attribute in ("caCertFile", "certFile"):
        if attribute in contents and (found := _certificate(contents[attribute])) is None:
            yield f"{attribute} {named[attribute]}: it holds no certificate in PEM"
        elif attribute == "certFile" and attribute in contents:
            certificate = found
    if "privateKeyFile" not in contents:
        return
    key, fault = _key(contents["privateKeyFile"], profile)
    if fault is not None:
        yield f"privateKeyFile {profile.private_key_file}: {fault}"
    elif key is not None and certificate is not None and not _fit(key, certificate):
        yield f"privateKeyFile {profile.private_key_file}: it is not the key of certFile {profile.cert_file}"


def _certificate(content: bytes) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificates(content)[0]
    except ValueError:
        return None


def _key(content: bytes, profile: TlsProfile) -> tuple[PrivateKeyTypes | None, str | None]:
    """Returns the key, or why it cannot be read."""
    if b"PRIVATE KEY-----" not in content:
        return None, "it holds no private key in PEM"
    password = profile.password.reveal() if profile.password is not None else ""
    is_encrypted = b"ENCRYPTED" in content
    try:
        return load_pem_private_key(content, password.encode() if is_encrypted and password else None), None
    except UnsupportedAlgorithm:
        return None, None
    except (TypeError, ValueError):
        if not is_encrypted:
            return None, "its private key cannot be read"
        return None, "its password is wrong" if password else "it is encrypted, and the profile has no password"


def _fit(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)
