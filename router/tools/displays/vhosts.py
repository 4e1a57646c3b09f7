"""qdstat -p, --vhosts, --vhostgroups and --vhoststats."""

from collections.abc import Mapping
from typing import Any

from router.tools.displays.source import Source
from router.tools.formats import Block, Table, plain

_NIL = "(nil)"

_GROUP_NUMBERS = (
    "maxConnectionsPerUser",
    "maxConnectionsPerHost",
    "maxMessageSize",
    "maxFrameSize",
    "maxSessionWindow",
    "maxSessions",
    "maxSenders",
    "maxReceivers",
)
_GROUP_FLAGS = (
    "allowDynamicSource",
    "allowAnonymousSender",
    "allowUserIdProxy",
    "allowWaypointLinks",
    "allowDynamicLinkRoutes",
    "allowAdminStatusUpdate",
    "allowFallbackLinks",
)
_COUNTERS = (
    "connectionsApproved",
    "connectionsDenied",
    "connectionsCurrent",
    "sessionDenied",
    "senderDenied",
    "receiverDenied",
    "maxMessageSizeDenied",
)
_GROUP_TEXTS = ("users", "remoteHosts", "sources", "targets", "sourcePattern", "targetPattern")


def policy(source: Source) -> list[Block]:
    found = source.all("policy")
    entity = found[0] if found else {}
    configuration = (
        ("Maximum Concurrent Connections", plain(entity.get("maxConnections"))),
        ("Maximum Message Size", plain(entity.get("maxMessageSize"))),
        ("Enable Vhost Policy", entity.get("enableVhostPolicy")),
        ("Enable Vhost Name Patterns", entity.get("enableVhostNamePatterns")),
        ("Policy Directory", entity.get("policyDir") or _NIL),
        ("Default Vhost", entity.get("defaultVhost") or _NIL),
    )
    status = (
        ("Connections Processed", plain(entity.get("connectionsProcessed"))),
        ("Connections Denied", plain(entity.get("connectionsDenied"))),
        ("Connections Current", plain(entity.get("connectionsCurrent"))),
        ("Links Denied", plain(entity.get("linksDenied"))),
        ("Maximum Message Size Denied", plain(entity.get("maxMessageSizeDenied"))),
        ("Total Denials", plain(entity.get("totalDenials"))),
    )
    return [
        Table(title="Policy Configuration", headers=("attr", "value"), rows=configuration),
        Table(title="Policy Status", headers=("attr", "value"), rows=status),
    ]


def vhosts(source: Source) -> list[Block]:
    rows = [
        (
            vhost.get("hostname"),
            plain(vhost.get("maxConnections")),
            plain(vhost.get("maxMessageSize")),
            plain(vhost.get("maxConnectionsPerUser")),
            plain(vhost.get("maxConnectionsPerHost")),
            vhost.get("allowUnknownUser"),
            plain(len(_map(vhost.get("groups")))),
        )
        for vhost in source.all("vhost")
    ]
    if not rows:
        return [["No Vhosts"]]
    limits = ("maxConnections", "maxMessageSize", "maxConnectionsPerUser", "maxConnectionsPerHost")
    return [Table(title="Vhosts", headers=("hostname", *limits, "allowUnknownUser", "groups"), rows=tuple(rows))]


def vhost_groups(source: Source) -> list[Block]:
    found = source.all("vhost")
    if not found:
        return [["No Vhosts"]]
    defaults = _group_defaults(source)
    rows: list[tuple[Any, ...]] = []
    details: list[Block] = []
    for vhost in found:
        hostname = vhost.get("hostname")
        for group, given in _map(vhost.get("groups")).items():
            settings = {**defaults, **_map(given)}
            numbers = (plain(settings.get(name, _NIL)) for name in _GROUP_NUMBERS)
            rows.append((hostname, group, *numbers, *(settings.get(name, False) for name in _GROUP_FLAGS)))
            values = [("vhost", hostname), ("group", group)]
            values += [(name, settings.get(name) or _NIL) for name in _GROUP_TEXTS]
            title = f"Vhost '{hostname}' UserGroup '{group}'"
            details.append(Table(title=title, headers=("attr", "value"), rows=tuple(values)))
    headers = ("vhost", "group", *_GROUP_NUMBERS, *_GROUP_FLAGS)
    return [Table(title="Vhost Groups", headers=headers, rows=tuple(rows)), *details]


def _group_defaults(source: Source) -> dict[str, Any]:
    schema = _map(source.client.node("GET-SCHEMA"))
    group_type = _map(_map(schema.get("entityTypes")).get("vhostUserGroupSettings"))
    attributes = _map(group_type.get("attributes"))
    return {name: entry["default"] for name, entry in attributes.items() if "default" in _map(entry)}


def vhost_stats(source: Source) -> list[Block]:
    found = source.all("vhostStats")
    if not found:
        return [["No Vhost Stats"]]
    rows = [(stats.get("hostname"), *(plain(stats.get(name)) for name in _COUNTERS)) for stats in found]
    users = [
        (stats.get("hostname"), user, hosts)
        for stats in found
        for user, hosts in _map(stats.get("perUserState")).items()
    ]
    return [
        Table(title="Vhost Stats", headers=("hostname", *_COUNTERS), rows=tuple(rows)),
        Table(title="Vhost User Stats", headers=("vhost", "user", "remote hosts"), rows=tuple(users)),
    ]


def _map(value: Any) -> Mapping[str, Any]:
    """Returns the value if it is a map. A router may send other types than those of the schema."""
    return value if isinstance(value, dict) else {}
