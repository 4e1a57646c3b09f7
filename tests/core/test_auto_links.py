"""Auto links: the router attaches links to containers, and clients use the container's queues by an address.

Source: docs/spec/routing.md §14; its checklist, 107 to 112.
"""

from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, RELEASED, Client, Fleet, Net, Receiver, Sender, Vhosts, encoded

from policy.addressing.address import Address
from router.connection.auto_links import AutoLink, Place, Status

BROKER = Place(kind="container", text="broker")


def auto_link(net: Net, address: str, direction: str, *, phase: int | None = None, **terms: Any) -> AutoLink:
    found = net.core.resolve(address)
    assert isinstance(found, Address)
    is_in = direction == "in"
    terms = {"external": address, "place": BROKER, **terms}
    made = AutoLink(name=f"{address}-{direction}", address=found, is_in=is_in,
                    phase=int(is_in) if phase is None else phase, **terms)  # fmt: skip
    net.surroundings.auto_links.add(made)
    return made


def status(auto: AutoLink) -> Status:
    return auto.status


def broker(net: Net, name: str = "broker", **terms: Any) -> Client:
    return net.client(name, role="route-container", **terms)


def test_a_link_is_attached_when_the_container_appears() -> None:
    """routing 107"""
    net = Net()
    out, into = auto_link(net, "q", "out"), auto_link(net, "q", "in")
    assert (status(out), status(into)) == ("inactive", "inactive")
    container = broker(net)
    net.pump()
    assert (status(out), status(into)) == ("active", "active")
    taking, giving = container.attached_by_router
    assert isinstance(taking, Receiver)
    assert isinstance(giving, Sender)
    assert taking.link.name.startswith("qdlink.")
    assert len(taking.link.name) == len("qdlink.") + 15
    assert taking.link.remote_target.address == "q"
    assert taking.link.remote_source.address is None
    assert giving.link.remote_source.address == "q"
    assert giving.link.remote_target.address is None
    assert out.link is not None
    assert "Auto Link Activated 'q-out' on container broker" in net.log_texts()
    net.no_errors()


@pytest.mark.parametrize("role", ["normal", "edge"])
def test_only_route_containers_are_attached_to(role: str) -> None:
    """routing 107"""
    net = Net()
    out = auto_link(net, "q", "out")
    client = net.client("broker", role=role)
    net.pump()
    assert not client.attached_by_router
    assert status(out) == "inactive"


def test_a_connection_is_found_by_the_name_of_its_listener() -> None:
    """routing 107"""
    net = Net()
    named = auto_link(net, "q", "out", place=Place(kind="connection", text="brokers"))
    made_up = auto_link(net, "r", "out", place=Place(kind="connection", text="listener/127.0.0.1:5672"))
    for container, listener in (("any", "brokers"), ("other", "listener/127.0.0.1:5672")):
        net.listener_terms["name"] = listener
        broker(net, container)
    net.pump()
    assert (status(named), status(made_up)) == ("active", "inactive")


def test_the_container_sees_the_external_address() -> None:
    """routing 108"""
    net = Net()
    auto_link(net, "q", "out", external="ext")
    container = broker(net)
    sender = net.client().sender("q")
    net.pump()
    assert container.attached_by_router[0].link.remote_target.address == "ext"
    sender.send(b"m")
    net.pump()
    taking = container.attached_by_router[0]
    assert isinstance(taking, Receiver)
    assert taking.bodies == [b"m"]
    assert sender.sent[0].outcome == ACCEPTED


def test_a_refusal_is_told_and_the_link_attached_again() -> None:
    """routing 109"""
    net = Net()
    out = auto_link(net, "q", "out")
    container = broker(net)
    container.refusal_of_links = proton.Condition("amqp:not-found", "no such queue")
    net.pump()
    assert (status(out), out.last_error) == ("failed", "no such queue")
    assert "Auto Link Activation Failed. no such queue 'q-out' on container broker" in net.log_texts()
    net.advance(1.5)
    assert len(container.attached_by_router) == 1
    net.advance(1)
    assert len(container.attached_by_router) == 2
    net.advance(4)
    assert len(container.attached_by_router) == 2
    container.refusal_of_links = None
    net.advance(1.5)
    assert (status(out), out.last_error) == ("active", None)
    net.no_errors()


@pytest.mark.parametrize("how", ["detaches", "dies"])
@pytest.mark.parametrize("routers", ["A", "AB"])
def test_credit_is_taken_back_when_the_last_consumer_leaves(routers: str, how: str) -> None:
    """Else the broker sends what nobody wants, and gets it back, for ever."""
    fleet = Fleet(*routers, phases={"q": (0, 1)})
    if len(routers) > 1:
        fleet.connect(*routers)
        fleet.settle()
    auto_link(fleet["A"], "q", "in")
    container = broker(fleet["A"])
    clients = [fleet[routers[-1]].client() for _ in range(2)]
    receivers = [client.receiver("q", credit=10, accepts=True) for client in clients]
    fleet.tick(2)
    (giving,) = container.attached_by_router
    assert isinstance(giving, Sender)
    assert giving.credit == 250
    for client, receiver in zip(clients, receivers, strict=True):
        assert not giving.link.drain_mode
        giving.send(b"m")
        fleet.pump()
        assert giving.outcomes[-1] == ACCEPTED
        if how == "dies":
            client.kill()
        else:
            receiver.close()
        fleet.tick(2)
    assert giving.link.drain_mode
    giving.link.drained()
    fleet.tick(2)
    assert giving.credit == 0
    again = fleet[routers[-1]].client().receiver("q", credit=10, accepts=True)
    fleet.tick(2)
    assert not giving.link.drain_mode
    assert giving.credit == 250
    giving.send(b"again")
    fleet.pump()
    assert again.bodies == [b"again"]
    fleet.no_errors()


@pytest.mark.parametrize("version", ["3.10.8", "4.0.1"])
def test_rabbitmq_3_is_not_drained(version: str) -> None:
    """It ends the session of a link that is drained."""
    net = Net(phases={"q": (0, 1)})
    auto_link(net, "q", "in")
    container = net.client("broker", role="route-container", opens=False)
    container.connection.properties = {proton.symbol("product"): "RabbitMQ", proton.symbol("version"): version}
    container.open()
    receiver = net.client().receiver("q", credit=10)
    net.pump()
    (giving,) = container.attached_by_router
    receiver.close()
    net.pump()
    assert bool(giving.link.drain_mode) == version.startswith("4")
    net.no_errors()


def test_a_consumer_that_comes_while_the_credit_is_taken_back_gets_its_messages() -> None:
    net = Net(phases={"q": (0, 1)})
    auto_link(net, "q", "in")
    container = broker(net)
    receiver = net.client().receiver("q", credit=10)
    net.pump()
    (giving,) = container.attached_by_router
    assert isinstance(giving, Sender)
    container.stop_reading()
    receiver.close()
    net.pump()
    again = net.client().receiver("q", credit=500, accepts=True)
    net.pump()
    container.resume_reading()
    net.pump()
    giving.link.drained()
    net.pump()
    for _ in range(300):
        giving.send()
        net.pump()
    assert len(again.complete) == 300
    net.no_errors()


def test_a_link_that_the_container_ends_later_is_attached_again() -> None:
    """routing 109"""
    net = Net()
    out = auto_link(net, "q", "out")
    container = broker(net)
    net.pump()
    container.attached_by_router[0].close()
    net.pump()
    assert status(out) == "failed"
    assert not net.core.links
    net.advance(2.5)
    assert status(out) == "active"


def test_a_deleted_auto_link_is_detached() -> None:
    """routing 110"""
    net = Net()
    out = auto_link(net, "q", "out")
    container = broker(net)
    net.pump()
    net.surroundings.auto_links.remove(out)
    net.work.finish()
    net.pump()
    end = container.attached_by_router[0]
    assert end.is_detached
    assert end.was_closed
    assert end.condition is None
    assert not net.core.links
    assert not net.core.table.addresses
    assert "Auto Link Deactivated 'q-out' on container broker" in net.log_texts()


def test_the_loss_of_the_connection_makes_it_inactive_until_the_next() -> None:
    """routing 110"""
    net = Net()
    out = auto_link(net, "q", "out")
    broker(net).kill()
    first = broker(net)
    net.pump()
    first.kill()
    net.pump()
    assert status(out) == "inactive"
    assert not net.timers
    again = broker(net)
    net.pump()
    assert status(out) == "active"
    assert len(again.attached_by_router) == 1


def test_one_that_waits_for_its_retry_is_not_attached_to_a_connection_that_is_gone() -> None:
    """routing 110"""
    net = Net()
    out = auto_link(net, "q", "out")
    container = broker(net)
    container.refusal_of_links = proton.Condition("amqp:not-found", "no")
    net.pump()
    container.kill()
    net.advance(10)
    assert status(out) == "inactive"
    net.no_errors()


def test_one_that_is_made_while_the_connection_is_open_is_attached_at_once() -> None:
    net = Net()
    container = broker(net)
    net.pump()
    auto_link(net, "q", "in")
    net.work.finish()
    net.pump()
    assert len(container.attached_by_router) == 1


def test_messages_go_through_the_queue_of_the_container() -> None:
    """routing 111: in phase 0 to the container, in phase 1 from it; nobody gets them past it."""
    net = Net(phases={"q": (0, 1)})
    auto_link(net, "q", "out")
    auto_link(net, "q", "in")
    container = broker(net)
    sender, receiver = net.client().sender("q"), net.client().receiver("q", credit=10)
    net.pump()
    sender.send(b"m")
    net.pump()
    queue, back = container.attached_by_router
    assert isinstance(queue, Receiver)
    assert isinstance(back, Sender)
    assert queue.bodies == [b"m"]
    assert receiver.bodies == []
    back.send(b"m")
    net.pump()
    assert receiver.bodies == [b"m"]
    assert queue.bodies == [b"m"]


def test_a_container_has_credit_only_while_somebody_receives() -> None:
    """As a targeted sender (§6.1)."""
    net = Net(phases={"q": (0, 1)})
    auto_link(net, "q", "in")
    container = broker(net)
    net.pump()
    giving = container.attached_by_router[0]
    assert isinstance(giving, Sender)
    assert giving.credit == 0
    net.client().receiver("q", credit=10)
    net.pump()
    assert giving.credit == 250


def test_a_large_message_that_comes_when_the_last_consumer_has_left_is_released_as_a_whole() -> None:
    """Artemis closes the connection, with all auto links, where it learns an outcome of what it still sends."""
    net = Net(phases={"work": (0, 1)})
    auto_link(net, "work", "in")
    container = broker(net)
    net.pump()
    consumer = net.client().receiver("work", credit=10)
    net.pump()
    queue = container.attached_by_router[0]
    assert isinstance(queue, Sender)
    consumer.close()
    net.pump()
    sending = queue.start()
    for _ in range(3):
        queue.append(encoded(bytes(300_000))[:100_000])
        net.pump()
        assert not sending.updates
    queue.finish()
    net.pump()
    assert [(update.state, update.is_settled) for update in sending.updates] == [(RELEASED, True)]
    net.nothing_left()


def test_the_address_is_there_as_long_as_the_auto_link() -> None:
    """§14.3: listed with no path while the container is away."""
    net = Net()
    out = auto_link(net, "q", "out")
    assert "M0q" in net.core.table.addresses
    container = broker(net)
    net.pump()
    container.kill()
    net.pump()
    assert "M0q" in net.core.table.addresses
    net.surroundings.auto_links.remove(out)
    assert not net.core.table.addresses


def test_an_unavailable_address_is_balanced_where_an_auto_link_serves_it() -> None:
    """§7.4"""
    net = Net({"q": "unavailable"})
    auto_link(net, "q", "out")
    assert net.core.table.addresses["M0q"].distribution == "balanced"


@pytest.mark.parametrize(("capability", "sends_in", "receives_in"), [("qd.waypoint", 1, 0), ("qd.waypoint.3", 3, 2)])
def test_a_waypoint_client_is_in_other_phases_than_clients(capability: str, sends_in: int, receives_in: int) -> None:
    """§5.1: so what it takes from senders it gives to receivers, and gets none of it again."""
    net = Net()
    symbols = proton.symbol(capability)
    waypoint = net.client("waypoint")
    waypoint.sender("q", target={"capabilities": symbols})
    waypoint.receiver("q", credit=10, source={"capabilities": symbols})
    net.pump()
    assert {f"M{sends_in}q", f"M{receives_in}q"} == set(net.core.table.addresses)


def test_an_ended_session_of_the_router_is_begun_again() -> None:
    net = Net()
    out = auto_link(net, "q", "out")
    container = broker(net)
    net.pump()
    container.attached_by_router[0].link.session.close()
    net.pump()
    assert status(out) == "failed"
    net.advance(2.5)
    assert status(out) == "active"
    net.no_errors()


def test_policy_does_not_judge_the_routers_own_links() -> None:
    """A listener of role route-container has a policy; what the router attaches there is the router's doing."""
    group = {"remoteHosts": "*", "sources": "", "targets": "", "maxSessions": 1}
    net = Net(vhosts=Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}))
    out = auto_link(net, "q", "out")
    container = broker(net)
    net.pump()
    assert status(out) == "active"
    for _ in net.peer(container).redecide():
        net.work.finish()
    net.pump()
    assert status(out) == "active"
    assert not container.attached_by_router[0].is_detached


def test_a_queue_behind_one_router_serves_clients_of_another() -> None:
    """The phases travel with the message: what comes from the container at A reaches receivers at B, and none of it
    goes to the container again."""
    fleet = Fleet("A", "B", phases={"q": (0, 1)})
    net = fleet["A"]
    fleet.connect("A", "B")
    auto_link(net, "q", "out")
    auto_link(net, "q", "in", external="q")
    container = broker(net)
    far = fleet["B"].client()
    receiver, sender = far.receiver("q", credit=10), far.sender("q")
    fleet.settle()
    sender.send(encoded(b"m"))
    fleet.pump()
    queue, back = container.attached_by_router
    assert isinstance(queue, Receiver)
    assert isinstance(back, Sender)
    assert len(queue.bodies) == 1
    assert receiver.bodies == []
    back.send(queue.bodies[0])
    fleet.pump()
    assert len(receiver.bodies) == 1
    assert len(queue.bodies) == 1
    assert (sender.sent[0].outcome, back.sent[0].outcome) == (ACCEPTED, None)
    receiver.received[0].accept()
    fleet.pump()
    assert back.sent[0].outcome == ACCEPTED
    fleet.no_errors()
