"""Attack: a neighbour floods advertisements and link states in the name of a router to which its link does not lead.

They say that the router has started again, has no addresses, or no links. All that was known of the router was
forgotten again and again, or messages to it had no route. Nothing reported this.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Fleet

from router.linkstate.effects import SendControl
from router.linkstate.messages import ALL_ROUTERS_ADDRESS
from router.linkstate.strangers import PATIENCE_TICKS


def network() -> Fleet:
    """B and the liar X are neighbours of A, and C is behind B."""
    fleet = Fleet("A", "B", "C", "X")
    for one, other in (("A", "B"), ("B", "C"), ("X", "A")):
        fleet.connect(one, other)
    fleet.settle()
    return fleet


def lie(fleet: Fleet, opcode: str, **fields: Any) -> None:
    """X says something to all in the name of C."""
    host = fleet["X"].host
    assert host is not None
    link = next(neighbour.tag for neighbour in host.neighbours() if neighbour.router == "A")
    body = {"id": "C", "pv": 1, "area": "0", **fields}
    host._carry_out([SendControl(links=(link,), to=ALL_ROUTERS_ADDRESS, opcode=opcode, body=body)])
    fleet["X"].work.finish()
    fleet.pump()


def told(fleet: Fleet) -> int:
    warnings = [text for text in fleet["A"].log_texts("ROUTER") if "which does not lead to it" in text]
    events = [event for event in fleet["A"].audits if event["reason"] == "router_id_not_allowed"]
    assert len(warnings) == len(events)
    return len(events)


def listen(fleet: Fleet) -> None:
    fleet["C"].client().receiver("a", credit=100, accepts=True)
    fleet.tick(5)


def arrives(fleet: Fleet) -> bool:
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    if not sender.credit:
        return False
    sender.send(b"m")
    fleet.pump()
    return sender.outcomes == [ACCEPTED]


LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "another instance": ("RA", {"instance": 7, "ls_seq": 1, "mobile_seq": 1}),
    "no addresses": ("RA", {"ls_seq": 1, "mobile_seq": 0}),
    "no links": ("LSU", {"ls_seq": 1000, "ls": {"id": "C", "area": "0", "ls_seq": 1000, "peers": {}}}),
}


@pytest.mark.parametrize("name", LIES)
def test_it_is_told_and_counts_no_longer(name: str) -> None:
    fleet = network()
    listen(fleet)
    assert arrives(fleet)
    opcode, fields = LIES[name]
    lie(fleet, opcode, **fields)
    fleet.tick(PATIENCE_TICKS + 1)
    assert told(fleet) == 1
    fleet.tick(70)  # what was forgotten meanwhile is known again
    listen(fleet)
    assert arrives(fleet)
    for _ in range(8):
        if "ls" in fields:
            fields["ls"]["ls_seq"] += 1  # as of a state that was not had yet
        lie(fleet, opcode, **fields)
        assert arrives(fleet)
        fleet.tick()
    assert told(fleet) == 1
    fleet.no_errors()


def test_a_router_that_moves_is_heard() -> None:
    """Its link state of before says nothing of its new link, over which the new one comes."""
    fleet = Fleet("A", "B", "C", "X")
    for one, other in (("A", "B"), ("X", "A")):
        fleet.connect(one, other)
    _, end = fleet.connect("B", "C")
    fleet.settle()
    listen(fleet)
    fleet.connect("X", "C")
    end.kill()
    fleet.tick(10)
    assert arrives(fleet)
    fleet.tick(60)
    listen(fleet)
    assert arrives(fleet)
    assert told(fleet) == 0
    fleet.no_errors()
