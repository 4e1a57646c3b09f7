"""Link routes of edge routers: an edge makes its containers known to its interior, and asks it about others' addresses.

Source: docs/spec/network.md §11, §14.6, §14.7.
"""

from itertools import pairwise
from typing import Any

import proton
import pytest
from managed import manage
from memory_net import ACCEPTED, MODIFIED, Client, Fleet, Net, Receiver, Sender, Vhosts, broker_at, ruleset_of

from policy.addressing.patterns import configured_tokens
from router.amqp.codec import decode_message, encode_message
from router.connection import routed_links
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of
from router.connection.own_routes import OwnRoutes
from router.core.views import address_row
from router.edge.messages import LINK_ROUTE_TYPE

EDGE: dict[str, Any] = {"role": "edge"}
BROKER = Place(kind="container", text="broker")


def link_routes(net: Net, prefix: str | None = "q", *, pattern: str | None = None, **terms: Any) -> list[LinkRoute]:
    tokens = configured_tokens(prefix if pattern is None else None, pattern)
    made = []
    for direction in ("send", "receive"):
        key = key_of(tokens, pattern or prefix or "", is_in=direction == "send")
        names = {"place": BROKER, "name": f"{key[1:]}-{direction}", **terms}
        made.append(LinkRoute(pattern="/".join(tokens), direction=direction, key=key, **names))
        net.surroundings.link_routes.add(made[-1])
    return made


def star(edges: dict[str, str], interiors: str = "A", **options: Any) -> Fleet:
    """Interior routers in a row; each edge has its uplink to the one that is named."""
    fleet = Fleet(*interiors, edges=tuple(edges), **options)
    for name in interiors:
        manage(fleet[name])
    for one, other in pairwise(interiors):
        fleet.connect(one, other)
    for edge, interior in edges.items():
        fleet.connect(edge, interior, **EDGE)
    fleet.settle()
    return fleet


def first(container: Client) -> Any:
    return container.attached_by_router[0]


# The containers of an edge


def test_a_route_of_an_edge_is_known_while_its_container_is_there() -> None:
    """network 95, 57: at the interior, by the edge's CREATE and DELETE; at others by MAU."""
    fleet = star({"E1": "A"}, "AB")
    link_routes(fleet["E1"])
    link_routes(fleet["E1"], pattern="*/x")
    assert not fleet["A"].surroundings.link_routes.find("q", "send")
    container = broker_at(fleet, "E1")
    served = {key: live for key, live in fleet["A"].core.table.addresses.items() if key[0] in "CDEF"}
    assert sorted(served) == ["Cq", "Dq", "E*/x", "F*/x"]
    assert [live.containers for live in served.values()] == [1] * 4
    assert address_row(fleet["B"].core.table.addresses["Cq"])["remoteHostRouters"] == ["A"]
    names = [own.name for own in Net.peer(fleet["A"].ends[-1]).hosting.own.values()]
    assert sorted(name or "" for name in names) == [f"E1/proxyLinkRoute/{key}" for key in sorted(served)]
    assert "Link Route Activated 'E1/proxyLinkRoute/Cq' on container E1" in fleet["A"].log_texts()
    container.kill()
    fleet.tick(2)
    for name in "AB":
        assert not [key for key in fleet[name].core.table.addresses if key[0] in "CDEF"]
    fleet.no_errors()


def test_they_go_with_the_uplink_and_come_back_with_the_next() -> None:
    """network 95"""
    fleet = Fleet("A", "B", edges=("E1",))
    for name in "AB":
        manage(fleet[name])
    active, _ = fleet.connect("E1", "A", **EDGE)
    fleet.connect("E1", "B", **EDGE)
    link_routes(fleet["E1"])
    container = broker_at(fleet, "E1")
    assert fleet["A"].surroundings.link_routes.find("q", "send")
    sender = fleet["A"].client().sender("q")
    fleet.pump()
    assert sender.credit == 100
    active.kill()
    fleet.tick(2)
    assert sender.refusal.name == "qd:routed-link-lost"
    assert not fleet["A"].surroundings.link_routes.find("q", "send")
    assert fleet["B"].surroundings.link_routes.find("q", "send")
    again = fleet["B"].client().sender("q")
    fleet.pump()
    assert again.credit == 100
    assert len(container.attached_by_router) == 2
    fleet.no_errors()


def test_a_link_route_that_a_client_of_an_edge_made_is_known_as_well() -> None:
    """routing §16"""
    fleet = star({"E1": "A"})
    container = fleet["E1"].client("server")
    fleet.pump()
    routes = OwnRoutes(fleet["E1"].surroundings.link_routes)
    routes.add(Net.peer(container), identity="1", name=None, pattern="q/#", direction="send")
    fleet.tick()
    sender = fleet["A"].client("c").sender("q.x", name="s")
    fleet.pump()
    sender.send(b"m")
    fleet.pump()
    assert sender.outcomes == [ACCEPTED]
    assert first(container).link.name == "s%40c@A"
    fleet.no_errors()


# The names of the way


@pytest.mark.parametrize("interiors", ["A", "AB"])
def test_a_link_goes_over_two_edges(interiors: str) -> None:
    """network 96: one link for each hop and direction; an interior makes the name unique, and the edge does not."""
    fleet = star({"E1": interiors[0], "E2": interiors[-1]}, interiors)
    link_routes(fleet["E2"])
    container = broker_at(fleet, "E2")
    client = fleet["E1"].client("c2")
    sender, receiver = client.sender("q", name="lrs2"), client.receiver("q.x", name="lrr2", credit=2)
    fleet.pump()
    taking, giving = container.attached_by_router
    assert isinstance(taking, Receiver)
    assert isinstance(giving, Sender)
    last = interiors[-1]
    assert (taking.link.name, giving.link.name) == (f"lrs2%40E1@{last}", f"lrr2%40E1@{last}")
    assert giving.link.remote_source.address == "q.x"
    names = {
        name: sorted(link.name for link in fleet[name].core.links.values() if link.name.startswith("lrs2"))
        for name in ("E1", *interiors, "E2")
    }
    assert names["E1"] == ["lrs2", "lrs2"]
    if interiors == "A":
        assert names["A"] == ["lrs2", "lrs2@E1"]
    else:
        assert names["A"] == ["lrs2", "lrs2@E1"]
        assert names["B"] == ["lrs2@E1", "lrs2@E1"]
    assert names["E2"] == sorted(("lrs2@E1", f"lrs2%40E1@{last}"))
    sender.send(b"up")
    giving.send(b"down")
    fleet.pump()
    assert (taking.bodies, receiver.bodies, sender.outcomes) == ([b"up"], [b"down"], [ACCEPTED])
    sender.close()
    fleet.pump()
    assert taking.is_detached
    assert taking.was_closed
    fleet.no_errors()


def test_two_clients_of_an_edge_may_call_their_links_the_same() -> None:
    """Decided in §11: 1.20 keeps the name of the second, which its interior takes for the first."""
    fleet = star({"E1": "A"})
    link_routes(fleet["A"])
    container = broker_at(fleet, "A")
    ends = [fleet["E1"].client(name).sender("q", name="same") for name in ("c1", "c2")]
    fleet.pump()
    assert [end.credit for end in ends] == [100, 100]
    assert [end.link.name for end in container.attached_by_router] == ["same@E1", "same%40c2@E1"]
    fleet.no_errors()


# Asking the interior


def test_a_client_of_an_edge_reaches_a_container_of_the_interior() -> None:
    """network 92"""
    fleet = star({"E1": "A"}, "AB")
    link_routes(fleet["B"])
    link_routes(fleet["B"], "$coordinator")
    container = broker_at(fleet, "B")
    client = fleet["E1"].client("c")
    sender, receiver = client.sender("q"), client.receiver("q.x", credit=3)
    coordinator = client.sender(None, target={"type": proton.Terminus.COORDINATOR})
    fleet.pump()
    assert sender.credit == 100
    assert coordinator.is_attached
    assert not coordinator.is_detached
    giving = container.attached_by_router[1]
    assert isinstance(giving, Sender)
    giving.send(b"down")
    fleet.pump()
    assert receiver.bodies == [b"down"]
    container.kill()
    fleet.pump()
    assert sender.refusal.name == receiver.refusal.name == "qd:routed-link-lost"
    fleet.no_errors()


def test_a_link_route_that_nobody_serves_is_refused_at_the_edge() -> None:
    """§14.6: a link route without destinations"""
    fleet = star({"E1": "A"})
    link_routes(fleet["A"])
    client = fleet["E1"].client()
    ends = [client.sender("q"), client.receiver("q")]
    fleet.pump()
    assert [end.refusal.name for end in ends] == ["qd:no-route-to-dest"] * 2


@pytest.mark.parametrize("makes", ["sender", "receiver"])
def test_a_link_route_that_goes_while_an_attach_is_under_way_is_none(
    makes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interior took the attach for one to an address of its own: the client had a link on which nothing came."""
    fleet = star({"E1": "A"})
    link_routes(fleet["A"])
    broker_at(fleet, "A")
    fleet.pump()
    monkeypatch.setattr(fleet["A"].surroundings.link_routes, "next_hop", lambda *_: None)
    end = getattr(fleet["E1"].client(), makes)("q.x")
    fleet.pump()
    assert end.refusal.name == "qd:no-route-to-dest"
    assert "M0q.x" not in fleet["A"].core.table.addresses
    fleet.no_errors()


def test_an_address_that_is_no_link_route_is_the_edges_own_matter() -> None:
    """network 92: and a receiver's credit and drain are heard, though they came before the answer"""
    fleet = star({"E1": "A", "E2": "A"})
    receiver = fleet["E2"].client().receiver("plain", credit=10, accepts=True)
    drained = fleet["E1"].client().receiver("other", credit=7)
    drained.link.drain(0)
    fleet.tick(2)
    sender = fleet["E1"].client().sender("plain")
    fleet.pump()
    sender.send(b"m")
    fleet.pump()
    assert (receiver.bodies, sender.outcomes) == ([b"m"], [ACCEPTED])
    assert drained.link.credit == 0
    fleet.no_errors()


def test_an_own_container_is_taken_without_asking() -> None:
    fleet = star({"E1": "A"})
    link_routes(fleet["E1"])
    link_routes(fleet["A"])
    there, here = broker_at(fleet, "A"), broker_at(fleet, "E1")
    fleet["E1"].client().sender("q")
    fleet.pump()
    assert (len(here.attached_by_router), len(there.attached_by_router)) == (1, 0)
    here.kill()
    fleet.pump()
    late = fleet["E1"].client().sender("q")
    fleet.pump()
    assert late.credit == 100
    assert len(there.attached_by_router) == 1
    fleet.no_errors()


def test_an_interior_that_does_not_answer_leaves_the_edge_to_itself_after_three_seconds() -> None:
    """§14.6; and a client that leaves meanwhile leaves nothing."""
    fleet = Fleet("A", edges=("E1",))
    made, taken = fleet.connect("E1", "A", **EDGE)
    fleet.tick()
    taken.is_stuck = True  # it reads no request
    client = fleet["E1"].client()
    sender, receiver, gone = client.sender("a"), client.receiver("a", credit=3), client.sender("b")
    fleet.pump()
    gone.close()
    fleet.pump()
    assert gone.is_detached
    assert gone.condition is None  # issue 34, peer 14
    assert not sender.is_attached
    fleet.tick(4)
    assert sender.is_attached
    assert not sender.is_detached
    sender.send(b"m")
    fleet.pump()
    assert receiver.bodies == [b"m"]
    waiting = client.sender("c")
    fleet.pump()
    made.kill()
    fleet.pump()
    assert waiting.is_attached
    client.sender("d")
    client.kill()
    fleet.pump()
    fleet["E1"].no_errors()
    assert not fleet["E1"].core.links


def test_a_client_asks_for_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: one client's attaches, and nobody else's would be asked about while the interior answers slowly."""
    monkeypatch.setattr(routed_links, "MAX_ASKED", 2)
    fleet = Fleet("A", edges=("E1",))
    link_routes(fleet["A"])
    fleet.connect("E1", "A", **EDGE)
    broker_at(fleet, "A")
    end = fleet["A"].ends[0]
    end.is_stuck = True
    greedy, other = fleet["E1"].client(), fleet["E1"].client()
    ends = [greedy.sender("q") for _ in range(3)]
    late = other.sender("q")
    fleet.pump()
    assert [each.is_detached for each in ends] == [False, False, True]
    assert ends[2].refusal.name == "amqp:resource-limit-exceeded"
    end.is_stuck = False
    fleet.pump()
    assert late.credit == 100
    fleet.no_errors()


def test_an_attach_that_the_interior_is_asked_about_is_decided_again_when_the_rules_change() -> None:
    """Attack: one that waits while the rules change, and is bound by the old ones."""
    group = {"remoteHosts": "*", "sources": "*", "targets": "*"}
    rules = {name: {"allowUnknownUser": True, "groups": {"$default": group}} for name in ("v",)}
    fleet = Fleet("A", edges=("E1",))
    fleet.nets["E1"] = Net(router_id="E1", is_edge=True, vhosts=Vhosts(rules))
    _, taken = fleet.connect("E1", "A", **EDGE)
    fleet.tick()
    client = fleet["E1"].client(hostname="v")
    fleet.pump()
    taken.is_stuck = True
    sender = client.sender("a")
    fleet.pump()
    gate = fleet["E1"].gate
    gate.ruleset = ruleset_of(Vhosts({"v": {**rules["v"], "groups": {"$default": {**group, "targets": "b"}}}}))
    gate.begin_epoch("policy_change", lambda _connection: True, 1.85e9)
    for _ in client.router.redecide():
        pass
    fleet["E1"].work.finish()
    taken.is_stuck = False
    fleet.pump()
    assert sender.refusal.name == "amqp:unauthorized-access"
    assert "M0a" not in fleet["E1"].core.table.addresses
    fleet.no_errors()


# Rules


def test_policy_of_the_interior_judges_what_an_edge_passes_on() -> None:
    group = {"remoteHosts": "*", "sources": "q", "targets": "$management, _$qd.*", "allowDynamicSource": True}
    group |= {"allowAnonymousSender": True}
    vhosts = Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}})
    fleet = Fleet("A", edges=("E1",))
    fleet.nets["A"] = Net(router_id="A", vhosts=vhosts)
    manage(fleet["A"])
    fleet.connect("E1", "A", **EDGE)
    link_routes(fleet["A"])
    link_routes(fleet["E1"], "theirs")
    container = broker_at(fleet, "A")
    broker_at(fleet, "E1")
    sender, receiver = fleet["E1"].client().sender("q"), fleet["E1"].client().receiver("q")
    fleet.pump()
    assert sender.refusal.name == "amqp:unauthorized-access"
    assert not receiver.is_detached
    assert len(container.attached_by_router) == 1
    # And the edge's own containers serve what the edge may receive from.
    assert not fleet["A"].surroundings.link_routes.find("theirs", "send")
    told = [text for text in fleet["E1"].log_texts() if "Ctheirs" in text]
    assert told == ["Link route 'Ctheirs' was not created on the interior router: status 403"]


def test_what_an_edge_passes_on_for_a_client_makes_no_link_route() -> None:
    """Attack: a client of an edge has the interior send others' links to that edge."""
    fleet = star({"E1": "A"})
    attacker = fleet["E1"].client()
    replies = attacker.receiver(None, credit=10, accepts=True, source={"dynamic": True})
    fleet.pump()
    reply_to = replies.link.remote_source.address
    properties = {"operation": "CREATE", "type": LINK_ROUTE_TYPE, "name": "x"}
    body = {"pattern": "#", "direction": "in"}
    terms: dict[str, Any] = {"reply_to": reply_to, "application_properties": properties, "body": body}
    for target in ("_topo/0/A/$management", None):
        sender = attacker.sender(target)
        fleet.pump()
        sender.send_bytes(encode_message(to="_topo/0/A/$management", **terms))
        fleet.pump()
    assert [decode_message(bytes(each.payload)).application_properties["statusCode"] for each in replies.complete] == [
        403, 403,
    ]  # fmt: skip
    assert not fleet["A"].surroundings.link_routes.find("anything", "send")


def test_nothing_is_left_when_everybody_has_gone() -> None:
    fleet = star({"E1": "A", "E2": "B"}, "AB")
    link_routes(fleet["E2"])
    container = broker_at(fleet, "E2")
    client = fleet["E1"].client()
    senders = [client.sender("q") for _ in range(3)]
    fleet.pump()
    first(container).accepts = False
    senders[0].send(b"m")
    fleet.pump()
    container.kill()
    fleet.pump()
    assert senders[0].outcomes == [MODIFIED]
    for net in fleet.nets.values():
        assert not [link for link in net.core.links.values() if link.name.startswith("s")]
    fleet.no_errors()
