"""The settings of an LDAP authenticator: servers, TLS, and where users and groups are.

Sources: RFC 4514 (names), RFC 4515 (filters), RFC 4516 (URLs).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from auth.secrets import PasswordError, Secret
from auth.tls import TlsProfile
from auth.verifiers.ldap_tls import LdapTls
from auth.verifiers.ldap_wire import FilterError, ServerAddress, check_filter
from auth.verifiers.password_sources import resolve_configured
from policy.files.regular import why_unreadable

USER: Final = "{user}"

MAX_SERVERS: Final = 8
MIN_THREADS, MAX_THREADS = 2, 64
MAX_SECONDS: Final = 24 * 3600

_SCHEMES: Final = {"ldap": 389, "ldaps": 636}
_ATTRIBUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*|\d+(\.\d+)+", re.ASCII)
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class LdapSettingsError(ValueError):
    """An attribute cannot be used. The text names it and the expected form."""


def escape(text: str) -> str:
    r"""Escapes the text for a filter or a name: every byte of its UTF-8 except letters and digits as `\xx`.

    RFC 4515 and RFC 4514 both permit that for any byte, so no list of special characters is needed.
    Errors: UnicodeEncodeError for half a surrogate pair, which is not a text.
    """
    return "".join(chr(byte) if byte in _SAFE else f"\\{byte:02x}" for byte in text.encode("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPlace:
    """The place of the users in the directory.

    base       the DN below which they are searched; "" with `dn`
    filter     a further condition on entries
    attribute  the attribute whose value is exactly the user's name
    dn         of a user, with {user} for the name; "": the user is searched for
    """

    base: str
    filter: str
    attribute: str
    dn: str

    def condition(self, user: str) -> str:
        return f"(&{self.filter}({self.attribute}={escape(user)}))"

    def dn_of(self, user: str) -> str:
        return self.dn.replace(USER, escape(user))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """The place of the groups in the directory, and the attributes that make a user a member.

    base           the DN below which they are searched; "": there are none
    filter         a further condition on entries
    attribute      the attribute whose values are the names by which the policy knows the group
    member         the attribute that has the members
    holds_names    that attribute has the names of users; else their DNs
    is_nested      a member of a member counts too
    """

    base: str
    filter: str
    attribute: str
    member: str
    holds_names: bool
    is_nested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BindPassword:
    """The service's password. A file or variable is read each time, so that a new password needs no restart."""

    configured: str = field(repr=False)

    def read(self) -> Secret:
        """Returns the password. Errors: LdapSettingsError."""
        try:
            found = resolve_configured(self.configured, is_literal_prefix=True)
        except PasswordError as error:
            source = (
                f" ({self.configured})" if self.configured.startswith("env:") else ""
            )  # otherwise the text may be the password
            raise LdapSettingsError(f"bindPassword: {error}{source}") from None
        if found.errors:
            raise LdapSettingsError(f"bindPassword: {found.errors[0]}")
        if not found.password:
            raise LdapSettingsError("bindPassword is empty, and so would be an anonymous login")
        return found.password

    @property
    def is_in_configuration(self) -> bool:
        return not self.configured.startswith(("file:", "env:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LdapSettings:
    """All settings of one authenticator.

    starts_tls  StartTLS on `ldap:` servers; without it the connection to them is not encrypted
    bind_dn     of the service; "": anonymous, or, if the user's DN is known, the user
    timeout_s   limit for a server to accept a connection, and for each answer
    retry_s     time in which a server that has failed is not asked
    """

    name: str
    servers: tuple[ServerAddress, ...]
    starts_tls: bool
    tls: LdapTls
    bind_dn: str
    bind_password: BindPassword | None
    users: UserPlace
    groups: GroupPlace
    timeout_s: float
    retry_s: float
    threads: int

    @property
    def has_service(self) -> bool:
        """Returns whether users can be looked up without their password."""
        return bool(self.bind_dn or not self.users.dn)

    @property
    def clear_servers(self) -> tuple[ServerAddress, ...]:
        """Returns the servers to which passwords go unencrypted."""
        return () if self.starts_tls else tuple(each for each in self.servers if not each.is_tls)

    def check_tls(self) -> None:
        """Reads the files of TLS. Errors: LdapSettingsError."""
        if len(self.clear_servers) < len(self.servers):
            try:
                self.tls.context()
            except ValueError as error:
                named = [(key, path) for key, path in self.tls.files if path]
                faults = [f"{key} {path}: {why}" for key, path in named if (why := why_unreadable(path))]
                all_named = ", ".join(f"{key} {path}" for key, path in named)
                text = "; ".join(faults) or f"{all_named}: expected PEM, and a certificate's own key"
                raise LdapSettingsError(f"TLS: {error}: {text}") from None

    def warnings(self) -> Iterator[str]:
        """Yields texts for the log."""
        for server in self.clear_servers:
            yield f"{server}: passwords are sent in the clear: use ldaps: or startTls"
        if not self.tls.verifies_hostname and len(self.clear_servers) < len(self.servers):
            yield "verifyHostname is off: any certificate of the same authority is good enough"
        if self.bind_password is not None and self.bind_password.is_in_configuration:
            yield "bindPassword stands in the configuration: use file: or env:"


def read_settings(attributes: Mapping[str, Any]) -> LdapSettings:
    """Returns the settings of a validated `ldapAuthenticator` entity. Reads the password. Errors: LdapSettingsError."""
    text = _texts(attributes)
    bind_dn, password = text("bindDn"), text("bindPassword")
    if bool(bind_dn) != bool(password):
        raise LdapSettingsError("bindDn and bindPassword belong together")
    bind_password = BindPassword(configured=password) if password else None
    if bind_password is not None:
        bind_password.read()
    users = _users(text)
    return LdapSettings(
        name=str(attributes["name"]),
        servers=_servers(text("urls")),
        starts_tls=bool(attributes.get("startTls", True)),
        tls=LdapTls(_profile(attributes), verifies_hostname=bool(attributes.get("verifyHostname", True))),
        bind_dn=bind_dn,
        bind_password=bind_password,
        users=users,
        groups=_groups(text, is_nested=bool(attributes.get("nestedGroups", False))),
        timeout_s=_number(attributes, "timeoutSeconds", 5, 1, MAX_SECONDS),
        retry_s=_number(attributes, "retrySeconds", 5, 1, MAX_SECONDS),
        threads=_number(attributes, "threads", 8, MIN_THREADS, MAX_THREADS),
    )


def cache_times(attributes: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the seconds for which good and bad answers are remembered. Errors: LdapSettingsError."""
    return (
        _number(attributes, "cacheSeconds", 60, 0, MAX_SECONDS),
        _number(attributes, "negativeCacheSeconds", 5, 0, MAX_SECONDS),
    )


def _texts(attributes: Mapping[str, Any]) -> "_Texts":
    return _Texts(attributes)


class _Texts:
    """Returns attributes as texts; "" for one that is not set."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    def __call__(self, key: str, default: str = "") -> str:
        value = self._attributes.get(key)
        return default if value is None else str(value).strip()


def _servers(urls: str) -> tuple[ServerAddress, ...]:
    found = tuple(_server(url) for url in urls.split())
    if not 0 < len(found) <= MAX_SERVERS:
        raise LdapSettingsError(
            f"urls: expected 1 to {MAX_SERVERS} of the form ldaps://HOST[:PORT], separated by blanks"
        )
    return found


def _server(url: str) -> ServerAddress:
    wrong = LdapSettingsError(f"urls: '{url}': expected ldaps://HOST[:PORT] or ldap://HOST[:PORT]")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in _SCHEMES or not host or parts.username is not None or parts.query or parts.fragment:
        raise wrong
    if parts.path not in ("", "/"):
        raise wrong
    return ServerAddress(host=host, port=port or _SCHEMES[parts.scheme], is_tls=parts.scheme == "ldaps")


def _profile(attributes: Mapping[str, Any]) -> TlsProfile:
    return TlsProfile(
        name=str(attributes["name"]),
        ca_cert_file=attributes.get("caCertFile"),
        cert_file=attributes.get("certFile"),
        private_key_file=attributes.get("privateKeyFile"),
        ciphers=attributes.get("ciphers"),
        protocols=attributes.get("protocols"),
    )


def _users(text: _Texts) -> UserPlace:
    base, dn = text("userBase"), text("userDn")
    if bool(base) == bool(dn):
        raise LdapSettingsError(
            "either userBase, below which users are searched, or userDn, such as uid={user},ou=people"
        )
    if dn and (dn.count(USER) != 1 or f"={USER}" not in dn):
        raise LdapSettingsError("userDn: expected a name with one {user} as a value, such as uid={user},ou=people")
    return UserPlace(
        base=base,
        filter=_filter(text, "userFilter"),
        attribute=_attribute(text, "userAttribute", "uid"),
        dn=dn,
    )


def _groups(text: _Texts, *, is_nested: bool) -> GroupPlace:
    holds_names = text("memberIs", "dn") == "name"
    if holds_names and is_nested:
        raise LdapSettingsError("nestedGroups: groups that hold names of users (memberIs) hold no groups")
    return GroupPlace(
        base=text("groupBase"),
        filter=_filter(text, "groupFilter"),
        attribute=_attribute(text, "groupAttribute", "cn"),
        member=_attribute(text, "memberAttribute", "memberUid" if holds_names else "member"),
        holds_names=holds_names,
        is_nested=is_nested,
    )


def _filter(text: _Texts, key: str) -> str:
    written = text(key, "(objectClass=*)")
    try:
        check_filter(written)
    except FilterError:
        raise LdapSettingsError(f"{key}: expected a filter in parentheses, such as (objectClass=person)") from None
    return written


def _attribute(text: _Texts, key: str, default: str) -> str:
    written = text(key, default)
    if _ATTRIBUTE.fullmatch(written) is None:
        raise LdapSettingsError(f"{key}: expected the name of an attribute, such as {default}")
    return written


def _number(attributes: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    value = attributes.get(key)
    number = default if value is None else int(value)
    if not least <= number <= most:
        raise LdapSettingsError(f"{key}: expected {least} to {most}, not {number}")
    return number
