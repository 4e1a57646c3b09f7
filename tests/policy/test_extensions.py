"""What a policy can say that the C router's cannot: networks, denials that override, groups of the authenticator."""

from typing import Final

import pytest
from rulesets import at, connect, group_ruleset, ruleset, settings

from policy.analysis.difference import diff_rulesets
from policy.analysis.explain import explain_link
from policy.decide import decide_connection, decide_link, decide_message
from policy.decision import Reason
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.ruleset import PolicyError

DIRECTIONS: Final = ("receive", "send")


@pytest.mark.parametrize(
    ("network", "host", "is_admitted"),
    [
        ("10.0.0.0/8", "10.255.255.255", True),
        ("10.0.0.0/8", "11.0.0.0", False),
        ("10.0.0.0/8", "::ffff:10.1.1.1", True),
        ("10.0.0.1/32", "10.0.0.1", True),
        ("2001:db8::/32", "2001:db8:ffff::1", True),
        ("2001:db8::/32", "2001:db9::", False),
        ("::ffff:10.0.0.0/104", "10.1.1.1", True),
        ("0.0.0.0/0", "::1", False),
    ],
)
def test_networks(network: str, host: str, is_admitted: bool) -> None:
    rules = ruleset({"hostname": "h", "groups": {"g": {"users": "bob", "remoteHosts": network}}})
    assert connect(rules, host=host).decision.is_allowed == is_admitted


def test_a_network_across_the_border_of_mapped_addresses_is_refused() -> None:
    with pytest.raises(PolicyError, match="write two networks"):
        ruleset({"hostname": "h", "groups": {"g": {"users": "bob", "remoteHosts": "::fffe:0:0/95"}}})


@pytest.mark.parametrize(
    ("address", "is_allowed"), [("orders.a", True), ("orders.secret", False), ("orders.x.y", False), ("stock", False)]
)
def test_denials_override(address: str, is_allowed: bool) -> None:
    both = {"sources": "orders.*", "targetPattern": "orders.#"}
    granted = settings(**both, denySources="orders.secret, orders.x*", denyTargets="orders.secret, orders.x*")
    receive, send = (
        decide_link(granted, LinkFacts(direction=each, address=at(address))) for each in ("receive", "send")
    )
    assert (receive.is_allowed, send.is_allowed) == (is_allowed, is_allowed)
    assert decide_message(granted, MessageFacts(target=at(address))).is_allowed == is_allowed


@pytest.mark.parametrize(
    ("item", "denied", "allowed"),
    [
        ("amqp:/secret", ("secret", "amqp:/secret"), ("secrets", "amqp:/secrets")),
        ("amqp://host/secret", ("secret",), ("host", "host/secret")),
        ("/secret", ("secret", "/secret"), ("a/secret",)),
        ("secret/", ("secret", "secret/"), ("secret/a",)),
        ("amqp:/orders.*", ("orders.", "orders.a", "amqp:/orders.a"), ("orders", "x.orders.a")),
        ("/*", ("a", "/a", "amqp:/a"), ()),
        ("a:b", ("a:b",), ("b", "a")),
        ("", (), ("a",)),
    ],
)
def test_a_denial_written_as_another_name_denies_what_it_reaches(
    item: str, denied: tuple[str, ...], allowed: tuple[str, ...]
) -> None:
    granted = settings(sources="*", targets="*", denySources=item, denyTargets=item)
    for address in (*denied, *allowed):
        links = [LinkFacts(direction=direction, address=at(address)) for direction in DIRECTIONS]
        receive, send = (decide_link(granted, link) for link in links)
        assert (receive.is_allowed, send.is_allowed) == (address in allowed, address in allowed), address
        assert decide_message(granted, MessageFacts(target=at(address))).is_allowed == (address in allowed), address
        explained = explain_link(granted, links[1])
        assert explained.decision == send
        assert ("overrides" in explained.steps[-1].text) == (address in denied)


def test_a_difference_sees_what_a_denial_reaches() -> None:
    old, new = (group_ruleset(sources="a, x", denySources=denied) for denied in ("amqp:/x", "amqp:/x, x"))
    assert diff_rulesets(old, new) == ()
    assert old.digest == new.digest
    (change,) = diff_rulesets(group_ruleset(sources="a, x"), old)
    assert (change.is_widening, change.subject, change.addresses) == (False, "receive", "x")


def test_a_denial_names_its_item() -> None:
    granted = settings(targets="*", denyTargets="$management")
    link = LinkFacts(direction="send", address=at("$management"))
    decision = decide_link(granted, link)
    assert decision.reason is Reason.TARGET_NOT_ALLOWED
    assert decision.rule is not None
    assert decision.rule.item == "denyTargets: $management"
    assert "overrides" in explain_link(granted, link).steps[-1].text


def test_nobodys_name_can_stand_in_a_denial() -> None:
    """For a peer without a name `in.${user}` would deny nothing of what others are denied."""
    with pytest.raises(PolicyError, match="must not contain"):
        group_ruleset(denySources="in.${user}")


def test_a_policy_without_extensions_keeps_its_digest() -> None:
    """Recorded denials name the digest of the rules they were decided by."""
    plain = group_ruleset(sources="a")
    assert plain.digest == group_ruleset(sources="a", denySources="").digest
    assert plain.digest != group_ruleset(sources="a", denySources="b").digest


def joined(groups: tuple[str, ...], user: str = "bob", **more: object) -> str | None:
    """The group of a user of whom the authenticator says he is in these groups."""
    rules = ruleset(
        {
            "hostname": "h",
            "groups": {
                "named": {"users": "anna", "remoteHosts": "*"},
                "b": {"authenticatorGroups": "cn=ops, cn=night", "remoteHosts": "*"},
                "a": {"authenticatorGroups": ["cn=dev"], "remoteHosts": "*"},
                **more,
            },
        }
    )
    facts = ConnectionFacts(user=user, remote_host="10.0.0.1", requested_vhost="h", connection_name="c", groups=groups)
    return decide_connection(rules, facts, Usage()).group


def test_groups_of_the_authenticator() -> None:
    assert joined(("cn=ops",)) == "b"
    assert joined(("x", "cn=night")) == "b"
    assert joined(("cn=ops", "cn=dev")) == joined(("cn=dev", "cn=ops")) == "a"
    assert joined(("x",)) is None
    assert joined(()) is None
    assert joined(("cn=ops",), user="anna") == "named"
    assert joined(("x",), everybody={"users": "*", "remoteHosts": "*"}) == "everybody"
    assert joined(("cn=dev",), everybody={"users": "*", "remoteHosts": "*"}) == "a"


def test_a_group_of_the_authenticator_is_in_one_group_only() -> None:
    with pytest.raises(PolicyError, match="authenticator group 'cn=dev' is in multiple user groups 'a' and 'c'"):
        joined((), c={"authenticatorGroups": "cn=dev"})


def test_a_difference_for_members_of_a_group_of_the_authenticator() -> None:
    group = {"users": "anna", "remoteHosts": "10.0.0.1"}
    old, new = (
        ruleset({"hostname": "h", "groups": {"g": {**group, "authenticatorGroups": names}}}) for names in ("", "ops")
    )
    assert diff_rulesets(new, new) == ()
    (change,) = diff_rulesets(old, new)
    assert (change.is_widening, change.witness.groups) == (True, ("ops",))
    assert change.users == ("peers without a name in ops", "every other user in ops")
