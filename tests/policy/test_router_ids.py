"""Who may join the network under which router id (docs/spec/network.md §18.1)."""

import pytest

from policy.attributes import InvalidValue
from policy.decision import Reason
from policy.router_ids import MAX_ROUTER_ID_CHARACTERS, RouterIds, decide_router


def may(text: str, user: str | None, router_id: str) -> bool:
    decision = decide_router(RouterIds.parse(text), user, router_id)
    assert decision.reason is (Reason.ALLOWED if decision.is_allowed else Reason.ROUTER_ID_NOT_ALLOWED)
    return decision.is_allowed


@pytest.mark.parametrize(
    ("text", "user", "router_id", "is_allowed"),
    [
        ("${user}", "B", "B", True),
        ("${user}", "B", "C", False),
        ("${user}", "B", "b", False),
        ("${user}", "B", "B2", False),
        ("B, C", "anybody", "C", True),
        ("B, C", "anybody", "D", False),
        ("B,,C,", "anybody", "C", True),
        ("b.example.com=B, c.example.com=C", "b.example.com", "B", True),
        ("b.example.com=B, c.example.com=C", "b.example.com", "C", False),
        ("*.edges.example.com=${user}", "e1.edges.example.com", "e1.edges.example.com", True),
        ("*.edges.example.com=${user}", "e1.example.com", "e1.example.com", False),
        ("site1=Edge_*", "site1", "Edge_x", True),
        ("site1=Edge_*", "site1", "Edge", False),
        ("site1=Edge_*", "site2", "Edge_x", False),
        ("${user}-*", "site1", "site1-a", True),
        ("${user}-*", "site1", "site10", False),
        ("CN=b=B", "CN=b", "B", True),
        ("*", "anybody", "B", True),
    ],
)
def test_a_name_is_entitled_to_the_ids_of_its_items(text: str, user: str, router_id: str, is_allowed: bool) -> None:
    assert may(text, user, router_id) is is_allowed


@pytest.mark.parametrize("text", ["*", "${user}", "B", "*=B"])
@pytest.mark.parametrize("user", [None, ""])
def test_nothing_entitles_a_peer_without_a_name(text: str, user: str | None) -> None:
    assert not may(text, user, "B")
    assert not may(text, user, "")


@pytest.mark.parametrize("user", ["*", "${user}", "B*", "*="])
def test_a_user_whose_name_looks_like_a_pattern_has_that_name_only(user: str) -> None:
    assert may("${user}", user, user)
    assert not may("${user}", user, "B")
    assert not may("${user}", user, "B2")


@pytest.mark.parametrize(
    "router_id", ["", "a/b", "../B", "a b", "a\nb", "a\x00", "a\u200bb", "x" * (MAX_ROUTER_ID_CHARACTERS + 1)]
)
def test_what_can_be_no_router_id_is_none_whatever_the_pattern(router_id: str) -> None:
    assert not may("*", "anybody", router_id)


def test_an_id_of_the_longest_length_is_one() -> None:
    assert may("*", "anybody", "x" * MAX_ROUTER_ID_CHARACTERS)


@pytest.mark.parametrize(
    "text", ["", " ", ",", "a*b*", "*a*=B", "=B", "b=", "${usr}", "${user", "${user}=B", "${user}-${id}"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        RouterIds.parse(text)


def test_the_rule_is_the_setting_as_it_is_written() -> None:
    decision = decide_router(RouterIds.parse("${user}, B"), "A", "C")
    assert decision.rule is not None
    assert decision.rule.item == "routerIds: ${user}, B"


@pytest.mark.parametrize(
    ("text", "names_users"), [("a=A, b*=B", True), ("${user}", False), ("a=A, B", False), ("*=${user}", False)]
)
def test_an_item_without_a_user_is_everybodys(text: str, names_users: bool) -> None:
    assert RouterIds.parse(text).names_users is names_users


@pytest.mark.parametrize(("text", "is_for_everybody"), [("*", True), ("B, *", True), ("b=*", False), ("B*", False)])
def test_a_lone_star_is_for_everybody(text: str, is_for_everybody: bool) -> None:
    assert RouterIds.parse(text).is_for_everybody is is_for_everybody
