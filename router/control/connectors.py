"""`connector`: the connections that the router makes. Sources: docs/spec/management.md §6.5, §8.5."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from policy.configuration.references import port_problem
from router.connection.outgoing import Connector, no_name
from router.connection.terms import ConnectionTerms, Listener, terms_of
from router.control.router import Router
from router.control.security import (
    HostnameCheck,
    SecurityError,
    TlsFiles,
    client_tunnels,
    configured_password,
    server_names,
    token_reader,
)
from router.control.ssl_profiles import SslProfiles
from router.effects import Emit, log
from router.management.config import is_service
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError


class Connectors:
    def __init__(self, router: Router, profiles: SslProfiles, emit: Emit, *, is_check: bool = False) -> None:
        """is_check  make everything that a connector needs, but make no connection"""
        self._router = router
        self._profiles = profiles
        self._emit = emit
        self._is_check = is_check

    @property
    def owner(self) -> Owner:
        return Owner(type="connector", rows=Rows(self.rows), create=self.create, delete=self.delete)

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Connects at once (§8.5). Errors: ManagementError; nothing is started then."""
        user = f"connector {attributes['host']}:{attributes['port']}"
        check_port(user, attributes["port"], least=1)
        profile_name = attributes.get("sslProfile")
        tunnel, has_certificate = None, False
        name_of: Callable[[bytes], str | None] = no_name
        if attributes.get("routerIds") and not profile_name:
            raise ManagementError(400, f"{user}: routerIds without sslProfile: nothing else proves who the server is")
        if profile_name:
            source = self._profiles.find(profile_name, user)
            check = HostnameCheck.of(attributes)
            files = TlsFiles.of_connector(source, check)
            tunnel = client_tunnels(files, check)
            self._profiles.use(attributes["name"], (files,), user)
            has_certificate = bool(source.profile.cert_file)
            name_of = server_names(files, self._emit)
        try:
            password = configured_password(attributes.get("saslPassword"), is_literal_prefix=False, emit=self._emit)
            token = attributes.get("saslToken")
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        try:
            read_token = token_reader(token) if token else None
        except SecurityError as error:
            raise ManagementError(400, f"{user}: {error}", "saslToken") from None
        words = attributes.get("saslMechanisms")
        connector = Connector(
            **terms_of(attributes),
            # An edge is visible in its network, like other routers. Its rights are decided in control.requesters.
            reaches_in_process=bool(attributes["allowManagement"]) or attributes["role"] == "edge",
            allows_management=bool(attributes["allowManagement"]),
            tunnel=tunnel,
            has_certificate=has_certificate,
            protocol_family=attributes.get("protocolFamily"),
            mechanisms=tuple(str(words).split()) if words else None,
            username=attributes.get("saslUsername"),
            password=password,
            read_token=read_token,
            name_of=name_of,
        )
        log_configured("Connector", connector, attributes.get("protocolFamily"), profile_name, self._emit)
        if connector.role == "edge" and self._router.core.network is not None:
            text = (
                f"Connector {connector.place} has role=edge and serves nothing: this router is an interior one. "
                "With role=inter-router it joins another"
            )
            log(self._emit, "CONN_MGR", "warning", text)
        if not self._is_check:
            self._router.add_connector(connector)

    def delete(self, attributes: Mapping[str, Any]) -> None:
        self._router.remove_connector(attributes["name"])
        self._profiles.release(attributes["name"])

    def rows(self) -> Iterator[Mapping[str, Any]]:
        for name, connecting in self._router.connectors.items():
            yield {
                "name": name,
                "failoverUrls": connecting.failover_urls,
                "connectionStatus": connecting.status,
                "connectionMsg": connecting.message,
            }


def check_port(user: str, port: str, *, least: int) -> None:
    """Checks a port before it is used.

    user    the name of the listener or connector in errors
    Errors  ManagementError.
    """
    if (text := port_problem(user, port, least, is_service)) is not None:
        raise ManagementError(400, text, "port")


def log_configured(kind: str, terms: ConnectionTerms, family: str | None, profile: str | None, emit: Emit) -> None:
    """Logs a new listener or connector."""
    suffix = ", http" if isinstance(terms, Listener) and terms.site is not None else ""
    suffix += f", sslProfile={profile}" if profile else ""
    text = f"Configured {kind}: {terms.place} proto={family or 'any'}, role={terms.role}{suffix}"
    log(emit, "CONN_MGR", "info", text)
