"""Attack: a client makes a link route with the pattern `#`, to keep all other clients from every address.

These are addresses that have receivers, addresses that are denied to the client itself, and addresses that a broker
serves.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Client, Fleet, Net, Vhosts

from policy.addressing.patterns import configured_tokens
from router.connection import hosting
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of
from router.connection.own_routes import OwnRoutes

GROUP: dict[str, Any] = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
EVIL: dict[str, Any] = {**GROUP, "denySources": "secret.x", "denyTargets": "secret.x"}
RULES = Vhosts(
    {
        name: {"allowUnknownUser": True, "groups": {"$default": group}}
        for name, group in {"alice": GROUP, "evil": EVIL}.items()
    }
)
BOTH: tuple[Any, Any] = ("send", "receive")


def take(net: Net, client: Client, pattern: str) -> None:
    for direction in BOTH:
        routes = OwnRoutes(net.surroundings.link_routes)
        identity = str(net.core.next_identity())
        routes.add(Net.peer(client), identity=identity, name=None, pattern=pattern, direction=direction)


def house(pattern: str = "#") -> tuple[Net, Client, Client]:
    """A router, alice, and the client that takes the pattern."""
    net = Net(vhosts=RULES)
    alice, evil = net.client(hostname="alice"), net.client(hostname="evil")
    net.pump()
    take(net, evil, pattern)
    return net, alice, evil


@pytest.mark.parametrize("pattern", ["#", "secret.#", "secret.*"])
def test_what_is_denied_to_the_client_is_there_for_others(pattern: str) -> None:
    net, alice, evil = house(pattern)
    receiver = alice.receiver("secret.x", credit=10, accepts=True)
    sender = alice.sender("secret.x")
    net.pump()
    assert not receiver.is_detached
    assert not sender.is_detached
    sender.send(b"alice's own")
    net.pump()
    assert receiver.bodies == [b"alice's own"]
    assert not evil.attached_by_router
    net.no_errors()


def test_what_has_receivers_stays_theirs() -> None:
    net = Net(vhosts=RULES)
    alice, evil = net.client(hostname="alice"), net.client(hostname="evil")
    receiver = alice.receiver("orders", credit=10, accepts=True)
    net.pump()
    take(net, evil, "#")
    sender, second = alice.sender("orders"), alice.receiver("orders", credit=10, accepts=True)
    net.pump()
    for _ in range(2):
        sender.send(b"m")
        net.pump()
    assert sender.outcomes == [ACCEPTED] * 2
    assert len(receiver.bodies) + len(second.bodies) == 2
    assert not evil.attached_by_router


def test_a_pattern_that_may_not_serve_hides_no_configured_route() -> None:
    """Though it is the better match."""
    net, alice, evil = house("secret.*")
    tokens = configured_tokens("secret", None)
    place = Place(kind="container", text="broker")
    key = key_of(tokens, "secret", is_in=True)
    route = LinkRoute(pattern="/".join(tokens), direction="send", name="q", key=key, place=place)
    net.surroundings.link_routes.add(route)
    broker = net.client("broker", role="route-container", hostname="alice")
    net.pump()
    sender = alice.sender("secret.x")
    net.pump()
    assert not sender.is_detached
    assert (len(broker.attached_by_router), len(evil.attached_by_router)) == (1, 0)


def test_a_client_that_answers_nothing_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "MAX_UNANSWERED", 1)
    net, alice, evil = house()
    evil.stop_reading()
    alice.sender("orders")
    net.pump()
    receiver, sender = alice.receiver("more", credit=1, accepts=True), alice.sender("more")
    net.pump()
    sender.send(b"m")
    net.pump()
    assert receiver.bodies == [b"m"]


def test_many_patterns_take_little_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: connections with hundreds of patterns that match, each of which policy is asked about at each attach."""
    net, alice, _ = house()
    asked: list[str] = []
    before = hosting.Hosting.takes

    def takes(self: hosting.Hosting, name: str, direction: Any) -> bool:
        asked.append(name)
        return before(self, name, direction)

    monkeypatch.setattr(hosting.Hosting, "takes", takes)
    patterns = ["#", "secret.#", "*.#", "secret.*", "#.x", "*.x"]
    for _ in range(20):
        client = net.client(hostname="evil")
        net.pump()
        for pattern in patterns:
            take(net, client, pattern)
    sender = alice.sender("secret.x")
    net.pump()
    assert not sender.is_detached
    assert len(asked) <= 16


@pytest.mark.parametrize("place", ["neighbour", "edge"])
def test_nor_is_anybody_kept_out_on_other_routers(place: str) -> None:
    """The pattern is known there, and what may be served is not."""
    edges = ("E1",) if place == "edge" else ()
    fleet = Fleet("A", "B", edges=edges, vhosts=RULES)
    for net in fleet.nets.values():
        net.listener_terms["policy_vhost"] = "alice"
    fleet.connect("A", "B")
    if edges:
        fleet.connect("E1", "A", role="edge")
    fleet.settle()
    evil = fleet["E1" if edges else "A"].client(policy_vhost="evil")
    fleet.pump()
    take(fleet["E1" if edges else "A"], evil, "#")
    fleet.tick(3)
    alice = fleet["B"].client()
    receiver = alice.receiver("secret.x", credit=10, accepts=True)
    fleet.tick(3)
    sender = alice.sender("secret.x")
    fleet.tick(3)
    assert not receiver.is_detached
    assert not sender.is_detached
    sender.send(b"alice's own")
    fleet.pump()
    assert receiver.bodies == [b"alice's own"]
    assert not evil.attached_by_router
    fleet.no_errors()
