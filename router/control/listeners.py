"""`listener`: the ports on which the router accepts connections. Sources: docs/spec/management.md §6.5, §8.4."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from auth.host_names import pattern_of
from auth.mechanisms import Channel
from auth.verifiers.sasl_config import SaslConfigError, demands_certificate, why_unserved
from policy.hosts import is_loopback
from router.connection.peer_kinds import AUTH_SERVICE
from router.connection.terms import Listener, TlsSettings, listener_of
from router.control.authenticators import AuthenticatorError, Authenticators, ListenerAuthentication
from router.control.connectors import check_port, log_configured
from router.control.router import Router
from router.control.sasl_plugins import SaslPlugins
from router.control.security import ProfileSource, TlsFiles, tls_settings
from router.control.server import ADDRESS_FAMILIES, Port
from router.control.ssl_profiles import SslProfiles
from router.control.web_sites import WebSites, is_of_web
from router.effects import Emit, log
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError

# A channel on which every mechanism can be offered.
_BEST = Channel(has_certificate=True, is_encrypted=True, binding=lambda _type: b"any")


class Listeners:
    def __init__(
        self,
        router: Router,
        authenticators: Authenticators,
        profiles: SslProfiles,
        plugins: SaslPlugins,
        sites: WebSites,
        emit: Emit,
        *,
        show_listening: Callable[[], None],
    ) -> None:
        """show_listening  from now on all requests show which listeners listen, because one does not"""
        self._show_listening = show_listening
        self._router = router
        self._authenticators = authenticators
        self._profiles = profiles
        self._plugins = plugins
        self._emit = emit
        self._sites = sites
        self._opening: set[asyncio.Task[None]] = set()
        self._names: dict[str, None] = {}

    @property
    def owner(self) -> Owner:
        return Owner(type="listener", rows=Rows(self.rows), create=self.create, delete=self.delete)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        return ({"name": name, "listening": name in self._router.ports} for name in list(self._names))

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Listens at once; the request succeeds even if the port cannot be bound (§8.4). Errors: ManagementError."""
        listener = self.made(attributes)
        opening = self._open(listener, attributes)

        async def open_it() -> None:
            try:
                await opening
            except OSError as error:
                self._log_error(listener, error)
                self._show_listening()

        task = asyncio.get_running_loop().create_task(open_it())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def delete(self, attributes: Mapping[str, Any]) -> None:
        self._names.pop(attributes["name"], None)
        self._router.close_port(attributes["name"])
        self._profiles.release(attributes["name"])
        self._authenticators.release(attributes["name"])
        self._plugins.release(attributes["name"])

    def made(self, attributes: Mapping[str, Any]) -> Listener:
        """Returns the listener, ready to be opened. Errors: ManagementError."""
        user = f"listener {attributes['host']}:{attributes['port']}"
        check_port(user, attributes["port"], least=0)
        relay = self._plugins.of_listener(attributes, user)
        site = self._sites.made(attributes, user)
        profile_name = attributes.get("sslProfile")
        tls, demands = None, False
        if profile_name:
            source = self._profiles.find(profile_name, user)
            demands = _demands_certificate(attributes, source)
            tls = self._tls(source, attributes, user, demand=demands)
        elif attributes.get("sniProfiles"):
            raise ManagementError(400, f"{user}: sniProfiles without sslProfile, which all other clients get")
        if attributes.get("trustedCertsFile") and not (tls and demands):
            self._warn(f"{user}: trustedCertsFile has no effect: a client certificate is asked for where sslProfile is "
                       "set and EXTERNAL is among the saslMechanisms")  # fmt: skip
        if relay is not None:
            listener = listener_of(attributes, tls=tls, relay=relay)
            self._plugins.use(attributes["name"], str(attributes["saslPlugin"]))
        else:
            authentication = self._authentication(attributes, user)
            listener = listener_of(
                attributes,
                tls=tls,
                mechanisms=authentication.mechanisms,
                verify=authentication.verify,
                asks_groups=authentication.asks_groups,
            )
        listener = replace(listener, site=site)
        if self._sites.is_auth_service:
            listener = replace(listener, role=AUTH_SERVICE, is_auth_service=True)
        log_configured("Listener", listener, attributes.get("socketAddressFamily"), profile_name, self._emit)
        self._names[listener.name] = None
        return listener

    def _authentication(self, attributes: Mapping[str, Any], user: str) -> ListenerAuthentication:
        try:
            authentication = self._authenticators.of_listener(attributes)
        except SaslConfigError as error:
            raise ManagementError(500, f"{user}: {error}", "saslMechanisms") from None
        except AuthenticatorError as error:
            raise ManagementError(400, f"{user}: {error}", "authenticators") from None
        # EXTERNAL and channel binding need TLS.
        if not authentication.mechanisms(_BEST if attributes.get("sslProfile") else Channel()):
            is_for_want_of_tls = bool(not attributes.get("sslProfile") and authentication.mechanisms(_BEST))
            self._refuse_unserved(attributes, user, is_for_want_of_tls=is_for_want_of_tls)
        self._warn_of_clear_passwords(attributes, authentication, user)
        return authentication

    def _warn_of_clear_passwords(
        self, attributes: Mapping[str, Any], authentication: ListenerAuthentication, user: str
    ) -> None:
        is_local = is_loopback(str(attributes["host"]))
        if is_local or attributes["requireSsl"] or attributes["requireEncryption"]:
            return
        if clear := authentication.in_the_clear:
            self._warn(f"{user}: {' and '.join(clear)} without TLS: passwords cross the network in the clear. "
                       "Expected requireSsl: yes, or allowPlainWithoutTls: no")  # fmt: skip

    def _refuse_unserved(self, attributes: Mapping[str, Any], user: str, *, is_for_want_of_tls: bool) -> None:
        """Handles a listener whose mechanisms cannot be served. Errors: ManagementError if the listener names them."""
        words = attributes.get("saslMechanisms")
        if words and words.strip(" ,\t"):
            why = why_unserved(words, authenticates=attributes["authenticatePeer"])
            if is_for_want_of_tls and not attributes.get("allowPlainWithoutTls", True):
                why = "they want TLS: there is no sslProfile, and allowPlainWithoutTls is off"
            text = f"{user}: none of its saslMechanisms can be served: {why}"
            self._authenticators.release(attributes["name"])
            self._profiles.release(attributes["name"])
            raise ManagementError(400, text, "saslMechanisms")
        if attributes["authenticatePeer"]:
            self._warn(f"{user}: nobody can log in, none of its SASL mechanisms can be offered: none given")

    def _tls(self, source: ProfileSource, attributes: Mapping[str, Any], user: str, *, demand: bool) -> TlsSettings:
        """Returns the listener's own sslProfile, and those that clients choose by the host name that they ask for.

        demand  demand a certificate from the client
        Errors  ManagementError.
        """

        def files_of(source: ProfileSource) -> TlsFiles:
            return TlsFiles.of_listener(
                source,
                demand=demand,
                trusted_file=attributes.get("trustedCertsFile") or None,
            )

        own = files_of(source)
        by_name: dict[str, TlsFiles] = {}
        by_profile: dict[str, TlsFiles] = {}
        for written, profile in (attributes.get("sniProfiles") or {}).items():
            try:
                name = pattern_of(written)
            except ValueError as error:
                raise ManagementError(400, f"{user}: sniProfiles: {error}") from None
            if name in by_name:
                raise ManagementError(400, f"{user}: sniProfiles: '{name}' stands twice")
            if profile not in by_profile:
                by_profile[profile] = files_of(self._profiles.find(str(profile), f"{user}: sniProfiles"))
            by_name[name] = by_profile[profile]
        self._profiles.use(
            attributes["name"], (own, *by_profile.values()), user, is_required=bool(attributes["requireSsl"])
        )
        return tls_settings(own, by_name, self._emit)

    async def open_all(self, listeners: Sequence[tuple[Mapping[str, Any], Listener]]) -> tuple[int, str] | None:
        """Opens the ports of the configuration file in parallel, so that an unknown host name delays no other port.

        Each port is required: a router without its TLS port, for example, would look as if it had started well.

        listeners  the attributes of each, and the listener made from them
        Returns    the number of the first that cannot be opened, and why the router must stop; None: all are open
        """
        opened = await asyncio.gather(
            *(self._open(listener, attributes) for attributes, listener in listeners), return_exceptions=True
        )
        failure: tuple[int, str] | None = None
        for number, ((_, listener), result) in enumerate(zip(listeners, opened, strict=True)):
            if isinstance(result, OSError):
                self._log_error(listener, result)
                place = listener.place
                log(self._emit, "SERVER", "critical", f"Shutting down, required listener failed {place}")
                failure = failure or (number, f"required listener failed {place}: {result.strerror or result}")
            elif isinstance(result, BaseException):
                raise result
        return failure

    def _open(self, listener: Listener, attributes: Mapping[str, Any]) -> Coroutine[Any, Any, Port]:
        family = ADDRESS_FAMILIES.get(str(attributes.get("socketAddressFamily")))
        return self._router.open_port(listener, **({"family": family} if family is not None else {}))

    def _log_error(self, listener: Listener, error: OSError) -> None:
        text = error.strerror or str(error)
        if listener.site is not None:
            log(self._emit, "HTTP", "error", f"Error listening for HTTP on {listener.place}")
        log(self._emit, "SERVER", "error", f"Listener error on {listener.place}: {text} (proton:io)")

    def _warn(self, text: str) -> None:
        log(self._emit, "CONN_MGR", "warning", text)


def _demands_certificate(attributes: Mapping[str, Any], source: ProfileSource) -> bool:
    """Returns True if the TLS handshake demands a certificate from the client (policy §6.5)."""
    if not is_of_web(attributes):
        return demands_certificate(attributes.get("saslMechanisms"))
    return bool(attributes["authenticatePeer"] and (attributes.get("trustedCertsFile") or source.profile.ca_cert_file))
