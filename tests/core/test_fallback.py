"""Fallback destinations: they get what has nobody else, on one router, over interior routers and over edges."""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, REJECTED, RELEASED, Client, Fleet, Net, Receiver, Sender, Vhosts, encoded
from proton import symbol
from test_auto_links import auto_link, broker

from policy.addressing.address import FALLBACK_PHASE
from router.amqp.codec import decode_message
from router.core.views import address_row, router_totals

LARGE = encoded(b"x" * 300_000)
FALLBACK: dict[str, Any] = {"capabilities": symbol("qd.fallback")}
EDGE: dict[str, Any] = {"role": "edge"}


def net_with_fallback(**terms: Any) -> Net:
    return Net(fallbacks=frozenset({"a"}), **terms)


def fallback(client: Client, **terms: Any) -> Receiver:
    return client.receiver("a", credit=100, source=FALLBACK, **terms)


@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
@pytest.mark.parametrize("is_anonymous", [False, True])
def test_a_fallback_destination_gets_what_nobody_else_receives(distribution: str, is_anonymous: bool) -> None:
    """routing 122: and not one message more; the change is immediate, both ways. Outcomes are its own."""
    net = net_with_fallback(distributions={"a": distribution})
    fields: Any = {"address": "a"} if is_anonymous else {}
    sender = net.client().sender(None if is_anonymous else "a")
    other = fallback(net.client())
    net.pump()
    sender.send(b"first", **fields)
    net.pump()
    other.received[0].give(REJECTED)
    receiver = net.client().receiver("a", credit=100, accepts=True)
    net.pump()
    sender.send(b"second", **fields)
    net.pump()
    receiver.close()
    net.pump()
    sender.send(b"third", **fields)
    net.pump()
    other.received[1].accept()
    net.pump()
    assert (other.bodies, receiver.bodies) == ([b"first", b"third"], [b"second"])
    assert sender.outcomes == [REJECTED, ACCEPTED, ACCEPTED]
    row = address_row(net.core.table.addresses["M0a"])
    assert row["deliveriesRedirectedToFallback"] == 2
    totals = router_totals(net.core)
    assert (totals["deliveriesRedirectedToFallback"], totals["deliveriesEgress"], totals["deliveriesIngress"]) == (
        (2, 1, 3)
    )
    net.no_errors()


def test_a_sender_has_credit_for_the_fallback_destination_and_is_drained_with_the_last_of_both() -> None:
    """routing 122: with neither it is as ever."""
    net = net_with_fallback()
    sender = net.client().sender("a")
    net.pump()
    assert sender.credit == 0
    other = fallback(net.client(), accepts=True)
    net.pump()
    assert sender.credit == 250
    other.close()
    net.pump()
    sender.send()
    net.pump()
    assert (sender.outcomes, sender.link.drain_mode) == ([RELEASED], True)
    fallback(net.client(), accepts=True)
    net.pump()
    assert sender.credit == 250


def test_what_a_fallback_destination_sends_never_comes_back_to_it() -> None:
    """routing 122: it goes to receivers, or nowhere."""
    net = net_with_fallback()
    client = net.client()
    other = fallback(client, accepts=True)
    producer = client.sender("a", target=FALLBACK)
    net.pump()
    assert producer.credit == 0
    receiver = net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    producer.send()
    net.pump()
    receiver.close()
    net.pump()
    producer.send()
    net.pump()
    assert (producer.outcomes, len(receiver.bodies), other.bodies) == ([ACCEPTED, RELEASED], 1, [])
    assert producer.link.drain_mode


def test_a_large_message_streams_to_the_fallback_destination() -> None:
    """routing 122"""
    net = net_with_fallback()
    other = fallback(net.client(), accepts=True)
    sender = net.client().sender("a")
    net.pump()
    sender.send_bytes(LARGE)
    net.pump()
    assert ([len(body) for body in other.bodies], sender.outcomes) == ([300_000], [ACCEPTED])


def test_the_address_and_its_fallback_destination_come_and_go_together() -> None:
    net = net_with_fallback()
    other = fallback(net.client())
    net.pump()
    assert set(net.core.table.addresses) == {"M0a", "MFa"}
    sender = net.client().sender("a")
    net.pump()
    other.close()
    net.pump()
    assert set(net.core.table.addresses) == {"M0a", "MFa"}
    sender.close()
    net.pump()
    assert not net.core.table.addresses


def test_without_the_setting_a_fallback_destination_gets_nothing() -> None:
    net = Net()
    other = fallback(net.client())
    sender = net.client().sender("a")
    anonymous = net.client().sender(None)
    net.pump()
    anonymous.send(address="a")
    net.pump()
    assert (sender.credit, other.received, anonymous.outcomes) == (0, [], [RELEASED])


def test_presettled_messages_are_dropped_where_there_is_no_fallback_destination() -> None:
    net = net_with_fallback()
    sender = net.client().sender(None)
    net.pump()
    sender.send(is_settled=True, address="a")
    net.pump()
    other = fallback(net.client())
    net.pump()
    sender.send(b"kept", is_settled=True, address="a")
    net.pump()
    assert other.bodies == [b"kept"]


def test_policy_may_keep_a_client_from_being_a_fallback_destination() -> None:
    """By the capability alone, or in an array: what it may receive from does not matter."""
    group = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowFallbackLinks": False}
    vhosts = Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}})
    net = net_with_fallback(vhosts=vhosts)
    client = net.client()
    refused = [client.receiver("a", source={"capabilities": value}) for value in _forms()]
    refused_too = [client.sender("a", target={"capabilities": value}) for value in _forms()]
    net.pump()
    assert all(end.is_detached for end in (*refused, *refused_too))
    assert not net.core.table.addresses


def _forms() -> tuple[Any, ...]:
    nothing: Any = proton.UNDESCRIBED
    both = proton.Array(nothing, proton.Data.SYMBOL, symbol("x"), symbol("qd.fallback"))
    return symbol("qd.fallback"), both


def test_an_auto_link_serves_as_the_fallback_destination() -> None:
    """routing 122: out gives it what nobody receives; what in brings goes to receivers only."""
    net = net_with_fallback()
    auto_link(net, "a", "out", phase=FALLBACK_PHASE)
    auto_link(net, "a", "in", phase=FALLBACK_PHASE)
    container = broker(net)
    sender = net.client().sender("a")
    net.pump()
    queue, back = container.attached_by_router
    assert isinstance(queue, Receiver)
    assert isinstance(back, Sender)
    sender.send(b"kept")
    net.pump()
    assert (queue.bodies, sender.outcomes, back.credit) == ([b"kept"], [ACCEPTED], 0)
    receiver = net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    back.send(queue.bodies[0])
    net.pump()
    assert (len(receiver.bodies), back.outcomes, len(queue.bodies)) == (1, [ACCEPTED], 1)


# Other routers


def settled(fleet: Fleet) -> Fleet:
    fleet.settle()
    return fleet


def test_a_fallback_destination_of_another_router_gets_what_nobody_receives() -> None:
    """routing 122, network 63: it is told of by its key, and the message says for what it comes."""
    fleet = Fleet("A", "B", fallbacks=frozenset({"a"}))
    fleet.connect("A", "B")
    other = fallback(fleet["B"].client(strip="no"), accepts=True)
    fleet.settle()
    senders = [fleet["A"].client().sender(address) for address in ("a", None)]
    fleet.pump()
    for sender in senders:
        sender.send(b"kept", address="a")
    fleet.pump()
    assert [sender.outcomes for sender in senders] == [[ACCEPTED], [ACCEPTED]]
    for item in other.complete:
        said = decode_message(bytes(item.payload)).message_annotations
        assert (said["x-opt-qd.phase"], said["x-opt-qd.to"]) == (22, "a")
        assert (said["x-opt-qd.ingress"], said["x-opt-qd.trace"]) == ("0/A", ["0/A", "0/B"])
    receiver = fleet["B"].client().receiver("a", credit=10, accepts=True)
    fleet.settle()
    senders[0].send(b"received")
    fleet.pump()
    assert (len(other.complete), receiver.bodies) == (2, [b"received"])
    receiver.close()
    fleet.settle()
    senders[0].send_bytes(LARGE)
    fleet.pump()
    assert len(other.complete) == 3
    fleet.no_errors()


def test_a_fallback_destination_is_used_by_routers_that_are_not_configured_for_it_only_in_passing() -> None:
    """The router where a message enters decides; those on the way pass it on."""
    fleet = Fleet("A", "B", "C")
    fleet["A"].fallbacks = frozenset({"a"})
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    other = fallback(fleet["C"].client(), accepts=True)
    fleet.settle()
    here, there = fleet["A"].client().sender("a"), fleet["B"].client().sender("a")
    fleet.pump()
    assert (here.credit, there.credit) == (250, 0)
    here.send(b"kept")
    fleet.pump()
    assert (other.bodies, here.outcomes) == ([b"kept"], [ACCEPTED])


@pytest.mark.parametrize(("at", "at_other"), [("E1", "E2"), ("E1", "INT"), ("INT", "E1"), ("E1", "FAR"), ("E1", "E1")])
def test_fallback_destinations_are_reached_over_edges(at: str, at_other: str) -> None:
    """routing 122: the links of an edge for it name the capability (network §14.4)."""
    fleet = Fleet("INT", "FAR", edges=("E1", "E2"), fallbacks=frozenset({"a"}))
    fleet.connect("INT", "FAR")
    for edge in ("E1", "E2"):
        fleet.connect(edge, "INT", **EDGE)
    fleet.settle()
    sender = fleet[at].client().sender("a")
    fleet.tick(3)
    assert sender.credit == 0
    other = fallback(fleet[at_other].client(), accepts=True)
    fleet.tick(3)
    assert sender.credit == 250
    sender.send(b"kept")
    sender.send_bytes(LARGE)
    fleet.pump()
    assert ([len(body) for body in other.bodies], sender.outcomes) == ([4, 300_000], [ACCEPTED, ACCEPTED])
    for place in ("FAR", "E2", "E1"):
        receiver = fleet[place].client().receiver("a", credit=10, accepts=True)
        fleet.tick(3)
        sender.send(b"received")
        fleet.pump()
        assert (receiver.bodies, len(other.bodies)) == ([b"received"], 2)
        receiver.close()
        fleet.tick(3)
    sender.send(b"kept")
    fleet.pump()
    assert len(other.bodies) == 3
    other.close()
    fleet.tick(3)
    sender.send(b"nobody's")
    fleet.pump()
    assert sender.outcomes[-1] == RELEASED
    fleet.no_errors()
