"""Compares the engine with a naive reading of the specification, on random policies and requests.

    python -m benchmarks.policy_agreement [--requests 1000000] [--seed 1]

The naive evaluator reads the attribute maps as they are written and has no index. It compares whether the policy is
accepted, and every decision: the reason for the connection and, if it may stay, its limits and the reasons for
sessions, links and messages with the bound key, with tenants and without. The policies use the extensions of
docs/policy.md, users in lists and in texts, nulls, blank aliases, and limits at the edges of 32 and 64 bits. Ends with
status 1 at the first disagreement.
Sources: docs/spec/policy-and-auth.md §2, §3; docs/spec/routing.md §3.
"""

import argparse
import ipaddress
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from benchmarks.naive_addresses import ROUTER, key_of, meaning, names_of, read
from policy.addressing.address import Address, Unclear, resolve_named
from policy.decide import Settings, decide_connection, decide_link, decide_message, decide_session
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.ruleset import PolicyError, compile_ruleset

REQUESTS_PER_POLICY = 50
LINKS_PER_CONNECTION = 5
USERS = ("anna", "ben", "a.b", "*", "#", "${user}", "a,b", "a/", ".x", "", "$management", "_topo")
HOSTS = ("10.0.0.1", "10.0.0.9", "10.0.0.255", "::ffff:10.0.0.5", "::1", "2001:db8::7")
VHOSTS = ("h", "shop.example", "a.b.example", "x", "y.h", "")
WORDS = ("a", "b", "q", "anna", "*", "#", "")
# Put before and after a text: other spellings of it, addresses of one router, and texts that mean something else when
# read twice.
HEADS = (
    *("amqp:/", "/", "x:/", "//h/", "amqp://h/", "y:/y:/", "_local/", "_topo/0/QDR/", "_topo/all/QDR/", "_topo/0/X/"),
    *("_topo/0/all/", "_topo/1/QDR/", "_edge/QDR/", "_edge/X/", "t/", "a/x:/"),
)
TAILS = ("", "", "", "/", ".", "//")
SPECIAL = ("$management", "_local/$management", "_topo/0/QDR/$_management_internal", "_edge/X/$management", "t/a", "/")
LITERALS = (
    *("amqp:/a*", "x:/q.*", "/*", "amqp:/${user}", "//h/a*", "a/", "_topo/*", "amqp:/_topo/0/QDR/*", "t/*", "amqp:*"),
    "*",
    "a",
    "a.b",
    "a*",
    "q.*",
    "${user}",
    "${user}.*",
    *("${user:escaped}", "${user:escaped}.*", "a.${user:escaped}/b", "in.${user:escaped}*", "x:/${user:escaped}*"),
    "in.${user}",
    "${user}*",
    "x${user}y",
    "*a",
    "a.${user}*",
)
PATTERNS = (
    *("amqp:/#", "x:/a/#", "amqp://*/a", "_topo/#", "t/#", "amqp:/${user}"),
    "*",
    "#",
    "a.*",
    "a/#",
    "*/b",
    "#.a.#",
    "*.#",
    "${user}",
    "${user}/#",
    *("${user:escaped}", "${user:escaped}/#", "a/${user:escaped}", "x${user:escaped}", "#.${user:escaped}"),
    "a/${user}",
    "x${user}",
    "a.b",
    "/a",
    "a..b",
    "/",
    "..",
)
HOST_ITEMS = (
    *("*", "10.0.0.1", "10.0.0.3-10.0.0.9", "::1", "2001:db8::-2001:db8::ff", "10.0.0.0 - 10.0.0.255"),
    *("10.0.0.0/29", "10.0.0.0/8", "2001:db8::/126", "::ffff:10.0.0.0/120", "::/0"),
)
DENIED = (
    *("a", "a.b", "q.*", "anna*", "*", "in.anna", "a/b", "$x", "amqp:/a", "amqp:/q.*", "/anna*", "in.anna/", "/*"),
    *("$management", "_local/$management", "_topo/0/QDR/a", "_local/*", "_topo/*", "_edge/X/*", "t/a", "$m*"),
    *("_topo/all/X/a.b", "_topo/0/all/*", "_edge/QDR/$management"),
)
OWNERS: tuple[Literal["own", "other"] | None, ...] = (None, None, None, None, "own", "other")
AGES = (None, None, 0.0, 9.9, 10.0, 299.9, 300.0)
AUTHENTICATOR_GROUPS = ("ops", "dev", "night", "z")
# One hour apart, written in several ways.
TIMES = ("2027-01-15T08:00:00Z", "2027-01-15T10:00:00+01:00", "2027-01-15t04:30:00.000-05:30")
NOWS = (None, 1_799_999_999.0, 1_800_000_000.0, 1_800_003_599.5, 1_800_003_600.0, 1_800_007_200.0)
NAMES = ("h", "shop.example", "*.example", "#.example", "$default", "*.h", "#", "a.*.example", "", "/")
ALIASES = ("x", "y.h", "x, y.h", "x,\ty.h ", "*.y, x", "x,,y.h", "", "  ", "h", "x, x")
# Values of limits: the edges of int and uint, of long and ulong, and greater values.
EDGES = (65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1)
VHOST_LIMITS = ("maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost")
SIZES = ("maxMessageSize", "maxMessageRate", "maxByteRate")
COUNTS = ("maxConnectionsPerUser", "maxConnectionsPerHost", "maxSenders", "maxReceivers")
GROUP_SIZES = (*SIZES, "maxFrameSize", "maxSessionWindow", "maxSessions")


# Naive


def largest(key: str) -> int:
    """Returns the largest permitted value (§1.2, §1.3)."""
    if key in VHOST_LIMITS:
        return 65535
    return 2**32 - 1 if key == "maxFrameSize" else 2**63 - 1


def names_in(users: Any) -> list[str]:
    """Returns the names in a list of users, by §2.2.

    The list is joined, and the text is split at commas and stripped.
    """
    text = users if isinstance(users, str) else ",".join(users)
    return [name for part in text.split(",") if (name := part.strip())]


def is_refused(vhosts: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether the policy must be refused (§2.2), except for vhost patterns that are equal."""
    owned = [name for vhost in vhosts for name in (vhost["hostname"], *aliases_of(vhost))]
    return len(set(owned)) < len(owned) or any(map(_is_vhost_refused, vhosts))


def aliases_of(vhost: Mapping[str, Any]) -> list[str]:
    written = vhost.get("aliases")
    return [] if written is None else [alias.strip() for alias in written.split(",")]


def _is_vhost_refused(vhost: Mapping[str, Any]) -> bool:
    groups = vhost["groups"].values()
    users = [name for group in groups for name in set(names_in(group.get("users") or ()))]
    maps = (vhost, *groups)
    return (
        any(value is None for each in maps for value in each.values())
        or ("aliases" in vhost and "" in aliases_of(vhost))
        or len(set(users)) < len(users)
        or any(
            not 0 <= int(each[key]) <= largest(key)
            for each in maps
            for key in {*VHOST_LIMITS, *COUNTS, *GROUP_SIZES} & each.keys()
        )
    )


def naive_limits(vhost: Mapping[str, Any], group: Mapping[str, Any], of_policy: int) -> dict[str, int | None]:
    """Returns the numbers of a connection (§1.3).

    For sizes the group's value precedes the vhost's, and that the policy's.
    """
    outer = {"maxMessageSize": of_policy, "maxMessageRate": None, "maxByteRate": None}
    sizes = {key: group.get(key, vhost.get(key, outer[key])) for key in SIZES}
    others = {key: group.get(key, 0) for key in GROUP_SIZES if key not in SIZES}
    links = {key: group.get(key, 2**31 - 1) for key in ("maxSenders", "maxReceivers")}
    return {key: None if value is None else int(value) for key, value in {**sizes, **others, **links}.items()}


def granted_limits(settings: Settings) -> dict[str, int | None]:
    return {
        "maxMessageSize": settings.max_message_size,
        "maxMessageRate": settings.max_message_rate,
        "maxByteRate": settings.max_byte_rate,
        "maxFrameSize": settings.max_frame_size,
        "maxSessionWindow": settings.max_session_window,
        "maxSessions": settings.max_sessions,
        "maxSenders": settings.max_senders,
        "maxReceivers": settings.max_receivers,
    }


def words_of(text: str) -> list[str]:
    text = text.replace("/", ".")
    while text.startswith("."):
        text = text[1:]
    if text.endswith("."):
        text = text[:-1]
    return text.split(".") if text else []


def matches_words(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches_words(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches_words(pattern[1:], words[1:])


def is_routers(name: str) -> bool:
    """Returns whether users may not have this name (docs/policy.md, Names of users)."""
    for text in (name, read(name)):
        if text[:1] == "$" or text[:2] == "_$" or re.fullmatch(r"temp\.[A-Za-z0-9+_]{15}", text):
            return True
        for word in ("_local/", "_topo/", "_edge/"):
            if text and (text[: len(word)] == word or word[: len(text)] == text):
                return True
    return False


def matches_pattern(item: str, user: str, address: str) -> bool:
    if "${user}" not in item:
        # Separators alone match nothing.
        return bool(words_of(item)) and matches_words(words_of(item), words_of(address))
    if not user:
        return False
    if item.startswith("${user}"):
        rest, behind = item[len("${user}") :], address[len(user) :]
        if not address.startswith(user):
            return False
        if any(part and part[0] not in "./" for part in (rest, behind)):
            return False
        return matches_words(_behind(rest), _behind(behind))
    head, before = item[: -len("${user}")], address[: -len(user)]
    if not address.endswith(user) or any(part and part[-1] not in "./" for part in (head, before)):
        return False
    return matches_words(_before(head), _before(before))


def _behind(text: str) -> list[str]:
    text = text.replace("/", ".")
    text = text[:-1] if text.endswith(".") else text
    return text[1:].split(".") if text else []


def _before(text: str) -> list[str]:
    text = text.replace("/", ".").lstrip(".")
    return text[:-1].split(".") if text else []


def matches_literal(item: str, user: str, address: str) -> bool:
    is_prefix = item.endswith("*")
    text = item[:-1] if is_prefix else item
    if item.endswith("${user}*") and not user:
        # Without a name such an item would be for every user; a blank `${user}*` is for none.
        return False
    text = text.replace("${user}", user)
    return address.startswith(text) if is_prefix else address == text


def as_one_word(user: str) -> str:
    return quote(user, safe="$,{}@").replace(".", "%2E")


def matches(key: str, item: str, user: str, text: str) -> bool:
    is_pattern = key.endswith("Pattern")
    if "${user:escaped}" in item:
        item, user = item.replace("${user:escaped}", "${user}"), as_one_word(user)
    return matches_pattern(item, user, text) if is_pattern else matches_literal(item, user, text)


def understood(item: str) -> str:
    """Returns the plain form of an item's texts: for `amqp:/q.*` everything that begins with `q.`."""
    if item.endswith("*"):
        return read(item[:-1] + "|")[:-1] + "*"
    return read(item)


def denies(item: str, written: str, names: Sequence[str]) -> bool:
    """Returns whether an item denies the address, by any name of the reached address.

    The item counts as written and in its plain form.
    """
    return any(matches_literal(each, "", text) for each in (item, understood(item)) for text in (written, *names))


def allows(group: Mapping[str, Any], name: str, user: str, written: str, plain: str) -> bool:
    """Returns whether the address is allowed as written and in its plain form, or by such an item."""
    items = [(key, item) for key in (f"{name}s", f"{name}Pattern") for item in group.get(key, ())]
    if not any(matches(key, item, user, written) for key, item in items):
        return False
    if any(matches(key, item, user, plain) for key, item in items):
        return True
    for key, item in items:
        other = understood_pattern(item) if key.endswith("Pattern") else understood(item)
        if other and matches(key, item, user, written) and matches(key, other, user, plain):
            return True
    return False


def understood_pattern(item: str) -> str:
    return read(item + "|")[:-1]


def naive_vhost(names: Mapping[str, Mapping[str, Any]], requested: str, has_patterns: bool) -> Mapping[str, Any] | None:
    if not has_patterns or (requested == "" and "" in names):
        return names.get(requested) or names.get("$default")
    words = words_of(requested)
    fitting = [name for name in names if words_of(name) and matches_words(words_of(name), words)]
    # A literal word precedes `*`, and `*` precedes `#`, from the first word on; the end of a name precedes a `#`.
    fitting.sort(key=lambda name: [{"*": 1, "#": 3}.get(word, 0) for word in words_of(name)] + [2])
    return names[fitting[0]] if fitting else names.get("$default")


def naive_connection(
    vhosts: Sequence[Mapping[str, Any]], has_patterns: bool, facts: ConnectionFacts, usage: Usage
) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """Returns the reason, and for an allowed connection the vhost and the group."""
    user, host = facts.user or "", facts.remote_host
    names = {name: vhost for vhost in vhosts for name in (vhost["hostname"], *aliases_of(vhost))}
    vhost = naive_vhost(names, facts.requested_vhost, has_patterns)
    if vhost is None:
        return "no_vhost", {}, {}
    if is_routers(user):
        return "reserved_user_name", {}, {}
    groups = vhost["groups"]
    # No group names a user whose name is `*`.
    listed = [group for group in groups.values() if user not in ("", "*") and user in names_in(group.get("users", ()))]
    if not listed:
        vouched = [each for each in groups if set(groups[each].get("authenticatorGroups", ())) & set(facts.groups)]
        listed = [groups[min(vouched)]] if vouched else []
    listed = listed or [group for group in groups.values() if "*" in names_in(group.get("users", ()))]
    if not listed and vhost.get("allowUnknownUser"):
        listed = [groups["$default"]]
    if not listed:
        return "unknown_user", {}, {}
    group = listed[0]
    if not _is_valid(group, facts.now):
        return "group_not_valid", {}, {}
    if not any(_admits(item, host) for item in group.get("remoteHosts", ())):
        return "host_not_allowed", {}, {}
    for key, count, reason in (
        ("maxConnections", usage.total, "vhost_connection_limit"),
        ("maxConnectionsPerUser", usage.of_user, "user_connection_limit"),
        ("maxConnectionsPerHost", usage.of_host, "host_connection_limit"),
    ):
        limit = vhost.get(key, 65535)
        limit = group.get(key, limit) if key != "maxConnections" else limit
        if count >= int(limit):
            return reason, {}, {}
    return "allowed", vhost, group


def _admits(item: str, host: str) -> bool:
    address = ipaddress.ip_address(host)
    address = getattr(address, "ipv4_mapped", None) or address
    if item == "*":
        return True
    if "/" in item:
        network = ipaddress.ip_network(item)
        if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
            low = network.network_address.ipv4_mapped
            network = ipaddress.IPv4Network(f"{low}/{network.prefixlen - 96}")
        return network.version == address.version and address in network
    ends = [ipaddress.ip_address(end.strip()) for end in item.split("-")]
    return ends[0].version == address.version and int(ends[0]) <= int(address) <= int(ends[-1])


def _is_valid(group: Mapping[str, Any], now: float | None) -> bool:
    begin, end = (
        datetime.fromisoformat(group[key].upper()).timestamp() if key in group else None
        for key in ("validFrom", "validUntil")
    )
    if begin is None and end is None:
        return True
    return now is not None and (begin is None or now >= begin) and not (end is not None and now >= end)


def naive_link(group: Mapping[str, Any], user: str, asked: "Asked", facts: LinkFacts) -> tuple[str, str | None]:
    """Returns the reason, and the key that is bound."""
    is_send, text = facts.direction == "send", asked.text
    name = "target" if is_send else "source"
    found = meaning(text, asked.tenant) if text else None
    if text and found is None:
        return "unclear_address", None
    limit = group.get("maxSenders" if is_send else "maxReceivers", 2**31 - 1)
    if facts.open_links >= int(limit):
        return "sender_limit" if is_send else "receiver_limit", None
    if is_send and (facts.is_coordinator or not text):
        return "allowed" if group.get("allowAnonymousSender") else "anonymous_sender", None
    if not is_send and facts.is_dynamic:
        return "allowed" if group.get("allowDynamicSource") else "dynamic_source", None
    if not text or found is None:
        return "no_source_address", None
    if not group.get("allowWaypointLinks", True) and any(each.startswith("qd.waypoint") for each in facts.capabilities):
        return "waypoint_capability", None
    if not group.get("allowFallbackLinks", True) and "qd.fallback" in facts.capabilities:
        return "fallback_capability", None
    if not is_send and facts.dynamic_address == "other":
        return "dynamic_address_not_own", None
    is_allowed = naive_address(group, name, user, text, read(text), names_of(found, read(text)))
    if is_allowed:
        return "allowed", key_of(found)
    denied = is_denied(group, name, text, names_of(found, read(text)))
    owner, age_s = facts.dynamic_address, facts.reply_age_s if is_send else None
    reason = naive_reply(group, owner, age_s, f"{name}_not_allowed", is_send=is_send, is_denied=denied)
    return reason, key_of(found) if reason == "allowed" else None


def naive_reply(
    group: Mapping[str, Any], owner: str | None, age_s: float | None, reason: str, *, is_send: bool, is_denied: bool
) -> str:
    """Returns the result for an address that no list allows (§3.16).

    reason  if neither the owner nor a reply decides
    """
    if is_denied:
        return reason
    if owner == "own":
        return "allowed"
    if not is_send or not group.get("allowReplies"):
        return reason
    if age_s is not None:
        return "allowed" if age_s < group.get("replyWindow", 300) else "reply_window_over"
    return "reply_not_expected" if owner == "other" else reason


def naive_message(group: Mapping[str, Any], user: str, asked: "Asked", facts: MessageFacts) -> tuple[str, str | None]:
    """Decides on a message on an anonymous link: the lists are compared with the tenant's form (§3.9)."""
    found = meaning(asked.text, asked.tenant) if asked.text else None
    if not asked.text:
        return "message_target_not_allowed", None
    if found is None:
        return "unclear_address", None
    written, plain = asked.text, read(asked.text)
    if asked.tenant is not None and found[0] == "M":
        written = plain = found[1]
    names = names_of(found, read(asked.text))
    if naive_address(group, "target", user, written, plain, names):
        return "allowed", key_of(found)
    denied = is_denied(group, "target", written, names)
    owner, reason = facts.dynamic_address, "message_target_not_allowed"
    reason = naive_reply(group, owner, facts.reply_age_s, reason, is_send=True, is_denied=denied)
    return reason, key_of(found) if reason == "allowed" else None


def naive_address(
    group: Mapping[str, Any], name: str, user: str, written: str, plain: str, names: Sequence[str]
) -> bool:
    return not is_denied(group, name, written, names) and allows(group, name, user, written, plain)


def is_denied(group: Mapping[str, Any], name: str, written: str, names: Sequence[str]) -> bool:
    return any(denies(item, written, names) for item in group.get(f"deny{name.title()}s", ()))


# Random


def random_number(chance: random.Random, key: str, *small: int) -> object:
    """Returns a limit, rarely out of range, as a number or as a text."""
    number = chance.choice(small)
    if chance.random() < 0.3:
        number = chance.choice(
            EDGES if chance.random() < 0.03 else [edge for edge in EDGES if 0 <= edge <= largest(key)]
        )
    return chance.choice((number, number, str(number), f" +{number}" if number >= 0 else number))


def random_users(chance: random.Random, users: Sequence[str]) -> str | list[str]:
    """Returns the same users, written in one of the possible ways."""
    kind = chance.randint(0, 3)
    if kind == 0:
        return list(users)
    if kind == 1:
        return chance.choice((", ", ",", " ,\t", ",,")).join(users)
    padded = [f"{chance.choice(('', ' ', chr(9)))}{user}{chance.choice(('', ' '))}" for user in users]
    return padded if kind == 2 else [",".join(padded), *chance.choice(((), ("",), (" , ",)))]


def random_group(chance: random.Random, users: Sequence[str]) -> dict[str, Any]:
    group: dict[str, Any] = {"users": random_users(chance, users)}
    if chance.random() < 0.9:
        group["remoteHosts"] = chance.sample(HOST_ITEMS, chance.randint(0, 2))
    for name in ("source", "target"):
        is_pattern = chance.random() < 0.5
        items = PATTERNS if is_pattern else LITERALS
        group[f"{name}{'Pattern' if is_pattern else 's'}"] = chance.sample(items, chance.randint(0, 3))
    for key in ("denySources", "denyTargets"):
        if chance.random() < 0.2:
            group[key] = chance.sample(DENIED, chance.randint(1, 2))
    if chance.random() < 0.3:
        begin, end = sorted(chance.sample(range(len(TIMES)), 2))
        if (kind := chance.randint(0, 2)) != 1:
            group["validFrom"] = TIMES[begin]
        if kind != 0:
            group["validUntil"] = TIMES[end]
    for key in COUNTS:
        if chance.random() < 0.2:
            group[key] = random_number(chance, key, 0, 1, 2)
    for key in GROUP_SIZES:
        if chance.random() < 0.1:
            group[key] = random_number(chance, key, 0, 512, 70_000)
    if chance.random() < 0.3:
        group["replyWindow"] = 10
    switches = ("allowDynamicSource", "allowAnonymousSender", "allowWaypointLinks", "allowFallbackLinks")
    for key in (*switches, "allowReplies"):
        if chance.random() < 0.4:
            group[key] = chance.random() < 0.5
    return group


def random_vhosts(chance: random.Random) -> list[dict[str, Any]]:
    vhosts = []
    for name in chance.sample(NAMES, chance.randint(1, 4)):
        users = chance.sample([user for user in USERS if user and "," not in user], 4)
        if chance.random() < 0.01:
            users[2] = users[0]
        groups = {f"g{n}": random_group(chance, users[n * 2 : n * 2 + chance.randint(0, 2)]) for n in range(2)}
        if chance.random() < 0.4:
            joined = chance.sample(AUTHENTICATOR_GROUPS, 3)
            groups["g0"]["authenticatorGroups"], groups["g1"]["authenticatorGroups"] = joined[:1], joined[1:]
        vhost: dict[str, Any] = {"hostname": name, "groups": groups}
        if chance.random() < 0.4:
            groups["$default"] = random_group(chance, ())
            vhost["allowUnknownUser"] = True
        for key in VHOST_LIMITS:
            if chance.random() < 0.2:
                vhost[key] = random_number(chance, key, 0, 1, 2)
        for key in SIZES:
            if chance.random() < 0.1:
                vhost[key] = random_number(chance, key, 0, 512, 70_000)
        if chance.random() < 0.1:
            vhost["aliases"] = chance.choice(ALIASES)
        vhosts.append(vhost)
    if chance.random() < 0.03:
        vhost = chance.choice(vhosts)
        place = chance.choice((vhost, *vhost["groups"].values()))
        place[chance.choice([key for key in place if key not in ("hostname", "groups")] or ["maxMessageSize"])] = None
    return vhosts


@dataclass(frozen=True, slots=True)
class Asked:
    """An address text of a client, and its tenant."""

    text: str | None
    tenant: str | None

    @property
    def address(self) -> Address | Unclear | None:
        return resolve_named(self.text, router_id=ROUTER, tenant=self.tenant)


def random_asked(chance: random.Random, user: str, tenant: str | None) -> Asked:
    separator = chance.choice("./")
    user = chance.choice((user, as_one_word(user)))
    text: str | None = separator.join(chance.choice((*WORDS, user)) for _ in range(chance.randint(0, 4)))
    text = chance.choice((text, text, text, None, f"{user}.q", f"in.{user}", f"a/{user}", chance.choice(SPECIAL)))
    if text and chance.random() < 0.4:
        text = chance.choice(HEADS) + text + chance.choice(TAILS)
    return Asked(text, tenant)


def random_link(chance: random.Random, asked: Asked) -> LinkFacts:
    return LinkFacts(
        direction="send" if chance.random() < 0.5 else "receive",
        address=asked.address,
        is_dynamic=chance.random() < 0.1,
        is_coordinator=chance.random() < 0.05,
        capabilities=chance.choice(((), (), ("qd.waypoint.1",), ("x", "qd.fallback"))),
        open_links=chance.choice((0, 0, 0, 0, 1, 2, 2**31 - 2, 2**31 - 1, 2**32, 2**63 - 1)),
        dynamic_address=chance.choice(OWNERS),
        reply_age_s=chance.choice(AGES),
    )


def bound(is_allowed: bool, address: Address | Unclear | None) -> str | None:
    """Returns the key that the core binds: none if denied, and none for a link without an address."""
    return address.key if is_allowed and isinstance(address, Address) else None


def disagreement(chance: random.Random, count: int, reasons: Counter[str]) -> str | None:
    """Compares `count` requests with one random policy. Returns the first difference, if any.

    reasons  counts the decisions
    """
    vhosts = random_vhosts(chance)
    has_patterns = chance.random() < 0.4
    size = chance.choice((0, 0, 1000, 2**63 - 1))
    policy = {"enableVhostPolicy": True, "enableVhostNamePatterns": has_patterns, "maxMessageSize": size}
    try:
        ruleset = compile_ruleset(policy, [(vhost, None) for vhost in vhosts], resolve=lambda _: ())
    except PolicyError as error:
        # Two names that are one pattern. Such a policy decides nothing.
        is_right = is_refused(vhosts) or (has_patterns and "pattern" in str(error))
        reasons["policy refused"] += 1
        return None if is_right else f"refused: {error}, {vhosts}"
    if is_refused(vhosts):
        return f"not refused: {vhosts}"
    reasons["policy taken"] += 1
    named = [name for vhost in vhosts for name in (vhost["hostname"], *aliases_of(vhost))]
    for _ in range(count):
        user, host = chance.choice(USERS), chance.choice(HOSTS)
        requested = chance.choice((chance.choice(VHOSTS), chance.choice(named)))
        usage = Usage(
            total=chance.choice((0, 0, 0, 0, 1, 65534, 65535)),
            of_user=chance.choice((0, 0, 0, 0, 1, 65535)),
            of_host=chance.choice((0, 0, 0, 0, 1, 65535)),
        )
        facts = ConnectionFacts(
            user=user,
            remote_host=host,
            requested_vhost=requested,
            connection_name="c",
            groups=tuple(chance.sample(AUTHENTICATOR_GROUPS, chance.choice((0, 0, 1, 2)))),
            now=chance.choice(NOWS),
        )
        judged = decide_connection(ruleset, facts, usage)
        expected, vhost, group = naive_connection(vhosts, has_patterns, facts, usage)
        if judged.decision.reason != expected:
            return f"{facts} {usage}: {judged.decision.reason}, expected {expected}, {vhosts}"
        reasons[f"connection {expected}"] += 1
        if judged.settings is not None:
            granted, limits = granted_limits(judged.settings), naive_limits(vhost, group, size)
            if granted != limits:
                return f"{granted}, expected {limits}, {vhost}, {group}"
            begun, most = chance.choice((0, 1, 512, 2**31, 2**63 - 2, 2**63 - 1)), limits["maxSessions"]
            if decide_session(judged.settings, begun).is_allowed != (not most or begun < most):
                return f"session {begun + 1} of {most}: {group}"
        for _ in range(LINKS_PER_CONNECTION if judged.settings is not None else 0):
            assert judged.settings is not None
            asked = random_asked(chance, user, chance.choice((None, judged.settings.vhost, "t")))
            link = random_link(chance, asked)
            decision, wanted = decide_link(judged.settings, link), naive_link(group, user, asked, link)
            has_key = not (link.is_dynamic if link.direction == "receive" else link.is_coordinator)
            found = (decision.reason.value, bound(decision.is_allowed and has_key, link.address))
            if found != wanted:
                return f"{user!r} {asked} {link}: {found}, expected {wanted}, {group}"
            reasons[f"link {wanted[0]}"] += 1
            if asked.text is not None:
                message = MessageFacts(
                    target=link.address,
                    is_blank_target=asked.text == "",
                    dynamic_address=link.dynamic_address,
                    reply_age_s=link.reply_age_s,
                )
                decision, wanted = decide_message(judged.settings, message), naive_message(group, user, asked, message)
                found = (decision.reason.value, bound(decision.is_allowed, link.address))
                if found != wanted:
                    return f"{user!r} message {asked} {message}: {found}, expected {wanted}, {group}"
                reasons[f"message {wanted[0]}"] += 1
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    began = time.perf_counter()
    reasons: Counter[str] = Counter()
    connections = 0
    while connections < options.requests:
        if (text := disagreement(chance, REQUESTS_PER_POLICY, reasons)) is not None:
            print(f"Disagreement: {text}")
            return 1
        connections = sum(count for name, count in reasons.items() if name.startswith("connection"))
    seconds = time.perf_counter() - began
    links, messages = (
        sum(count for name, count in reasons.items() if name.startswith(kind)) for kind in ("link", "message")
    )
    counts = f"{connections} connections, {links} links and {messages} messages"
    print(f"seed {options.seed}: {counts}, no disagreement, {seconds:.0f} s")
    for name, count in sorted(reasons.items()):
        print(f"  {name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
