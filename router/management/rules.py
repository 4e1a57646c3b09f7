"""Rules beyond the schema: identities and names, what must be unique, roles against the router's mode, special values.

Pure. The configuration file and management requests go through the same functions.
Sources: docs/spec/management.md §1.4, §6.4, §6.5.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from policy.ban_set import Ban, BanError, parse_ban
from policy.failures import read_failure_rule
from router.management.logrules import LogSettingError, parse_enable
from router.management.schema import EntityType, ValidationError

MAX_ROUTER_ID_CHARACTERS = 127
MAX_WATCH_SECONDS = 86400
EVERY_ROUTER = "all"  # in an address, in the place of a router's id
RESERVED_OPEN_KEYS = frozenset(
    {"product", "version", "failover-server-list", "network-host", "port", "scheme", "hostname"}
)
RESERVED_OPEN_PREFIXES = ("qd.", "x-opt-qd.")
# The types whose entities the routing core owns; the file gives them a second, agent-side identity.
CORE_CONFIG_TYPES = ("address", "linkRoute", "autoLink", "exchange", "binding")

# Attributes of a ban that nobody gives, not even in the file: who wrote `expires` there would think that it ends.
_OF_THE_ROUTER = ("origin", "created", "expires", "hits")

_FAILOVER_ITEM = re.compile(r"\s*(?:(?:amqp|amqps|ws|wss)://)?(\[[^\]]*\]|[^:]*)(?::[^:]*)?\s*")


class RuleError(ValidationError):
    """A value the schema admits and the router does not.

    kind  the class the error text begins with at start-up (docs/spec/management.md §2.3)
    """

    def __init__(self, text: str, attribute: str | None = None, *, kind: str = "Python: ValidationError") -> None:
        super().__init__(text, attribute)
        self.kind = kind


class TakenError(RuleError):
    """A name or identity that another entity has.

    taken_by  short name of that entity's type
    guarded   the text without that entity, for whoever may not read it
    """

    def __init__(self, text: str, attribute: str, *, taken_by: str, guarded: str) -> None:
        super().__init__(text, attribute)
        self.taken_by = taken_by
        self.guarded = guarded


def implied(entity_type: EntityType, given: Mapping[str, object]) -> dict[str, object]:
    """`given` and what follows from it: a vhost with only a name has that name for its hostname."""
    result = dict(given)
    is_unnamed = all(result.get(name) is None for name in ("hostname", "id"))
    if entity_type.short_name == "vhost" and is_unnamed and result.get("name") is not None:
        result["hostname"] = result["name"]
    return result


def identity_of(entity_type: EntityType, attributes: Mapping[str, object], number: int) -> str:
    """The agent-side identity of an entity with validated attributes.

    number  how many entities of the type came before it, for types that count
    Errors  ValidationError where the name is part of the identity and missing.
    """
    kind = entity_type.short_name
    name = attributes.get("name")
    match kind:
        case "listener" | "connector":
            suffix = f":{name}" if name else ""
            return f"{kind}/{attributes['host']}:{attributes['port']}{suffix}"
        case "ban":
            return f"ban/{name or number}"
        case "sslProfile" | "authServicePlugin":
            if not name:
                raise ValidationError(
                    f"{entity_type.long_name}: Missing required attribute 'name': others refer to it by name"
                )
            return f"{kind}/{name}"
        case "log":
            return f"log/{attributes['module']}"
        case "policy":
            return "policy/None"
        case "router":
            return f"router/{attributes['id']}"
        case "vhost":
            return f"vhost/{attributes['hostname']}"
    return f"{kind}/{number}"


def default_name(attributes: Mapping[str, object], identity: str) -> str:
    """The name of an entity that was given none, or its own."""
    return str(attributes["name"]) if attributes.get("name") else identity


def _management_node() -> str:
    return "the management node"


class UniqueNames:
    """Which names and identities are taken, over all agent-handled entities of all types."""

    def __init__(self) -> None:
        # By whom, and of what type: the text of an entity is long to make, and only an error shows it.
        self._taken: dict[tuple[str, str], tuple[Callable[[], str], str]] = {}
        for attribute in ("name", "identity"):
            self._taken[attribute, "self"] = (_management_node, "management")
        self._singletons: dict[str, Callable[[], str]] = {}

    def copy(self) -> "UniqueNames":
        made = UniqueNames()
        made._taken, made._singletons = dict(self._taken), dict(self._singletons)
        return made

    def claim(self, entity_type: EntityType, attributes: Mapping[str, object]) -> None:
        """Take the name and identity in `attributes`. Errors: ValidationError; nothing is taken then."""
        text = partial(entity_type.text, attributes)
        if entity_type.is_singleton and (other := self._singletons.get(entity_type.short_name)) is not None:
            raise ValidationError(f"Adding {entity_type.short_name} singleton {text()} when {other()} already exists")
        keys = [(attribute, str(attributes[attribute])) for attribute in ("name", "identity")]
        for key in keys:
            if (holder := self._taken.get(key)) is not None:
                existing, other_type = holder
                told = f"adding {text()} duplicates unique attribute '{key[0]}' from existing"
                raise TakenError(
                    f"{told} {existing()}", key[0], taken_by=other_type, guarded=f"{told} {other_type}"
                )
        self._taken.update((key, (text, entity_type.short_name)) for key in keys)
        if entity_type.is_singleton:
            self._singletons[entity_type.short_name] = text

    def release(self, attributes: Mapping[str, object]) -> None:
        for attribute in ("name", "identity"):
            self._taken.pop((attribute, str(attributes[attribute])), None)


def role_problem(mode: str, entity_type: EntityType, attributes: Mapping[str, object]) -> str | None:
    """What is wrong with the role of a listener or connector on a router of this mode."""
    kind, role = entity_type.short_name, attributes.get("role")
    if kind not in ("listener", "connector") or role not in ("inter-router", "edge") or mode == "interior":
        return None
    if mode == "standalone":
        return "role='standalone' not allowed to connect to or accept connections from other routers."
    if role == "inter-router" or kind == "listener":
        return f"role='{role}' only allowed with router mode='interior' for {entity_type.text(attributes)}"
    return None


def check_values(entity_type: EntityType, attributes: Mapping[str, object]) -> None:
    """Look at values of one validated entity as no type of the schema can. Errors: RuleError."""
    match entity_type.short_name:
        case "router":
            _check_router(attributes)
        case "listener" | "connector":
            _check_open_properties(attributes)
            _check_failover(attributes)
        case "policy":
            if int(str(attributes["maxConnections"])) < 0:
                raise RuleError("maxConnections must be >= 0", "maxConnections", kind="Configuration")
            if not 0 <= int(str(attributes["policyDirWatchSeconds"])) <= MAX_WATCH_SECONDS:
                text = f"policyDirWatchSeconds must be 0 to {MAX_WATCH_SECONDS}"
                raise RuleError(text, "policyDirWatchSeconds", kind="Configuration")
            try:
                read_failure_rule(attributes)
            except BanError as error:
                raise RuleError(str(error), error.attribute, kind="Configuration") from None
        case "ban":
            for name in _OF_THE_ROUTER:
                if name in attributes:
                    raise RuleError(f"{entity_type.long_name}: '{name}' is set by the router", name)
            try:
                ban_of(attributes, 0.0)
            except BanError as error:
                raise RuleError(f"{entity_type.long_name}: {error}", error.attribute) from None
        case "log":
            if attributes.get("outputFile") == "":
                raise RuleError("Failed to open log file ''", "outputFile", kind="Configuration")
            if (enable := attributes.get("enable")) is not None:
                try:
                    parse_enable(str(enable))
                except LogSettingError as error:
                    raise RuleError(str(error), "enable", kind="Configuration") from None


def ban_of(attributes: Mapping[str, Any], now: float) -> Ban:
    """The ban a validated `ban` entity stands for. Errors: BanError."""
    return parse_ban(
        str(attributes.get("name") or ""),
        attributes.get("remoteHost"),
        attributes.get("user"),
        attributes.get("seconds"),
        now,
        reason=attributes.get("reason") or "",
    )


def _check_router(attributes: Mapping[str, object]) -> None:
    router_id = str(attributes.get("id", ""))
    if len(router_id) > MAX_ROUTER_ID_CHARACTERS:
        raise RuleError(
            f'Router ID "{router_id[:200]}" exceeds the maximum allowed length ({MAX_ROUTER_ID_CHARACTERS} characters)',
            "id",
            kind="Configuration",
        )
    for character in router_id:
        if unicodedata.category(character)[0] in "CZ":
            visible, whole = (text if text.isprintable() else ascii(text)[1:-1] for text in (character, router_id))
            raise RuleError(
                f"Router id attribute containing character '{visible}' in id '{whole}' is disallowed.",
                "id",
                kind="Python: AttributeError",
            )
    if "/" in router_id or router_id == EVERY_ROUTER:
        # It is a part of `_topo/0/ID/name`, where the one would end it and the other mean every router.
        why = f"it stands in addresses, so that it can have no '/' and not be '{EVERY_ROUTER}'"
        raise RuleError(f"Router id '{router_id}' is disallowed: {why}", "id", kind="Configuration")
    for directory in management_directories(attributes):
        if not directory.startswith("/") or directory == "/":
            text = f"managementDirs are absolute paths of directories below /, not '{directory[:200]}'"
            raise RuleError(text, "managementDirs", kind="Configuration")
    if (style := attributes.get("timestampFormat")) is not None:
        try:
            datetime(2000, 1, 1, tzinfo=UTC).strftime(str(style))
        except ValueError as error:
            raise RuleError(
                f"timestampFormat is a strftime format: {error}", "timestampFormat", kind="Configuration"
            ) from None


def _check_open_properties(attributes: Mapping[str, object]) -> None:
    properties = attributes.get("openProperties")
    if not isinstance(properties, Mapping):
        return
    role = attributes.get("role")
    if role in ("inter-router", "edge"):
        raise RuleError(f"openProperties not allowed for role {role}", "openProperties")
    for key in properties:
        if key in RESERVED_OPEN_KEYS or str(key).startswith(RESERVED_OPEN_PREFIXES):
            raise RuleError(f"Reserved key '{str(key)[:200]}' not allowed in openProperties", "openProperties")


def _check_failover(attributes: Mapping[str, object]) -> None:
    for item in failover_items(attributes):
        found = _FAILOVER_ITEM.fullmatch(item)
        if found is None or not found[1].strip("[] "):
            raise RuleError("No network host in failover item", "failoverUrls", kind="Value")


def management_directories(attributes: Mapping[str, object]) -> tuple[str, ...]:
    """Of the router's attributes: below which directories management may name files."""
    written = str(attributes.get("managementDirs") or "")
    return tuple(each for each in (item.strip() for item in written.split(",")) if each)


def failover_items(attributes: Mapping[str, object]) -> Iterator[str]:
    """The parts of failoverUrls, unchecked; nothing when it is not set."""
    if attributes.get("failoverUrls"):
        yield from str(attributes["failoverUrls"]).split(",")
