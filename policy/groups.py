"""One user group: its settings checked and compiled.

Source: docs/spec/policy-and-auth.md §1.3, §2.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policy.addressing.lists import (
    DEPRECATED_USER_TOKEN,
    ESCAPED_USER_TOKEN,
    USER_TOKEN,
    AddressRules,
    LiteralRules,
    compile_literals,
    compile_patterns,
    denied_items,
    has_user_token,
    split_at_user,
)
from policy.attributes import (
    MAX_CONNECTIONS,
    InvalidValue,
    Reading,
    SourceLocation,
    notes_on_names,
    read_boolean,
    read_integer,
    read_items,
    read_names,
    refuse_null,
)
from policy.decision import Rule
from policy.hosts import HostError, HostRanges, parse_hosts
from policy.rights import MANAGEMENT_KEY, UNSET, ManagementRights, read_rights
from policy.windows import UNTIL_KEY, WINDOW_KEYS, Window, read_instant, read_window

UNLIMITED_LINKS: Final = 2**31 - 1
MAX_NAME_BYTES: Final = 255  # §1.3
# Of a size, a count or a rate: the largest AMQP long, the type in management replies.
MAX_VALUE: Final = 2**63 - 1
# It is an AMQP uint in the Open. Attack: a larger value, with which no group member could open a connection.
MAX_FRAME_SIZE: Final = 2**32 - 1

_GROUP_NUMBERS: Final = {
    "maxConnectionsPerUser": MAX_CONNECTIONS,
    "maxConnectionsPerHost": MAX_CONNECTIONS,
    "maxMessageSize": MAX_VALUE,
    "maxFrameSize": MAX_FRAME_SIZE,
    "maxSessionWindow": MAX_VALUE,
    "maxSessions": MAX_VALUE,
    "maxSenders": MAX_VALUE,
    "maxReceivers": MAX_VALUE,
    "maxMessageRate": MAX_VALUE,
    "maxByteRate": MAX_VALUE,
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
REPLIES_KEY: Final = "allowReplies"  # an extension: replies to received messages, whatever targets say
REPLY_WINDOW_KEY: Final = "replyWindow"  # an extension too, in seconds
DEFAULT_REPLY_WINDOW_S: Final = 300
# Attack: a right to send that lasts weeks longer than the request for which it was given.
MAX_REPLY_WINDOW_S: Final = 86_400
_EXTENDED_BOOLEANS: Final = {**_GROUP_BOOLEANS, REPLIES_KEY: False}
BOOLEAN_KEYS: Final = frozenset(_EXTENDED_BOOLEANS)
NUMBER_KEYS: Final = frozenset((*_GROUP_NUMBERS, REPLY_WINDOW_KEY))
# Extensions: these lists deny addresses, whatever sources and targets allow.
DENY_KEYS: Final = ("denySources", "denyTargets")
# Address list -> the denials that apply to it.
DENIED_BY: Final = {
    **dict.fromkeys(("sources", "sourcePattern"), "denySources"),
    **dict.fromkeys(("targets", "targetPattern"), "denyTargets"),
}
AUTHENTICATOR_KEY: Final = "authenticatorGroups"  # also an extension
RATE_KEYS: Final = ("maxMessageRate", "maxByteRate")  # extensions, also of vhosts
ADDRESS_KEYS: Final = ("sources", "targets", "sourcePattern", "targetPattern")
_NO_ADDRESSES: Final = compile_literals(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A user group. Numbers are None if the group does not set them. The ruleset's digest covers `canonical`.

    authenticator_groups  names of groups that the authenticator vouches for: their users are in this group
    window                when its members may be connected; membership does not depend on it
    """

    name: str
    vhost: str
    source: SourceLocation | None
    users: tuple[str, ...]
    authenticator_groups: tuple[str, ...]
    hosts: HostRanges
    window: Window
    max_connections_per_user: int | None
    max_connections_per_host: int | None
    max_message_size: int | None
    max_frame_size: int
    max_session_window: int
    max_sessions: int
    max_senders: int
    max_receivers: int
    max_message_rate: int | None
    max_byte_rate: int | None
    allow_dynamic_source: bool
    allow_anonymous_sender: bool
    allow_user_id_proxy: bool
    allow_waypoint_links: bool
    allow_fallback_links: bool
    allow_dynamic_link_routes: bool
    allow_admin_status_update: bool
    allow_replies: bool
    reply_window_s: int
    sources: AddressRules
    targets: AddressRules
    management: ManagementRights
    source_key: str  # "sources" or "sourcePattern"
    target_key: str
    denied_sources: LiteralRules
    denied_targets: LiteralRules
    canonical: tuple[object, ...]

    def rule(self, key: str, value: object = None) -> Rule:
        """Returns the place of attribute `key`. `value` is the one written there, or the list item that decided."""
        source = self.source
        return Rule(
            vhost=self.vhost,
            group=self.name,
            item=key if value is None else f"{key}: {value}",
            file=source.file if source is not None else None,
            line=source.line_of(("groups", self.name, key)) if source is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGroup:
    """A valid group, not yet compiled.

    numbers, addresses  only the written ones
    booleans            all of them
    """

    name: str
    users: tuple[str, ...]
    authenticator_groups: tuple[str, ...]
    hosts: HostRanges
    window: Window
    numbers: Mapping[str, int]
    booleans: Mapping[str, bool]
    reply_window_s: int
    addresses: Mapping[str, tuple[str, ...]]
    management: ManagementRights
    source_key: str
    target_key: str


def check_group(name: object, attributes: object, reading: Reading) -> CheckedGroup:
    """Checks one value of a vhost's `groups` map. Raises PolicyError."""
    prefix = f"Policy vhost '{reading.vhost}' user group '{name}'"
    if not isinstance(name, str) or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        path = ("groups", name) if isinstance(name, str) else ("groups",)
        raise reading.error(f"{prefix}: the name must be a text of at most {MAX_NAME_BYTES} bytes", *path)
    if not isinstance(attributes, Mapping):
        text = f"{prefix} must be of type 'dict' but is '{type(attributes)}'"
        raise reading.error(text, "groups", name)
    numbers: dict[str, int] = {}
    booleans = dict(_EXTENDED_BOOLEANS)
    reply_window_s = DEFAULT_REPLY_WINDOW_S
    users: tuple[str, ...] = ()
    authenticator_groups: tuple[str, ...] = ()
    hosts = HostRanges()
    instants: dict[str, float] = {}
    addresses: dict[str, tuple[str, ...]] = {}
    management = UNSET
    for key, value in attributes.items():
        where = ("groups", name, key)
        try:
            refuse_null(value)
            if key in _GROUP_NUMBERS:
                numbers[key] = read_integer(value, _GROUP_NUMBERS[key])
            elif key == REPLY_WINDOW_KEY:
                reply_window_s = read_integer(value, MAX_REPLY_WINDOW_S, minimum=1)
            elif key in _EXTENDED_BOOLEANS:
                booleans[key] = read_boolean(value)
            elif key == "users":
                users = read_names(value)
                reading.warnings.extend(f"{prefix} option 'users' {text}" for text in notes_on_names(value))
            elif key == AUTHENTICATOR_KEY:
                authenticator_groups = read_items(value)
            elif key == "remoteHosts":
                hosts = parse_hosts(read_items(value), reading.resolve)
            elif key == MANAGEMENT_KEY:
                management = read_rights(value)
            elif key in WINDOW_KEYS:
                instants[key] = read_instant(value)
            elif key in DENY_KEYS:
                addresses[key] = tuple(_read_denied_item(item, prefix, where, reading) for item in read_items(value))
            elif key in ADDRESS_KEYS:
                addresses[key] = tuple(_read_address_item(item, prefix, where, reading) for item in read_items(value))
            else:
                reading.warnings.append(f"{prefix} option '{key}' is ignored.")
        except InvalidValue as error:
            text = f"has error '{error}'." if key in NUMBER_KEYS and value is not None else str(error)
            raise reading.error(f"{prefix} option '{key}' {text}", *where) from None
        except HostError as error:
            raise reading.error(f"{prefix} option '{key}' {error}", *where) from None
    window = _window(instants, prefix, name, reading)
    source_key = _address_key(addresses, "sources", "sourcePattern", prefix, name, reading)
    target_key = _address_key(addresses, "targets", "targetPattern", prefix, name, reading)
    return CheckedGroup(
        name=name,
        users=users,
        authenticator_groups=authenticator_groups,
        hosts=hosts,
        window=window,
        numbers=numbers,
        booleans=booleans,
        reply_window_s=reply_window_s,
        addresses=addresses,
        management=management,
        source_key=source_key,
        target_key=target_key,
    )


def compile_group(checked: CheckedGroup, reading: Reading) -> Group:
    numbers, booleans, addresses, hosts = checked.numbers, checked.booleans, checked.addresses, checked.hosts
    source_key, target_key = checked.source_key, checked.target_key
    sources = _compile_addresses(source_key, addresses)
    targets = _compile_addresses(target_key, addresses)
    flags = tuple(booleans[key] for key in _GROUP_BOOLEANS)
    denied = {key: compile_literals(denied_items(addresses.get(key, ()))) for key in DENY_KEYS}
    # Added only if they are used, so that the digest of a policy without extensions does not change.
    extensions: tuple[tuple[str, object], ...] = tuple(
        (key, rules.canonical) for key, rules in denied.items() if rules.items
    )
    if checked.authenticator_groups:
        extensions += ((AUTHENTICATOR_KEY, tuple(sorted(checked.authenticator_groups))),)
    if not checked.window.is_always:
        extensions += (("window", (checked.window.begin_s, checked.window.end_s)),)
    if booleans[REPLIES_KEY]:
        extensions += ((REPLIES_KEY, checked.reply_window_s),)
    if checked.management.is_set:
        extensions += ((MANAGEMENT_KEY, checked.management.canonical),)
    return Group(
        name=checked.name,
        vhost=reading.vhost,
        source=reading.source,
        users=checked.users,
        authenticator_groups=checked.authenticator_groups,
        hosts=hosts,
        window=checked.window,
        max_connections_per_user=numbers.get("maxConnectionsPerUser"),
        max_connections_per_host=numbers.get("maxConnectionsPerHost"),
        max_message_size=numbers.get("maxMessageSize"),
        max_frame_size=numbers.get("maxFrameSize", 0),
        max_session_window=numbers.get("maxSessionWindow", 0),
        max_sessions=numbers.get("maxSessions", 0),
        max_senders=numbers.get("maxSenders", UNLIMITED_LINKS),
        max_receivers=numbers.get("maxReceivers", UNLIMITED_LINKS),
        max_message_rate=numbers.get("maxMessageRate"),
        max_byte_rate=numbers.get("maxByteRate"),
        allow_dynamic_source=booleans["allowDynamicSource"],
        allow_anonymous_sender=booleans["allowAnonymousSender"],
        allow_user_id_proxy=booleans["allowUserIdProxy"],
        allow_waypoint_links=booleans["allowWaypointLinks"],
        allow_fallback_links=booleans["allowFallbackLinks"],
        allow_dynamic_link_routes=booleans["allowDynamicLinkRoutes"],
        allow_admin_status_update=booleans["allowAdminStatusUpdate"],
        allow_replies=booleans[REPLIES_KEY],
        reply_window_s=checked.reply_window_s,
        sources=sources,
        targets=targets,
        management=checked.management,
        source_key=source_key,
        target_key=target_key,
        denied_sources=denied["denySources"],
        denied_targets=denied["denyTargets"],
        canonical=(
            *(sorted(checked.users), hosts.is_any, hosts.v4, hosts.v6, sorted(numbers.items()), flags),
            *(source_key, sources.canonical, target_key, targets.canonical),
            *extensions,
        ),
    )


def _window(instants: Mapping[str, float], prefix: str, group: str, reading: Reading) -> Window:
    try:
        return read_window(*(instants.get(key) for key in WINDOW_KEYS))
    except InvalidValue as error:
        raise reading.error(f"{prefix} option '{UNTIL_KEY}' {error}", "groups", group, UNTIL_KEY) from None


def _read_address_item(item: str, prefix: str, where: tuple[str, str, str], reading: Reading) -> str:
    """Returns the item with the deprecated token replaced, if its `${user}` is at a permitted place."""
    # The deprecated token is a part of the current one.
    count = item.count(DEPRECATED_USER_TOKEN) + item.count(ESCAPED_USER_TOKEN)
    if count == 0:
        return item
    key = where[-1]
    if count > 1:
        text = f"{prefix} policy key '{key}' item '{item}' contains multiple user subtitution tokens"
        raise reading.error(text, *where)
    current = item
    if not has_user_token(item):
        current = item.replace(DEPRECATED_USER_TOKEN, USER_TOKEN)
        reading.warnings.append(
            f"{prefix} policy key '{key}' item '{item}': the token '{DEPRECATED_USER_TOKEN}' has been deprecated. "
            f"Use '{USER_TOKEN}' instead"
        )
    head, token, rest = split_at_user(current)
    if key.endswith("Pattern") and head and rest:
        text = f"item '{item}' may contain match pattern '{token}' as a prefix or a suffix only."
        raise reading.error(f"{prefix} policy key '{key}' {text}", *where)
    return current


def _read_denied_item(item: str, prefix: str, where: tuple[str, str, str], reading: Reading) -> str:
    """Returns an item of a denial. `${user}` is refused: such a denial would not hold for a peer without a name."""
    if has_user_token(item) or DEPRECATED_USER_TOKEN in item:
        text = f"{prefix} policy key '{where[-1]}' item '{item}' must not contain '{USER_TOKEN}'"
        raise reading.error(text, *where)
    return item


def _address_key(
    addresses: Mapping[str, Sequence[str]], literal: str, pattern: str, prefix: str, group: str, reading: Reading
) -> str:
    if literal in addresses and pattern in addresses:
        text = f"{prefix} specifies conflicting '{literal}' and '{pattern}' attributes. Use only one or the other."
        raise reading.error(text, "groups", group, pattern)
    return pattern if pattern in addresses else literal


def _compile_addresses(key: str, addresses: Mapping[str, tuple[str, ...]]) -> AddressRules:
    items = addresses.get(key)
    if not items:
        return _NO_ADDRESSES
    return compile_patterns(items) if key.endswith("Pattern") else compile_literals(items)
