"""Vhost policy and other routers: neighbours are never judged, edges are by their interior alone.

Source: docs/spec/policy-and-auth.md §3.10, §3.14.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, End, Fleet, Net, Vhosts, encoded, frames

from policy.addressing.patterns import configured_tokens
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute
from router.core.remotes import DataOutLink

LIMIT = 1000
EVERYTHING: dict[str, Any] = {
    "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True,
}  # fmt: skip
NOTHING: dict[str, Any] = {
    "remoteHosts": "*", "sources": "", "targets": "", "allowAnonymousSender": False, "allowDynamicSource": False,
    "maxSessions": 1, "maxSenders": 1, "maxReceivers": 1, "maxMessageSize": 1,
}  # fmt: skip


def vhosts(others: dict[str, Any]) -> Vhosts:
    """Clients that a test makes have the vhost `open`, in which they may do all; any other peer would have $default."""
    groups = {"open": EVERYTHING, "$default": others}
    return Vhosts(
        {name: {"allowUnknownUser": True, "groups": {"$default": group}} for name, group in groups.items()},
        policy={"enableVhostPolicy": True, "defaultVhost": "$default"},
    )


def spoken(end: Any) -> list[Any]:
    written = bytes(end.recorded)
    return list(frames(written[written.index(b"AMQP\x00") :]))


def outgoing(net: Net) -> list[DataOutLink]:
    return [link for link in net.core.links.values() if isinstance(link, DataOutLink)]


def denials(fleet: Fleet) -> list[tuple[str, str]]:
    """The router and the reason of each."""
    return [
        (name, event["reason"])
        for name, net in fleet.nets.items()
        for event in net.audits
        if event["decision"] == "deny"
    ]


def test_no_link_between_routers_is_denied() -> None:
    """policy 36: not the standing ones, nor those that streams and routed links take, whatever a vhost says."""
    fleet = Fleet("A", "B", vhosts=vhosts(NOTHING))
    fleet.connect("A", "B")
    for net in fleet.nets.values():
        place = Place(kind="container", text="broker") if net is fleet["B"] else None
        route = LinkRoute(
            name="q", pattern="/".join(configured_tokens("q", None)), key="Cq", direction="send", place=place
        )
        net.surroundings.link_routes.add(route)
    broker = fleet["B"].client("broker", role="route-container", policy_vhost="open")
    receiver = fleet["B"].client(policy_vhost="open").receiver("orders", credit=10, accepts=True)
    fleet.settle()
    client = fleet["A"].client(policy_vhost="open")
    sender, routed = client.sender("orders"), client.sender("q.1")
    fleet.pump()
    whole, streamed = sender.send(b"x" * 10_000), sender.start()
    message = encoded(b"x" * 400_000)
    sender.append(message[:300_000])
    fleet.pump()
    assert [link.slot for link in outgoing(fleet["A"])].count(None) == 1
    sender.append(message[300_000:])
    sender.finish()
    fleet.pump()
    assert [whole.outcome, streamed.outcome] == [ACCEPTED, ACCEPTED]
    assert [len(body) for body in receiver.bodies] == [10_000, 400_000]
    assert routed.is_attached
    assert len(broker.attached_by_router) == 1
    for net in fleet.nets.values():
        assert sorted(link.slot for link in outgoing(net) if link.slot is not None) == list(range(10))
    assert denials(fleet) == []
    assert not [text for net in fleet.nets.values() for text in net.log_texts("POLICY") if "DENY" in text]
    fleet.no_errors()


def test_what_no_neighbour_is_refused_any_other_peer_is() -> None:
    """policy 36: by the same vhost, which is that of a client without a name for one."""
    fleet = Fleet("A", "B", vhosts=vhosts(NOTHING))
    fleet.connect("A", "B")
    sender = fleet["B"].client().sender("orders")
    fleet.pump()
    assert sender.refusal.name == "amqp:unauthorized-access"
    assert denials(fleet) == [("B", "target_not_allowed")]


def star(group: dict[str, Any]) -> tuple[Fleet, End, End]:
    """An edge and the interior router of its uplink, and the two ends of that; other peers are in the vhost `open`."""
    fleet = Fleet("INT", edges=("E1",), vhosts=vhosts(group))
    made, taken = fleet.connect("E1", "INT", role="edge")
    fleet.tick()
    return fleet, made, taken


def test_a_message_over_the_interiors_limit_costs_the_edge_its_uplink_and_its_client_one_rejection() -> None:
    """policy 41: what else was on its way is released or modified, and the next uplink serves the same links."""
    fleet, made, taken = star({**EVERYTHING, "maxMessageSize": LIMIT})
    receiver = fleet["INT"].client(policy_vhost="open").receiver("orders", credit=10)
    client = fleet["E1"].client(policy_vhost="open")
    sender = client.sender("orders")
    fleet.pump()
    before = sender.send(b"unsettled")
    fleet.pump()
    large = sender.send(b"x" * LIMIT)
    fleet.pump()
    assert [sent.outcome for sent in (before, large)] == [MODIFIED, REJECTED]
    condition = large.updates[-1].condition
    assert condition is not None
    assert (condition.name, condition.description) == ("amqp:link:message-size-exceeded", "Message size exceeded")
    (close,) = [frame for frame in spoken(taken) if frame.name == "close"]
    assert close[0].value[:2] == ["amqp:connection:forced", "Message size exceeded"]
    assert made.is_dead
    assert not client.is_closed_by_router
    assert sender.is_attached
    assert receiver.bodies == [b"unsettled"]
    assert denials(fleet) == [("INT", "message_too_large")]
    fleet.connect("E1", "INT", role="edge")
    fleet.tick(2)
    after = sender.send(b"small")
    fleet.pump()
    receiver.accept_all()
    fleet.pump()
    assert after.outcome == ACCEPTED
    fleet.no_errors()


def test_where_the_edge_limits_its_client_as_well_the_client_is_closed_and_the_uplink_stays() -> None:
    """policy 41: the edge comes first."""
    fleet, made, _ = star({**EVERYTHING, "maxMessageSize": LIMIT})
    fleet["INT"].client(policy_vhost="open").receiver("orders", credit=10)
    client = fleet["E1"].client()  # in the vhost that the uplink has at the interior
    sender = client.sender("orders")
    fleet.pump()
    sender.send(b"x" * LIMIT)
    fleet.pump()
    assert client.is_closed_by_router
    assert not made.is_dead
    assert denials(fleet) == [("E1", "message_too_large")]


def test_an_edge_does_not_measure_what_its_interior_sends() -> None:
    """policy 41"""
    fleet, made, _ = star({**EVERYTHING, "maxMessageSize": LIMIT})
    receiver = fleet["E1"].client(policy_vhost="open").receiver("orders", credit=10, accepts=True)
    sender = fleet["INT"].client(policy_vhost="open").sender("orders")
    fleet.pump()
    large = sender.send(b"x" * 2 * LIMIT)
    fleet.pump()
    assert large.outcome == ACCEPTED
    assert [len(body) for body in receiver.bodies] == [2 * LIMIT]
    assert not made.is_dead
    assert denials(fleet) == []


@pytest.mark.parametrize("size", [2 * LIMIT, 300_000])
def test_a_neighbours_messages_are_not_measured(size: int) -> None:
    """policy 41: on the hop between routers; also one that streams."""
    fleet = Fleet("A", "B", vhosts=vhosts({**EVERYTHING, "maxMessageSize": LIMIT}))
    fleet.connect("A", "B")
    receiver = fleet["B"].client(policy_vhost="open").receiver("orders", credit=10, accepts=True)
    fleet.settle()
    sender = fleet["A"].client(policy_vhost="open").sender("orders")
    fleet.pump()
    large = sender.send(b"x" * size)
    fleet.pump()
    assert large.outcome == ACCEPTED
    assert [len(body) for body in receiver.bodies] == [size]
    assert denials(fleet) == []
