"""The compiled ruleset against a reading of the specification that takes every rule one by one."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulesets import at, ruleset

from policy.decide import decide_connection, decide_link
from policy.decision import Reason
from policy.facts import ConnectionFacts, LinkFacts, Usage
from policy.ruleset import PolicyError

USERS = ("alice", "bob", "*", "a.b", "")
HOSTS = ("10.0.0.1", "10.0.0.9", "::ffff:10.0.0.5", "::1")
ADDRESSES = ("", "q", "q.x", "alice", "alice.q", "bob-1", "*", "in.alice", "a.b.q", "$management")
limits = st.none() | st.integers(0, 3)
switches = st.sampled_from([None, True, False, "true", "False"])
INSTANTS = ("1970-01-01T00:00:10Z", "1970-01-01T01:00:20+01:00", "1970-01-01T00:00:30Z")
literals = st.lists(
    st.sampled_from(["*", "q", "q.*", "${user}", "${user}.*", "in.${user}", "${user}-1", "${user}*"]), max_size=3
)


denials = st.lists(
    st.sampled_from(["q", "amqp:/q", "amqp://host/alice*", "/bob-1", "*", "q./", "a.b.q.", "/alice.*"]), max_size=2
)


def present(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with these members, without those that are None."""
    return st.fixed_dictionaries(members).map(
        lambda drawn: {key: value for key, value in drawn.items() if value is not None}
    )


groups = present(
    users=st.none() | st.lists(st.sampled_from(USERS), max_size=3),
    remoteHosts=st.none()
    | st.lists(st.sampled_from(["*", "10.0.0.1", "10.0.0.3-10.0.0.6", "10.0.0.0/29", "::1"]), max_size=2),
    authenticatorGroups=st.none() | st.lists(st.sampled_from(["ops", "dev"]), max_size=1),
    validFrom=st.sampled_from([None, None, *INSTANTS[:2]]),
    validUntil=st.sampled_from([None, None, INSTANTS[2]]),
    maxConnectionsPerUser=limits,
    maxConnectionsPerHost=limits,
    maxSenders=limits,
    maxReceivers=limits,
    allowDynamicSource=switches,
    allowAnonymousSender=switches,
    allowReplies=switches,
    replyWindow=st.sampled_from([None, None, 10]),
    sources=st.none() | literals,
    targets=st.none() | literals.map(", ".join),
    denySources=st.none() | denials,
    denyTargets=st.none() | denials,
)
vhosts = present(
    aliases=st.sampled_from([None, "x", "x, y"]),
    maxConnections=limits,
    maxConnectionsPerUser=limits,
    maxConnectionsPerHost=limits,
    allowUnknownUser=st.none() | st.booleans(),
    groups=st.dictionaries(st.sampled_from(["g1", "g2", "$default", "$connector"]), groups, max_size=4),
)


@dataclass(frozen=True)
class Asked:
    user: str
    host: str
    requested: str
    usage: Usage
    joined: tuple[str, ...]
    now: float | None


questions = st.builds(
    Asked,
    user=st.sampled_from([*USERS, "carol"]),
    host=st.sampled_from(HOSTS),
    requested=st.sampled_from(["h", "x", "y", "z", ""]),
    usage=st.builds(Usage, total=st.integers(0, 3), of_user=st.integers(0, 3), of_host=st.integers(0, 3)),
    joined=st.sampled_from([(), (), ("ops",), ("dev", "ops")]),
    now=st.sampled_from([None, 0.0, 10.0, 15.0, 20.0, 29.9, 30.0]),
)


def listed(value: object) -> list[str]:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else list(value or ())  # type: ignore[call-overload]


def expected_open(hosts: Mapping[str, dict[str, Any]], asked: Asked) -> tuple[list[Reason], dict[str, Any] | None]:
    """The reasons, and the group's map when the connection is allowed."""
    vhost = next(
        (v for name, v in hosts.items() if asked.requested == name or asked.requested in listed(v.get("aliases"))), None
    )
    if vhost is None:
        vhost = hosts.get("$default")
    if vhost is None:
        return [Reason.NO_VHOST], None
    members = vhost.get("groups", {})
    user = asked.user if asked.user != "*" else ""  # who is called `*` is named by nobody
    group = next((g for g in members.values() if user and user in listed(g.get("users"))), None)
    joining = sorted(n for n, g in members.items() if set(listed(g.get("authenticatorGroups"))) & set(asked.joined))
    group = group or (members[joining[0]] if joining else None)
    group = group or next((g for g in members.values() if "*" in listed(g.get("users"))), None)
    if group is None and vhost.get("allowUnknownUser"):
        group = members["$default"]
    if group is None:
        return [Reason.UNKNOWN_USER], None
    if not is_valid(group, asked.now):
        return [Reason.GROUP_NOT_VALID], None
    address = ipaddress.ip_address(asked.host)
    address = getattr(address, "ipv4_mapped", None) or address
    is_near = False
    for item in listed(group.get("remoteHosts")):
        if item == "*":
            is_near = True
        elif "/" in item:
            is_near |= address in ipaddress.ip_network(item)
        else:
            low, high = (ipaddress.ip_address(part) for part in (item.split("-") * 2)[:2])
            is_near |= low.version == address.version and int(low) <= int(address) <= int(high)
    if not is_near:
        return [Reason.HOST_NOT_ALLOWED], None
    per_user = group.get("maxConnectionsPerUser", vhost.get("maxConnectionsPerUser", 65535))
    per_host = group.get("maxConnectionsPerHost", vhost.get("maxConnectionsPerHost", 65535))
    reasons = [
        reason
        for reason, count, limit in (
            (Reason.VHOST_CONNECTION_LIMIT, asked.usage.total, vhost.get("maxConnections", 65535)),
            (Reason.USER_CONNECTION_LIMIT, asked.usage.of_user, per_user),
            (Reason.HOST_CONNECTION_LIMIT, asked.usage.of_host, per_host),
        )
        if count >= limit
    ]
    return (reasons, None) if reasons else ([Reason.ALLOWED], group)


def is_valid(group: Mapping[str, Any], now: float | None) -> bool:
    if "validFrom" not in group and "validUntil" not in group:
        return True
    begin, end = (
        datetime.fromisoformat(group[key]).timestamp() if key in group else default
        for key, default in (("validFrom", -1.0), ("validUntil", 1e12))
    )
    return now is not None and begin <= now < end


def matches(item: str, user: str, address: str) -> bool:
    head, token, rest = item.partition("${user}")
    if not token:
        return address.startswith(head[:-1]) if head.endswith("*") else address == head
    if rest == "*" and not user:
        return False
    return address.startswith(head + user + rest[:-1]) if rest.endswith("*") else address == head + user + rest


def is_denied_by(item: str, address: str) -> bool:
    """As it is written, or as the router understands it: these are the ways of writing an address in another way."""
    understood = item.removeprefix("amqp:").removeprefix("//host").removeprefix("/")
    if item.endswith("*"):
        return address.startswith((item[:-1], understood[:-1]))
    return address in (item, understood[:-1] if understood.endswith(("/", ".")) else understood)


def expected_link(group: Mapping[str, Any], user: str, facts: LinkFacts) -> Reason:
    def is_on(key: str) -> bool:
        return str(group.get(key)).lower() == "true"

    is_send = facts.direction == "send"
    if facts.open_links >= group.get("maxSenders" if is_send else "maxReceivers", 2**31):
        return Reason.SENDER_LIMIT if is_send else Reason.RECEIVER_LIMIT
    address = facts.address.written if facts.address is not None else None
    if is_send and not address:
        return Reason.ALLOWED if is_on("allowAnonymousSender") else Reason.ANONYMOUS_SENDER
    if not is_send and facts.is_dynamic:
        return Reason.ALLOWED if is_on("allowDynamicSource") else Reason.DYNAMIC_SOURCE
    if not address:
        return Reason.NO_SOURCE_ADDRESS
    items = listed(group.get("targets" if is_send else "sources"))
    refused = listed(group.get("denyTargets" if is_send else "denySources"))
    is_denied = any(is_denied_by(item, address) for item in refused if item)
    if not is_send and facts.dynamic_address == "other":
        return Reason.DYNAMIC_ADDRESS_NOT_OWN
    if not is_denied and any(matches(item, user, address) for item in items if item):
        return Reason.ALLOWED
    if not is_denied and facts.dynamic_address == "own":
        return Reason.ALLOWED
    if is_send and not is_denied and is_on("allowReplies"):
        if facts.reply_age_s is not None:
            is_over = facts.reply_age_s >= group.get("replyWindow", 300)
            return Reason.REPLY_WINDOW_OVER if is_over else Reason.ALLOWED
        if facts.dynamic_address == "other":
            return Reason.REPLY_NOT_EXPECTED
    return Reason.TARGET_NOT_ALLOWED if is_send else Reason.SOURCE_NOT_ALLOWED


links = st.builds(
    LinkFacts,
    direction=st.sampled_from(["send", "receive"]),
    address=st.sampled_from([at(text) for text in ADDRESSES]),
    is_dynamic=st.booleans(),
    open_links=st.integers(0, 3),
    dynamic_address=st.sampled_from([None, None, "own", "other"]),
    reply_age_s=st.sampled_from([None, 0.0, 9.9, 10.0, 299.9, 300.0]),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(vhosts, st.none() | vhosts, st.lists(questions, min_size=1, max_size=4), st.lists(links, max_size=6))
def test_decisions_agree_with_the_specification(
    first: dict[str, Any], default: dict[str, Any] | None, asked: list[Asked], attached: list[LinkFacts]
) -> None:
    hosts = {"h": first}
    if default is not None:
        hosts["$default"] = {key: value for key, value in default.items() if key != "aliases"}
    written = [{"hostname": name, **attributes} for name, attributes in hosts.items()]
    try:
        rules = ruleset(*written)
    except PolicyError as error:
        assert "multiple user groups" in str(error) or "default settings are not defined" in str(error)  # noqa: PT017
        return
    backwards = ruleset(*written[::-1])
    for question in asked:
        reasons, group = expected_open(hosts, question)
        facts = ConnectionFacts(
            user=question.user or None,
            remote_host=question.host,
            requested_vhost=question.requested,
            connection_name="n",
            groups=question.joined,
            now=question.now,
        )
        decided = decide_connection(rules, facts, question.usage)
        assert [decided.decision.reason, *decided.decision.also] == reasons
        assert decided.decision.is_allowed == (decided.settings is not None)
        assert decide_connection(backwards, facts, question.usage).decision == decided.decision
        if decided.settings is None or group is None:
            continue
        for link in attached:
            assert decide_link(decided.settings, link).reason is expected_link(group, question.user, link)
