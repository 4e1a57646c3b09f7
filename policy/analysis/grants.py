"""The rights of one user at one vhost, as sets: the form in which two rulesets are compared.

Pure. Source: docs/spec/policy-and-auth.md §1.3, §3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policy.addressing.lists import with_user
from policy.analysis.host_sets import ALL_HOSTS, Hosts, hosts_of
from policy.decision import Rule
from policy.groups import UNLIMITED_LINKS, Group
from policy.rights import NOTHING, ManagementRights
from policy.rights import UNRESTRICTED as UNRESTRICTED_MANAGEMENT
from policy.ruleset import Ruleset
from policy.vhosts import CONNECTOR_GROUP, Vhost

# Attribute -> its name in Group and in Settings.
SWITCHES: Final = {
    "allowDynamicSource": "allow_dynamic_source",
    "allowAnonymousSender": "allow_anonymous_sender",
    "allowUserIdProxy": "allow_user_id_proxy",
    "allowWaypointLinks": "allow_waypoint_links",
    "allowFallbackLinks": "allow_fallback_links",
    "allowDynamicLinkRoutes": "allow_dynamic_link_routes",
    "allowAdminStatusUpdate": "allow_admin_status_update",
    "allowReplies": "allow_replies",
}
NUMBERS: Final = (
    *("maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"),
    *("maxSessions", "maxSenders", "maxReceivers", "maxMessageSize", "maxMessageRate", "maxByteRate"),
    "replyWindow",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressList:
    """A compiled list.

    denied  literal items that are excluded from it
    """

    key: str
    items: tuple[str, ...]
    denied: tuple[str, ...] = ()
    rule: Rule | None = None

    def is_same(self, other: "AddressList") -> bool:
        return (self.key, self.items, self.denied) == (other.key, other.items, other.denied)

    def items_for(self, user: str) -> tuple[str, ...]:
        """Returns the items with the user's name inserted."""
        return tuple(with_user(item, user) for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rights of one user at one vhost.

    hosts     from which the user may connect; empty if it may not
    sources   like targets: empty if no such link may be opened
    numbers   None: no limit. `replyWindow` only if replies are allowed
    management  whether or not targets include it
    """

    vhost: str | None
    hosts: Hosts
    sources: AddressList
    targets: AddressList
    switches: Mapping[str, bool]
    numbers: Mapping[str, int | None]
    management: ManagementRights
    host_rule: Rule | None = None
    place: Vhost | None = None
    group: Group | None = None

    def addresses(self, direction: str) -> AddressList:
        return self.targets if direction == "send" else self.sources

    def rule(self, key: str) -> Rule | None:
        if self.group is None or self.place is None:
            return None
        return self.place.rule(key) if key == "maxConnections" else self.group.rule(key)


_EVERYTHING = AddressList(key="sources", items=("*",))
_NOTHING = AddressList(key="sources", items=())
UNRESTRICTED: Final = Grant(
    vhost=None,
    hosts=ALL_HOSTS,
    sources=_EVERYTHING,
    targets=_EVERYTHING,
    switches=dict.fromkeys(SWITCHES, True),
    numbers=dict.fromkeys(NUMBERS),
    management=UNRESTRICTED_MANAGEMENT,
)


def grant_of(
    ruleset: Ruleset,
    requested: str,
    user: str,
    groups: tuple[str, ...] = (),
    *,
    at: float | None,
    is_connector: bool = False,
) -> Grant:
    """Returns the rights of `user` at the vhost `requested`, or of the peer of a connector with that policyVhost.

    at  as ConnectionFacts.now
    """
    if not ruleset.is_enabled:
        return UNRESTRICTED
    vhost = ruleset.select_vhost(requested)
    if vhost is None:
        return _refused(None)
    group = vhost.groups.get(CONNECTOR_GROUP) if is_connector else vhost.group_of(user, groups)
    if group is None:
        return _refused(vhost, vhost.rule("allowUnknownUser"))
    if not group.window.contains(at):
        return _refused(vhost, group.rule(*group.window.reason_at(at)))
    per_user, per_host = group.max_connections_per_user, group.max_connections_per_host
    numbers: dict[str, int | None] = {
        "maxConnections": vhost.max_connections,
        "maxConnectionsPerUser": vhost.max_connections_per_user if per_user is None else per_user,
        "maxConnectionsPerHost": vhost.max_connections_per_host if per_host is None else per_host,
        "maxSessions": group.max_sessions or None,
        "maxSenders": None if group.max_senders >= UNLIMITED_LINKS else group.max_senders,
        "maxReceivers": None if group.max_receivers >= UNLIMITED_LINKS else group.max_receivers,
        "maxMessageSize": _message_size(ruleset, vhost, group),
        "maxMessageRate": vhost.max_message_rate if group.max_message_rate is None else group.max_message_rate,
        "maxByteRate": vhost.max_byte_rate if group.max_byte_rate is None else group.max_byte_rate,
    }
    if group.allow_replies:
        numbers["replyWindow"] = group.reply_window_s
    hosts = hosts_of(group.hosts)
    if is_connector:
        hosts = ALL_HOSTS
        numbers |= {"maxConnections": None, "maxConnectionsPerUser": None, "maxConnectionsPerHost": None}
    elif 0 in (numbers["maxConnections"], numbers["maxConnectionsPerUser"], numbers["maxConnectionsPerHost"]):
        hosts = ()
    switches = {key: bool(getattr(group, name)) for key, name in SWITCHES.items()}
    switches["allowDynamicSource"] &= group.max_receivers > 0
    switches["allowAnonymousSender"] &= group.max_senders > 0
    # A connection that cannot receive or cannot send cannot reply.
    switches["allowReplies"] &= group.max_senders > 0 and group.max_receivers > 0
    return Grant(
        vhost=vhost.name,
        hosts=hosts,
        sources=_addresses(group, "sources", group.max_receivers),
        targets=_addresses(group, "targets", group.max_senders),
        switches=switches,
        numbers=numbers,
        management=group.management,
        host_rule=group.rule("remoteHosts"),
        place=vhost,
        group=group,
    )


def _message_size(ruleset: Ruleset, vhost: Vhost, group: Group) -> int | None:
    for size in (group.max_message_size, vhost.max_message_size, ruleset.max_message_size):
        if size is not None:
            return size or None
    return None


def _addresses(group: Group, key: str, max_links: int) -> AddressList:
    if key == "sources":
        written, rules, denied = group.source_key, group.sources, group.denied_sources
    else:
        written, rules, denied = group.target_key, group.targets, group.denied_targets
    items = rules.items if max_links > 0 else ()
    return AddressList(key=written, items=items, denied=denied.items, rule=group.rule(written))


def _refused(vhost: Vhost | None, rule: Rule | None = None) -> Grant:
    return Grant(
        vhost=vhost.name if vhost is not None else None,
        hosts=(),
        sources=_NOTHING,
        targets=_NOTHING,
        switches=dict.fromkeys(SWITCHES, False),
        numbers=dict.fromkeys(NUMBERS, 0),
        management=NOTHING,
        host_rule=rule,
    )
