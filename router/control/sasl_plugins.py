"""`authServicePlugin`: remote services that authenticate the clients of listeners.

Sources: docs/spec/management.md §6.5; docs/spec/policy-and-auth.md §9.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from policy.configuration.references import service_places
from policy.configuration.unique_names import RuleError
from policy.hosts import is_loopback
from router.connection.peer_open import PRODUCT
from router.connection.relay import Relay, RelayTerms
from router.connection.service import Asker, ServiceTerms
from router.control.authenticators import AuthenticatorError, read_session_seconds
from router.control.relays import MAX_AT_ONCE, Login, Place, Relays, Service
from router.control.router import Router
from router.control.security import HostnameCheck, TlsFiles, client_tunnels
from router.control.ssl_profiles import SslProfiles
from router.effects import Emit, log
from router.management.config import is_service
from router.management.owners import Owner
from router.management.requests import ManagementError

# Logins at services may take one part in this many of the process's descriptors.
_SHARE: Final = 8


class SaslPlugins:
    def __init__(self, router: Router, profiles: SslProfiles, emit: Emit) -> None:
        self._router = router
        self._profiles = profiles
        self._emit = emit
        self._plugins: dict[str, tuple[Service, Mapping[str, Any]]] = {}
        self._users: dict[str, str] = {}  # listener → the plugin it was made with
        self._relays = Relays(max(min(MAX_AT_ONCE, router.accepting.descriptors.limit // _SHARE), 1))

    @property
    def owner(self) -> Owner:
        return Owner(type="authServicePlugin", create=self.create, delete=self.delete)

    # Entities

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Creates a plugin; makes no connection. Errors: ManagementError."""
        name, text = attributes["name"], attributes.get("host") or ""
        is_old = not text.strip()
        if is_old:
            text = attributes.get("authService") or ""
        if attributes.get("authService"):
            text_of_old = (
                "Attribute authService of entity authServicePlugin has been deprecated. Use host and port instead."
            )
            log(self._emit, "CONN_MGR", "warning", text_of_old)
        try:
            read_session_seconds(attributes)
        except AuthenticatorError as error:
            raise ManagementError(400, f"authServicePlugin '{name}': {error}", "maxSessionSeconds") from None
        try:
            found = service_places(name, text, str(attributes["port"]), is_service)
        except RuleError as error:
            raise ManagementError(400, str(error), error.attribute or "") from None
        places = [Place(host=host, port=port) for host, port in found]
        profile_name = attributes.get("sslProfile")
        files, check = None, HostnameCheck.of(attributes)
        if profile_name:
            user = f"authServicePlugin {name}"
            source = self._profiles.find(profile_name, user)
            files = TlsFiles.of_connector(source, check)
            self._profiles.use(f"authServicePlugin/{name}", [files], user)
        elif not all(is_loopback(place.host) for place in places):
            text = f"authServicePlugin {name}: passwords go to the service in the clear: give it an sslProfile"
            log(self._emit, "CONN_MGR", "warning", text)
        tunnels = client_tunnels(files, check) if files is not None else None

        def terms(place: Place) -> ServiceTerms:
            return ServiceTerms(
                hostname=None if is_old else place.host,
                product=PRODUCT,
                version=self._router.surroundings.version,
                tunnel=partial(tunnels, place.host) if tunnels is not None else None,
            )

        self._plugins[name] = Service(places, terms), attributes
        self._reserve()
        log(self._emit, "CONN_MGR", "info", f"Created SASL plugin config with name {name}")

    def delete(self, attributes: Mapping[str, Any]) -> None:
        """Deletes a plugin that no listener uses. Errors: ManagementError."""
        name = attributes["name"]
        users = sorted(listener for listener, plugin in self._users.items() if plugin == name)
        if users:
            raise ManagementError(400, f"authServicePlugin '{name}' is used by listener {', '.join(users)}")
        del self._plugins[name]
        self._profiles.release(f"authServicePlugin/{name}")
        self._reserve()

    def _reserve(self) -> None:
        """INVARIANT: there is a descriptor for each login at a service, however many peers there are."""
        self._router.accepting.kept_descriptors = self._relays.most if self._plugins else 0

    # Listeners

    def of_listener(self, attributes: Mapping[str, Any], user: str) -> RelayTerms | None:
        """Returns the terms for a `listener` with these attributes; None if it names no plugin.

        user    the listener, for the error
        Errors  ManagementError
        """
        name = attributes.get("saslPlugin")
        if not name:
            return None
        if name not in self._plugins:
            raise ManagementError(500, f"CError: Run Time: Cannot find sasl plugin {name}", "saslPlugin")
        if attributes.get("authenticators"):
            raise ManagementError(400, f"{user}: expected either saslPlugin or authenticators", "saslPlugin")
        service, plugin = self._plugins[name]
        place = ", ".join(map(str, service.places))
        log(self._emit, "CONN_MGR", "info", f"Using auth service {place} from  SASL Plugin {name}")
        words = str(attributes.get("saslMechanisms") or "").replace(",", " ").upper().split()

        def begin(host: str, asker: Asker) -> Relay:
            login = Login(self._relays, service, asker, host)
            self._relays.enter(login)
            return login

        return RelayTerms(
            begin=begin,
            place=place,
            allowed=frozenset(words) if words else None,
            without=frozenset({"ANONYMOUS"} if attributes["authenticatePeer"] else ()),
            realm=plugin.get("realm"),
            max_session_s=read_session_seconds(plugin),
        )

    def use(self, listener: str, plugin: str) -> None:
        """Notes that a listener uses the plugin, which then stays until `release`."""
        self._users[listener] = plugin

    def release(self, listener: str) -> None:
        self._users.pop(listener, None)
