"""Attack: a user's receiver on another router settles nothing, or gives no credit, for the messages that he sends to
it.

The messages filled the budgets of the connection between the routers. Then neither router received anything from the
other: each considered the other gone, and an edge lost its uplink, for as long as the user stayed.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Fleet, Net
from test_network_messages import FakeNeighbour

from router.core.budget import MIB, Limits
from router.linkstate.limits import MAX_SEQUENCE
from router.values import int_, long

LIMITS = Limits(link=2 * MIB, connection=4 * MIB, user=2 * MIB)
SIZE = 20_000
EDGE: dict[str, Any] = {"role": "edge"}


def keep_open(net: Net) -> None:
    """Its clients say that they live."""
    for client in net.clients:
        client.router._deadline = net.deadlines[client] = float("inf")


def joined(at: str) -> Fleet:
    fleet = Fleet("A", "B", edges=("E1",) if at == "E1" else (), limits=LIMITS)
    fleet.connect("A", "B")
    if at == "E1":
        fleet.connect("E1", "A", **EDGE)
    fleet.settle()
    return fleet


@pytest.mark.parametrize(("at", "far"), [("A", "B"), ("E1", "A"), ("E1", "B"), ("A", "E1")])
@pytest.mark.parametrize("credit", [0, 10_000])
def test_routers_stay_together(at: str, far: str, credit: int) -> None:
    fleet = joined("E1" if "E1" in (at, far) else at)
    mallorys = fleet[far].client()
    slow = [mallorys.receiver(f"slow{index}", credit=credit) for index in range(10)]
    receiver = fleet[far].client().receiver("orders", credit=1000, accepts=True)
    senders = [fleet[at].client().sender(f"slow{index}") for index in range(10)]
    honest = fleet[at].client().sender("orders")
    fleet.tick(3)
    for priority, sender in enumerate(senders):
        for count in range(min(sender.credit, 60)):
            sender.send(bytes(SIZE), priority=priority)
            if not count % 10:
                fleet.pump()
    fleet.pump()
    for net in fleet.nets.values():
        keep_open(net)
    fleet.tick(30)
    hosts = {name: net.host for name, net in fleet.nets.items() if net.host is not None}
    assert {name: list(host.own_links) for name, host in hosts.items()} == {"A": ["B"], "B": ["A"]}
    assert not any(end.router_closed for net in fleet.nets.values() for end in net.ends)
    # When he has gone, everything goes on.
    sending = honest.send(b"m")
    mallorys.kill()
    fleet.tick(3)
    assert len(slow) == len(senders)
    assert (sending.outcome, receiver.bodies) == (ACCEPTED, [b"m"])
    fleet.no_errors()


def test_what_is_long_is_not_held_for_a_neighbour_that_is_held_back() -> None:
    """The other side of it: control messages of a neighbour whose budget is full go on to be read."""
    net = Net(router_id="A", limits=LIMITS)
    neighbour = FakeNeighbour(net)
    neighbour.tick(3)
    account = net.peer(neighbour.client).attachment.account
    account.charge(9 * MIB // 2)
    assert account.behind
    held = account.held
    for number in range(1, 100):
        keys = [f"M0{number}-{index}-{'x' * 50}" for index in range(1000)]
        update = {"pv": 1, "mobile_seq": long(MAX_SEQUENCE - 200 + number), "exist": keys, "hints": [3] * len(keys)}
        neighbour.say("MAU", update, "_topo/0/A/qdrouter.ma")
        net.pump()
    assert account.held <= held
    neighbour.say("HELLO", {"pv": 1, "instance": int_(100), "seen": ["A"]})
    neighbour.tick(3)
    assert net.host is not None
    assert net.host.own_links == {"TEST": 1}
    told = [text for text in net.log_texts("ROUTER") if "is held back" in text]
    assert 0 < len(told) <= 8 * 4
    account.charge(-9 * MIB // 2)
