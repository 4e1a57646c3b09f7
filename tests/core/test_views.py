"""Counters of links, addresses and the router (routing §19)."""

from memory_net import Net

from router.core.views import address_rows, link_rows, router_totals


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
