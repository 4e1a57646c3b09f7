"""Checks and compiles the attribute map of one vhost.

Validation stops at the first error, with the text of docs/spec/policy-and-auth.md §2.2.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from policy.attributes import (
    MAX_CONNECTIONS,
    InvalidValue,
    PolicyError,
    Reading,
    SourceLocation,
    read_integer,
    refuse_null,
    split_items,
)
from policy.decision import Rule
from policy.groups import AUTHENTICATOR_KEY, MAX_VALUE, RATE_KEYS, CheckedGroup, Group, check_group, compile_group
from policy.hosts import Resolve

ANY_USER: Final = "*"
DEFAULT_GROUP: Final = "$default"
CONNECTOR_GROUP: Final = "$connector"

# Deprecated attribute of a vhost -> its replacement (§10).
DEPRECATED_ATTRIBUTES: Final = {"id": "hostname", "maxConnectionsPerRemoteHost": "maxConnectionsPerHost"}
_ENTITY_TYPE: Final = "org.apache.qpid.dispatch.vhost"
# Management adds these to every entity.
_ENTITY_ATTRIBUTES: Final = frozenset({"name", "identity", "type"})
_LIMITS: Final = {
    "maxConnections": MAX_CONNECTIONS,
    "maxConnectionsPerUser": MAX_CONNECTIONS,
    "maxConnectionsPerHost": MAX_CONNECTIONS,
    "maxMessageSize": MAX_VALUE,
    "maxMessageRate": MAX_VALUE,
    "maxByteRate": MAX_VALUE,
}
LIMIT_KEYS: Final = frozenset(_LIMITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhost:
    """A compiled vhost, ready for decisions.

    user_groups    user name -> the group that lists it
    any_user_group the group that lists `*`
    joined_groups  name of a group that the authenticator vouches for -> the group that lists it
    boundaries     when its groups start and stop being valid, seconds since 1970 UTC
    digest         sha256 over the rules; independent of order and place
    """

    name: str
    aliases: tuple[str, ...]
    source: SourceLocation | None
    max_connections: int
    max_connections_per_user: int
    max_connections_per_host: int
    max_message_size: int | None
    max_message_rate: int | None
    max_byte_rate: int | None
    allow_unknown_user: bool
    groups: Mapping[str, Group]
    user_groups: Mapping[str, Group]
    any_user_group: Group | None
    joined_groups: Mapping[str, Group]
    boundaries: tuple[float, ...]
    digest: bytes

    def group_of(self, user: str, authenticator_groups: Collection[str] = ()) -> Group | None:
        """Returns the group of a user (§2.4): the one that lists the name, or `*`, or else `$default`.

        authenticator_groups  of the user. A group that lists one of them applies before `*`. Of several such groups the
                              first by name applies, so that no order changes a decision

        `$default` is for unknown users. The group's window is ignored here: a member of an expired group does not move
        to another group.
        """
        group = self.user_groups.get(user)
        if group is not None:
            return group
        joined = [self.joined_groups[name] for name in authenticator_groups if name in self.joined_groups]
        if joined:
            return min(joined, key=_name_of)
        if self.any_user_group is not None:
            return self.any_user_group
        return self.groups[DEFAULT_GROUP] if self.allow_unknown_user else None

    def rule(self, key: str, value: object = None) -> Rule:
        """Returns the place of an attribute of the vhost itself, like Group.rule."""
        source = self.source
        return Rule(
            vhost=self.name,
            item=key if value is None else f"{key}: {value}",
            file=source.file if source is not None else None,
            line=source.line_of((key,)) if source is not None else None,
        )


def hostname_of(attributes: Mapping[str, object], source: SourceLocation | None = None) -> str:
    """Returns the vhost's name: `hostname`, its deprecated alias `id`, or if both are absent, `name`.

    Errors  PolicyError
    """

    def error(text: str, *path: str) -> PolicyError:
        if source is None:
            return PolicyError(text)
        return PolicyError(text, file=source.file, line=source.line_of(path))

    if "hostname" in attributes and "id" in attributes:
        raise error(f"{_ENTITY_TYPE}: Both 'id' and 'hostname' cannot be specified for entity 'vhost'", "id")
    for key in ("hostname", "id", "name"):
        if key in attributes:
            value = attributes[key]
            if value is None:
                raise error(f"{_ENTITY_TYPE}: Attribute '{key}' is null: give it a value, or leave it out", key)
            if not isinstance(value, str):
                raise error(
                    f"Policy '{value}' is invalid: Policy vhost '{value}' option '{key}' must be of type 'str' "
                    f"but is '{type(value)}'",
                    key,
                )
            return value
    raise error(f"{_ENTITY_TYPE}: Missing required attribute 'hostname'")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedVhost:
    """A vhost without errors of its own, not yet compiled.

    limits  only the written ones
    """

    limits: Mapping[str, int]
    allow_unknown_user: bool
    aliases: tuple[str, ...]
    groups: Mapping[str, CheckedGroup]
    user_groups: Mapping[str, CheckedGroup]
    joined_groups: Mapping[str, CheckedGroup]


def check_vhost(attributes: Mapping[str, object], source: SourceLocation | None, *, resolve: Resolve) -> None:
    """Checks whether compile_vhost would accept it. Much faster for long address lists. Raises PolicyError if not."""
    _checked(attributes, Reading(vhost=hostname_of(attributes, source), source=source, resolve=resolve, warnings=[]))


def compile_vhost(
    attributes: Mapping[str, object], source: SourceLocation | None, *, resolve: Resolve
) -> tuple[Vhost, tuple[str, ...]]:
    """Checks and compiles one vhost. Returns it with the texts of its warnings. Raises PolicyError."""
    name = hostname_of(attributes, source)
    reading = Reading(vhost=name, source=source, resolve=resolve, warnings=[])
    checked = _checked(attributes, reading)
    groups = {name: compile_group(group, reading) for name, group in checked.groups.items()}
    user_groups = {user: groups[group.name] for user, group in checked.user_groups.items()}
    limits = checked.limits
    max_connections = limits.get("maxConnections", MAX_CONNECTIONS)
    per_user = limits.get("maxConnectionsPerUser", MAX_CONNECTIONS)
    per_host = limits.get("maxConnectionsPerHost", MAX_CONNECTIONS)
    canonical = (
        *(name, sorted(checked.aliases), max_connections, per_user, per_host, limits.get("maxMessageSize")),
        *(checked.allow_unknown_user, sorted((group, groups[group].canonical) for group in groups)),
        # An extension, added only if it is used: the digest of a policy without it does not change.
        *((key, limits[key]) for key in RATE_KEYS if key in limits),
    )
    vhost = Vhost(
        name=name,
        aliases=checked.aliases,
        source=source,
        max_connections=max_connections,
        max_connections_per_user=per_user,
        max_connections_per_host=per_host,
        max_message_size=limits.get("maxMessageSize"),
        max_message_rate=limits.get("maxMessageRate"),
        max_byte_rate=limits.get("maxByteRate"),
        allow_unknown_user=checked.allow_unknown_user,
        groups=groups,
        any_user_group=user_groups.pop(ANY_USER, None),
        user_groups=user_groups,
        joined_groups={joined: groups[group.name] for joined, group in checked.joined_groups.items()},
        boundaries=tuple(edge for group in groups.values() for edge in group.window.boundaries),
        digest=hashlib.sha256(json.dumps(canonical).encode()).digest(),
    )
    return vhost, tuple(reading.warnings)


def _checked(attributes: Mapping[str, object], reading: Reading) -> _CheckedVhost:
    prefix = f"Policy vhost '{reading.vhost}' option"
    limits: dict[str, int] = {}
    allow_unknown_user = False
    aliases: tuple[str, ...] = ()
    groups: dict[str, CheckedGroup] = {}
    for key, value in _current_attributes(attributes, reading).items():
        try:
            refuse_null(value)
        except InvalidValue as error:
            raise reading.error(f"{prefix} '{key}' {error}", key) from None
        if key in _LIMITS:
            try:
                limits[key] = read_integer(value, _LIMITS[key])
            except InvalidValue as error:
                raise reading.error(f"{prefix} '{key}' has error '{error}'.", key) from None
        elif key == "allowUnknownUser":
            if not isinstance(value, bool):
                raise reading.error(f"{prefix} '{key}' must be of type 'bool' but is '{type(value)}'", key)
            allow_unknown_user = value
        elif key == "aliases":
            aliases = _read_aliases(value, reading)
        elif key == "groups":
            if not isinstance(value, Mapping):
                raise reading.error(f"{prefix} '{key}' must be of type 'dict' but is '{type(value)}'", key)
            groups = {group: check_group(group, settings, reading) for group, settings in value.items()}
        elif key != "hostname":
            reading.warnings.append(f"{prefix} '{key}' is ignored.")
    user_groups = _index_users(groups, reading)
    joined_groups = _index_joined(groups, reading)
    if allow_unknown_user and DEFAULT_GROUP not in groups:
        text = f"Policy vhost '{reading.vhost}' allows connections by default but default settings are not defined"
        raise reading.error(text, "allowUnknownUser")
    return _CheckedVhost(
        limits=limits,
        allow_unknown_user=allow_unknown_user,
        aliases=aliases,
        groups=groups,
        user_groups=user_groups,
        joined_groups=joined_groups,
    )


def _current_attributes(attributes: Mapping[str, object], reading: Reading) -> dict[str, object]:
    """Returns the map without management's own attributes and with deprecated names replaced."""

    def warn(old: str, new: str) -> None:
        text = f"Attribute '{old}' of entity 'vhost' has been deprecated. Use '{new}' instead"
        reading.warnings.append(text)

    current: dict[str, object] = {}
    for key, value in attributes.items():
        if key in _ENTITY_ATTRIBUTES:
            continue
        replacement = DEPRECATED_ATTRIBUTES.get(key)
        if replacement is not None:
            if replacement in attributes:
                text = f"Both '{key}' and '{replacement}' cannot be specified for entity 'vhost'"
                raise PolicyError(f"{_ENTITY_TYPE}: {text}")
            warn(key, replacement)
        current[replacement or key] = value
    if "hostname" not in current:
        warn("name", "hostname")
    return current


def _read_aliases(value: object, reading: Reading) -> tuple[str, ...]:
    prefix = f"Policy vhost '{reading.vhost}' option 'aliases'"
    if isinstance(value, list | tuple):
        # It is a text in the management schema, also in the C router.
        raise reading.error(f"{prefix} must be one text with commas between the names, not a list", "aliases")
    try:
        written = split_items(value)
    except InvalidValue as error:
        raise reading.error(f"{prefix} {error}", "aliases") from None
    aliases: list[str] = []
    for index, alias in enumerate(written):
        if not alias:
            # Attack: it would admit the clients that ask for no vhost.
            text = "has a blank item: give it a name, remove the comma too many, or leave the attribute out."
            raise reading.error(f"{prefix} {text}", "aliases", index)
        if alias == reading.vhost:
            raise reading.error(f"{prefix} value '{alias}' duplicates vhost name", "aliases", index)
        if alias in aliases:
            raise reading.error(f"{prefix} value '{alias}' is duplicated", "aliases", index)
        aliases.append(alias)
    return tuple(aliases)


def _index_users(groups: Mapping[str, CheckedGroup], reading: Reading) -> dict[str, CheckedGroup]:
    """Returns user name -> its group, with `*` as one of the names."""
    found: dict[str, CheckedGroup] = {}
    for group in groups.values():
        for user in group.users:
            if (other := found.get(user)) is not None:
                names = f"'{other.name}' and '{group.name}'"
                text = f"Policy vhost '{reading.vhost}' user '{user}' is in multiple user groups {names}"
                raise reading.error(text, "groups", group.name, "users")
            found[user] = group
    return found


def _index_joined(groups: Mapping[str, CheckedGroup], reading: Reading) -> dict[str, CheckedGroup]:
    """Returns group of the authenticator -> the group that lists it."""
    found: dict[str, CheckedGroup] = {}
    for group in groups.values():
        for name in group.authenticator_groups:
            if (other := found.get(name)) is not None:
                names = f"'{other.name}' and '{group.name}'"
                text = f"Policy vhost '{reading.vhost}' authenticator group '{name}' is in multiple user groups {names}"
                raise reading.error(text, "groups", group.name, AUTHENTICATOR_KEY)
            found[name] = group
    return found


def _name_of(group: Group) -> str:
    return group.name
