"""Listeners and connectors, and what they are secured with: from entities to open ports and connections.

Each `create_*` serves the configuration file and management alike. Sources: docs/spec/management.md §6.5, §8.3 to §8.5.
"""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from auth.tls import TlsProfileError
from auth.verifiers.sasl_config import SaslConfigError
from router.connection.outgoing import Connector
from router.connection.terms import ConnectionTerms, Listener, listener_of, terms_of
from router.control.router import Router
from router.control.security import (
    Authentication,
    ProfileSource,
    SecurityError,
    TlsFiles,
    client_tunnels,
    configured_password,
    tls_settings,
)
from router.control.server import ADDRESS_FAMILIES
from router.effects import Emit, LogLevel, log
from router.management.entities import ManagementError


class Endpoints:
    """Every way into and out of the router that is configured."""

    def __init__(self, router: Router, authentication: Authentication, emit: Emit) -> None:
        self.router = router
        self.authentication = authentication
        self.emit = emit
        self.profiles: dict[str, ProfileSource] = {}
        self.plugins: set[str] = set()  # names of authServicePlugins
        self.tls_files: dict[str, TlsFiles] = {}  # by name of the listener or connector
        self._opening: set[asyncio.Task[None]] = set()

    def _log(self, module: str, level: LogLevel, text: str) -> None:
        log(self.emit, module, level, text)

    def create_ssl_profile(self, attributes: Mapping[str, Any]) -> None:
        """Errors: ManagementError."""
        try:
            self.profiles[attributes["name"]] = ProfileSource(attributes, self.emit)
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        self._log("CONN_MGR", "info", f"Created SSL Profile with name {attributes['name']} ")

    def delete_ssl_profile(self, attributes: Mapping[str, Any]) -> None:
        """Listeners keep the copy they took (§8.3)."""
        self.profiles.pop(attributes["name"], None)

    def create_plugin(self, attributes: Mapping[str, Any]) -> None:
        """Remember the name: listeners that refer to it are refused, so that nobody is let in unasked."""
        if attributes.get("authService"):
            text = "Attribute authService of entity authServicePlugin has been deprecated. Use host and port instead."
            self._log("CONN_MGR", "warning", text)
        self.plugins.add(attributes["name"])
        self._log("CONN_MGR", "info", f"Created SASL plugin config with name {attributes['name']}")

    def delete_plugin(self, attributes: Mapping[str, Any]) -> None:
        self.plugins.discard(attributes["name"])

    def create_connector(self, attributes: Mapping[str, Any]) -> None:
        """Connect at once (§8.5). Errors: ManagementError; nothing is started then."""
        place = f"{attributes['host']}:{attributes['port']}"
        profile_name = attributes.get("sslProfile")
        tunnel, has_certificate = None, False
        if profile_name:
            source = self._profile(profile_name, f"connector {place}")
            files = TlsFiles.of_connector(source, verify_hostname=bool(attributes["verifyHostname"]))
            self.tls_files[attributes["name"]] = files
            tunnel = client_tunnels(files)
            self._try_files(files, f"connector {place}")
            has_certificate = bool(source.profile.cert_file)
        try:
            password = configured_password(attributes.get("saslPassword"), is_literal_prefix=False, emit=self.emit)
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        words = attributes.get("saslMechanisms")
        connector = Connector(
            **terms_of(attributes),
            reaches_in_process=bool(attributes["allowManagement"]),
            tunnel=tunnel,
            has_certificate=has_certificate,
            protocol_family=attributes.get("protocolFamily"),
            mechanisms=tuple(str(words).split()) if words else None,
            username=attributes.get("saslUsername"),
            password=password,
        )
        self._log_configured("Connector", connector, attributes.get("protocolFamily"), profile_name)
        self.router.add_connector(connector)

    def delete_connector(self, attributes: Mapping[str, Any]) -> None:
        self.router.remove_connector(attributes["name"])
        self.tls_files.pop(attributes["name"], None)

    def _profile(self, name: str, whose: str) -> ProfileSource:
        found = self.profiles.get(name)
        if found is None:
            known = ", ".join(sorted(self.profiles)) or "none is defined"
            raise ManagementError(400, f"{whose}: no sslProfile named '{name}' (known: {known})")
        return found

    def _try_files(self, files: TlsFiles, whose: str) -> None:
        """Say now what would else only be said to the first who connects: by then it is somebody's outage."""
        try:
            _ = files.context
        except TlsProfileError as error:
            missing = [f"{path}: {why}" for path in files.paths if (why := unreadable(path))]
            what = f" ({'; '.join(missing)})" if missing else ""
            text = f"{whose}: TLS will fail until sslProfile {files.profile.name} can be used: {error}{what}"
            self._log("CONN_MGR", "warning", text)

    def _log_configured(self, kind: str, terms: ConnectionTerms, family: str | None, profile: str | None) -> None:
        suffix = f", sslProfile={profile}" if profile else ""
        text = f"Configured {kind}: {terms.place} proto={family or 'any'}, role={terms.role}{suffix}"
        self._log("CONN_MGR", "info", text)

    def listener(self, attributes: Mapping[str, Any]) -> Listener:
        """Ready to be opened. Errors: ManagementError."""
        place = f"{attributes['host']}:{attributes['port']}"
        if (plugin := attributes.get("saslPlugin")) and plugin not in self.plugins:
            raise ManagementError(500, f"CError: Run Time: Cannot find sasl plugin {plugin}")
        if plugin:
            raise ManagementError(400, f"listener {place}: saslPlugin is not supported by this version")
        if attributes.get("http") or attributes.get("httpRootDir"):
            raise ManagementError(400, f"listener {place}: http listeners are not supported by this version")
        profile_name = attributes.get("sslProfile")
        tls = None
        if profile_name:
            source = self._profile(profile_name, f"listener {place}")
            files = TlsFiles.of_listener(source, sasl_mechanisms=attributes.get("saslMechanisms"))
            self.tls_files[attributes["name"]] = files
            tls = tls_settings(files, self.emit)
            self._try_files(files, f"listener {place}")
        if attributes.get("trustedCertsFile"):
            self._log("CONN_MGR", "warning", "Configuration listener attribute 'trustedCertsFile' is not used. "
                                             "Specify sslProfile caCertFile instead.")  # fmt: skip
        try:
            mechanisms = self.authentication.mechanisms(attributes)
        except SaslConfigError as error:
            raise ManagementError(500, f"listener {place}: {error}") from None
        if attributes["authenticatePeer"] and not (mechanisms(False) or mechanisms(True)):
            words = attributes.get("saslMechanisms") or "none given"
            text = f"listener {place}: nobody can log in, none of its SASL mechanisms can be offered: {words}"
            self._log("CONN_MGR", "warning", text)
        listener = listener_of(attributes, tls=tls, mechanisms=mechanisms)
        self._log_configured("Listener", listener, attributes.get("socketAddressFamily"), profile_name)
        return listener

    def create_listener(self, attributes: Mapping[str, Any]) -> None:
        """Listen at once; the request succeeds even if the port cannot be bound (§8.4)."""
        listener = self.listener(attributes)
        opening = self.router.open_port(listener, **family_of(attributes))

        async def open_it() -> None:
            try:
                await opening
            except OSError as error:
                self.log_listener_error(listener.place, error)

        task = asyncio.get_running_loop().create_task(open_it())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def delete_listener(self, attributes: Mapping[str, Any]) -> None:
        self.router.close_port(attributes["name"])
        self.tls_files.pop(attributes["name"], None)

    def reload_certificates(self) -> None:
        """Read the files of every sslProfile in use anew; what cannot be used stays as it was."""
        for name, files in self.tls_files.items():
            try:
                files.reload()
            except (TlsProfileError, SecurityError) as error:
                text = f"Reload of sslProfile {files.profile.name} for {name} failed, what it had stays in use: {error}"
                self._log("CONN_MGR", "error", text)

    def log_listener_error(self, place: str, error: OSError) -> None:
        text = error.strerror or str(error)
        self._log("SERVER", "error", f"Listener error on {place}: {text} (proton:io)")


def unreadable(path: str) -> str | None:
    """Why a file cannot be read, None when it can."""
    try:
        with open(path, "rb"):
            return None
    except OSError as error:
        return error.strerror


def family_of(attributes: Mapping[str, Any]) -> dict[str, socket.AddressFamily]:
    family = ADDRESS_FAMILIES.get(str(attributes.get("socketAddressFamily")))
    return {"family": family} if family is not None else {}
