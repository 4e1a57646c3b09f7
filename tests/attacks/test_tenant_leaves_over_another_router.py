"""Attack: a tenant's message on a link without a target names an address that means another one on the next router.

The message goes to another router or up from an edge. That router read its text again, outside of the tenant's space:
`victim/orders` was the victim's address, `$management` the management of the other router.

Also, a message that names a phase got past the container before that phase, such as a scanner or a queue. This worked
on every router except the one that the message was sent to. Sources: docs/spec/routing.md §3.4, §11.3, §14.1.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, RELEASED, Fleet, Receiver, Sender, Vhosts, encoded
from proton import symbol

from router.amqp.codec import decode_message, encode
from router.values import symbol as sym

EDGE: dict[str, Any] = {"role": "edge"}
PLACES = [(at, far) for at in ("A", "E1") for far in ("A", "B", "E2")]
LARGE = bytes(200_000)


def network(**options: Any) -> Fleet:
    """Two interior routers with an edge each."""
    fleet = Fleet("A", "B", edges=("E1", "E2"), **options)
    fleet.connect("A", "B")
    fleet.connect("E1", "A", **EDGE)
    fleet.connect("E2", "B", **EDGE)
    return fleet


def tenant(fleet: Fleet, router: str, name: str, **terms: Any) -> Any:
    return fleet[router].client(hostname=name, is_multi_tenant=True, **terms)


def claiming(claims: dict[str, Any], to: str) -> bytes:
    """A message with routers' annotations of its sender's choice."""
    plain = encoded(b"m", address=to)
    cut = plain.index(b"\x00\x53\x73")
    named = {sym(f"x-opt-qd.{key}"): value for key, value in claims.items()}
    return plain[:cut] + b"\x00\x53\x72" + encode(named) + plain[cut:]


@pytest.mark.parametrize(("at", "far"), PLACES)
@pytest.mark.parametrize("strip", ["no", "both"])
@pytest.mark.parametrize("claims", [{}, {"to": "victim/orders"}, {"ingress": "0/X", "phase": 3}])
def test_no_message_reaches_another_tenant(claims: dict[str, Any], strip: str, at: str, far: str) -> None:
    fleet = network()
    mine = tenant(fleet, far, "mallory").receiver("victim/orders", credit=10, accepts=True)
    others = [
        tenant(fleet, far, "victim").receiver("orders", credit=10, accepts=True),
        fleet[far].client().receiver("victim/orders", credit=10, accepts=True),
    ]
    sender = tenant(fleet, at, "mallory", strip=strip).sender(None)
    fleet.settle()
    sender.send_bytes(claiming(claims, "victim/orders"))
    sender.send(LARGE, address="victim/orders")
    fleet.pump()
    assert [each.bodies for each in others] == [[], []]
    assert (len(mine.bodies), sender.outcomes) == (2, [ACCEPTED] * 2)
    fleet.no_errors()


@pytest.mark.parametrize(("at", "far"), PLACES)
def test_no_message_reaches_the_management_of_another_router(at: str, far: str) -> None:
    fleet = network()
    got: list[bytes] = []
    for net in fleet.nets.values():
        net.core.subscribe("$management", lambda payload, _link: got.append(payload))
    mine = tenant(fleet, far, "mallory").receiver("$management", credit=10, accepts=True)
    sender = tenant(fleet, at, "mallory").sender(None)
    fleet.settle()
    sender.send(b"m", address="$management")
    fleet.pump()
    assert (got, mine.bodies, sender.outcomes) == ([], [b"m"], [ACCEPTED])


def test_the_next_router_is_told_of_the_tenants_address() -> None:
    fleet = network()
    receiver = tenant(fleet, "B", "red", strip="no").receiver("orders", credit=10, accepts=True)
    sender = tenant(fleet, "A", "red").sender(None)
    fleet.settle()
    sender.send(b"m", address="orders")
    fleet.pump()
    found = decode_message(bytes(receiver.complete[0].payload))
    assert found.message_annotations["x-opt-qd.to"] == "red/orders"
    assert found.to == "orders"


# Phases


def scanner(fleet: Fleet, router: str) -> tuple[Receiver, Receiver]:
    """What takes the messages of `q` first, and who gets those that it has given back."""
    way = {"capabilities": symbol("qd.waypoint")}
    client = fleet[router].client("scanner")
    taking = client.receiver("q", credit=10, accepts=True, source=way)
    client.sender("q", target=way)
    return taking, fleet[router].client().receiver("q", credit=10, accepts=True)


def sent_past(sender: Sender, fleet: Fleet) -> None:
    fleet.settle()
    for claims in ({"phase": 1}, {"phase": 1, "to": "q"}):
        sender.send_bytes(claiming(claims, "q"))
    fleet.pump()


@pytest.mark.parametrize(("at", "far"), PLACES)
@pytest.mark.parametrize("target", ["q", None])
def test_no_client_gets_past_a_container_elsewhere(target: str | None, at: str, far: str) -> None:
    fleet = network(phases={"q": (0, 1)}, strip="no")
    taking, receiver = scanner(fleet, far)
    sender = fleet[at].client().sender(target)
    sent_past(sender, fleet)
    assert (len(taking.bodies), receiver.bodies, sender.outcomes) == (2, [], [ACCEPTED] * 2)


@pytest.mark.parametrize("far", ["A", "B", "E2"])
@pytest.mark.parametrize("target", ["q", None])
def test_no_edge_does_without_the_right_to(target: str | None, far: str) -> None:
    """allowWaypointLinks of the edge's group; its links have a phase of their own where it has the right."""
    rights = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
    group = {"allowUnknownUser": True, "groups": {"$default": {**rights, "allowWaypointLinks": True}}}
    edges = {"allowUnknownUser": True, "groups": {"$default": {**rights, "allowWaypointLinks": False}}}
    fleet = network(phases={"q": (0, 1)}, vhosts=Vhosts({"$default": group, "edges": edges}), policy_vhost="$default")
    taking, receiver = scanner(fleet, far)
    sender = fleet["A"].client("E3", role="edge", strip="no", policy_vhost="edges").sender(target, name="qdlink.1")
    sent_past(sender, fleet)
    assert (len(taking.bodies), receiver.bodies, sender.outcomes) == (2, [], [ACCEPTED] * 2)


@pytest.mark.parametrize(("at", "far"), PLACES)
@pytest.mark.parametrize("claims", [{}, {"phase": 2}, {"phase": 0, "to": "q"}])
def test_a_message_keeps_the_phase_of_senders_on_its_way(claims: dict[str, Any], at: str, far: str) -> None:
    """ingressPhase: on the next router it went to whoever receives in phase 0."""
    fleet = network(phases={"q": (2, 2)}, strip="no")
    client = fleet[far].client()
    receiver = client.receiver("q", credit=10, accepts=True)
    of_phase_0 = client.receiver("q", credit=10, accepts=True, source={"capabilities": symbol("qd.waypoint")})
    sender = fleet[at].client().sender(None)
    fleet.settle()
    sender.send_bytes(claiming(claims, "q"))
    sender.send(LARGE, address="q")
    fleet.pump()
    assert (len(receiver.bodies), of_phase_0.bodies, sender.outcomes) == (2, [], [ACCEPTED] * 2)


def test_a_phase_for_which_nobody_is_there_is_nobodys() -> None:
    fleet = network(phases={"q": (2, 2)})
    fleet["B"].client().receiver("q", credit=10, accepts=True, source={"capabilities": symbol("qd.waypoint")})
    sender = fleet["A"].client().sender(None)
    fleet.settle()
    sender.send(b"m", address="q")
    fleet.pump()
    assert sender.outcomes == [RELEASED]
