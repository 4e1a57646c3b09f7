"""Distributions, priorities and phases of addresses over several routers, and what is one router's alone."""

from collections import Counter
from typing import Any

import pytest
from memory_net import ACCEPTED, RELEASED, Fleet, Net, Receiver, Sender
from proton import symbol
from test_auto_links import auto_link, broker

from router.core.addresses import Treatment
from router.core.remotes import DataOutLink

EDGE: dict[str, Any] = {"role": "edge"}
MANY = 1000


def joined(*ways: tuple[str, str, int], **net: Any) -> Fleet:
    """ways  (router, router, cost)"""
    fleet = Fleet(*sorted({name for one, other, _ in ways for name in (one, other)}), **net)
    for one, other, cost in ways:
        fleet.connect(one, other, cost=cost)
    fleet.settle()
    return fleet


@pytest.mark.parametrize(
    ("ways", "at", "shares"),
    [
        ([("A", "B", 10), ("B", "C", 20)], "ABC", (55, 33, 12)),
        ([("A", "B", 10), ("B", "C", 20)], "AC", (65, 35)),
        ([("A", "B", 10), ("A", "D", 50), ("B", "D", 100)], "ABD", (54, 43, 3)),
    ],
)
def test_balanced_weighs_what_is_unsettled_against_the_cost_of_the_way(
    ways: list[tuple[str, str, int]], at: str, shares: tuple[int, ...]
) -> None:
    """routing 71: as 1.20 shares a hundred messages, to one more or less. The router itself keeps the first eleven."""
    fleet = joined(*ways)
    receivers = [fleet[name].client().receiver("a", credit=MANY) for name in at]
    fleet.tick(3)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    counts = []
    for _ in range(100):
        sender.send()
        fleet.pump()
        counts.append([len(each.complete) for each in receivers])
    assert all(abs(got - share) <= 1 for got, share in zip(counts[-1], shares, strict=True)), counts[-1]
    if "B" in at:
        assert counts[10][1] == 0


def test_balanced_gives_ties_to_a_receiver_here() -> None:
    """routing 72: as long as it has no more to do than the other and the way cost."""
    fleet = joined(("A", "B", 3))
    there = fleet["B"].client().receiver("a", credit=MANY)
    here = fleet["A"].client().receiver("a", credit=MANY)
    fleet.tick(3)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    for _ in range(4):
        sender.send()
        fleet.pump()
    assert (len(here.complete), len(there.complete)) == (4, 0)
    sender.send()
    fleet.pump()
    assert (len(here.complete), len(there.complete)) == (4, 1)
    sender.send()
    fleet.pump()
    assert (len(here.complete), len(there.complete)) == (5, 1)


def test_no_message_is_refused_because_much_is_on_its_way() -> None:
    """§7.1: beyond the capacity of all ways the least bad is used."""
    fleet = joined(("A", "B", 1))
    there = fleet["B"].client().receiver("a", credit=MANY)
    fleet.tick(3)
    senders = [fleet["A"].client().sender("a") for _ in range(2)]
    fleet.pump()
    for sender in senders:
        for _ in range(200):
            sender.send()
    fleet.pump()
    assert {outcome for sender in senders for outcome in sender.outcomes} == {None}
    assert len(there.complete) == 400
    there.accept_all()
    fleet.pump()
    assert {outcome for sender in senders for outcome in sender.outcomes} == {ACCEPTED}


def test_a_local_address_is_one_routers_alone() -> None:
    """routing 37: neither by itself nor by the other's own; by its topological name it is reached (routing 38)."""
    fleet = joined(("A", "B", 1))
    there = fleet["B"].client().receiver("_local/x", credit=MANY, accepts=True)
    fleet.tick(3)
    plain, anonymous = fleet["A"].client().sender("_local/x"), fleet["A"].client().sender(None)
    fleet.pump()
    assert plain.credit == 0
    anonymous.send(address="_local/x")
    anonymous.send(b"1", address="_topo/0/B/x")
    fleet.pump()
    assert (anonymous.outcomes, there.bodies) == ([RELEASED, ACCEPTED], [b"1"])


def test_a_client_gets_no_link_on_a_listener_for_routers() -> None:
    """routing 55: neither to send nor to receive, whatever the address."""
    client = Net(router_id="A").client(role="inter-router")
    refused = [client.sender("a"), client.receiver("a"), client.sender(None), client.receiver("$management")]
    client.net.pump()
    assert [end.refusal.name for end in refused] == ["qd:connection-role"] * 4


def test_the_priority_of_an_address_beats_that_of_the_message() -> None:
    """routing 105: on each router by its own configuration, and the message keeps its header."""
    fleet = Fleet("A", "B", "C")
    network = fleet["A"].core.network
    assert network is not None
    network._configured = lambda _name: Treatment(priority=7)
    for one, other in (("A", "B"), ("B", "C")):
        fleet.connect(one, other)
    fleet.settle()
    there = fleet["C"].client().receiver("a", credit=MANY, accepts=True)
    fleet.tick(3)
    sender = fleet["A"].client().sender("a")
    fleet.pump()
    for priority in (0, 9):
        sender.send(priority=priority)
    fleet.pump()

    def used(name: str) -> Counter[int | None]:
        links = fleet[name].core.links.values()
        return Counter({link.slot: link.delivery_count for link in links if isinstance(link, DataOutLink)})

    assert +used("A") == {7: 2}
    assert +used("B") == {0: 1, 9: 1}
    assert [item.message.priority for item in there.complete] == [0, 9]


# Phases


@pytest.mark.parametrize(
    ("at_broker", "at_sender", "at_receiver"),
    [
        *(("B", "A", "C"), ("A", "C", "C"), ("E1", "E2", "C"), ("C", "E1", "E2")),
        *(("E1", "E1", "E1"), ("E1", "C", "E2"), ("C", "E1", "E1")),
    ],
)
def test_a_queue_is_passed_whoever_is_where(at_broker: str, at_sender: str, at_receiver: str) -> None:
    """§14.1 over interior routers and edges: each message goes to the queue first, and once."""
    fleet = Fleet("A", "B", "C", edges=("E1", "E2"), phases={"q": (0, 1)})
    for one, other, terms in (("A", "B", {}), ("B", "C", {}), ("E1", "A", EDGE), ("E2", "A", EDGE)):
        fleet.connect(one, other, **terms)
    net = fleet[at_broker]
    auto_link(net, "q", "out")
    auto_link(net, "q", "in")
    container = broker(net)
    receiver = fleet[at_receiver].client().receiver("q", credit=10, accepts=True)
    sender = fleet[at_sender].client().sender("q")
    fleet.settle()
    queue, back = container.attached_by_router
    assert isinstance(queue, Receiver)
    assert isinstance(back, Sender)
    assert (sender.credit, back.credit) == (250, 250)
    for body in (b"m", bytes(300_000)):
        sender.send(body)
    fleet.pump()
    assert ([len(body) for body in queue.bodies], receiver.bodies) == ([1, 300_000], [])
    for body in queue.bodies:
        back.send(body)
    fleet.pump()
    assert ([len(body) for body in receiver.bodies], len(queue.bodies)) == ([1, 300_000], 2)
    assert (sender.outcomes, back.outcomes) == ([ACCEPTED] * 2, [ACCEPTED] * 2)
    fleet.no_errors()


def test_a_chain_of_queues_is_passed_over_edges_and_interiors() -> None:
    """§14.1: phases 0 to 2, one queue at an edge and one at an interior router."""
    fleet = Fleet("A", "B", edges=("E1", "E2"), phases={"q": (0, 2)})
    for one, other, terms in (("A", "B", {}), ("E1", "A", EDGE), ("E2", "B", EDGE)):
        fleet.connect(one, other, **terms)
    queues = []
    for name, phase in (("E2", 0), ("A", 1)):
        auto_link(fleet[name], "q", "out", phase=phase)
        auto_link(fleet[name], "q", "in", phase=phase + 1)
        queues.append(broker(fleet[name]))
    receiver = fleet["E1"].client().receiver("q", credit=10, accepts=True)
    sender = fleet["E1"].client().sender("q")
    fleet.settle()
    sender.send(b"m")
    fleet.pump()
    for container in queues:
        taking, giving = container.attached_by_router
        assert isinstance(taking, Receiver)
        assert isinstance(giving, Sender)
        assert (len(taking.bodies), receiver.bodies) == (1, [])
        giving.send(taking.bodies[0])
        fleet.pump()
    assert (receiver.bodies, sender.outcomes) == ([b"m"], [ACCEPTED])
    assert all(len(container.attached_by_router[0].bodies) == 1 for container in queues)  # type: ignore[union-attr]


@pytest.mark.parametrize("waypoint", ["B", "E1"])
def test_a_waypoint_client_of_another_router_is_passed(waypoint: str) -> None:
    """§5.1: it names itself one, at an interior router or an edge."""
    fleet = Fleet("A", "B", edges=("E1",), phases={"q": (0, 1)})
    fleet.connect("A", "B")
    fleet.connect("E1", "A", **EDGE)
    capability = {"capabilities": symbol("qd.waypoint")}
    client = fleet[waypoint].client("waypoint")
    taking = client.receiver("q", credit=10, accepts=True, source=capability)
    giving = client.sender("q", target=capability)
    receiver = fleet["B"].client().receiver("q", credit=10, accepts=True)
    sender = fleet["A"].client().sender("q")
    fleet.settle()
    sender.send(b"m")
    fleet.pump()
    assert (taking.bodies, receiver.bodies) == ([b"m"], [])
    giving.send(b"m")
    fleet.pump()
    assert (taking.bodies, receiver.bodies) == ([b"m"], [b"m"])
