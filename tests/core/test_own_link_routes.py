"""Link routes that a peer makes for its own connection: it is the container, for as long as it is there.

Source: docs/spec/routing.md §16.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Client, Fleet, Net, Receiver, Sender

from router.connection import peer_redecision
from router.connection.hosting import OwnRoute
from router.connection.own_routes import MAX_ROUTES, CannotServe, OwnRoutes
from router.connection.peer import Peer
from router.connection.route_patterns import matching


def own(net: Net, client: Client | Peer, pattern: str, direction: Any = "send", *, name: str | None = None) -> OwnRoute:
    routes = OwnRoutes(net.surroundings.link_routes)
    identity, peer = str(net.core.next_identity()), client if isinstance(client, Peer) else Net.peer(client)
    return routes.add(peer, identity=identity, name=name, pattern=pattern, direction=direction)


def server(net: Net, name: str = "server", **terms: Any) -> Client:
    client = net.client(name, **terms)
    net.pump()
    return client


@pytest.mark.parametrize("role", ["normal", "route-container", "edge"])
def test_links_go_on_to_the_connection_that_asked_for_them(role: str) -> None:
    """routing 119: of any role"""
    net = Net()
    container = server(net, role=role)
    own(net, container, "q/#"), own(net, container, "q/#", "receive")
    client = net.client("c")
    sender, receiver = client.sender("q.x", name="s"), client.receiver("q", credit=3)
    net.pump()
    taking, giving = container.attached_by_router
    assert isinstance(taking, Receiver)
    assert isinstance(giving, Sender)
    assert taking.link.name == "s@c"
    assert giving.credit == 3
    sender.send(b"up")
    giving.send(b"down")
    net.pump()
    assert (taking.bodies, receiver.bodies, sender.outcomes) == ([b"up"], [b"down"], [ACCEPTED])
    assert net.core.table.addresses["Cq"].containers == 1
    net.no_errors()


def test_they_end_with_their_connection() -> None:
    """routing 119"""
    net = Net()
    container = server(net)
    own(net, container, "q/#")
    sender = net.client().sender("q")
    net.pump()
    container.kill()
    net.pump()
    assert sender.refusal.name == "qd:routed-link-lost"
    assert "Cq" not in net.core.table.addresses
    plain = net.client().sender("q")
    net.pump()
    assert not plain.is_detached
    assert "Link Route Deactivated" in " ".join(net.log_texts())
    net.nothing_left()


@pytest.mark.parametrize("what", ["deletes one", "is gone"])
def test_a_peer_that_acts_while_it_is_decided_again_breaks_nothing(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Attack: one that takes back a link route, or leaves, between two steps of a change of the policy."""
    net = Net()
    container = server(net)
    made = [own(net, container, f"q{number}") for number in range(3)]
    peer = net.peer(container)
    monkeypatch.setattr(peer_redecision, "may_route", lambda *_question: False)
    steps = peer_redecision.redecide_hosting(peer.links, peer.hosting, net.surroundings.link_routes)
    next(steps)
    if what == "is gone":
        container.kill()
    else:
        OwnRoutes(net.surroundings.link_routes).remove(peer, made[1].identity)
    for _ in steps:
        pass
    assert not net.surroundings.link_routes.own(peer.hosting)
    assert not net.core.table.addresses
    net.nothing_left()


def test_a_peer_that_is_gone_makes_none() -> None:
    """Attack: its request has come, and it leaves: a link route that nobody takes back."""
    net = Net()
    container = server(net)
    peer = Net.peer(container)
    container.kill()
    with pytest.raises(CannotServe, match="the connection is gone"):
        own(net, peer, "q/#")
    assert not net.core.table.addresses
    net.nothing_left()


def test_a_deleted_one_takes_no_more_links_and_keeps_those_it_has() -> None:
    net = Net()
    container = server(net)
    route = own(net, container, "q/#")
    sender = net.client().sender("q")
    net.pump()
    OwnRoutes(net.surroundings.link_routes).remove(Net.peer(container), route.identity)
    sender.send(b"m")
    late = net.client().sender("q")
    net.pump()
    assert len(container.attached_by_router) == 1
    assert sender.outcomes == [ACCEPTED]
    assert late.credit == 0


def test_other_routers_know_them() -> None:
    """§16: links from anywhere in the network reach the client"""
    fleet = Fleet("A", "B", "C")
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.settle()
    container = server(fleet["C"])
    own(fleet["C"], container, "q/#")
    fleet.tick(2)
    sender = fleet["A"].client("c").sender("q", name="s")
    fleet.pump()
    sender.send(b"m")
    fleet.pump()
    assert sender.outcomes == [ACCEPTED]
    assert container.attached_by_router[0].link.name == "s@c"
    container.kill()
    fleet.tick(2)
    assert sender.refusal.name == "qd:routed-link-lost"
    assert "Cq" not in fleet["A"].core.table.addresses
    fleet.no_errors()


def test_a_pattern_and_a_name_occur_once_on_a_connection() -> None:
    """§16: names are of the connection, and so are patterns"""
    net = Net()
    one, other = server(net, "one"), server(net, "other")
    own(net, one, "q.#", name="n")
    for pattern, name in (("q/#", None), ("p", "n")):
        with pytest.raises(CannotServe, match="creation failed"):
            own(net, one, pattern, name=name)
    own(net, one, "q/#", "receive")
    own(net, other, "q/#", name="n")
    client = net.client()
    for _ in range(4):
        client.sender("q")
        net.pump()
    assert len(one.attached_by_router) == len(other.attached_by_router) == 2


def test_those_of_a_connection_are_bounded() -> None:
    net = Net()
    container = server(net)
    for number in range(MAX_ROUTES):
        own(net, container, f"q{number}")
    with pytest.raises(CannotServe, match="at most 256 link routes"):
        own(net, container, "one-more")
    own(net, server(net, "other"), "one-more")
    third = server(net, "third")
    long = ".b" * 200
    for number in range(10):
        own(net, third, f"a{number}{long}")
    with pytest.raises(CannotServe, match="2048 words"):
        own(net, third, f"last{long}")
    with pytest.raises(CannotServe, match="512 characters"):
        own(net, third, "a" * 513)


def test_the_matching_texts_of_a_pattern() -> None:
    assert set(matching("a.b")) == {"a.b", "a/b"}
    one = [text for text in matching("a/*") if "/" in text]
    assert len(one) == 1
    texts = set(matching("a/#"))
    assert "a" in texts
    assert max(text.count("/") for text in texts) == 16
    assert {text.split("/")[0] for text in matching("#") if "/" in text} == {next(iter(matching("*")))}
