"""As many connections to other routers as the protocol has, and one more. Source: docs/spec/network.md §1, §17."""

import pytest
from memory_net import Client, Net, Receiver
from proton import symbol

EXCEEDED = "Exceeded maximum inter-router connection count"
CONTROL = {"capabilities": symbol("qd.router")}


@pytest.fixture
def net() -> Net:
    """It has as many neighbours as there may be."""
    made = Net(router_id="A")
    for number in range(128):
        joined(made, f"N{number}")
    return made


def joined(net: Net, name: str) -> tuple[Client, Receiver]:
    """A client that came by the listener for routers, and attached the control pair."""
    client = net.client(name, role="inter-router")
    receiver = client.receiver(None, credit=10, source=CONTROL, target=CONTROL)
    client.sender(None, source=CONTROL, target=CONTROL)
    net.pump()
    return client, receiver


def critical(net: Net) -> list[str]:
    return [entry.text for entry in net.logs if entry.module == "ROUTER_CORE" and entry.level == "critical"]


def test_one_connection_more_than_there_may_be_is_no_neighbours(net: Net) -> None:
    """network 108: it stays open, and its links are refused as those of a client on such a listener."""
    network = net.core.network
    assert network is not None
    assert sorted(network.trunks) == list(range(128))
    assert critical(net) == []
    client, receiver = joined(net, "one more")
    assert [text.startswith(EXCEEDED) for text in critical(net)] == [True]
    assert receiver.refusal.name == "qd:forbidden"
    ordinary = client.sender("orders")
    management = client.sender("$management")
    net.pump()
    assert [end.refusal.name for end in (ordinary, management)] == ["qd:connection-role"] * 2
    assert not client.is_closed_by_router
    assert len(network.trunks) == 128
    net.no_errors()


def test_the_place_of_a_neighbour_that_has_gone_is_the_next_ones(net: Net) -> None:
    """network 108: with its link tag."""
    network = net.core.network
    assert network is not None
    joined(net, "too early")
    net.clients[41].kill()
    net.pump()
    _, receiver = joined(net, "in time")
    assert receiver.is_attached
    assert not receiver.is_detached
    assert network.trunks[41].container == "in time"
    assert len(critical(net)) == 1


def test_who_takes_all_connections_takes_nothing_of_the_neighbours_that_are_there() -> None:
    """network 108. Attack: a stranger on a listener for routers that asks for no login opens all there may be."""
    net = Net(router_id="A")
    _, neighbour = joined(net, "first")
    for number in range(200):
        joined(net, f"X{number}")
    host = net.host
    assert host is not None
    heard = len(neighbour.complete)
    for _ in range(3):
        net.advance(1.0, step=1.0)
        host.on_second(net.now)
        net.pump()
    assert len(neighbour.complete) - heard == 3  # HELLOs, as before
    assert len(critical(net)) == 73
