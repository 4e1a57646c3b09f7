"""Addresses of every router, `_topo/0/all/NAME`: a copy to each receiver that any router has there.

Source: docs/spec/routing.md §3.2, docs/spec/network.md §2.2, §14.3.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, RELEASED, Fleet, Net, Receiver, Vhosts, encoded

from router.core.views import address_row

ALL = "_topo/0/all/x"
EDGE: dict[str, Any] = {"role": "edge"}


def ring() -> Fleet:
    """Three interiors, each of which is the others' neighbour, and two edges."""
    fleet = Fleet("A", "B", "C", edges=("E", "F"))
    for maker, taker in ("AB", "BC", "CA"):
        fleet.connect(maker, taker)
    fleet.connect("E", "A", **EDGE)
    fleet.connect("F", "C", **EDGE)
    fleet.settle()
    return fleet


def line() -> Fleet:
    fleet = Fleet("A", "B", "C")
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.settle()
    return fleet


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("size", [10, 400_000])
@pytest.mark.parametrize("target", [ALL, "amqp:/_topo/all/all/x", None])
@pytest.mark.parametrize("origin", ["A", "B", "E", "F"])
def test_each_receiver_of_every_router_gets_one_copy(
    origin: str, target: str | None, size: int, is_settled: bool
) -> None:
    fleet = ring()
    receivers = [fleet[name].client().receiver(ALL, credit=10, accepts=True) for name in "AABCEF"]
    others = [fleet[name].client().receiver(text, credit=10) for name in "ABCEF" for text in ("x", "_local/x")]
    fleet.tick(3)
    sender = fleet[origin].client().sender(target)
    fleet.pump()
    assert sender.credit == 250
    sending = sender.send(bytes(size), address=ALL, is_settled=is_settled)
    fleet.pump()
    assert [receiver.bodies for receiver in receivers] == [[bytes(size)]] * 6
    assert not any(receiver.received for receiver in others)
    if not is_settled:
        assert sending.outcome == ACCEPTED
    assert sender.credit == 250
    fleet.no_errors()


@pytest.mark.parametrize("target", [ALL, None])
@pytest.mark.parametrize("origin", ["A", "E"])
def test_routers_that_have_no_receiver_pass_it_on(origin: str, target: str | None) -> None:
    fleet = Fleet("A", "B", "C", edges=("E",))
    fleet.connect("A", "B")
    fleet.connect("B", "C")
    fleet.connect("E", "A", **EDGE)
    fleet.settle()
    receiver = fleet["C"].client().receiver(ALL, credit=10, accepts=True)
    fleet.tick(2)
    sender = fleet[origin].client().sender(target)
    fleet.pump()
    sending = sender.send(b"news", address=ALL)
    fleet.pump()
    assert receiver.bodies == [b"news"]
    assert sending.outcome == ACCEPTED
    fleet.no_errors()


@pytest.mark.parametrize("target", [ALL, None])
@pytest.mark.parametrize("origin", ["A", "E"])
def test_what_nobody_receives_is_released(origin: str, target: str | None) -> None:
    fleet = ring()
    sender = fleet[origin].client().sender(target)
    fleet.pump()
    for _ in range(3):
        sending = sender.send(address=ALL)
        fleet.pump()
        assert sending.outcome == RELEASED
    assert sender.credit == 250
    fleet.no_errors()


def test_a_router_by_itself_gives_each_receiver_a_copy() -> None:
    net = Net()
    sender = net.client().sender(ALL)
    net.pump()
    assert not sender.credit
    receivers = [net.client().receiver(ALL, credit=10, accepts=True) for _ in range(2)]
    net.pump()
    sending = sender.send(b"here")
    net.pump()
    assert [receiver.bodies for receiver in receivers] == [[b"here"]] * 2
    assert sending.outcome == ACCEPTED
    assert address_row(net.core.table.addresses["Tx"])["distribution"] == "multicast"
    net.nothing_left()


def test_a_sender_has_credit_while_there_is_another_router() -> None:
    fleet = Fleet("A", "B", edges=("E",))
    senders = [fleet[name].client(idle_timeout_s=0).sender(ALL) for name in "AE"]
    fleet.pump()
    assert [sender.credit for sender in senders] == [0, 0]
    made, _ = fleet.connect("A", "B")
    fleet.settle()
    assert senders[0].credit == 250
    fleet.connect("E", "B", **EDGE)
    fleet.tick(2)
    assert senders[1].credit == 250
    made.kill()
    fleet.tick(70)
    sending = senders[0].send()
    fleet.pump()
    assert sending.outcome == RELEASED
    fleet.no_errors()


def test_nothing_comes_back_to_the_edge_that_it_came_from() -> None:
    fleet = ring()
    receiver = fleet["E"].client().receiver(ALL, credit=10, accepts=True)
    fleet.pump()
    fleet["E"].client().sender(ALL)
    sender = fleet["E"].client().sender(None)
    fleet.pump()
    for number in range(3):
        sender.send(str(number).encode(), address=ALL)
    fleet.pump()
    assert receiver.bodies == [b"0", b"1", b"2"]


def test_policy_judges_the_address_that_is_acted_on() -> None:
    """By each of its spellings, at the router of the client; `_local/x` and `x` are others."""
    group = {
        "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True,
        "denyTargets": "_topo/all/all/x",
    }  # fmt: skip
    vhosts = Vhosts(
        {"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}, policy={"enableVhostPolicy": True}
    )
    fleet = Fleet("A", "B", vhosts=vhosts)
    fleet.connect("A", "B")
    fleet.settle()
    receiver = fleet["B"].client().receiver(ALL, credit=10, accepts=True)
    fleet.tick(2)
    client = fleet["A"].client()
    denied = [client.sender(text) for text in (ALL, "amqp:/_topo/all/all/x", "//h/_topo/0/all/x")]
    anonymous, other = client.sender(None), client.sender("_topo/0/all/y")
    fleet.pump()
    assert [sender.is_detached for sender in denied] == [True] * 3
    assert not other.is_detached
    sending = anonymous.send(address=ALL)
    fleet.pump()
    assert sending.updates[-1].state != ACCEPTED
    assert not receiver.received
    fleet.no_errors()


def test_what_routers_tell_each_other_there_is_not_a_clients() -> None:
    fleet = ring()
    for origin in "AE":
        sender = fleet[origin].client().sender("_topo/0/all/qdrouter.ma")
        fleet.pump()
        sending = sender.send()
        fleet.pump()
        assert sending.outcome == RELEASED
    fleet.no_errors()


def test_receivers_come_and_go_and_nothing_stays() -> None:
    fleet = line()
    for name in "ABC":
        receivers: list[Receiver] = [fleet[name].client().receiver(ALL, credit=1) for _ in range(2)]
        sender = fleet[name].client().sender(ALL)
        fleet.pump()
        sender.send_bytes(encoded(b"x"))
        fleet.pump()
        for receiver in receivers:
            receiver.close()
        sender.close()
        fleet.pump()
    for net in fleet.nets.values():
        assert "Tx" not in net.core.table.addresses
        net.nothing_left()
