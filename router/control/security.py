"""Makes sslProfiles ready for listeners and connectors: contexts, and the user names in certificates.

Reads files; a file that cannot be read is an error that names the file. Source: docs/spec/policy-and-auth.md §6.
"""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from auth.certificates import CertificateError, certificate_subject, certificate_user, chain_ends_at_s
from auth.credentials import MAX_TOKEN_BYTES
from auth.host_names import as_dns, chosen
from auth.revocation import RevocationError, list_files, read_lists
from auth.secrets import PasswordError, Secret
from auth.tls import (
    ChoosingTunnel,
    NamedTunnel,
    Served,
    TlsProfile,
    TlsTunnel,
    can_choose_suites,
    client_context,
    own_end_point,
    server_context,
)
from auth.verifiers.password_sources import resolve_configured
from policy.configuration.references import token_problem
from policy.files.positioned_json import NotJson, RepeatedKeyError, first_repeat, loads
from policy.files.regular import MAX_OTHER_BYTES, read_regular
from router.connection.terms import TlsSettings
from router.effects import Emit, log
from router.io.folder_watch import scan_file


class SecurityError(ValueError):
    """A profile or the SASL configuration cannot be used; the text is for the log and the management reply."""


def profile_of(attributes: Mapping[str, Any], emit: Emit) -> TlsProfile:
    """Makes a TlsProfile from an `sslProfile` entity. Its files are not opened yet (§6).

    Errors  SecurityError when a password's environment variable is missing.
    """
    configured = attributes.get("password")
    if configured is None and attributes.get("passwordFile"):
        log(emit, "CONN_MGR", "warning", "Attribute passwordFile of entity sslProfile has been deprecated. "
                                         "Use password field with the file: prefix instead.")  # fmt: skip
        configured = f"file:{attributes['passwordFile']}"
    try:
        password = configured_password(configured, is_literal_prefix=True, emit=emit)
    except SecurityError as error:
        log(emit, "CONN_MGR", "error", f"Unable to create ssl profile: {error}")
        raise
    profile = TlsProfile(
        name=attributes["name"],
        ca_cert_file=attributes.get("caCertFile"),
        cert_file=attributes.get("certFile"),
        private_key_file=attributes.get("privateKeyFile"),
        password=password,
        ciphers=attributes.get("ciphers"),
        protocols=attributes.get("protocols"),
        uid_format=attributes.get("uidFormat"),
        uid_name_mapping_file=attributes.get("uidNameMappingFile"),
        ciphersuites=attributes.get("ciphersuites"),
        crl_file=attributes.get("crlFile"),
    )
    if profile.ciphersuites and not can_choose_suites():
        raise SecurityError(f"sslProfile {profile.name}: ciphersuites: the suites of TLSv1.3 cannot be chosen with "
                            "this Python, whose ssl module has no way to: leave it out, or use 3.15")  # fmt: skip
    if suites := [name for name in re.split(r"[:, ]+", profile.ciphers or "") if name.startswith("TLS_")]:
        text = f"{', '.join(suites)}: ciphers does not touch TLSv1.3, all of whose suites stay allowed"
        log(emit, "CONN_MGR", "warning", f"sslProfile {profile.name}: {text}")
    if withdrawn := profile.withdrawn_protocols:
        log(emit, "CONN_MGR", "warning", f"sslProfile {profile.name} allows {', '.join(withdrawn)}, withdrawn because "
            "broken (RFC 8996): for its connections the security level of OpenSSL is lowered")  # fmt: skip
    return profile


def configured_password(configured: str | None, *, is_literal_prefix: bool, emit: Emit) -> Secret | None:
    """Returns the password that a configured text means (management §1.6), None for none; logs its warnings.

    Errors  SecurityError when its environment variable is missing.
    """
    if configured is None:
        return None
    try:
        resolved = resolve_configured(configured, is_literal_prefix=is_literal_prefix)
    except PasswordError as error:
        raise SecurityError(str(error)) from None
    for text in resolved.warnings:
        log(emit, "CONN_MGR", "warning", text)
    for text in resolved.errors:
        log(emit, "CONN_MGR", "error", text)
    return resolved.password


# Path, inode, size and times of files.
Seen = frozenset[tuple[str, int, int, int, int]]


def entries(path: str) -> Seen:
    """Returns the state of a file, which may be missing."""
    return frozenset(scan_file(path) or ((path, 0, 0, 0, 0),))


class ProfileSource:
    """An sslProfile entity with its password and display names, and the end of its certificate and revocation lists."""

    def __init__(self, attributes: Mapping[str, Any], emit: Emit) -> None:
        """Errors: SecurityError."""
        self.attributes = attributes
        self.profile = profile_of(attributes, emit)
        self.paths = _paths(attributes, self.profile)
        self.seen = self.scan()  # state of its files, and of the users' other files, before they were read
        self.display_names = load_display_names(self.profile, emit)
        # Seconds since 1970 UTC; None if there are none, or none that can be read.
        self.certificate_ends_at_s = _end_of_certificate(self.profile)
        self.lists_end_at_s = _end_of_lists(self.profile)

    def scan(self) -> Seen:
        """Returns the state of its files."""
        found = {entry for path in self.paths for entry in entries(path)}
        if lists := self.profile.crl_file:
            files = list_files(lists)
            found |= {entry for path in files for entry in entries(path)}
            found.add((f"{lists}/", 0, hash(tuple(files)), 0, 0))  # a removed file has no entry of its own
        return frozenset(found)

    def read_again(self, emit: Emit) -> "ProfileSource":
        """Reads the files again into a new source. Errors: SecurityError."""
        return ProfileSource(self.attributes, emit)


class HostnameCheck(Enum):
    """The way to compare the name in a server's certificate with the host that was connected to."""

    OFF = "off"
    STRICT = "strict"  # as OpenSSL compares them, and as RFC 9525 wants
    COMPATIBLE = "compatible"  # as 1.20 does

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> "HostnameCheck":
        """Returns the check that a connector or authServicePlugin asks for."""
        if not attributes["verifyHostname"]:
            return cls.OFF
        return cls(attributes.get("hostnameMatch", "strict"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The context with which connections begin TLS, made from one source at one time."""

    source: ProfileSource
    context: ssl.SSLContext
    end_point: bytes | None


def token_reader(configured: str) -> Callable[[], Secret]:
    """Returns a function that reads the bearer token from `file:PATH` or `env:VARIABLE` at each call.

    Errors  SecurityError for another form, which would put the token into the configuration. The returned function
            raises it, too, when there is no token.
    """
    if (text := token_problem(configured)) is not None:
        raise SecurityError(text)
    form, _, name = configured.partition(":")

    def read() -> Secret:
        try:
            text = read_regular(name, MAX_TOKEN_BYTES).decode("ascii") if form == "file" else os.environ[name]
        except OSError as error:
            raise SecurityError(f"saslToken: {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecurityError(f"saslToken: {name} does not hold a token") from None
        except KeyError:
            raise SecurityError(f"saslToken: there is no environment variable {name}") from None
        if not text.strip():
            raise SecurityError(f"saslToken: {name} is empty")
        return Secret(text.strip())

    return read


class TlsFiles:
    """The TLS settings that one listener or connector has read from an sslProfile: a context, and display names.

    The context is made when the first connection needs it. Connections keep the context they began with.
    """

    def __init__(
        self, source: ProfileSource, make: Callable[[TlsProfile], ssl.SSLContext], *, trusted_file: str | None = None
    ) -> None:
        """trusted_file  what `make` reads besides the files of the profile"""
        self.source = source
        self.trusted_file = trusted_file
        self._make = make
        self._made: Made | None = None

    @classmethod
    def of_listener(cls, source: ProfileSource, *, demand: bool, trusted_file: str | None = None) -> "TlsFiles":
        """demand        demand a certificate from clients
        trusted_file  the authorities of client certificates, instead of the profile's
        """

        def make(profile: TlsProfile) -> ssl.SSLContext:
            if trusted_file and demand:
                profile = replace(profile, ca_cert_file=trusted_file)
            return server_context(profile, demand_certificate=demand)

        return cls(source, make, trusted_file=trusted_file)

    @classmethod
    def of_connector(cls, source: ProfileSource, check: HostnameCheck) -> "TlsFiles":
        def make(profile: TlsProfile) -> ssl.SSLContext:
            context = client_context(profile, verify_hostname=check is not HostnameCheck.OFF)
            context.check_hostname = check is HostnameCheck.STRICT
            return context

        return cls(source, make)

    @property
    def profile(self) -> TlsProfile:
        return self.source.profile

    @property
    def display_names(self) -> Mapping[str, str]:
        return self.source.display_names

    @property
    def context(self) -> ssl.SSLContext:
        """The context in use. Errors: TlsProfileError while the profile's files are unusable."""
        return self._in_force().context

    @property
    def authorities_file(self) -> str | None:
        """The file of the authorities whose certificates peers may show."""
        return self.trusted_file or self.profile.ca_cert_file

    def _in_force(self) -> Made:
        if self._made is None:
            self._made = self.prepared(self.source)
        return self._made

    def server_tunnel(self, choose: Callable[[str | None], Served | None] | None = None) -> TlsTunnel:
        """Makes a tunnel for an accepted connection.

        choose  see ChoosingTunnel
        Errors  see `context`.
        """
        served = self.served()
        if choose is not None:
            return ChoosingTunnel(served, choose)
        return TlsTunnel(served.context, server_side=True, end_point=served.end_point)

    def served(self) -> Served:
        """Returns these settings for a ChoosingTunnel that chooses them. Errors: see `context`."""
        made = self._in_force()
        return Served(profile=self.profile.name, context=made.context, end_point=made.end_point)

    @property
    def paths(self) -> list[str]:
        """The files that the context is made from."""
        return [*self.source.paths, *([self.trusted_file] if self.trusted_file else [])]

    def prepared(self, source: ProfileSource) -> Made:
        """Reads the files and changes nothing. May be called in any thread. Errors: TlsProfileError."""
        context = self._make(source.profile)
        return Made(source=source, context=context, end_point=own_end_point(source.profile))

    def adopt(self, made: Made) -> None:
        """Uses what was made for new connections."""
        self.source, self._made = made.source, made


def _paths(attributes: Mapping[str, Any], profile: TlsProfile) -> list[str]:
    password = str(attributes.get("password") or "")
    named = [profile.ca_cert_file, profile.cert_file, profile.private_key_file, profile.uid_name_mapping_file]
    named += [profile.crl_file, password.removeprefix("file:") if password.startswith("file:") else None]
    return [*dict.fromkeys(path for path in (*named, attributes.get("passwordFile")) if path)]


def _end_of_certificate(profile: TlsProfile) -> float | None:
    try:
        return chain_ends_at_s(read_regular(profile.cert_file, MAX_OTHER_BYTES)) if profile.cert_file else None
    except OSError:
        return None


def _end_of_lists(profile: TlsProfile) -> float | None:
    try:
        return read_lists(profile.crl_file).ends_at_s if profile.crl_file else None
    except RevocationError:
        return None


def client_tunnels(files: TlsFiles, check: HostnameCheck) -> Callable[[str], TlsTunnel]:
    """Makes tunnels to a server by its host name; raises TlsProfileError while the profile's files are unusable.

    files  made for the same check
    """

    def tunnel(host: str) -> TlsTunnel:
        if check is HostnameCheck.COMPATIBLE:
            return NamedTunnel(files.context, host)
        return TlsTunnel(files.context, server_side=False, server_hostname=as_dns(host))

    return tunnel


def server_names(files: TlsFiles, emit: Emit) -> Callable[[bytes], str | None]:
    """Returns a function that finds the name in a server's certificate (DER), as for users;
    None if it gives no name.
    """

    def name_of(der: bytes) -> str | None:
        uid_format = files.profile.uid_format
        try:
            return certificate_user(der, uid_format=uid_format, display_names=files.display_names).user
        except CertificateError as error:
            log(emit, "SERVER", "error", f"The server's certificate gives no name: {error}")
            return None

    return name_of


class DisplayNamesError(ValueError):
    """The mapping file is not one JSON object of strings; the text says where."""


def parse_display_names(text: str) -> dict[str, str]:
    """Parses a uidNameMappingFile: user id -> display name. Errors: DisplayNamesError."""
    try:
        names = loads(text)
    except RepeatedKeyError:
        raise DisplayNamesError(_repeated_id(text)) from None
    except (ValueError, RecursionError) as fault:
        raise DisplayNamesError(f"not JSON: {fault}") from None
    if not isinstance(names, dict):
        raise DisplayNamesError("expected one JSON object that maps user ids to display names")
    for user_id, name in names.items():
        if not isinstance(name, str):
            raise DisplayNamesError(f"the display name of '{user_id}' is not a string")
    return names


def _repeated_id(text: str) -> str:
    try:
        key, (line, column), _ = first_repeat(text, 0)
    except NotJson as fault:  # something else is wrong as well
        return f"not JSON: {fault}"
    return f"the id '{key}' stands a second time in line {line}, column {column}: keep one of them"


def load_display_names(profile: TlsProfile, emit: Emit) -> Mapping[str, str]:
    """Returns the profile's uidNameMappingFile, {} without one. Errors: SecurityError that names the file."""
    path = profile.uid_name_mapping_file
    if not path:
        return {}
    try:
        names = parse_display_names(read_regular(path, MAX_OTHER_BYTES).decode("utf-8"))
    except OSError as error:
        raise SecurityError(f"uidNameMappingFile {path}: {error.strerror}") from None
    except (DisplayNamesError, UnicodeDecodeError) as error:
        raise SecurityError(f"uidNameMappingFile {path}: {error}") from None
    log(emit, "DISPLAYNAME", "info", f"Added profile name {profile.name}, profile file location {path} "
                                     "to DisplayNameService")  # fmt: skip
    return names


def tls_settings(files: TlsFiles, by_name: Mapping[str, TlsFiles], emit: Emit) -> TlsSettings:
    """Returns the TLS settings for connections of one listener.

    by_name  files by the host name that clients ask for, chosen by auth.host_names.chosen; all others get `files`
    """
    by_profile = {each.profile.name: each for each in by_name.values()}

    def choose(name: str | None) -> Served | None:
        found = chosen(by_name, name)
        return found.served() if found is not None else None

    def tunnel() -> TlsTunnel:
        return files.server_tunnel(choose if by_name else None)

    def user_of(der: bytes, profile: str | None) -> str | None:
        used = by_profile.get(profile or "", files)
        try:
            found = certificate_user(der, uid_format=used.profile.uid_format, display_names=used.display_names)
        except CertificateError as error:
            log(emit, "SERVER", "error", f"The client's certificate gives no user name: {error}")
            return None
        if found.unrecognized is not None:
            log(emit, "SERVER", "critical", f"Unrecognized component '{found.unrecognized}' in uidFormat ")
        elif found.built_id is not None:
            log(emit, "SERVER", "debug", f"User id is '{found.user}' ")
        return found.user

    def subject_of(der: bytes, profile: str | None) -> str | None:
        used = by_profile.get(profile or "", files)
        try:
            return certificate_subject(der, display_names=used.display_names)
        except CertificateError as error:
            log(emit, "SERVER", "error", f"The client's certificate gives no user name: {error}")
            return None

    return TlsSettings(tunnel=tunnel, user_of=user_of, subject_of=subject_of)
