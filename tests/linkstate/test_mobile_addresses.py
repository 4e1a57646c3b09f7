"""MAR and MAU: sequence numbers, hints, updates in part and in full."""

from typing import Any

import pytest
from one_router import OneRouter

from router.linkstate.limits import Limits
from router.values import int_, long, symbol


def two(**limits: int) -> OneRouter:
    """A router with the neighbour R2, whose addresses it holds as of update 1: M0a."""
    router = OneRouter(Limits(**limits), hello_max_age_s=1000)
    router.neighbour()
    router.mau("R2", 1, exist=["M0a"], hints=[3])
    router.forget()
    return router


def test_an_address_that_appears_is_announced() -> None:
    """network 45"""
    router = two()
    router.appear("M0addr1", 2)
    assert router.sent == []
    router.tick()
    (update,) = router.of("MAU")
    assert (update.to, update.links) == ("_topo/0/all/qdrouter.ma", (1,))
    assert update.body == {
        "id": "R1", "pv": 1, "area": "0", "mobile_seq": 1, "hints": [2], "add": ["M0addr1"], "del": []
    }  # fmt: skip
    assert {type(key) for key in update.body} == {symbol}
    assert type(update.body[symbol("mobile_seq")]) is long
    assert type(update.body[symbol("hints")][0]) is int_
    texts = router.texts("ROUTER_MA", level="debug")
    assert texts[0] == "Became Local Dest: M0addr1"
    assert texts[1] == "New mobile sequence: mobile_seq=1, addrs_added=1, addrs_deleted=0, fanout=1"


def test_an_address_that_goes_is_announced() -> None:
    """network 46"""
    router = two()
    router.appear("M0b")
    router.tick()
    router.go("M0b")
    router.forget()
    router.tick()
    (update,) = router.of("MAU")
    assert (update.body[symbol("add")], update.body[symbol("del")]) == ([], ["M0b"])
    assert update.body[symbol("hints")] == []


def test_each_update_has_the_next_number_and_an_advertisement() -> None:
    """network 47"""
    router = two()
    for number in range(1, 4):
        router.appear(f"M0b{number}")
        router.forget()
        router.tick()
        assert [sent.body["mobile_seq"] for sent in (*router.of("MAU"), *router.of("RA"))] == [number, number]


def test_what_comes_and_goes_within_a_second_is_not_announced() -> None:
    """network 48"""
    router = two()
    router.appear("M0b")
    router.go("M0b")
    router.tick()
    assert router.of("MAU") == []
    router.appear("M0b")
    router.tick()
    router.go("M0b")
    router.appear("M0b")
    router.forget()
    router.tick()
    assert router.of("MAU") == []


def test_a_request_that_knows_less_gets_all_and_no_other_one() -> None:
    """network 49"""
    router = two()
    router.appear("M0b", 2)
    router.appear("Clr", 4)
    router.tick()
    router.appear("M0late")
    router.go("M0b")
    router.forget()
    for have in (1, 2, 99):
        router.hear("MAR", {"id": "R2", "pv": 1, "have_seq": have})
    assert router.sent == []
    router.hear("MAR", {"id": "R2", "pv": 1, "have_seq": 0})
    (update,) = router.sent
    assert (update.to, update.links) == ("amqp:/_topo/0/R2/qdrouter.ma", (1,))
    # As of the last announcement: what changed since is not in it.
    assert update.body == {
        "id": "R1", "pv": 1, "area": "0", "mobile_seq": 1, "exist": ["M0b", "Clr"], "hints": [2, 4]
    }  # fmt: skip
    assert "Received MAR from R2, have_seq=0" in router.texts("ROUTER_MA")
    assert "Sent MAU to requestor: mobile_seq=1" in router.texts("ROUTER_MA")


def test_a_request_of_a_later_version_gets_nothing() -> None:
    """network 50"""
    router = two()
    router.appear("M0b")
    router.tick()
    router.forget()
    for _ in range(3):
        router.hear("MAR", {"id": "R2", "pv": 2, "have_seq": 0})
    router.tick()
    assert router.of("MAU") == []
    assert router.texts("ROUTER_MA", level="warning") == ["Received MAR at protocol version 2 from R2.  Ignoring."]


def test_a_gap_asks_for_all_and_applies_nothing() -> None:
    """network 51"""
    router = two()
    for number in (3, 4, 5):
        router.mau("R2", number, add=["M0b"], del_=["M0a"], hints=[3])
    (request,) = router.sent
    assert (request.opcode, request.to) == ("MAR", "amqp:/_topo/0/R2/qdrouter.ma")
    assert request.body == {"id": "R1", "pv": 1, "area": "0", "have_seq": 1}
    assert {type(key) for key in request.body} == {symbol}
    assert not router.changes
    assert "Send MAR request to router R2, have_seq=1, fanout=1" in router.texts("ROUTER_MA")
    router.mau("R2", 5, exist=["M0b"], hints=[3])
    assert (router.mapped(), router.changes[0].unmapped) == ([("M0b", 3)], ("M0a",))
    router.mau("R2", 7, add=[], del_=[])
    assert len(router.of("MAR")) == 2


def test_an_update_that_came_before_is_ignored() -> None:
    router = two()
    for number in (0, 1):
        router.mau("R2", number, add=["M0b"], del_=["M0a"], hints=[3])
    assert router.sent == []
    assert not router.changes


def test_an_absolute_update_removes_what_it_does_not_list() -> None:
    """network 52: whatever its number."""
    router = two()
    router.mau("R2", 9, exist=["M0b", "M1c", "MFd", "Clr", "Dlr", "E*.x", "F*.x", "HEA1"])
    assert router.changes[0].unmapped == ("M0a",)
    assert [key for key, _ in router.mapped()] == ["M0b", "M1c", "MFd", "Clr", "Dlr", "E*.x", "F*.x", "HEA1"]
    router.mau("R2", 2, exist=[])
    assert len(router.changes[1].unmapped) == 8


def test_an_update_in_its_turn_adds_and_removes() -> None:
    router = two()
    router.mau("R2", 2, add=["M0b", "M0a", "M0c"], del_=["M0a", "M0x"], hints=[1, 2, 3])
    assert router.mapped() == [("M0b", 1), ("M0a", 2), ("M0c", 3)]
    assert router.changes[0].unmapped == ("M0a",)


@pytest.mark.parametrize("lists", [{"add": ["M0b"]}, {"exist": [], "add": []}, {"exist": 7}, {}])
def test_a_malformed_update_is_told(lists: dict[str, Any]) -> None:
    """network 53"""
    router = two()
    router.mau("R2", 2, **lists)
    assert router.texts("ROUTER_MA", level="error") == ["Received malformed MAU from R2"]
    assert not router.changes


def test_an_update_of_an_unknown_router_is_told() -> None:
    """network 54"""
    router = two()
    router.mau("R9", 1, exist=["M0b"])
    router.hear("MAR", {"id": "R9", "have_seq": 0})
    assert router.texts("ROUTER_MA", level="warning") == [
        "Received MAU from an unknown router with router id R9",
        "Received MAR from an unknown router with router id R9",
    ]
    assert not router.changes


def test_updates_go_to_their_own_address_only() -> None:
    router = two()
    router.hear("MAU", {"id": "R2", "mobile_seq": 2, "add": ["M0b"], "del": []}, key="Lqdrouter")
    router.hear("RA", {"id": "R2", "ls_seq": 9, "mobile_seq": 9}, key="Tqdrouter.ma")
    assert not router.changes
    assert router.sent == []


def test_an_advertisement_of_more_updates_asks_at_the_next_tick() -> None:
    router = two()
    router.ra("R2", 1, 3)
    assert router.sent == []
    router.tick()
    assert [sent.body[symbol("have_seq")] for sent in router.of("MAR")] == [1]


def test_updates_that_came_before_the_instance_are_asked_for_again() -> None:
    """A router that restarted meanwhile may count as far as it did before."""
    router = two()
    router.lsu("R2", 2, {"R1": 1, "R3": 1}, instance=0)
    router.mau("R3", 1, add=["M0old"], del_=[], hints=[3])
    router.ra("R3", 0, 1, instance=8)
    router.tick()
    assert [(sent.to, sent.body[symbol("have_seq")]) for sent in router.of("MAR")] == [
        ("amqp:/_topo/0/R3/qdrouter.ma", 0)
    ]
    router.mau("R3", 1, exist=["M0new"])
    assert (router.changes[-1].mapped, router.changes[-1].unmapped) == ((("M0new", None),), ("M0old",))


def test_answers_beyond_what_a_tick_allows_wait() -> None:
    """Everybody asks at once for many addresses."""
    router = OneRouter(Limits(answered_addresses_per_tick=5), hello_max_age_s=1000)
    for tag in range(1, 5):
        router.neighbour(f"R{tag + 1}", tag)
    for index in range(3):
        router.appear(f"M0a{index}")
    router.tick()
    router.forget()
    for tag in range(1, 5):
        router.hear("MAR", {"id": f"R{tag + 1}", "have_seq": 0}, tag)
    # At most five are begun with, in the tick of the request and in each later one.
    answered = [len(router.of("MAU"))]
    for _ in range(2):
        router.tick()
        answered.append(len(router.of("MAU")))
    assert answered == [2, 2, 4]
