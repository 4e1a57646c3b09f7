"""Counters of links, addresses and the router (routing §19)."""

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Fleet, Net

from router.core.views import address_rows, find_link_by_name, link_rows, router_totals, totalling


def test_route_container_counters_rise_for_that_role_only() -> None:
    """routing 131."""
    net = Net()
    net.client(role="route-container").receiver("a", credit=10, accepts=True)
    net.pump()
    plain, container = net.client().sender("a"), net.client(role="route-container").sender("a")
    net.pump()
    for sender in (plain, plain, container):
        sender.send(b"x")
        net.pump()
    totals = router_totals(net.core)
    assert totals["deliveriesIngressRouteContainer"] == 1
    assert totals["deliveriesEgressRouteContainer"] == 3
    row = next(row for row in address_rows(net.core) if row["key"] == "M0a")
    assert (row["deliveriesIngressRouteContainer"], row["deliveriesEgressRouteContainer"]) == (1, 3)
    for client in list(net.clients):
        client.kill()
    net.pump()
    totals = router_totals(net.core)
    assert (totals["deliveriesIngressRouteContainer"], totals["deliveriesEgressRouteContainer"]) == (1, 3)


def test_router_totals_count_outcomes_at_senders_only() -> None:
    """routing 126: each message once, at its entry link, also after the links are gone."""
    net = Net()
    net.client().receiver("a", credit=100, accepts=True)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    for _ in range(10):
        sender.send(b"x")
    net.pump()
    totals = router_totals(net.core)
    assert (totals["acceptedDeliveries"], totals["deliveriesIngress"], totals["deliveriesEgress"]) == (10, 10, 10)
    assert totals["linkCount"] == len(list(link_rows(net.core))) == 2
    for client in list(net.clients):
        client.kill()
    net.pump()
    totals = router_totals(net.core)
    assert (totals["acceptedDeliveries"], totals["deliveriesIngress"], totals["deliveriesEgress"]) == (10, 10, 10)
    assert totals["linkCount"] == 0


@pytest.mark.parametrize("body", [b"x", b"x" * 300_000])
def test_router_totals_count_outcomes_on_every_router_of_a_message(body: bytes) -> None:
    """routing 126: at each router once, at the link that it came on"""
    fleet = Fleet("A", "B", "C")
    fleet.connect("B", "A")
    fleet.connect("C", "B")
    fleet.settle()
    receiver = fleet["C"].client().receiver("a", credit=100)
    sender = fleet["A"].client().sender("a")
    fleet.settle()
    for state in (ACCEPTED, *[RELEASED] * 2, *[REJECTED] * 3, *[MODIFIED] * 4):
        sender.send(body)
        fleet.pump()
        receiver.complete[-1].give(state)
        fleet.pump()
    outcomes = ("acceptedDeliveries", "releasedDeliveries", "rejectedDeliveries", "modifiedDeliveries")
    for net in fleet.nets.values():
        totals = router_totals(net.core)
        assert [totals[name] for name in outcomes] == [1, 2, 3, 4]
    totals = router_totals(fleet["C"].core)
    assert (totals["deliveriesIngress"], totals["deliveriesEgress"], totals["deliveriesTransit"]) == (0, 10, 0)


def test_totals_of_many_links_are_made_a_few_links_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are routed at each pause; a link that goes meanwhile is counted once."""
    monkeypatch.setattr("router.core.views.LINKS_AT_ONCE", 2)
    net = Net()
    net.client().receiver("a", credit=100, accepts=True)
    net.pump()
    clients = [net.client() for _ in range(5)]
    for client in clients:
        sender = client.sender("a")
        net.pump()
        sender.send(b"x")
    net.pump()
    found = []
    for step in totalling(net.core):
        found.append(step)
        clients[len(found)].kill()
        net.pump()
    assert found[:-1] == [None] * 3
    assert found[-1] is not None
    assert (found[-1]["deliveriesIngress"], found[-1]["acceptedDeliveries"]) == (5, 5)


def test_a_link_is_found_by_name() -> None:
    net = Net()
    net.client().receiver("a", credit=0)
    net.pump()
    (row,) = link_rows(net.core)
    assert find_link_by_name(net.core, row["name"]) == row
    assert find_link_by_name(net.core, "none of this name") is None
