"""Compares host names: the names in a server's certificate with the host connected to, and patterns with names.

Pure. Source: docs/spec/policy-and-auth.md §6.6, §6.9.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final, TypeVar

from cryptography import x509
from cryptography.x509.oid import NameOID

_WILDCARD: Final = "*"
_T = TypeVar("_T")


def as_dns(host: str) -> str:
    """Returns a host name as certificates have it: lower case, A-labels (IDNA 2008), no dot at the end.

    A text that is no host name is returned as it is: no certificate names it.
    """
    return _normal(host) or host


def names_host(der: bytes, host: str) -> bool:
    """Returns whether qdrouterd 1.20 would accept a server with this certificate for `host`, a name or an address.

    The DNS names and common names are compared, and for an address also the certificate's addresses. In each label of a
    DNS name or common name, one `*` matches any characters of that label, but never a part of an address. A certificate
    that cannot be read matches no host.
    """
    wanted = _normal(host)
    if wanted is None:
        return False
    try:
        certificate = x509.load_der_x509_certificate(der)
        common = [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        names = [each for each in common if isinstance(each, str)]
        addresses: list[str] = []
        try:
            alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            pass
        else:
            names += alternatives.get_values_for_type(x509.DNSName)
            addresses = [str(each) for each in alternatives.get_values_for_type(x509.IPAddress)]
    except (ValueError, TypeError, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return False
    if _is_address(wanted):
        return wanted in addresses or wanted in (_normal(name) for name in names)
    return any(matches(name, wanted) for name in names)


def matches(pattern: str, host: str) -> bool:
    """Returns whether `host`, in lower case, matches the pattern."""
    labels, wanted = pattern.lower().removesuffix(".").split("."), host.split(".")
    return len(labels) == len(wanted) and all(map(_label_matches, labels, wanted))


def _label_matches(label: str, wanted: str) -> bool:
    before, star, after = label.partition(_WILDCARD)
    if not star:
        return label == wanted
    # An empty label is invalid. A second `*` is an ordinary character, which no host name contains.
    is_long_enough = len(wanted) >= max(len(before) + len(after), 1)
    return is_long_enough and wanted.startswith(before) and wanted.endswith(after)


def chosen(by_name: Mapping[str, _T], name: str | None) -> _T | None:
    """Returns the value of a host name, or else of the pattern with `*` in place of its first label.

    by_name  with keys as `pattern_of` writes them
    """
    if name is None:
        return None
    found = by_name.get(name)
    if found is None:
        first, dot, rest = name.partition(".")
        found = by_name.get(f"{_WILDCARD}.{rest}") if first and dot else None
    return found


def pattern_of(written: str) -> str:
    """Returns a name as a key for `chosen`: lower case, international letters as DNS writes them.

    `*` is permitted only as the whole first label.
    Errors  ValueError; the text says what is wrong.
    """
    star = f"{_WILDCARD}." if written.startswith(f"{_WILDCARD}.") else ""
    name = _normal(written.removeprefix(star))
    if name is None or _WILDCARD in name:
        raise ValueError(f"'{written}' is no host name: expected one such as a.example.com or *.example.com")
    if _is_address(name):
        raise ValueError(f"'{written}' is an address: TLS names hosts by name only")
    return star + name


def _normal(host: str) -> str | None:
    """Returns a host name in lower case, without a final dot, international letters as DNS writes them.

    None if invalid.
    """
    text = host.removesuffix(".")
    if not text.isascii():
        try:
            import idna  # it loads large tables, which few names need

            text = idna.encode(text, uts46=True).decode("ascii")
        except UnicodeError:
            return None
    text = text.lower()
    if _is_address(text):
        return str(ipaddress.ip_address(text))
    is_name = 0 < len(text) <= 253 and text.isprintable() and " " not in text and all(text.split("."))
    return text if is_name else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
