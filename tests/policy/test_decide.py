"""The decisions, one fact at a time."""

from dataclasses import replace
from typing import Any

import pytest
from rulesets import HOST, at, connect, group_ruleset, resolve, ruleset, settings

from policy.decide import (
    Settings,
    decide_accept,
    decide_connection,
    decide_connector,
    decide_link,
    decide_message,
    decide_session,
)
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.ruleset import Ruleset, SourceLocation, compile_ruleset


def send(granted: Settings, address: str | None, **facts: Any) -> Reason:
    return decide_link(granted, replace(LinkFacts(direction="send", address=at(address)), **facts)).reason


def receive(granted: Settings, address: str | None, **facts: Any) -> Reason:
    return decide_link(granted, replace(LinkFacts(direction="receive", address=at(address)), **facts)).reason


# Accept


@pytest.mark.parametrize("is_enabled", [False, True])
def test_accepted_connections_have_a_limit_with_and_without_vhost_policy(is_enabled: bool) -> None:
    """policy 16, 17"""
    rules = compile_ruleset({"maxConnections": 2, "enableVhostPolicy": is_enabled}, [], resolve=resolve)
    assert [decide_accept(rules, count).is_allowed for count in (0, 1, 2, 3)] == [True, True, False, False]
    denied = decide_accept(rules, 2)
    assert (denied.reason, denied.rule) == (Reason.ROUTER_CONNECTION_LIMIT, Rule(item="maxConnections: 2"))


def test_a_limit_of_0_accepts_nobody() -> None:
    assert not decide_accept(compile_ruleset({"maxConnections": 0}, [], resolve=resolve), 0).is_allowed


# Open


def test_without_vhost_policy_nothing_restricts_a_connection() -> None:
    rules = compile_ruleset({}, [({"hostname": "h"}, None)], resolve=resolve)
    decided = connect(rules)
    assert decided.decision.is_allowed
    assert (decided.vhost, decided.settings) == (None, None)


def test_without_a_vhost_there_is_no_connection() -> None:
    """policy 18"""
    decided = connect(group_ruleset(), vhost="x")
    assert decided.decision.reason is Reason.NO_VHOST
    assert (decided.vhost, decided.group, decided.settings) == (None, None, None)


@pytest.mark.parametrize(
    ("user", "others", "group"),
    [
        ("alice", ("any", "$default"), "named"),
        ("bob", ("any", "$default"), "any"),
        ("Alice", ("any", "$default"), "any"),
        ("bob", ("$default",), "$default"),
        ("bob", ("refused",), None),
        ("", ("any",), "any"),
        (None, ("any",), "any"),
        (None, ("$default",), "$default"),
        (None, ("refused",), None),
        ("*", ("$default",), "$default"),
    ],
)
def test_the_group_of_a_user(user: str | None, others: tuple[str, ...], group: str | None) -> None:
    """policy 21"""
    groups = {
        "named": {"users": "alice", "remoteHosts": "*"},
        "nobody": {"remoteHosts": "*"},
        **({"any": {"users": "*", "remoteHosts": "*"}} if "any" in others else {}),
        **({"$default": {"remoteHosts": "*"}} if "$default" in others else {}),
    }
    rules = ruleset({"hostname": "h", "allowUnknownUser": "$default" in others, "groups": groups})
    decided = connect(rules, user)
    assert decided.group == group
    assert decided.decision.reason is (Reason.ALLOWED if group else Reason.UNKNOWN_USER)
    assert decided.vhost == "h"


def test_default_group_alone_admits_no_unknown_user() -> None:
    rules = ruleset({"hostname": "h", "groups": {"$default": {"remoteHosts": "*"}}})
    assert connect(rules).decision.reason is Reason.UNKNOWN_USER


@pytest.mark.parametrize(
    ("hosts", "host", "is_allowed"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("*", "::1", True),
        ("", "10.0.0.1", False),
        ([], "10.0.0.1", False),
    ],
)
def test_the_host_of_a_connection(hosts: object, host: str, is_allowed: bool) -> None:
    """policy 15; a blank list is nobody."""
    decided = connect(group_ruleset(remoteHosts=hosts), host=host)
    assert decided.decision.reason is (Reason.ALLOWED if is_allowed else Reason.HOST_NOT_ALLOWED)
    assert (decided.settings is not None) == is_allowed
    assert (decided.vhost, decided.group) == ("h", "g")


def test_without_remote_hosts_nobody_may_connect() -> None:
    rules = ruleset({"hostname": "h", "groups": {"g": {"users": "*"}}})
    assert connect(rules).decision.reason is Reason.HOST_NOT_ALLOWED


@pytest.mark.parametrize("host", ["", "somewhere", "10.0.0.1:5672", "[::1]"])
def test_a_host_that_is_no_address_is_an_internal_error_and_so_a_denial(host: str) -> None:
    decided = connect(group_ruleset(), host=host)
    assert decided.decision == Decision(is_allowed=False, reason=Reason.INTERNAL_ERROR)
    assert decided.settings is None


VHOST_LIMITS = {"maxConnections": 4, "maxConnectionsPerUser": 2, "maxConnectionsPerHost": 3}


@pytest.mark.parametrize(
    ("usage", "reasons"),
    [
        ({"total": 3, "of_user": 1, "of_host": 2}, []),
        ({"total": 4}, [Reason.VHOST_CONNECTION_LIMIT]),
        ({"of_user": 2}, [Reason.USER_CONNECTION_LIMIT]),
        ({"of_host": 3}, [Reason.HOST_CONNECTION_LIMIT]),
        ({"of_user": 2, "of_host": 3}, [Reason.USER_CONNECTION_LIMIT, Reason.HOST_CONNECTION_LIMIT]),
        (
            {"total": 9, "of_user": 9, "of_host": 9},
            [Reason.VHOST_CONNECTION_LIMIT, Reason.USER_CONNECTION_LIMIT, Reason.HOST_CONNECTION_LIMIT],
        ),
    ],
)
def test_every_limit_that_is_reached_is_named(usage: dict[str, int], reasons: list[Reason]) -> None:
    """policy 23, 26"""
    rules = ruleset({"hostname": "h", **VHOST_LIMITS, "groups": {"g": {"users": "*", "remoteHosts": "*"}}})
    decision = connect(rules, "bob", "h", HOST, **usage).decision
    assert [decision.reason, *decision.also] == (reasons or [Reason.ALLOWED])


@pytest.mark.parametrize(("limit", "allowed"), [(1, [True, False, False]), (3, [True, True, True])])
@pytest.mark.parametrize("kind", ["User", "Host"])
def test_a_group_overrides_the_limits_of_the_vhost_in_both_directions(
    kind: str, limit: int, allowed: list[bool]
) -> None:
    """policy 22"""
    key = f"maxConnectionsPer{kind}"
    groups = {"g": {"users": "*", "remoteHosts": "*", key: limit}}
    rules = ruleset({"hostname": "h", key: 2, "groups": groups})
    counts = [{f"of_{kind.lower()}": count} for count in (0, 1, 2)]
    assert [connect(rules, "bob", "h", HOST, **count).decision.is_allowed for count in counts] == allowed


def test_a_limit_of_0_in_a_group_is_a_limit() -> None:
    assert connect(group_ruleset(maxConnectionsPerUser=0)).decision.reason is Reason.USER_CONNECTION_LIMIT


def test_settings_of_a_group() -> None:
    """policy 24, 25"""
    granted = settings(maxFrameSize=32767, maxSessions=10, maxSessionWindow=40960, maxSenders=2, maxReceivers=4)
    assert (granted.max_frame_size, granted.max_sessions, granted.max_session_window) == (32767, 10, 40960)
    assert (granted.max_senders, granted.max_receivers) == (2, 4)
    assert (granted.vhost, granted.group, granted.user) == ("h", "g", "bob")


def test_settings_without_words() -> None:
    granted = settings()
    assert (granted.max_frame_size, granted.max_sessions, granted.max_session_window) == (0, 0, 0)
    assert (granted.max_senders, granted.max_receivers, granted.max_message_size) == (2**31 - 1, 2**31 - 1, 0)
    assert not granted.allow_dynamic_source
    assert not granted.allow_anonymous_sender
    assert not granted.allow_user_id_proxy
    assert granted.allow_waypoint_links
    assert granted.allow_fallback_links
    assert granted.allow_dynamic_link_routes
    assert granted.allow_admin_status_update


@pytest.mark.parametrize(
    ("policy", "vhost", "group", "effective"),
    [
        (None, None, None, 0),
        (100, None, None, 100),
        (100, 50, None, 50),
        (100, 50, 200, 200),
        (100, 50, 0, 0),
        (100, 0, None, 0),
        (0, 2**40, None, 2**40),
    ],
)
def test_message_size_of_the_nearest_level(
    policy: int | None, vhost: int | None, group: int | None, effective: int
) -> None:
    """policy 39, 40"""

    def level(value: int | None) -> dict[str, Any]:
        return {} if value is None else {"maxMessageSize": value}

    groups = {"g": {"users": "*", "remoteHosts": "*", **level(group)}}
    granted = connect(ruleset({"hostname": "h", "groups": groups, **level(vhost)}, **level(policy))).settings
    assert granted is not None
    assert granted.max_message_size == effective


def test_a_later_change_does_not_touch_what_was_granted() -> None:
    """policy 26, 27"""
    rules = group_ruleset(sources="a")
    granted = connect(rules).settings
    assert granted is not None
    later = rules.with_vhost({"hostname": "h"}, resolve=resolve)
    assert connect(later).decision.reason is Reason.UNKNOWN_USER
    assert receive(granted, "a") is Reason.ALLOWED


# Begin


def test_sessions_are_limited() -> None:
    granted = settings(maxSessions=2)
    assert [decide_session(granted, count).is_allowed for count in (0, 1, 2, 3)] == [True, True, False, False]
    assert decide_session(granted, 2).reason is Reason.SESSION_LIMIT
    assert decide_session(settings(), 10**6).is_allowed


# Attach


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_links_are_limited_and_0_is_none(limit: int) -> None:
    """policy 28"""
    granted = settings(maxSenders=limit, maxReceivers=limit, sources="*", targets="*")
    for count in range(4):
        expected = Reason.ALLOWED if count < limit else None
        assert send(granted, "a", open_links=count) is (expected or Reason.SENDER_LIMIT)
        assert receive(granted, "a", open_links=count) is (expected or Reason.RECEIVER_LIMIT)


def test_a_limit_comes_before_all_else() -> None:
    granted = settings(maxSenders=0, maxReceivers=0)
    assert send(granted, None) is Reason.SENDER_LIMIT
    assert receive(granted, None, is_dynamic=True) is Reason.RECEIVER_LIMIT


def test_addresses_of_links() -> None:
    """policy 29"""
    granted = settings(sources="in", targetPattern="out/#")
    assert receive(granted, "in") is Reason.ALLOWED
    assert receive(granted, "out") is Reason.SOURCE_NOT_ALLOWED
    assert send(granted, "out/a") is Reason.ALLOWED
    assert send(granted, "in") is Reason.TARGET_NOT_ALLOWED


def test_an_empty_group_may_use_nothing() -> None:
    assert receive(settings(), "a") is Reason.SOURCE_NOT_ALLOWED
    assert send(settings(sources="*", targetPattern=""), "a") is Reason.TARGET_NOT_ALLOWED


@pytest.mark.parametrize("is_allowed", [False, True])
def test_switches(is_allowed: bool) -> None:
    """policy 32"""
    granted = settings(allowDynamicSource=is_allowed, allowAnonymousSender=is_allowed, targets="*", sources="*")
    anonymous = Reason.ALLOWED if is_allowed else Reason.ANONYMOUS_SENDER
    assert receive(granted, None, is_dynamic=True) is (Reason.ALLOWED if is_allowed else Reason.DYNAMIC_SOURCE)
    assert send(granted, None) is anonymous
    assert send(granted, "") is anonymous
    assert send(granted, None, is_coordinator=True) is anonymous
    assert send(granted, "a", is_coordinator=True) is anonymous
    assert send(granted, "a", is_dynamic=True) is Reason.ALLOWED
    assert receive(granted, None) is Reason.NO_SOURCE_ADDRESS
    assert receive(granted, "") is Reason.NO_SOURCE_ADDRESS


@pytest.mark.parametrize(
    "capabilities", [("qd.waypoint",), ("qd.waypoint.1",), ("qd.waypoint_1",), ("x", "qd.waypoint.9")]
)
def test_waypoint_capability(capabilities: tuple[str, ...]) -> None:
    """policy 33"""
    granted = settings(allowWaypointLinks=False, sources="*", targets="*", allowDynamicSource=True)
    assert send(granted, "a", capabilities=capabilities) is Reason.WAYPOINT_CAPABILITY
    assert receive(granted, "a", capabilities=capabilities) is Reason.WAYPOINT_CAPABILITY
    assert receive(granted, None, is_dynamic=True, capabilities=capabilities) is Reason.ALLOWED
    assert send(settings(targets="*"), "a", capabilities=capabilities) is Reason.ALLOWED


@pytest.mark.parametrize("capabilities", [("qd.fallback",), ("x", "qd.fallback")])
def test_fallback_capability(capabilities: tuple[str, ...]) -> None:
    """policy 33"""
    granted = settings(allowFallbackLinks=False, sources="*", targets="*")
    assert send(granted, "a", capabilities=capabilities) is Reason.FALLBACK_CAPABILITY
    assert receive(granted, "a", capabilities=capabilities) is Reason.FALLBACK_CAPABILITY
    assert receive(granted, "a", capabilities=("qd.fallback.1",)) is Reason.ALLOWED
    assert receive(settings(sources="*"), "a", capabilities=capabilities) is Reason.ALLOWED


# Messages


def test_targets_of_messages() -> None:
    """policy 37, 42"""
    granted = settings(targets="orders.*, tenant/orders")
    for target, reason in (
        ("orders.new", Reason.ALLOWED),
        ("tenant/orders", Reason.ALLOWED),
        ("secret", Reason.MESSAGE_TARGET_NOT_ALLOWED),
        ("x:/orders:/new", Reason.UNCLEAR_ADDRESS),
    ):
        assert decide_message(granted, MessageFacts(target=at(target))).reason is reason


@pytest.mark.parametrize(
    ("user", "user_id", "is_allowed"),
    [
        ("bob", None, True),
        ("bob", b"", True),
        ("bob", b"bob", True),
        ("bob", b"Bob", False),
        ("bob", b"alice", False),
        ("bob", b"\xff", False),
        (None, b"bob", False),
        (None, None, True),
        ("Søren", "Søren".encode(), True),
    ],
)
def test_user_ids_of_messages(user: str | None, user_id: bytes | None, is_allowed: bool) -> None:
    """policy 38"""
    facts = MessageFacts(user_id=user_id)
    decision = decide_message(settings(user), facts)
    assert decision.reason is (Reason.ALLOWED if is_allowed else Reason.USER_ID_PROXY)
    assert decide_message(settings(user, allowUserIdProxy=True), facts).is_allowed


def test_the_user_id_is_looked_at_before_the_target() -> None:
    decision = decide_message(settings(), MessageFacts(user_id=b"alice", target=at("secret")))
    assert decision.reason is Reason.USER_ID_PROXY


# Connectors

CONNECTOR = {"sources": "a", "maxFrameSize": 1, "maxSessionWindow": 1, "maxSessions": 3, "maxConnectionsPerUser": 0}


def test_a_connector_has_the_settings_of_its_group_without_users_hosts_and_limits() -> None:
    """policy 44"""
    rules = ruleset({"hostname": "v", "maxConnections": 0, "groups": {"$connector": CONNECTOR}})
    granted = decide_connector(rules, "v", None, None).settings
    assert granted is not None
    assert (granted.group, granted.user) == ("$connector", "")
    assert (granted.max_frame_size, granted.max_session_window, granted.max_sessions) == (0, 0, 3)
    assert receive(granted, "a") is Reason.ALLOWED
    assert send(granted, "a") is Reason.TARGET_NOT_ALLOWED


def test_a_connector_without_vhost_or_group_has_no_settings() -> None:
    """policy 44"""
    rules = ruleset({"hostname": "v", "groups": {"g": CONNECTOR}})
    assert decide_connector(rules, "v", "u", None).settings is None
    assert decide_connector(rules, "x", "u", None).settings is None
    default = rules.with_vhost(
        {"hostname": "$default", "groups": {"$connector": {"sources": "${user}"}}}, resolve=resolve
    )
    granted = decide_connector(default, "x", "u", None).settings
    assert granted is not None
    assert receive(granted, "u") is Reason.ALLOWED


def test_an_escaped_name_keeps_users_within_each_others_names_apart() -> None:
    group = {"sources": "${user:escaped}.*", "targetPattern": "${user:escaped}/#"}
    rules = ruleset({"hostname": "v", "groups": {"g": {"users": "*", "remoteHosts": "*", **group}}})
    for user, own, others in (("bob", "bob.x", "bob%2Esmith.x"), ("bob.smith", "bob%2Esmith.x", "bob.smith.x")):
        facts = ConnectionFacts(user=user, remote_host="10.0.0.1", requested_vhost="v", connection_name="c")
        granted = decide_connection(rules, facts, Usage()).settings
        assert granted is not None
        assert [receive(granted, own), send(granted, own)] == [Reason.ALLOWED] * 2
        assert receive(granted, others) is Reason.SOURCE_NOT_ALLOWED
        assert send(granted, others) is Reason.TARGET_NOT_ALLOWED


# Rules and errors


def test_a_decision_names_the_rule_it_rests_on() -> None:
    places: dict[tuple[str | int, ...], tuple[int, int]] = {
        ("groups", "g"): (4, 1),
        ("groups", "g", "sources"): (6, 1),
        ("maxConnections",): (3, 1),
    }
    source = SourceLocation(file="p.json", line=2, places=places)
    groups = {"g": {"users": "*", "remoteHosts": HOST, "sources": "a*"}}
    rules = ruleset({"hostname": "h", "maxConnections": 1, "groups": groups}, source=source)

    def rule(item: str, line: int, group: str | None = "g") -> Rule:
        return Rule(vhost="h", group=group, item=item, file="p.json", line=line)

    assert connect(rules, total=1).decision.rule == rule("maxConnections: 1", 3, None)
    assert connect(rules, host="10.0.0.2").decision.rule == rule("remoteHosts", 4)
    assert connect(rules, of_user=65535).decision.rule == rule("maxConnectionsPerUser: 65535", 2, None)
    granted = connect(rules).settings
    assert granted is not None
    links = {
        address: decide_link(granted, LinkFacts(direction="receive", address=at(address))).rule
        for address in ("ab", "b")
    }
    assert links == {"ab": rule("sources: a*", 6), "b": rule("sources", 6)}
    assert decide_link(granted, LinkFacts(direction="send", address=at("a"))).rule == rule("targets", 4)
    assert decide_message(granted, MessageFacts(user_id=b"x")).rule == rule("allowUserIdProxy: false", 4)


def broken(kind: type) -> object:
    """An instance without any of its attributes."""
    return object.__new__(kind)


def test_an_error_inside_a_decision_is_a_denial() -> None:
    error = Decision(is_allowed=False, reason=Reason.INTERNAL_ERROR)
    granted, rules = settings(), group_ruleset()
    no_rules, no_settings = broken(Ruleset), broken(Settings)
    facts = ConnectionFacts(user="u", remote_host=HOST, requested_vhost="h", connection_name="n")
    link = LinkFacts(direction="send", address=at("a"))
    assert decide_accept(no_rules, 0) == error  # type: ignore[arg-type]
    assert decide_connection(no_rules, facts, Usage()).decision == error  # type: ignore[arg-type]
    assert decide_connection(rules, facts, broken(Usage)).decision == error  # type: ignore[arg-type]
    assert decide_connection(rules, broken(ConnectionFacts), Usage()).decision == error  # type: ignore[arg-type]
    assert decide_session(no_settings, 0) == error  # type: ignore[arg-type]
    assert decide_link(no_settings, link) == error  # type: ignore[arg-type]
    assert decide_link(granted, broken(LinkFacts)) == error  # type: ignore[arg-type]
    assert decide_message(granted, broken(MessageFacts)) == error  # type: ignore[arg-type]
    assert decide_connector(no_rules, "v", None, None).settings is None  # type: ignore[arg-type]


def test_a_user_name_that_is_no_unicode_text_is_denied_its_messages() -> None:
    decision = decide_message(settings("\ud800"), MessageFacts(user_id=b"x"))
    assert decision.reason is Reason.INTERNAL_ERROR
