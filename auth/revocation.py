"""Reads certificate revocation lists, passes them to OpenSSL, and looks up certificates shown earlier.

OpenSSL checks the lists in each handshake, and fails closed: if an authority has no list, or an expired one, OpenSSL
trusts none of its certificates. Sources: RFC 5280 §5; docs/spec/policy-and-auth.md §6.8.
"""

import os
import re
import ssl
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from auth.certificates import CertificateId, issuer_digest
from policy.files.regular import MAX_OTHER_BYTES, read_regular

# The files of a hashed directory, as `openssl rehash` makes them.
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.r[0-9]{1,4}")
# Stops a directory full of links to one large list.
MAX_LISTS: Final = 1000
_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class RevocationError(ValueError):
    """The lists cannot be used; the text names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationLists:
    """The revocation lists of one sslProfile.

    pem        the lists as read and nothing else: OpenSSL would take a certificate in it for an authority
    path       the file or directory of the lists
    """

    lists: tuple[x509.CertificateRevocationList, ...]
    pem: bytes
    path: str

    @property
    def ends_at_s(self) -> float | None:
        """Returns when the first list expires, in seconds since 1970 UTC. None if none expires."""
        ends = (each.next_update_utc for each in self.lists)
        return min((end.timestamp() for end in ends if end is not None), default=None)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes every certificate of a peer's chain need a valid list that does not name it."""
        # OpenSSL reads lists only from files. This file is in memory, since no folder may be writable.
        descriptor = os.memfd_create("crl", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.pem)
            file.flush()
            context.load_verify_locations(cafile=f"/proc/self/fd/{descriptor}")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN

    def revoked(
        self, shown: Collection[CertificateId], authorities: bytes, signers: Collection[bytes] = ()
    ) -> set[CertificateId]:
        """Returns the certificates that a list names. Slow with large lists: do not call it on the event loop.

        authorities  PEM of the authorities; only a list signed by one of them counts
        signers      DER of further certificates below them, which TLS has verified
        """
        found: set[CertificateId] = set()
        trusted = [*_certificates(authorities), *_parsed(signers)]
        for each in self.lists:
            issuer = issuer_digest(each.issuer)
            serials = {one.serial for one in shown if one.issuer == issuer}
            if serials and any(_has_signed(one, each) for one in trusted):
                named = {entry.serial_number for entry in each if entry.serial_number in serials}
                found |= {CertificateId(issuer=issuer, serial=serial) for serial in named}
        return found

    def issuers_that_revoke(self, authorities: bytes) -> set[bytes]:
        """Returns the authorities (as auth.certificates.issuer_digest) whose lists name at least one certificate."""
        trusted = list(_certificates(authorities))
        signed = (each for each in self.lists if len(each) and any(_has_signed(one, each) for one in trusted))
        return {issuer_digest(each.issuer) for each in signed}


def read_lists(path: str) -> RevocationLists:
    """Reads the lists of a PEM file, or of a hashed directory. Errors: RevocationError."""
    blocks: list[bytes] = []
    size = 0
    for file in _files(path):
        try:
            content = read_regular(file, MAX_OTHER_BYTES - size)
        except OSError as error:
            raise RevocationError(f"{file}: {error.strerror}") from None
        size += len(content)
        found = _LIST.findall(content)
        if not found:
            raise RevocationError(f"{file}: no certificate revocation list in PEM")
        blocks += found
    try:
        lists = tuple(_parsed_list(block) for block in blocks)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise RevocationError(f"{path}: a certificate revocation list that cannot be read") from None
    return RevocationLists(lists=lists, pem=b"\n".join(blocks) + b"\n", path=path)


def _parsed_list(block: bytes) -> x509.CertificateRevocationList:
    """Parses a list completely. Errors: ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion; none later.

    Attack: a list from a remote place with a name or a time that raises only when it is read.
    """
    found = x509.load_pem_x509_crl(block)
    issuer_digest(found.issuer)
    _ = found.last_update_utc, found.next_update_utc
    for _entry in found:
        pass
    return found


def list_files(path: str) -> list[str]:
    """Returns the files that `read_lists` reads, [] if there are none."""
    try:
        return _files(path)
    except RevocationError:
        return []


def _files(path: str) -> list[str]:
    if not Path(path).is_dir():
        return [path]
    try:
        names = sorted(name for name in os.listdir(path) if _HASHED.fullmatch(name))
    except OSError as error:
        raise RevocationError(f"{path}: {error.strerror}") from None
    if not names:
        raise RevocationError(f"{path}: no certificate revocation list, named as `openssl rehash` does")
    if len(names) > MAX_LISTS:
        raise RevocationError(f"{path}: more than {MAX_LISTS} certificate revocation lists")
    return [str(Path(path, name)) for name in names]


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    for block in _CERTIFICATE.findall(pem):
        try:
            yield x509.load_pem_x509_certificate(block)
        except (ValueError, x509.InvalidVersion):
            continue


def _parsed(ders: Collection[bytes]) -> Iterator[x509.Certificate]:
    for der in ders:
        try:
            yield x509.load_der_x509_certificate(der)
        except (ValueError, x509.InvalidVersion):
            continue


def _has_signed(authority: x509.Certificate, revoking: x509.CertificateRevocationList) -> bool:
    try:
        # Any kind of key: the call fails for one that cannot sign a list.
        is_its_own = authority.subject == revoking.issuer
        return is_its_own and revoking.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
