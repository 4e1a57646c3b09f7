"""What time tells of links: stuck deliveries, links without credit, how fast they settle (core.watch)."""

import pytest
from memory_net import Fleet, Net

from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.views import link_row, router_totals
from router.core.watch import TEST_HOOKS, Watch


def watched(net: Net) -> Watch:
    return Watch(net.core, net.effects.append, TEST_HOOKS)


def seconds(net: Net, watch: Watch, count: int) -> None:
    for _ in range(count):
        net.advance(1)
        for _ in watch.on_second():
            pass


def links(net: Net) -> tuple[InLink, OutLink]:
    found = list(net.core.links.values())
    return (
        next(link for link in found if isinstance(link, InLink)),
        next(link for link in found if isinstance(link, OutLink)),
    )


def test_a_delivery_that_nobody_settles_is_stuck_until_it_is() -> None:
    """routing 128: counted at both links and at the router, said once per link, taken back when it is settled."""
    net = Net()
    watch = watched(net)
    receiver = net.client().receiver("a", credit=10)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    sender.send(b"one")
    net.pump()
    seconds(net, watch, 4)
    assert router_totals(net.core)["deliveriesStuck"] == 0
    seconds(net, watch, 12)
    incoming, outgoing = links(net)
    assert (incoming.stuck, outgoing.stuck) == (1, 1)
    assert link_row(incoming)["deliveriesStuck"] == 1
    assert router_totals(net.core)["deliveriesStuck"] == 2
    stuck = [text for text in net.log_texts() if "Stuck delivery: At least one" in text]
    assert len(stuck) == 2
    assert stuck[0].endswith("undelivered/unsettled for more than 3 seconds")
    receiver.accept_all()
    net.pump()
    assert (incoming.stuck, outgoing.stuck) == (0, 0)
    assert router_totals(net.core)["deliveriesStuck"] == 0
    assert incoming.delayed_10s == 1  # routing 127


@pytest.mark.parametrize("way", [("A", "B"), ("E", "A"), ("E", "B"), ("B", "E")])
def test_a_delivery_that_nobody_settles_is_stuck_on_every_router_of_its_way(way: tuple[str, str]) -> None:
    """routing 128: at both links of each, until it is settled"""
    fleet = Fleet("A", "B", edges=("E",))
    fleet.connect("B", "A")
    fleet.connect("E", "A", role="edge")
    fleet.settle()
    near, far = way
    receiver = fleet[far].client().receiver("a", credit=10)
    sender = fleet[near].client().sender("a")
    fleet.tick(2)
    watches = [Watch(net.core, net.effects.append, TEST_HOOKS) for net in fleet.nets.values()]
    for _ in range(4):
        sender.send()
    fleet.pump()
    for _ in range(10):
        fleet.tick()
        for watch in watches:
            for _ in watch.on_second():
                pass
    stuck = {name: router_totals(net.core)["deliveriesStuck"] for name, net in fleet.nets.items()}
    between = {"A"} if {"E", "B"} == set(way) else set()
    assert stuck == {name: 8 if name in {*way, *between} else 0 for name in fleet.nets}
    receiver.accept_all()
    fleet.pump()
    assert not any(router_totals(net.core)["deliveriesStuck"] for net in fleet.nets.values())


def test_a_multicast_delivery_is_stuck_once_at_its_sender_and_at_each_receiver() -> None:
    """routing 128"""
    net = Net({"m": "multicast"})
    watch = watched(net)
    receivers = [net.client().receiver("m", credit=10) for _ in range(3)]
    sender = net.client().sender("m")
    net.pump()
    sender.send()
    net.pump()
    seconds(net, watch, 12)
    assert router_totals(net.core)["deliveriesStuck"] == 4
    for receiver in receivers:
        receiver.accept_all()
    net.pump()
    assert router_totals(net.core)["deliveriesStuck"] == 0


def test_a_delivery_that_settles_in_time_is_never_stuck() -> None:
    """routing 128."""
    net = Net()
    watch = watched(net)
    receiver = net.client().receiver("a", credit=10)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    for _ in range(6):
        sender.send(b"x")
        net.pump()
        seconds(net, watch, 2)
        receiver.accept_all()
        net.pump()
    incoming, outgoing = links(net)
    assert (incoming.stuck, outgoing.stuck) == (0, 0)
    assert incoming.delayed_1s == 6  # routing 127: over one second, up to ten


def test_a_link_without_credit_is_blocked_until_it_has_some() -> None:
    """routing 128: blocked after the threshold, with a log line; credit ends it."""
    net = Net()
    watch = watched(net)
    sender = net.client().sender("nobody")
    net.pump()
    seconds(net, watch, 7)
    assert router_totals(net.core)["linksBlocked"] == 1
    assert [text for text in net.log_texts() if "Link blocked with zero credit for" in text]
    incoming = next(iter(net.core.links.values()))
    assert link_row(incoming)["zeroCreditSeconds"] >= 4
    net.client().receiver("nobody", credit=5)
    net.pump()
    seconds(net, watch, 1)
    assert router_totals(net.core)["linksBlocked"] == 0
    assert link_row(incoming)["zeroCreditSeconds"] == 0
    assert sender.credit > 0


def test_the_settle_rate_is_the_mean_of_five_seconds() -> None:
    """routing 129."""
    net = Net()
    watch = watched(net)
    net.client().receiver("a", credit=1000, accepts=True)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    for _ in range(10):
        for _ in range(20):
            sender.send(b"x")
        net.pump()
        seconds(net, watch, 1)
    incoming, outgoing = links(net)
    assert link_row(incoming)["settleRate"] == 20
    assert link_row(outgoing)["settleRate"] == 20
    seconds(net, watch, 6)
    assert link_row(incoming)["settleRate"] == 0


def test_the_ingress_histogram_has_128_slots_on_receivers_only() -> None:
    """routing 129."""
    net = Net()
    net.client().receiver("a", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    sender.send(b"x")
    net.pump()
    incoming, outgoing = links(net)
    histogram = link_row(outgoing)["ingressHistogram"]
    assert len(histogram) == 128
    assert sum(histogram) == 1
    assert link_row(incoming)["ingressHistogram"] is None


def test_many_links_are_watched_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are routed wherever the watch yields, and between two yields it looks at so many links and no more."""
    monkeypatch.setattr("router.core.watch.LINKS_AT_ONCE", 2)
    net = Net()
    watch = watched(net)
    for _ in range(10):
        net.client().receiver("a", credit=0)
    net.pump()
    pauses = list(watch.on_second())
    assert len(pauses) == 5
    assert all(link.zero_credit_since_s is not None for link in net.core.links.values())
