"""Addresses that an authentication service grants: docs/spec/policy-and-auth.md §9.6."""

import pytest
from rulesets import HOST, at, group_ruleset, resolve, settings

from policy.decide import Settings, decide_connection, decide_link, decide_message
from policy.decision import Reason
from policy.facts import ConnectionFacts, GrantedAddresses, LinkFacts, MessageFacts, Usage
from policy.ruleset import Ruleset, compile_ruleset

OFF = compile_ruleset({}, [], resolve=resolve)


def granted(rules: Ruleset, addresses: GrantedAddresses | None, user: str = "bob") -> Settings | None:
    facts = ConnectionFacts(
        user=user, remote_host=HOST, requested_vhost="h", connection_name=f"{HOST}:1", granted=addresses
    )
    judged = decide_connection(rules, facts, Usage())
    assert judged.decision.is_allowed
    return judged.settings


def may(found: Settings | None, direction: str, address: str) -> bool:
    assert found is not None
    facts = LinkFacts(direction="send" if direction == "send" else "receive", address=at(address))
    return decide_link(found, facts).is_allowed


def test_they_take_the_place_of_lists_and_patterns() -> None:
    """Policy 62."""
    addresses = GrantedAddresses(sources=("in.${user}*", "a,b"), targets=("out",))
    for group in ({"sources": "x", "targets": "x"}, {"sourcePattern": "#", "targetPattern": "#"}):
        found = granted(group_ruleset(**group), addresses)
        allowed = {(way, name) for way in ("send", "receive") for name in ("in.bob1", "a", "b", "out", "x")
                   if may(found, way, name)}  # fmt: skip
        assert allowed == {("receive", "in.bob1"), ("receive", "a"), ("receive", "b"), ("send", "out")}


@pytest.mark.parametrize("rules", [OFF, group_ruleset(sources="*", targets="*")], ids=["off", "on"])
def test_an_empty_grant_denies_all_and_none_changes_nothing(rules: Ruleset) -> None:
    """Policy 62, 63."""
    found = granted(rules, GrantedAddresses())
    assert found is not None
    assert not may(found, "send", "x")
    assert not may(found, "receive", "x")
    assert (found.allow_dynamic_source, found.allow_anonymous_sender) == (True, True)
    unlisted = decide_message(found, MessageFacts(target=at("x")))
    assert unlisted.reason is Reason.MESSAGE_TARGET_NOT_ALLOWED
    assert unlisted.rule is not None
    assert unlisted.rule.item == "address-authz send"
    without = granted(rules, None)
    assert without is None or may(without, "send", "x")


@pytest.mark.parametrize("rules", [OFF, group_ruleset(targets="*", allowReplies=True)], ids=["off", "on"])
def test_the_owner_of_a_dynamic_address_sends_there_only_where_that_is_granted(rules: Ruleset) -> None:
    """Policy §9.7: its guest's message is rejected, its admin's is not (as in 1.20); §3.16 is for groups' own lists"""
    target = at("_local/temp.abcdefghijklmno")
    for targets, is_allowed in ((("foo",), False), ((), False), (("*",), True)):
        found = granted(rules, GrantedAddresses(targets=targets))
        assert found is not None
        message = decide_message(found, MessageFacts(target=target, dynamic_address="own"))
        link = decide_link(found, LinkFacts(direction="send", address=target, dynamic_address="own"))
        assert (message.is_allowed, link.is_allowed) == (is_allowed, is_allowed)
        reader = LinkFacts(direction="receive", address=target, dynamic_address="own")
        assert decide_link(found, reader).is_allowed  # it made it, and may have made it: allowDynamicSource
    ungranted = settings(targets="foo")
    assert decide_message(ungranted, MessageFacts(target=target, dynamic_address="own")).is_allowed


def test_what_the_group_denies_stays_denied() -> None:
    found = granted(group_ruleset(denyTargets="secret"), GrantedAddresses(targets=("*",)))
    assert may(found, "send", "x")
    assert not may(found, "send", "secret")


def test_without_policy_nothing_else_is_allowed() -> None:
    found = granted(OFF, GrantedAddresses(targets=("*",)))
    assert found is not None
    assert not found.is_of_vhost
    assert not any((found.allow_user_id_proxy, found.allow_waypoint_links, found.allow_fallback_links))
    assert not any((found.allow_dynamic_link_routes, found.allow_admin_status_update))
    denied = decide_link(found, LinkFacts(direction="receive", address=at("x")))
    assert denied.rule is not None
    assert (denied.rule.vhost, denied.rule.group) == (None, None)


def test_a_second_token_and_odd_items_do_not_raise() -> None:
    found = granted(OFF, GrantedAddresses(sources=("${user}.${user}", "", " ", ",", "*")))
    assert may(found, "receive", "x")


def test_settings_in_the_words_of_a_grant() -> None:
    assert settings(sources="b, a.${user}", targets="*").as_granted() == GrantedAddresses(
        sources=("a.${user}", "b"), targets=("*",)
    )
    for group in ({"sourcePattern": "a"}, {"targetPattern": "a"}, {"denySources": "a"}, {"denyTargets": "a"}):
        assert settings(**group).as_granted() is None
