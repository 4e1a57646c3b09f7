"""Link routes beyond one router: an attach goes on over other routers to its container, and its credit, drains, errors
and losses come all the way back.

Sources: docs/spec/routing.md §6.3, §15; docs/spec/network.md §9, §11.
"""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, MODIFIED, Client, Fleet, Net, broker_at, receiver_of, sender_of
from test_own_link_routes import own

from policy.addressing.patterns import configured_tokens
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute, key_of
from router.core.views import address_row, link_rows, router_totals

BROKER = Place(kind="container", text="broker")


def link_routes(net: Net, prefix: str = "q", **terms: Any) -> list[LinkRoute]:
    """One in each direction, to BROKER."""
    tokens = configured_tokens(prefix, None)
    made = []
    for direction in ("send", "receive"):
        key = key_of(tokens, prefix, is_in=direction == "send")
        terms = {"place": BROKER, "name": f"{prefix}-{direction}", **terms}
        made.append(LinkRoute(pattern="/".join(tokens), direction=direction, **{**terms, "key": key}))
        net.surroundings.link_routes.add(made[-1])
    return made


def line(*names: str, **options: Any) -> Fleet:
    """Routers in a row, settled."""
    fleet = Fleet(*(names or "ABC"), **options)
    for one, other in zip(names or "ABC", (names or "ABC")[1:], strict=False):
        fleet.connect(one, other)
    fleet.settle()
    return fleet


def served(*names: str, **options: Any) -> tuple[Fleet, Client]:
    """Routers in a row; the container of the prefix `q` is at the last one."""
    fleet = line(*names, **options)
    last = (names or "ABC")[-1]
    link_routes(fleet[last])
    return fleet, broker_at(fleet, last)


@pytest.mark.parametrize("routers", ["AB", "ABC", "ABCD"])
def test_messages_go_both_ways_over_every_router(routers: str) -> None:
    fleet, container = served(*routers)
    client = fleet["A"].client("c1")
    sender, receiver = client.sender("q", name="s"), client.receiver("q.x", name="r", credit=5)
    fleet.pump()
    taking, giving = receiver_of(container, 0), sender_of(container, 1)
    # Of the neighbours no name is changed: the router of the client has made it unique.
    assert (taking.link.name, giving.link.name) == ("s@c1", "r@c1")
    assert giving.link.remote_source.address == "q.x"
    assert (sender.credit, giving.credit) == (100, 5)
    sender.send(b"no AMQP at all")
    giving.send(b"from the broker")
    fleet.pump()
    assert (taking.bodies, receiver.bodies) == ([b"no AMQP at all"], [b"from the broker"])
    assert sender.outcomes == [ACCEPTED]
    receiver.received[0].accept()
    fleet.pump()
    assert giving.sent[0].outcome == ACCEPTED
    assert giving.credit == 4
    fleet.no_errors()


def test_a_route_is_announced_while_a_container_serves_it() -> None:
    """network 57: with hint 4; the address shows where it is served."""
    fleet, container = served("A", "B")
    near, far = fleet["A"].core.table.addresses["Cq"], fleet["B"].core.table.addresses["Cq"]
    assert address_row(near)["distribution"] == address_row(far)["distribution"] == "linkBalanced"
    assert (address_row(near)["remoteCount"], address_row(near)["remoteHostRouters"]) == (1, ["B"])
    assert address_row(far)["containerCount"] == 1
    container.kill()
    fleet.tick(2)
    assert "Cq" not in fleet["A"].core.table.addresses
    assert address_row(far)["containerCount"] == 0
    sender = fleet["A"].client().sender("q")
    fleet.pump()
    assert not sender.is_detached  # an address like all others again
    fleet.no_errors()


def test_a_pattern_is_announced_too() -> None:
    fleet = line("A", "B")
    pattern = "*/tail"
    route = LinkRoute(pattern=pattern, direction="send", name="p", key=f"E{pattern}", place=BROKER)
    fleet["B"].surroundings.link_routes.add(route)
    container = broker_at(fleet, "B")
    client = fleet["A"].client()
    routed, plain = client.sender("x.tail"), client.sender("x.tail.y")
    fleet.pump()
    assert routed.credit == 100
    assert len(container.attached_by_router) == 1
    assert plain.credit == 0


def test_a_place_holder_routes_to_other_routers_or_nowhere() -> None:
    """§15.1: neither containerId nor connection"""
    fleet = line("A", "B")
    link_routes(fleet["A"], place=None)
    early = fleet["A"].client().sender("q")
    fleet.pump()
    assert early.refusal.name == "qd:no-route-to-dest"
    link_routes(fleet["B"])
    broker_at(fleet, "B")
    late = fleet["A"].client().sender("q")
    fleet.pump()
    assert late.credit == 100
    fleet.no_errors()


def test_the_prefix_is_put_on_where_the_container_is() -> None:
    """network §11, routing 114"""
    fleet = line("A", "B")
    link_routes(fleet["B"], "front", add="back.", remove="front.")
    container = broker_at(fleet, "B")
    receiver = fleet["A"].client().receiver("front.x")
    fleet.pump()
    assert sender_of(container).link.remote_source.address == "back.x"
    assert receiver.link.remote_source.address == "front.x"


def test_termini_reach_the_container_whole() -> None:
    fleet, container = served("A", "B", "C")
    receiver = fleet["A"].client("c").receiver(
        "q",
        source={
            "durability": proton.Terminus.DELIVERIES, "expiry_policy": proton.Terminus.EXPIRE_NEVER, "timeout": 7,
            "distribution_mode": proton.Terminus.DIST_MODE_COPY,
            "filter": {proton.symbol("selector"): proton.Described(proton.symbol("apache.org:selector"), "a > 1")},
            "capabilities": proton.symbol("queue"), "properties": {proton.symbol("p"): 1},
            "outcomes": proton.symbol("amqp:accepted:list"),
        },
    )  # fmt: skip
    fleet.pump()
    source = sender_of(container).link.remote_source
    assert (source.durability, source.expiry_policy, source.timeout, source.distribution_mode) == (
        proton.Terminus.DELIVERIES, proton.Terminus.EXPIRE_NEVER, 7, proton.Terminus.DIST_MODE_COPY,
    )  # fmt: skip
    for part in ("filter", "capabilities", "properties", "outcomes"):
        getattr(source, part).rewind()
        assert getattr(source, part).next() is not None, part
    assert sender_of(container).link.remote_target.address == "to-c"
    assert receiver.link.remote_source.durability == proton.Terminus.DELIVERIES


def test_transactions_go_to_the_coordinator_of_the_container() -> None:
    """What the coordinator says, and states with a transaction in them, pass as they are."""
    fleet, container = served("A", "B", "C")
    link_routes(fleet["C"], "$coordinator")
    fleet.tick(2)
    client = fleet["A"].client()
    coordinator = client.sender(None, target={"type": proton.Terminus.COORDINATOR})
    sender = client.sender("q")
    fleet.pump()
    assert receiver_of(container, 0).link.remote_target.type == proton.Terminus.COORDINATOR
    assert not coordinator.is_detached
    receiver_of(container, 1).accepts = False
    sender.send(b"m")
    fleet.pump()
    receiver_of(container, 1).received[0].give(0x34, data=[b"txn", None])
    fleet.pump()
    assert sender.sent[0].updates[-1].state == 0x34
    fleet.no_errors()


def test_a_drain_goes_all_the_way_and_its_end_comes_back() -> None:
    fleet, container = served("A", "B", "C")
    receiver = fleet["A"].client().receiver("q", credit=10)
    fleet.pump()
    giving = sender_of(container)
    giving.send(b"one")
    fleet.pump()
    receiver.link.drain(0)
    fleet.pump()
    assert giving.link.drain_mode
    giving.link.drained()
    fleet.pump()
    assert (receiver.link.credit, giving.credit) == (0, 0)
    receiver.link.drain_mode = False
    receiver.flow(3)
    fleet.pump()
    assert giving.credit == 3
    giving.send(b"two")
    fleet.pump()
    assert receiver.bodies == [b"one", b"two"]
    fleet.no_errors()


@pytest.mark.parametrize("count", [1, 5])
def test_a_drain_gets_as_many_as_it_asked_for_over_every_router(count: int) -> None:
    fleet, container = served(*"ABC")
    receiver = fleet["A"].client().receiver("q", accepts=True)
    fleet.pump()
    receiver.link.drain(count)
    fleet.pump()
    giving = sender_of(container)
    for _ in range(count):
        giving.send()
    fleet.pump()
    assert len(receiver.complete) == count
    assert giving.outcomes == [ACCEPTED] * count
    assert receiver.link.credit == 0
    fleet.no_errors()


def test_the_containers_refusal_is_the_clients() -> None:
    fleet, container = served("A", "B", "C")
    container.refusal_of_links = proton.Condition("amqp:unauthorized-access", "not you")
    sender = fleet["A"].client().sender("q")
    fleet.pump()
    assert (sender.refusal.name, sender.refusal.description) == ("amqp:unauthorized-access", "not you")
    assert sender.link.remote_target.type == proton.Terminus.UNSPECIFIED
    fleet.no_errors()


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("who", ["client", "container"])
def test_a_detach_with_its_error_goes_all_the_way(who: str, is_closed: bool) -> None:
    """routing 116"""
    fleet, container = served("A", "B", "C")
    near = fleet["A"].client().receiver("q", credit=1)
    fleet.pump()
    ends: tuple[Any, Any] = (near, sender_of(container))
    said, told = ends if who == "client" else reversed(ends)
    said.link.condition = proton.Condition("x:y", "why")
    if is_closed:
        said.close()
    else:
        said.link._update_cond()
        said.detach()
    fleet.pump()
    assert told.is_detached
    assert (told.was_closed, told.refusal.name, told.refusal.description) == (is_closed, "x:y", "why")
    assert said.is_detached
    for net in fleet.nets.values():
        assert not [link for link in net.core.links.values() if link.link_type == "endpoint"]
    fleet.no_errors()


@pytest.mark.parametrize("lost", ["client", "container", "A-B", "B-C"])
def test_the_loss_of_any_connection_on_the_way_ends_the_link(lost: str) -> None:
    """routing 116: and what had no outcome is modified"""
    fleet = Fleet("A", "B", "C")
    hops = {"A-B": fleet.connect("A", "B"), "B-C": fleet.connect("B", "C")}
    fleet.settle()
    link_routes(fleet["C"])
    container = broker_at(fleet, "C")
    client = fleet["A"].client()
    sender, receiver = client.sender("q"), client.receiver("q", credit=1)
    fleet.pump()
    taking, giving = receiver_of(container, 0), sender_of(container, 1)
    taking.accepts = False
    sender.send(b"up")
    giving.send(b"down")
    fleet.pump()
    ends: dict[str, tuple[Any, ...]] = {"client": (client,), "container": (container,), **hops}
    for gone in ends[lost]:
        gone.kill()
    fleet.pump()
    stay: list[Any] = []
    if lost != "client":
        stay += [sender, receiver]
        assert sender.sent[0].outcome == MODIFIED
    if lost != "container":
        stay += [taking, giving]
        assert giving.sent[0].outcome == MODIFIED
    for end in stay:
        assert end.was_closed
        assert (end.refusal.name, end.refusal.description) == (
            "qd:routed-link-lost", "Connectivity to the peer container was lost",
        )  # fmt: skip
    for net in fleet.nets.values():
        assert not [link for link in net.core.links.values() if link.link_type == "endpoint"]
    fleet.no_errors()


@pytest.mark.parametrize("terms", [{"timeout": 60}, {"expiry_policy": proton.Terminus.EXPIRE_NEVER}])
@pytest.mark.parametrize("routers", ["A", "ABC"])
def test_a_durable_subscription_outlives_the_loss_of_its_client(routers: str, terms: dict[str, Any]) -> None:
    """§15.4: detached, not closed, or the broker would end it"""
    fleet, container = served(*routers)
    client = fleet["A"].client()
    client.receiver("q", source=terms)
    fleet.pump()
    client.kill()
    fleet.pump()
    end = sender_of(container)
    assert end.is_detached
    assert not end.was_closed
    assert end.refusal.name == "qd:routed-link-lost"
    fleet.no_errors()


@pytest.mark.parametrize("routers", ["A", "ABC"])
def test_a_client_may_resume_its_subscription_when_the_container_was_lost(routers: str) -> None:
    """§15.4"""
    fleet, container = served(*routers)
    client = fleet["A"].client()
    receiver = client.receiver("q", source={"expiry_policy": proton.Terminus.EXPIRE_NEVER})
    plain = client.receiver("q")
    fleet.pump()
    container.kill()
    fleet.pump()
    assert receiver.is_detached
    assert not receiver.was_closed
    assert plain.was_closed
    assert receiver.refusal.name == plain.refusal.name == "qd:routed-link-lost"
    fleet.no_errors()


def test_attaches_go_to_other_routers_in_turn_and_to_none_while_a_container_is_here() -> None:
    """§15.3: linkBalanced, whatever the ways cost"""
    fleet = Fleet("A", "B", "C")
    fleet.connect("A", "B", cost=1)
    fleet.connect("A", "C", cost=50)
    fleet.settle()
    for each in "ABC":
        link_routes(fleet[each])
    far, farther = broker_at(fleet, "B"), broker_at(fleet, "C")
    client = fleet["A"].client()
    for _ in range(4):
        client.sender("q")
        fleet.pump()
    assert len(far.attached_by_router) == len(farther.attached_by_router) == 2
    here = broker_at(fleet, "A")
    client.sender("q")
    fleet.pump()
    assert len(here.attached_by_router) == 1
    here.kill()
    fleet.pump()
    client.sender("q")
    fleet.pump()
    assert len(far.attached_by_router) + len(farther.attached_by_router) == 5
    fleet.no_errors()


def test_no_attach_goes_round_when_all_containers_have_just_gone() -> None:
    """Each router still believes that another has one."""
    fleet = Fleet("A", "B", "C")
    for one, other in ("AB", "BC", "CA"):
        fleet.connect(one, other)
    fleet.settle()
    containers = []
    for each in "ABC":
        link_routes(fleet[each])
        containers.append(broker_at(fleet, each))
    for container in containers:
        container.kill()
    fleet.pump()
    ends = [fleet[each].client().sender("q") for each in "ABC"]
    fleet.pump()
    assert [end.refusal.name for end in ends] == ["qd:no-route-to-dest"] * 3
    for net in fleet.nets.values():
        assert not [link for link in net.core.links.values() if link.link_type == "endpoint"]
    fleet.no_errors()


def test_management_shows_each_link_of_the_way() -> None:
    """routing 117, and the counters of §19.2"""
    fleet, container = served("A", "B")
    sender = fleet["A"].client("c").sender("q.x", name="s")
    fleet.pump()
    for _ in range(3):
        sender.send(b"m")
    fleet.pump()
    first = {row["linkName"]: row for row in link_rows(fleet["A"].core)}
    second = [row for row in link_rows(fleet["B"].core) if row["linkName"] == "s@c"]
    assert first["s"]["peer"] == first["s@c"]["identity"]
    assert {row["owningAddr"] for row in (first["s"], first["s@c"], *second)} == {"M0q.x"}
    assert sorted((row["linkDir"], row["capacity"], row["deliveryCount"]) for row in second) == [
        ("in", 250, 3), ("out", 0, 3),
    ]  # fmt: skip
    a, b = router_totals(fleet["A"].core), router_totals(fleet["B"].core)
    assert (a["deliveriesIngress"], a["deliveriesTransit"], a["deliveriesEgress"]) == (3, 3, 0)
    assert (b["deliveriesTransit"], b["deliveriesEgress"]) == (0, 3)
    assert len(receiver_of(container).bodies) == 3


def test_large_messages_stream_over_every_router() -> None:
    fleet, container = served("A", "B", "C")
    sender = fleet["A"].client().sender("q")
    fleet.pump()
    body = bytes(range(256)) * 8000
    sender.send(body)
    sender.send(b"small")
    fleet.pump()
    assert receiver_of(container).bodies == [body, b"small"]
    assert sender.outcomes == [ACCEPTED, ACCEPTED]
    fleet.no_errors()


def test_a_tag_stays_the_senders_over_every_router() -> None:
    """network §11"""
    fleet, container = served("A", "B", "C")
    sender = fleet["A"].client().sender("q")
    fleet.pump()
    receiver_of(container).accepts = False
    sender.link.delivery("x" * 32)
    sender.link.send(b"m")
    sender.link.advance()
    fleet.pump()
    received = receiver_of(container).received[-1]._delivery
    assert received is not None
    assert received.tag == "x" * 32


def test_nothing_is_left_when_everybody_has_gone() -> None:
    fleet, _ = served("A", "B", "C")
    client = fleet["A"].client()
    for _ in range(5):
        client.sender("q")
        client.receiver("q", credit=2)
    fleet.pump()
    for net in fleet.nets.values():
        net.nothing_left()


@pytest.mark.parametrize("who", ["client", "neighbour"])
def test_nobody_is_left_when_one_goes_before_the_neighbour_has_begun_the_session(who: str) -> None:
    fleet = Fleet("A", "B")
    made, taken = fleet.connect("A", "B")
    fleet.settle()
    link_routes(fleet["B"])
    container = broker_at(fleet, "B")
    taken.is_stuck = True
    client = fleet["A"].client()
    sender = client.sender("q")
    fleet.pump()
    if who == "client":
        client.kill()
    else:
        made.kill()
    taken.is_stuck = False
    fleet.pump()
    if who == "neighbour":
        assert sender.refusal.name == "qd:no-route-to-dest"
    assert not container.attached_by_router
    for net in fleet.nets.values():
        net.nothing_left()


@pytest.mark.parametrize("is_receiver", [True, False])
def test_an_attach_that_comes_after_the_route_is_gone_has_no_route(is_receiver: bool) -> None:
    """The client's router has not heard of it yet. The link was bound to an address of that name, and got nothing."""
    fleet = line(*"AB")
    container, client = fleet["B"].client(), fleet["A"].client()
    fleet.pump()
    own(fleet["B"], container, "q/#")
    own(fleet["B"], container, "q/#", "receive")
    fleet.settle()
    container.kill()
    end = client.receiver("q.x", credit=1) if is_receiver else client.sender("q.x")
    fleet.pump()
    assert end.refusal.name == "qd:no-route-to-dest"
    assert "M0q.x" not in fleet["B"].core.table.addresses
    fleet.settle()
    fleet.no_errors()
