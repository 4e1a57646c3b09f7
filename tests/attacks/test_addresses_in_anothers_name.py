"""Attack: a neighbour announces addresses in the name of a router to which its link does not lead.

Messages to these addresses go to that router and are lost; or the addresses of that router disappear for all others.
Nothing reported this.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Fleet

from router.linkstate.effects import SendControl
from router.linkstate.messages import mobile_address
from router.linkstate.strangers import PATIENCE_TICKS


def network(*more: tuple[str, str]) -> Fleet:
    """B and the liar X are neighbours of A, and C is behind B."""
    fleet = Fleet("A", "B", "C", "X")
    for one, other in (("A", "B"), ("B", "C"), ("X", "A"), *more):
        fleet.connect(one, other)
    fleet.settle()
    return fleet


def lie(fleet: Fleet, router: str, mobile_seq: int, **lists: Any) -> None:
    """X tells A of addresses in a router's name."""
    host = fleet["X"].host
    assert host is not None
    body = {"id": router, "pv": 1, "mobile_seq": mobile_seq, **lists}
    link = next(neighbour.tag for neighbour in host.neighbours() if neighbour.router == "A")
    host._carry_out([SendControl(links=(link,), to=mobile_address("A"), opcode="MAU", body=body)])
    fleet["X"].work.finish()
    fleet.pump()


def told(fleet: Fleet) -> list[tuple[str, str]]:
    """The warnings of A, and what its audit says."""
    warnings = [text for text in fleet["A"].log_texts("ROUTER") if "does not lead" in text]
    events = [event for event in fleet["A"].audits if event["reason"] == "router_id_not_allowed"]
    return [(text.partition("] ")[2], event["detail"]) for text, event in zip(warnings, events, strict=True)]


@pytest.mark.parametrize("router", ["B", "C"])
def test_it_is_told_and_counts_no_longer(router: str) -> None:
    fleet = network()
    lie(fleet, router, 500, exist=["M0lie"], hints=[3])
    fleet.tick(PATIENCE_TICKS + 1)
    text = f"Messages of router {router} from router X, which does not lead to it, are ignored"
    assert told(fleet) == [(text, text)]
    (event,) = [event for event in fleet["A"].audits if event["reason"] == "router_id_not_allowed"]
    assert (event["stage"], event["decision"]) == ("transfer", "deny")
    lie(fleet, router, 501, exist=["M0another"], hints=[3])
    assert "M0another" not in fleet["A"].core.table.addresses
    fleet.tick(60)
    assert len(told(fleet)) == 1
    receiver = fleet[router].client().receiver("true", credit=10, accepts=True)
    fleet.tick(PATIENCE_TICKS)
    sender = fleet["A"].client().sender("true")
    fleet.pump()
    sender.send(b"m")
    fleet.pump()
    assert (receiver.bodies, sender.outcomes) == ([b"m"], [ACCEPTED])


def test_a_neighbour_that_says_to_have_a_link_to_the_other_is_told_of_too() -> None:
    fleet = network()
    host = fleet["X"].host
    assert host is not None
    host._machine._neighbours.peers = {**host._machine._neighbours.peers, "C": 1}
    host._machine._neighbours.is_changed = True
    fleet.tick(5)
    lie(fleet, "C", 500, exist=["M0lie"], hints=[3])
    fleet.tick(PATIENCE_TICKS + 1)
    assert len(told(fleet)) == 1


def test_what_comes_by_a_way_round_is_the_routers_own() -> None:
    """And so is what comes by a link that has just been made."""
    fleet = network(("X", "C"))
    receiver = fleet["C"].client().receiver("a", credit=10)
    fleet.tick(10)
    fleet.connect("C", "A")
    receiver.close()
    for name in "bcd":
        fleet["C"].client().receiver(name, credit=10)
        fleet.tick(2)
    fleet.tick(10)
    assert told(fleet) == []
