"""Compares a policy with its use: what was never used, and the narrowest policy that still permits everything used.

Pure. Only narrows: each user, host and address of the result was in the policy or was admitted by it. What the trail
does not show stays as it is: limits, denials, capabilities, the targets of anonymous senders' messages.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple

from policy.addressing.lists import has_user_token
from policy.attributes import SourceLocation
from policy.hosts import parse_address
from policy.ruleset import Ruleset
from policy.vhosts import hostname_of

Written = tuple[Mapping[str, object], SourceLocation | None]
# Limit of addresses that replace one item, and of ranges that replace a list of hosts. More would not be clearer than
# the item.
MAX_EXACT: Final = 20
MAX_RANGES: Final = 32
KNOWN_USERS: Final = "known-users"  # the group of the users who were admitted by allowUnknownUser
_DEFAULT: Final = "$default"
_KEYS: Final = ("sources", "sourcePattern", "targets", "targetPattern")
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/")


class Use(NamedTuple):
    """One row of spark.transforms.replay.used; direction is null for the connection itself."""

    router: str
    vhost: str | None
    group: str | None
    user: str | None
    remote_host: str | None
    direction: str | None
    address: str | None
    item: str | None


class Unused(NamedTuple):
    kind: str  # vhost, group, user, hosts, item, permission
    vhost: str
    group: str | None
    item: str


@dataclass(slots=True)
class _Used:
    users: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    items: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # "key: item" -> addresses
    has_dynamic: bool = False
    has_anonymous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The recommended changes of a policy.

    unused     never used, without settings whose use is not recorded
    vhosts     the attributes of each vhost that was used, narrowed
    strangers  uses of vhosts or groups that the policy does not have: then it is not the one that was in force
    """

    unused: tuple[Unused, ...]
    vhosts: tuple[dict[str, Any], ...]
    strangers: int


def recommend(ruleset: Ruleset, written: Sequence[Written], uses: Collection[Use]) -> Recommendation:
    """Recommends a narrower policy.

    uses  that `ruleset` allows; `written` is its source
    """
    by_group: dict[tuple[str, str], _Used] = defaultdict(_Used)
    strangers = 0
    for use in uses:
        vhost = ruleset.vhosts.get(use.vhost or "")
        if vhost is None or use.group is None or use.group not in vhost.groups:
            strangers += 1
            continue
        _note(by_group[vhost.name, use.group], use)
    unused: list[Unused] = []
    narrowed = []
    for attributes, source in written:
        name = hostname_of(attributes, source)
        groups = {group: used for (vhost_, group), used in by_group.items() if vhost_ == name}
        if not groups:
            unused.append(Unused("vhost", name, None, name))
            continue
        narrowed.append(_vhost(ruleset, name, attributes, groups, unused))
    return Recommendation(unused=tuple(unused), vhosts=tuple(narrowed), strangers=strangers)


def _note(used: _Used, use: Use) -> None:
    if use.user is not None:
        used.users.add(use.user)
    if use.remote_host is not None:
        used.hosts.add(use.remote_host)
    if use.direction is None:
        return
    if use.address is None:
        used.has_anonymous |= use.direction == "send"
        used.has_dynamic |= use.direction == "receive"
    elif use.item is not None:
        used.items[use.item].add(use.address)  # lists are compared with an address as it was written


def _vhost(
    ruleset: Ruleset, name: str, attributes: Mapping[str, object], used: Mapping[str, _Used], unused: list[Unused]
) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    written: Any = attributes["groups"]
    made = dict(attributes)
    for group, members in written.items():
        if group not in used:
            unused.append(Unused("group", name, group, group))
            continue
        of = used[group]
        narrow = _group(ruleset, name, group, members, of, unused)
        if group == _DEFAULT and of.users and _are_names(of.users) and KNOWN_USERS not in written:
            # Users who were admitted as unknown are known now.
            groups[KNOWN_USERS] = {"users": sorted(of.users), **narrow}
            made["allowUnknownUser"] = False
            unused.append(Unused("permission", name, group, "allowUnknownUser for others than came"))
        else:
            groups[group] = narrow
    if _DEFAULT not in used and attributes.get("allowUnknownUser") is True:
        made["allowUnknownUser"] = False
        unused.append(Unused("permission", name, None, "allowUnknownUser"))
    made["groups"] = groups
    return made


def _group(
    ruleset: Ruleset, vhost: str, name: str, members: Mapping[str, Any], used: _Used, unused: list[Unused]
) -> dict[str, Any]:
    group = ruleset.vhosts[vhost].groups[name]
    narrow = dict(members)
    named = [user for user in group.users if user != "*"]
    idle = sorted(set(named) - used.users)
    unused.extend(Unused("user", vhost, name, user) for user in idle)
    if "users" in members and used.users and _are_names(used.users) and not group.authenticator_groups:
        narrow["users"] = sorted(used.users)
    hosts = _ranges(used.hosts)
    if hosts is not None and len(hosts) <= MAX_RANGES:
        if hosts != _texts(members.get("remoteHosts")):
            unused.append(Unused("hosts", vhost, name, f"all but {len(used.hosts)} of remoteHosts"))
        narrow["remoteHosts"] = ", ".join(hosts)
    for key, flag, is_used in (
        ("allowDynamicSource", group.allow_dynamic_source, used.has_dynamic),
        ("allowAnonymousSender", group.allow_anonymous_sender, used.has_anonymous),
    ):
        if flag and not is_used:
            narrow[key] = False
            unused.append(Unused("permission", vhost, name, key))
    for key in _KEYS:
        # The messages of anonymous senders use targets, and are not recorded one by one.
        if key not in members or (key.startswith("target") and used.has_anonymous):
            continue
        rules = group.sources if key.startswith("source") else group.targets
        if key not in (group.source_key, group.target_key):
            continue
        kept = [item for item in rules.items if f"{key}: {item}" in used.items]
        unused.extend(Unused("item", vhost, name, f"{key}: {item}") for item in rules.items if item not in kept)
        narrow[key] = [text for item in kept for text in _exact(item, used.items[f"{key}: {item}"])]
        narrow[key] = ", ".join(dict.fromkeys(narrow[key]))
        if not narrow[key]:
            del narrow[key]
    return narrow


def _are_names(users: Collection[str]) -> bool:
    """Returns whether users can be listed.

    Attack: a user named `*`, or `anna,root`, would mean other users in a list.
    """
    return all(set(user) <= _PLAIN | {"@"} and not user.startswith("@") for user in users)


def _exact(item: str, addresses: Collection[str]) -> Iterator[str]:
    """Yields the addresses that replace the item that allowed them, if a list can express exactly them."""
    # ${user} gives each user its own address; the plain addresses would be open to all users.
    is_sayable = not has_user_token(item) and all(address and set(address) <= _PLAIN for address in addresses)
    if not is_sayable or len(addresses) > MAX_EXACT:
        yield item
        return
    yield from sorted(addresses)


def _ranges(hosts: Collection[str]) -> list[str] | None:
    """Returns the hosts as items of remoteHosts, neighbours as one range. None if one of them is not an address."""
    try:
        found = sorted({parse_address(host) for host in hosts}, key=lambda each: (each.version, int(each)))
    except ValueError:
        return None
    spans: list[tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address]] = []
    for address in found:
        if spans and spans[-1][1].version == address.version and int(address) - int(spans[-1][1]) == 1:
            spans[-1] = (spans[-1][0], address)
        else:
            spans.append((address, address))
    return [str(low) if low == high else f"{low}-{high}" for low, high in spans]


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",")]
    return [str(item) for item in value] if isinstance(value, list | tuple) else []
