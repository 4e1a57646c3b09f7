"""sslProfiles made ready for listeners and connectors: contexts, certificate users.

Reads files; everything it cannot read is an error that names the file. Source: docs/spec/policy-and-auth.md §6.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Any

from auth.certificates import CertificateError, certificate_subject, certificate_user
from auth.secrets import PasswordError, Secret
from auth.tls import TlsProfile, TlsTunnel, client_context, own_end_point, server_context
from auth.verifiers.password_sources import resolve_configured
from auth.verifiers.sasl_config import demands_certificate
from policy.files.positioned_json import NotJson, RepeatedKeyError, first_repeat, loads
from policy.files.regular import MAX_OTHER_BYTES, read_regular
from router.connection.terms import TlsSettings
from router.effects import Emit, log


class SecurityError(ValueError):
    """A profile or the SASL configuration cannot be used; the text is for the log and the management reply."""


def profile_of(attributes: Mapping[str, Any], emit: Emit) -> TlsProfile:
    """A TlsProfile from an `sslProfile` entity. Its files are not opened yet (§6).

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
    )
    if withdrawn := profile.withdrawn_protocols:
        log(emit, "CONN_MGR", "warning", f"sslProfile {profile.name} allows {', '.join(withdrawn)}, withdrawn because "
            "broken (RFC 8996): for its connections the security level of OpenSSL is lowered")  # fmt: skip
    return profile


def configured_password(configured: str | None, *, is_literal_prefix: bool, emit: Emit) -> Secret | None:
    """The password that a configured text stands for (management §1.6), None for none; logs its warnings.

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


class TlsFiles:
    """The TLS settings that one listener or connector has read from its sslProfile: a context, and display names.

    The context is made when the first connection needs it. Connections keep the one they began with.
    """

    def __init__(self, source: "ProfileSource", make: Callable[[TlsProfile], ssl.SSLContext]) -> None:
        self.profile = source.profile
        self.display_names = source.display_names
        self._source = source
        self._make = make
        self._context: ssl.SSLContext | None = None
        self._end_point: bytes | None = None

    @classmethod
    def of_listener(cls, source: "ProfileSource", *, sasl_mechanisms: str | None) -> "TlsFiles":
        demand = demands_certificate(sasl_mechanisms)
        return cls(source, lambda profile: server_context(profile, demand_certificate=demand))

    @classmethod
    def of_connector(cls, source: "ProfileSource", *, verify_hostname: bool) -> "TlsFiles":
        return cls(source, lambda profile: client_context(profile, verify_hostname=verify_hostname))

    @property
    def context(self) -> ssl.SSLContext:
        """Errors: TlsProfileError while the profile's files are unusable."""
        if self._context is None:
            self._context = self._make(self.profile)
            self._end_point = own_end_point(self.profile)
        return self._context

    def server_tunnel(self) -> TlsTunnel:
        """For an accepted connection. Errors: as `context`."""
        context = self.context
        return TlsTunnel(context, server_side=True, end_point=self._end_point)

    @property
    def paths(self) -> list[str]:
        """The files that the context is made of."""
        profile = self.profile
        return [path for path in (profile.ca_cert_file, profile.cert_file, profile.private_key_file) if path]

    def reload(self) -> None:
        """Read the files anew, also the password's; new connections use what they hold now.

        Errors  TlsProfileError, SecurityError; what was read before stays in use.
        """
        source = self._source.read_again()
        context = self._make(source.profile)
        self.profile, self.display_names, self._context = source.profile, source.display_names, context
        self._end_point = own_end_point(source.profile)


class ProfileSource:
    """An sslProfile entity, its password and its display names read."""

    def __init__(self, attributes: Mapping[str, Any], emit: Emit) -> None:
        """Errors: SecurityError."""
        self._attributes = attributes
        self._emit = emit
        self.profile = profile_of(attributes, emit)
        self.display_names = load_display_names(self.profile, emit)

    def read_again(self) -> "ProfileSource":
        return ProfileSource(self._attributes, self._emit)


def client_tunnels(files: TlsFiles) -> Callable[[str], TlsTunnel]:
    """Makes tunnels to a server by its host name; raises TlsProfileError while the profile's files are unusable."""
    return lambda host: TlsTunnel(files.context, server_side=False, server_hostname=host)


class DisplayNamesError(ValueError):
    """The mapping file is not one JSON object of strings; the text says where."""


def parse_display_names(text: str) -> dict[str, str]:
    """The content of a uidNameMappingFile: user id -> display name. Errors: DisplayNamesError."""
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
    """The profile's uidNameMappingFile, {} without one. Errors: SecurityError naming the file."""
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


def tls_settings(files: TlsFiles, emit: Emit) -> TlsSettings:
    """How connections of one listener start TLS."""

    def user_of(der: bytes) -> str | None:
        try:
            found = certificate_user(der, uid_format=files.profile.uid_format, display_names=files.display_names)
        except CertificateError as error:
            log(emit, "SERVER", "error", f"The client's certificate gives no user name: {error}")
            return None
        if found.unrecognized is not None:
            log(emit, "SERVER", "critical", f"Unrecognized component '{found.unrecognized}' in uidFormat ")
        elif found.built_id is not None:
            log(emit, "SERVER", "debug", f"User id is '{found.user}' ")
        return found.user

    def subject_of(der: bytes) -> str | None:
        try:
            return certificate_subject(der, display_names=files.display_names)
        except CertificateError as error:
            log(emit, "SERVER", "error", f"The client's certificate gives no user name: {error}")
            return None

    return TlsSettings(tunnel=files.server_tunnel, user_of=user_of, subject_of=subject_of)
