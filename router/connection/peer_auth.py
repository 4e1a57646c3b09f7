"""The peer of an authentication service (`qdauthd`): a router that asks who its client is.

The client logs in through SASL, relayed by the router. The service's Open only names the user and its rights: no
session or link is ever served. Source: docs/spec/policy-and-auth.md §9.3, §9.8.
"""

from typing import Any, Final

from router.amqp.terminus import RemoteOpen
from router.connection.peer import Peer
from router.connection.service import AUTHZ, AUTHZ_KEY, GROUPS_KEY, IDENTITY_KEY
from router.effects import log
from router.values import Array, symbol

PRODUCT: Final = "palisade-auth-service"


class AskingRouter(Peer):
    """Answers the Open with what is known of the user, and closes.

    A router of 1.20 takes any Open as acceptance. So for a user that is refused the service sends no Open and closes.
    """

    def on_open(self, remote: RemoteOpen) -> None:
        self.remote = remote
        identity = self.identity
        refusal = self.gate.admit(
            identity,
            hostname=remote.hostname,
            policy_vhost=self.terms.policy_vhost,
            is_encrypted=bool(self.security["isEncrypted"]),
            now=self.surroundings.wall_clock(),
        )
        properties = self._properties(remote) if refusal is None and identity.is_authenticated else None
        if properties is not None:
            self.engine.open(properties=properties, capabilities=Array(symbol, (symbol(AUTHZ),)))
            self.engine.close()
            self._say("info", f"vouched for '{identity.user}' to {remote.container_id or self.gate.connection_name}")
        self.core.work.touched.add(self.engine)
        self._carrier.shut()

    def _properties(self, remote: RemoteOpen) -> dict[Any, Any] | None:
        """Returns the properties of the Open; None if they cannot express the rights that policy grants the user."""
        identity = self.identity
        properties: dict[Any, Any] = {
            symbol("product"): PRODUCT,
            symbol("version"): self.surroundings.version,
            symbol(IDENTITY_KEY): {symbol("sub"): identity.user or ""},
        }
        if identity.groups:
            properties[symbol(GROUPS_KEY)] = Array(str, identity.groups)
        settings = self.gate.settings
        if settings is None:
            return properties
        if AUTHZ not in remote.desired_capabilities:
            self._say(
                "warning", f"the asking router takes no {AUTHZ_KEY}: policy of its own has to restrict its clients"
            )
            return properties
        granted = settings.as_granted()
        if granted is None:
            where = f"group '{settings.group}' of vhost '{settings.vhost}'"
            self._say("error", f"{where} has patterns or denials, which {AUTHZ_KEY} cannot say: nobody of it is let in")
            return None
        rights: dict[str, list[str]] = {}
        for permission, addresses in (("send", granted.targets), ("recv", granted.sources)):
            for address in addresses:
                rights.setdefault(address, []).append(permission)
        properties[symbol(AUTHZ_KEY)] = {address: Array(str, tuple(words)) for address, words in rights.items()}
        return properties

    def _say(self, level: Any, text: str) -> None:
        log(self.surroundings.emit, "AUTHSERVICE", level, f"[C{self.gate.connection_id}] {text}")
