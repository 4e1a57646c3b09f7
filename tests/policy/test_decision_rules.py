"""Every decision whole: its reason, the rule it names and the address it speaks of. Audits and logs repeat them."""

from typing import Any

import pytest
from rulesets import HOST, ROUTER_ID, at, connect, ruleset, settings

from policy.addressing.address import Unclear
from policy.decide import (
    ConnectionDecision,
    decide_connection,
    decide_connector,
    decide_link,
    decide_message,
    decide_session,
    decide_ungoverned_link,
)
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage

OWNERSHIP = "only the connection that made a dynamic address receives from it"
OWN_TARGET = "a connection may send to the dynamic addresses it made"
TEMPORARY = f"amqp:/_topo/0/{ROUTER_ID}/temp.abcdefghijklmno"
JUNE_2026, SPRING = 1_780_272_000.0, {"validFrom": "2026-03-01T00:00:00Z", "validUntil": "2026-06-01T00:00:00Z"}


def decided(reason: Reason, item: str | None, address: str | None = None) -> Decision:
    """By the group `g` of the vhost `h`."""
    rule = Rule(vhost="h", group="g", item=item)
    return Decision(is_allowed=reason is Reason.ALLOWED, reason=reason, rule=rule, address=address)


def link(direction: Any, address: str | None, **facts: Any) -> LinkFacts:
    return LinkFacts(direction=direction, address=at(address), **facts)


LINKS: list[tuple[dict[str, Any], LinkFacts, Decision]] = [
    ({"targets": "a*"}, link("send", "ab"), decided(Reason.ALLOWED, "targets: a*", "ab")),
    ({"targets": "a*"}, link("send", "b"), decided(Reason.TARGET_NOT_ALLOWED, "targets", "b")),
    (
        {"targets": "*", "denyTargets": "b"},
        link("send", "b"),
        decided(Reason.TARGET_NOT_ALLOWED, "denyTargets: b", "b"),
    ),
    ({"maxSenders": 2}, link("send", "a", open_links=2), decided(Reason.SENDER_LIMIT, "maxSenders: 2")),
    ({}, link("send", None), decided(Reason.ANONYMOUS_SENDER, "allowAnonymousSender: false")),
    ({}, link("send", "a", is_coordinator=True), decided(Reason.ANONYMOUS_SENDER, "allowAnonymousSender: false")),
    ({"sources": "a*"}, link("receive", "ab"), decided(Reason.ALLOWED, "sources: a*", "ab")),
    ({"sources": "a*"}, link("receive", "b"), decided(Reason.SOURCE_NOT_ALLOWED, "sources", "b")),
    (
        {"sources": "*", "denySources": "b"},
        link("receive", "b"),
        decided(Reason.SOURCE_NOT_ALLOWED, "denySources: b", "b"),
    ),
    ({"maxReceivers": 2}, link("receive", "a", open_links=2), decided(Reason.RECEIVER_LIMIT, "maxReceivers: 2")),
    (
        {"allowDynamicSource": False},
        link("receive", None, is_dynamic=True),
        decided(Reason.DYNAMIC_SOURCE, "allowDynamicSource: false"),
    ),
    ({"sources": "a"}, link("receive", None), decided(Reason.NO_SOURCE_ADDRESS, "sources")),
    (
        {"sources": "*"},
        link("receive", TEMPORARY, dynamic_address="own"),
        decided(Reason.ALLOWED, OWNERSHIP, TEMPORARY),
    ),
    (
        {"sources": "*"},
        link("receive", TEMPORARY, dynamic_address="other"),
        decided(Reason.DYNAMIC_ADDRESS_NOT_OWN, OWNERSHIP, TEMPORARY),
    ),
    (
        {"sources": "*", "denySources": TEMPORARY},
        link("receive", TEMPORARY, dynamic_address="own"),
        decided(Reason.SOURCE_NOT_ALLOWED, f"denySources: {TEMPORARY}", TEMPORARY),
    ),
    (
        {"allowWaypointLinks": False},
        link("receive", "a", capabilities=("x", "qd.waypoint_1")),
        decided(Reason.WAYPOINT_CAPABILITY, "allowWaypointLinks: false"),
    ),
    (
        {"allowFallbackLinks": False},
        link("send", "a", capabilities=("x", "qd.fallback")),
        decided(Reason.FALLBACK_CAPABILITY, "allowFallbackLinks: false"),
    ),
]
REPLIES: list[tuple[dict[str, Any], dict[str, Any], Decision]] = [
    ({}, {"dynamic_address": "own"}, decided(Reason.ALLOWED, OWN_TARGET, TEMPORARY)),
    (
        {"allowReplies": True},
        {"dynamic_address": "other"},
        decided(Reason.REPLY_NOT_EXPECTED, "allowReplies: true", TEMPORARY),
    ),
    (
        {"allowReplies": True, "replyWindow": 60},
        {"reply_age_s": 59.9},
        decided(Reason.ALLOWED, "allowReplies: true", TEMPORARY),
    ),
    (
        {"allowReplies": True, "replyWindow": 60},
        {"reply_age_s": 60.0},
        decided(Reason.REPLY_WINDOW_OVER, "replyWindow: 60", TEMPORARY),
    ),
]


@pytest.mark.parametrize(("group", "facts", "expected"), LINKS)
def test_of_a_link(group: dict[str, Any], facts: LinkFacts, expected: Decision) -> None:
    assert decide_link(settings(**group), facts) == expected


@pytest.mark.parametrize(("group", "facts", "expected"), REPLIES)
def test_of_a_reply(group: dict[str, Any], facts: dict[str, Any], expected: Decision) -> None:
    assert decide_link(settings(**group), link("send", TEMPORARY, **facts)) == expected
    assert decide_message(settings(**group), MessageFacts(target=at(TEMPORARY), **facts)) == expected


@pytest.mark.parametrize(
    ("group", "facts", "expected"),
    [
        ({}, MessageFacts(user_id=b"eve"), decided(Reason.USER_ID_PROXY, "allowUserIdProxy: false")),
        ({"targets": "a"}, MessageFacts(target=at("b")), decided(Reason.MESSAGE_TARGET_NOT_ALLOWED, "targets", "b")),
        (
            {"targetPattern": "a"},
            MessageFacts(target=at("b")),
            decided(Reason.MESSAGE_TARGET_NOT_ALLOWED, "targetPattern", "b"),
        ),
        (
            {"targets": "*", "denyTargets": "b"},
            MessageFacts(target=at("b")),
            decided(Reason.MESSAGE_TARGET_NOT_ALLOWED, "denyTargets: b", "b"),
        ),
    ],
)
def test_of_a_message(group: dict[str, Any], facts: MessageFacts, expected: Decision) -> None:
    assert decide_message(settings(**group), facts) == expected


def test_of_a_message_of_a_tenant() -> None:
    """Its address is compared in the tenant's form, and that of a link as it was written."""
    granted = settings(targets="t/a")
    assert decide_message(granted, MessageFacts(target=at("a", "t"))) == Decision(
        is_allowed=True, reason=Reason.ALLOWED
    )
    assert decide_link(granted, LinkFacts(direction="send", address=at("a", "t"))).reason is Reason.TARGET_NOT_ALLOWED


def test_of_a_session() -> None:
    granted = settings(maxSessions=2)
    assert decide_session(granted, 1).is_allowed
    assert decide_session(granted, 2) == decided(Reason.SESSION_LIMIT, "maxSessions: 2")


def test_of_an_address_that_is_not_clear() -> None:
    """No rule is named: no list is asked."""
    unclear = Unclear(written="w", why="it is two addresses")
    expected = Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS, address="w")
    granted = settings(sources="*", targets="*", allowReplies=True)
    for direction in ("send", "receive"):
        assert decide_link(granted, LinkFacts(direction=direction, address=unclear)) == expected
    assert decide_message(granted, MessageFacts(target=unclear)) == expected


@pytest.mark.parametrize(
    ("facts", "is_allowed"),
    [
        ({"direction": "receive", "dynamic_address": "other"}, False),
        ({"direction": "receive", "dynamic_address": "own"}, True),
        ({"direction": "receive", "dynamic_address": None}, True),
        ({"direction": "receive", "dynamic_address": "other", "is_dynamic": True}, True),
        ({"direction": "send", "dynamic_address": "other"}, True),
    ],
)
def test_of_a_link_that_no_group_governs(facts: dict[str, Any], is_allowed: bool) -> None:
    denied = Decision(is_allowed=False, reason=Reason.DYNAMIC_ADDRESS_NOT_OWN, rule=Rule(item=OWNERSHIP))
    allowed = Decision(is_allowed=True, reason=Reason.ALLOWED)
    assert decide_ungoverned_link(LinkFacts(address=at(TEMPORARY), **facts)) == (allowed if is_allowed else denied)


def test_of_a_connection() -> None:
    group = {"users": "bob", "remoteHosts": HOST, **SPRING}
    rules = ruleset({"hostname": "h", "groups": {"g": group}}, defaultVhost="d")

    def denied(reason: Reason, rule: Rule, vhost: str | None, group: str | None) -> ConnectionDecision:
        decision = Decision(is_allowed=False, reason=reason, rule=rule)
        return ConnectionDecision(decision=decision, vhost=vhost, group=group)

    no_vhost = denied(Reason.NO_VHOST, Rule(item="defaultVhost: d"), None, None)
    assert connect(rules, vhost="x") == no_vhost
    unknown = denied(Reason.UNKNOWN_USER, Rule(vhost="h", item="allowUnknownUser: false"), "h", None)
    assert connect(rules, user="eve") == unknown
    assert connect(rules, user=None) == unknown

    def at_time(now: float, host: str = HOST) -> ConnectionDecision:
        facts = ConnectionFacts(user="bob", remote_host=host, requested_vhost="h", connection_name="n", now=now)
        return decide_connection(rules, facts, Usage())

    closed = Rule(vhost="h", group="g", item=f"validUntil: {SPRING['validUntil']}")
    assert at_time(JUNE_2026) == denied(Reason.GROUP_NOT_VALID, closed, "h", "g")
    not_yet = Rule(vhost="h", group="g", item=f"validFrom: {SPRING['validFrom']}")
    assert at_time(0.0) == denied(Reason.GROUP_NOT_VALID, not_yet, "h", "g")
    elsewhere = Rule(vhost="h", group="g", item="remoteHosts")
    assert at_time(JUNE_2026 - 1, "10.0.0.2") == denied(Reason.HOST_NOT_ALLOWED, elsewhere, "h", "g")
    allowed = at_time(JUNE_2026 - 1)
    assert (allowed.decision, allowed.vhost, allowed.group) == (
        Decision(is_allowed=True, reason=Reason.ALLOWED), "h", "g",
    )  # fmt: skip


def test_of_a_connection_without_a_user() -> None:
    granted = connect(
        ruleset({"hostname": "h", "groups": {"g": {"users": "*", "remoteHosts": "*"}}}), user=None
    ).settings
    assert granted is not None
    assert granted.user == ""


@pytest.mark.parametrize(("kind", "usage"), [("User", "of_user"), ("Host", "of_host")])
@pytest.mark.parametrize("is_of_group", [False, True])
def test_of_a_limit_on_connections(kind: str, usage: str, is_of_group: bool) -> None:
    key = f"maxConnectionsPer{kind}"
    group = {"users": "*", "remoteHosts": "*", **({key: 2} if is_of_group else {})}
    rules = ruleset({"hostname": "h", key: 5, "groups": {"g": group}})
    reached = 2 if is_of_group else 5
    reason = Reason.USER_CONNECTION_LIMIT if kind == "User" else Reason.HOST_CONNECTION_LIMIT
    rule = Rule(vhost="h", group="g" if is_of_group else None, item=f"{key}: {reached}")
    decision = Decision(is_allowed=False, reason=reason, rule=rule)
    expected = ConnectionDecision(decision=decision, vhost="h", group="g")
    assert connect(rules, "bob", "h", HOST, **{usage: reached}) == expected
    assert connect(rules, "bob", "h", HOST, **{usage: reached - 1}).decision.is_allowed


def test_of_a_connector() -> None:
    rules = ruleset(
        {"hostname": "v", "groups": {"$connector": {"sources": "a", **SPRING}}}, {"hostname": "w"}, maxMessageSize=77
    )

    def denied(reason: Reason, rule: Rule, vhost: str | None, group: str | None) -> ConnectionDecision:
        decision = Decision(is_allowed=False, reason=reason, rule=rule)
        return ConnectionDecision(decision=decision, vhost=vhost, group=group)

    no_vhost = denied(Reason.NO_VHOST, Rule(item="policyVhost: x"), None, None)
    assert decide_connector(rules, "x", "u", 0.0) == no_vhost
    no_group = denied(Reason.NO_VHOST, Rule(vhost="w", item="groups: $connector"), "w", None)
    assert decide_connector(rules, "w", "u", 0.0) == no_group
    for now, item in ((0.0, "validFrom"), (JUNE_2026, "validUntil")):
        closed = Rule(vhost="v", group="$connector", item=f"{item}: {SPRING[item]}")
        assert decide_connector(rules, "v", "u", now) == denied(Reason.GROUP_NOT_VALID, closed, "v", "$connector")
    allowed = decide_connector(rules, "v", "u", JUNE_2026 - 1)
    assert (allowed.decision.is_allowed, allowed.vhost, allowed.group) == (True, "v", "$connector")
    assert allowed.settings is not None
    assert allowed.settings.max_message_size == 77
    off = decide_connector(ruleset(enableVhostPolicy=False), "v", "u", None)
    assert off == ConnectionDecision(decision=Decision(is_allowed=True, reason=Reason.ALLOWED))
    broken: Any = object()
    error = ConnectionDecision(decision=Decision(is_allowed=False, reason=Reason.INTERNAL_ERROR))
    assert decide_connector(broken, "v", "u", None) == error
