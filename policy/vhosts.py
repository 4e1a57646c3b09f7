"""One vhost: its attribute map checked and compiled.

Validation stops at the first error, whose text is that of docs/spec/policy-and-auth.md §2.2.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policy.addresses import (
    DEPRECATED_USER_TOKEN,
    USER_TOKEN,
    AddressRules,
    compile_literals,
    compile_patterns,
)
from policy.attributes import (
    MAX_CONNECTIONS,
    InvalidValue,
    PolicyError,
    VhostSource,
    read_boolean,
    read_integer,
    read_items,
)
from policy.decision import Rule
from policy.hosts import HostError, HostRanges, Resolve, parse_hosts

ANY_USER: Final = "*"
DEFAULT_GROUP: Final = "$default"
CONNECTOR_GROUP: Final = "$connector"
UNLIMITED_LINKS: Final = 2**31 - 1
MAX_GROUP_NAME_BYTES: Final = 255  # §1.3
MAX_VALUE: Final = 2**64 - 1  # of a size or count: what an AMQP ulong holds

# Deprecated attribute of a vhost -> the one to use (§10).
VHOST_ALIASES: Final = {"id": "hostname", "maxConnectionsPerRemoteHost": "maxConnectionsPerHost"}
# What management adds to every entity.
_ENTITY_ATTRIBUTES: Final = frozenset({"name", "identity", "type"})
_VHOST_LIMITS: Final = {
    "maxConnections": MAX_CONNECTIONS,
    "maxConnectionsPerUser": MAX_CONNECTIONS,
    "maxConnectionsPerHost": MAX_CONNECTIONS,
    "maxMessageSize": MAX_VALUE,
}
_GROUP_NUMBERS: Final = {
    "maxConnectionsPerUser": MAX_CONNECTIONS,
    "maxConnectionsPerHost": MAX_CONNECTIONS,
    "maxMessageSize": MAX_VALUE,
    "maxFrameSize": MAX_VALUE,
    "maxSessionWindow": MAX_VALUE,
    "maxSessions": MAX_VALUE,
    "maxSenders": MAX_VALUE,
    "maxReceivers": MAX_VALUE,
}
_GROUP_BOOLEANS: Final = {
    "allowDynamicSource": False,
    "allowAnonymousSender": False,
    "allowUserIdProxy": False,
    "allowWaypointLinks": True,
    "allowFallbackLinks": True,
    "allowDynamicLinkRoutes": True,
    "allowAdminStatusUpdate": True,
}
_ADDRESS_KEYS: Final = ("sources", "targets", "sourcePattern", "targetPattern")
_NO_ADDRESSES: Final = compile_literals(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A user group. Numbers are None where the group says nothing; canonical is what the ruleset's digest covers."""

    name: str
    vhost: str
    source: VhostSource | None
    users: tuple[str, ...]
    hosts: HostRanges
    max_connections_per_user: int | None
    max_connections_per_host: int | None
    max_message_size: int | None
    max_frame_size: int
    max_session_window: int
    max_sessions: int
    max_senders: int
    max_receivers: int
    allow_dynamic_source: bool
    allow_anonymous_sender: bool
    allow_user_id_proxy: bool
    allow_waypoint_links: bool
    allow_fallback_links: bool
    allow_dynamic_link_routes: bool
    allow_admin_status_update: bool
    sources: AddressRules
    targets: AddressRules
    source_key: str  # "sources" or "sourcePattern"
    target_key: str
    canonical: tuple[object, ...]

    def rule(self, key: str, value: object = None) -> Rule:
        """The place of attribute `key`; `value` is what stands there, or the list item that decided."""
        source = self.source
        return Rule(
            vhost=self.vhost,
            group=self.name,
            item=key if value is None else f"{key}: {value}",
            file=source.file if source is not None else None,
            line=source.line_of(("groups", self.name, key)) if source is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhost:
    """A vhost, ready to be decided on.

    user_groups    user name -> the group that lists it
    any_user_group the group that lists `*`
    digest         sha256 over the rules; order and place do not count
    """

    name: str
    aliases: tuple[str, ...]
    source: VhostSource | None
    max_connections: int
    max_connections_per_user: int
    max_connections_per_host: int
    max_message_size: int | None
    allow_unknown_user: bool
    groups: Mapping[str, Group]
    user_groups: Mapping[str, Group]
    any_user_group: Group | None
    digest: bytes

    def group_of(self, user: str) -> Group | None:
        """The group of a user (§2.4): the one that lists the name, that lists `*`, `$default` for unknown users."""
        group = self.user_groups.get(user)
        if group is not None:
            return group
        if self.any_user_group is not None:
            return self.any_user_group
        return self.groups[DEFAULT_GROUP] if self.allow_unknown_user else None

    def rule(self, key: str, value: object = None) -> Rule:
        """As Group.rule, for an attribute of the vhost itself."""
        source = self.source
        return Rule(
            vhost=self.name,
            item=key if value is None else f"{key}: {value}",
            file=source.file if source is not None else None,
            line=source.line_of((key,)) if source is not None else None,
        )


def hostname_of(attributes: Mapping[str, object]) -> str:
    """The vhost's name: `hostname`, its deprecated alias `id`, or with neither of them `name`. Raises PolicyError."""
    prefix = "org.apache.qpid.dispatch.vhost"
    if "hostname" in attributes and "id" in attributes:
        raise PolicyError(f"{prefix}: Both 'id' and 'hostname' cannot be specified for entity 'vhost'")
    for key in ("hostname", "id", "name"):
        if (value := attributes.get(key)) is not None:
            if not isinstance(value, str):
                raise PolicyError(
                    f"Policy '{value}' is invalid: Policy vhost '{value}' option '{key}' must be of type 'str' "
                    f"but is '{type(value)}'"
                )
            return value
    raise PolicyError(f"{prefix}: Missing required attribute 'hostname'")


def compile_vhost(
    attributes: Mapping[str, object], source: VhostSource | None, *, resolve: Resolve
) -> tuple[Vhost, tuple[str, ...]]:
    """Check and compile one vhost; returns it with the texts of its warnings. Raises PolicyError."""
    name = hostname_of(attributes)
    reading = _Reading(name=name, source=source, resolve=resolve, warnings=[])
    vhost = reading.vhost(attributes)
    return vhost, tuple(reading.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One vhost being read: what every step needs to know to word an error."""

    name: str
    source: VhostSource | None
    resolve: Resolve
    warnings: list[str]

    def error(self, text: str, *path: str | int) -> PolicyError:
        source = self.source
        return PolicyError(
            f"Policy '{self.name}' is invalid: {text}",
            file=source.file if source is not None else None,
            line=source.line_of(path) if source is not None else None,
        )

    def vhost(self, attributes: Mapping[str, object]) -> Vhost:
        name = self.name
        prefix = f"Policy vhost '{name}' option"
        limits: dict[str, int] = {}
        allow_unknown_user = False
        aliases: tuple[str, ...] = ()
        group_maps: Mapping[str, object] = {}
        for key, value in self._current_attributes(attributes).items():
            if value is None:
                continue
            if key in _VHOST_LIMITS:
                try:
                    limits[key] = read_integer(value, _VHOST_LIMITS[key])
                except InvalidValue as error:
                    raise self.error(f"{prefix} '{key}' has error '{error}'.", key) from None
            elif key == "allowUnknownUser":
                if not isinstance(value, bool):
                    raise self.error(f"{prefix} '{key}' must be of type 'bool' but is '{type(value)}'", key)
                allow_unknown_user = value
            elif key == "aliases":
                aliases = self._aliases(value)
            elif key == "groups":
                if not isinstance(value, Mapping):
                    raise self.error(f"{prefix} '{key}' must be of type 'dict' but is '{type(value)}'", key)
                group_maps = value
            elif key != "hostname":
                self.warnings.append(f"{prefix} '{key}' is ignored.")
        groups = {group: self._group(group, value) for group, value in group_maps.items()}
        user_groups = self._user_groups(groups)
        if allow_unknown_user and DEFAULT_GROUP not in groups:
            text = f"Policy vhost '{name}' allows connections by default but default settings are not defined"
            raise self.error(text, "allowUnknownUser")
        max_connections = limits.get("maxConnections", MAX_CONNECTIONS)
        per_user = limits.get("maxConnectionsPerUser", MAX_CONNECTIONS)
        per_host = limits.get("maxConnectionsPerHost", MAX_CONNECTIONS)
        canonical = (
            *(name, sorted(aliases), max_connections, per_user, per_host, limits.get("maxMessageSize")),
            *(allow_unknown_user, sorted((group, groups[group].canonical) for group in groups)),
        )
        return Vhost(
            name=name,
            aliases=aliases,
            source=self.source,
            max_connections=max_connections,
            max_connections_per_user=per_user,
            max_connections_per_host=per_host,
            max_message_size=limits.get("maxMessageSize"),
            allow_unknown_user=allow_unknown_user,
            groups=groups,
            user_groups=user_groups,
            any_user_group=next((group for group in groups.values() if ANY_USER in group.users), None),
            digest=hashlib.sha256(json.dumps(canonical).encode()).digest(),
        )

    def _current_attributes(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """The map without management's own attributes and with deprecated names replaced."""
        current: dict[str, object] = {}
        for key, value in attributes.items():
            if key in _ENTITY_ATTRIBUTES:
                continue
            replacement = VHOST_ALIASES.get(key)
            if replacement is not None and replacement in attributes:
                text = f"Both '{key}' and '{replacement}' cannot be specified for entity 'vhost'"
                raise PolicyError(f"org.apache.qpid.dispatch.vhost: {text}")
            if replacement is not None:
                self._deprecated(key, replacement)
            current[replacement or key] = value
        if "hostname" not in current:
            self._deprecated("name", "hostname")
        return current

    def _deprecated(self, old: str, new: str) -> None:
        self.warnings.append(f"Attribute '{old}' of entity 'vhost' has been deprecated. Use '{new}' instead")

    def _aliases(self, value: object) -> tuple[str, ...]:
        prefix = f"Policy vhost '{self.name}' option 'aliases'"
        try:
            aliases = read_items(value)
        except InvalidValue as error:
            raise self.error(f"{prefix} {error}", "aliases") from None
        written = [item.strip(" ") for item in value.split(",")] if isinstance(value, str) else list(aliases)
        if isinstance(value, list | tuple):
            written = list(value)
        for index, alias in enumerate(written):
            if not alias:
                continue
            if alias == self.name:
                raise self.error(f"{prefix} value '{alias}' duplicates vhost name", "aliases", index)
            if alias in written[:index]:
                raise self.error(f"{prefix} value '{alias}' is duplicated", "aliases", index)
        return aliases

    def _user_groups(self, groups: Mapping[str, Group]) -> dict[str, Group]:
        user_groups: dict[str, Group] = {}
        for group in groups.values():
            for user in group.users:
                if (other := user_groups.get(user)) is not None:
                    text = (
                        f"Policy vhost '{self.name}' user '{user}' is in multiple user groups "
                        f"'{other.name}' and '{group.name}'"
                    )
                    raise self.error(text, "groups", group.name, "users")
                user_groups[user] = group
        user_groups.pop(ANY_USER, None)
        return user_groups

    def _group(self, name: object, attributes: object) -> Group:
        prefix = f"Policy vhost '{self.name}' user group '{name}'"
        if not isinstance(name, str) or len(name.encode("utf-8", "replace")) > MAX_GROUP_NAME_BYTES:
            raise self.error(f"{prefix}: the name must be a text of at most {MAX_GROUP_NAME_BYTES} bytes", "groups")
        if not isinstance(attributes, Mapping):
            text = f"{prefix} must be of type 'dict' but is '{type(attributes)}'"
            raise self.error(text, "groups", name)
        numbers: dict[str, int] = {}
        booleans = dict(_GROUP_BOOLEANS)
        users: tuple[str, ...] = ()
        hosts = HostRanges()
        addresses: dict[str, tuple[str, ...]] = {}
        for key, value in attributes.items():
            where = ("groups", name, key)
            if value is None:
                continue
            try:
                if key in _GROUP_NUMBERS:
                    numbers[key] = read_integer(value, _GROUP_NUMBERS[key])
                elif key in _GROUP_BOOLEANS:
                    booleans[key] = read_boolean(value)
                elif key == "users":
                    users = read_items(value)
                elif key == "remoteHosts":
                    hosts = parse_hosts(read_items(value), self.resolve)
                elif key in _ADDRESS_KEYS:
                    addresses[key] = tuple(self._address_item(prefix, where, item) for item in read_items(value))
                else:
                    self.warnings.append(f"{prefix} option '{key}' is ignored.")
            except InvalidValue as error:
                text = f"has error '{error}'." if key in _GROUP_NUMBERS else str(error)
                raise self.error(f"{prefix} option '{key}' {text}", *where) from None
            except HostError as error:
                raise self.error(f"{prefix} option '{key}' {error}", *where) from None
        source_key = self._address_key(prefix, name, addresses, "sources", "sourcePattern")
        target_key = self._address_key(prefix, name, addresses, "targets", "targetPattern")
        sources = _compile_addresses(source_key, addresses)
        targets = _compile_addresses(target_key, addresses)
        flags = tuple(booleans.values())
        return Group(
            name=name,
            vhost=self.name,
            source=self.source,
            users=users,
            hosts=hosts,
            max_connections_per_user=numbers.get("maxConnectionsPerUser"),
            max_connections_per_host=numbers.get("maxConnectionsPerHost"),
            max_message_size=numbers.get("maxMessageSize"),
            max_frame_size=numbers.get("maxFrameSize", 0),
            max_session_window=numbers.get("maxSessionWindow", 0),
            max_sessions=numbers.get("maxSessions", 0),
            max_senders=numbers.get("maxSenders", UNLIMITED_LINKS),
            max_receivers=numbers.get("maxReceivers", UNLIMITED_LINKS),
            allow_dynamic_source=booleans["allowDynamicSource"],
            allow_anonymous_sender=booleans["allowAnonymousSender"],
            allow_user_id_proxy=booleans["allowUserIdProxy"],
            allow_waypoint_links=booleans["allowWaypointLinks"],
            allow_fallback_links=booleans["allowFallbackLinks"],
            allow_dynamic_link_routes=booleans["allowDynamicLinkRoutes"],
            allow_admin_status_update=booleans["allowAdminStatusUpdate"],
            sources=sources,
            targets=targets,
            source_key=source_key,
            target_key=target_key,
            canonical=(
                *(sorted(users), hosts.is_any, hosts.v4, hosts.v6, sorted(numbers.items()), flags),
                *(source_key, sources.canonical, target_key, targets.canonical),
            ),
        )

    def _address_item(self, prefix: str, where: tuple[str, str, str], item: str) -> str:
        """The item with the deprecated token replaced, if its `${user}` stands where it may."""
        key = where[-1]
        count = item.count(USER_TOKEN) + item.replace(USER_TOKEN, "").count(DEPRECATED_USER_TOKEN)
        if count > 1:
            text = f"{prefix} policy key '{key}' item '{item}' contains multiple user subtitution tokens"
            raise self.error(text, *where)
        current = item
        if USER_TOKEN not in item and DEPRECATED_USER_TOKEN in item:
            current = item.replace(DEPRECATED_USER_TOKEN, USER_TOKEN)
            self.warnings.append(
                f"{prefix} policy key '{key}' item '{item}': the token '{DEPRECATED_USER_TOKEN}' has been deprecated. "
                f"Use '{USER_TOKEN}' instead"
            )
        is_inside = USER_TOKEN in current and not current.startswith(USER_TOKEN) and not current.endswith(USER_TOKEN)
        if key.endswith("Pattern") and is_inside:
            text = f"item '{item}' may contain match pattern '{USER_TOKEN}' as a prefix or a suffix only."
            raise self.error(f"{prefix} policy key '{key}' {text}", *where)
        return current

    def _address_key(
        self, prefix: str, group: str, addresses: Mapping[str, Sequence[str]], literal: str, pattern: str
    ) -> str:
        if literal in addresses and pattern in addresses:
            text = f"{prefix} specifies conflicting '{literal}' and '{pattern}' attributes. Use only one or the other."
            raise self.error(text, "groups", group, pattern)
        return pattern if pattern in addresses else literal


def _compile_addresses(key: str, addresses: Mapping[str, tuple[str, ...]]) -> AddressRules:
    items = addresses.get(key)
    if not items:
        return _NO_ADDRESSES
    return compile_patterns(items) if key.endswith("Pattern") else compile_literals(items)
