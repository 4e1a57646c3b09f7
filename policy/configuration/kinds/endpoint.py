"""`listener` and `connector`. Source: docs/spec/management.md §6.4, §6.5."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from policy.attributes import InvalidValue
from policy.configuration.kinds.kind import Attributes, Kind, MissingProfileError, misconfigured, profile_faults
from policy.configuration.references import (
    PLUGIN,
    PROFILE,
    Named,
    authenticator_problem,
    port_problem,
    profile_problem,
    token_problem,
)
from policy.configuration.schema import EntityType
from policy.configuration.unique_names import RuleError
from policy.router_ids import RouterIds

RESERVED_OPEN_KEYS: Final = frozenset(
    {"product", "version", "failover-server-list", "network-host", "port", "scheme", "hostname"}
)
RESERVED_OPEN_PREFIXES: Final = ("qd.", "x-opt-qd.")
# Roles between routers.
_NETWORK_ROLES: Final = ("inter-router", "edge")
# The limits of the protocol, or of this router. Milliseconds have 32 bits on the wire.
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "cost": (1, 2**31 - 1),
    "maxFrameSize": (0, 2**32 - 1),
    "maxSessions": (0, 2**32 - 1),
    "maxSessionFrames": (0, 2**31 - 1),
    "idleTimeoutSeconds": (0, (2**32 - 1) // 1000),
    "maxConnectionAgeSeconds": (0, 2**31 - 1),
    "initialHandshakeTimeoutSeconds": (0, 2**31 - 1),
    "linkCapacity": (0, 2**31 - 1),
}
_YES: Final = ("yes", "true", "on", "1")
_FAILOVER_ITEM: Final = re.compile(r"\s*(?:(?:amqp|amqps|ws|wss)://)?(\[[^\]]*\]|[^:]*)(?::[^:]*)?\s*")


class EndpointKind(Kind):
    """A listener or a connector."""

    # Roles that need an interior router.
    interior_roles: tuple[str, ...] = ("inter-router",)

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        suffix = f":{name}" if (name := attributes.get("name")) else ""
        return f"{self.name}/{attributes['host']}:{attributes['port']}{suffix}"

    def role_problem(self, title: str, attributes: Attributes, mode: str) -> str | None:
        role = attributes.get("role")
        if role not in _NETWORK_ROLES or mode == "interior":
            return None
        if mode == "standalone":
            return "role='standalone' not allowed to connect to or accept connections from other routers."
        if role in self.interior_roles:
            return f"role='{role}' only allowed with router mode='interior' for {title}"
        return None

    def check(self, entity_type: EntityType, attributes: Attributes) -> None:
        for name, (least, most) in _RANGES.items():
            value = attributes.get(name)
            if isinstance(value, int) and not least <= value <= most:
                raise RuleError(f"{entity_type.long_name}: '{name}' is {least} to {most}, not {value}", name)
        _check_open_properties(attributes)
        _check_router_ids(attributes)
        components = str(attributes.get("messageLoggingComponents") or "")
        if any(character.isspace() for character in components):
            # 1.20 would ignore every name with a blank in it.
            text = "messageLoggingComponents has commas and no blanks between its names, such as message-id,user-id"
            raise RuleError(f"{text}, not '{components[:200]}'", "messageLoggingComponents")
        written = attributes.get("failoverUrls")
        for item in str(written).split(",") if written else ():
            found = _FAILOVER_ITEM.fullmatch(item)
            if found is None or not found[1].strip("[] "):
                raise RuleError("No network host in failover item", "failoverUrls", kind="Value")

    # The lowest permitted port number.
    least_port: int = 1

    def reference_faults(self, attributes: Attributes, named: Named) -> Iterator[RuleError]:
        user = self.user(attributes)
        if (text := port_problem(user, str(attributes["port"]), self.least_port, named.is_service)) is not None:
            yield misconfigured(text, "port")
        yield from profile_faults(user, attributes, named)

    def user(self, attributes: Attributes) -> str:
        """Returns the name of the endpoint in error texts."""
        return f"{self.name} {attributes['host']}:{attributes['port']}"


class ConnectorKind(EndpointKind):
    def reference_faults(self, attributes: Attributes, named: Named) -> Iterator[RuleError]:
        yield from super().reference_faults(attributes, named)
        if attributes.get("routerIds") and not attributes.get("sslProfile"):
            text = f"{self.user(attributes)}: routerIds without sslProfile: nothing else proves who the server is"
            yield misconfigured(text, "routerIds")
        written = attributes.get("saslToken")
        if written and (problem := token_problem(str(written))) is not None:
            yield misconfigured(f"{self.user(attributes)}: {problem}", "saslToken")


class ListenerKind(EndpointKind):
    is_passive_in_file = True  # the ports of the file are opened last
    interior_roles = _NETWORK_ROLES
    least_port = 0  # 0 means any free port

    def idle(self, given: Attributes) -> Iterator[str]:
        """Yields notes on HTTP settings without effect. `WebSites` notes others when the listener is created."""
        if str(given.get("http") or "").lower() in _YES or given.get("httpRootDir"):
            return
        for name in ("websockets", "healthz", "metrics"):
            if str(given.get(name) or "").lower() in _YES:
                yield f"'{name}' has no effect without 'http: yes'"

    def reference_faults(self, attributes: Attributes, named: Named) -> Iterator[RuleError]:
        yield from super().reference_faults(attributes, named)
        user, written = self.user(attributes), str(attributes.get("authenticators") or "")
        if plugin := attributes.get("saslPlugin"):
            if plugin not in named.names[PLUGIN]:
                yield RuleError(f"Cannot find sasl plugin {plugin}", "saslPlugin", kind="Run Time")
            if written:
                yield misconfigured(f"{user}: expected either saslPlugin or authenticators", "saslPlugin")
        elif (text := authenticator_problem(written, named.authenticators)) is not None:
            yield misconfigured(f"{user}: {text}", "authenticators")
        chosen = attributes.get("sniProfiles")
        if chosen and not attributes.get("sslProfile"):
            yield misconfigured(f"{user}: sniProfiles without sslProfile, which all other clients get", "sniProfiles")
        for name in chosen.values() if isinstance(chosen, Mapping) else ():
            if (text := profile_problem(f"{user}: sniProfiles", str(name), named.names[PROFILE])) is not None:
                yield MissingProfileError(text, "sniProfiles", str(name))


def _check_open_properties(attributes: Attributes) -> None:
    properties = attributes.get("openProperties")
    if not isinstance(properties, Mapping):
        return
    role = attributes.get("role")
    if role in _NETWORK_ROLES:
        raise RuleError(f"openProperties not allowed for role {role}", "openProperties")
    for key in properties:
        if key in RESERVED_OPEN_KEYS or str(key).startswith(RESERVED_OPEN_PREFIXES):
            raise RuleError(f"Reserved key '{str(key)[:200]}' not allowed in openProperties", "openProperties")


def _check_router_ids(attributes: Attributes) -> None:
    written = attributes.get("routerIds")
    if not isinstance(written, str):
        return
    role = attributes.get("role")
    if role not in _NETWORK_ROLES:
        raise misconfigured(f"routerIds is for the roles inter-router and edge, not for role {role}", "routerIds")
    try:
        RouterIds.parse(written)
    except InvalidValue as error:
        raise misconfigured(f"routerIds {error}", "routerIds") from None
