"""Link routes: an attach goes on to a container, and what both peers say passes the router unchanged.

Source: docs/spec/routing.md §15; its checklist, 53, 69, 97, 113 to 118, 120.
"""

from typing import Any

import proton
import pytest
from memory_net import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    Client,
    Net,
    Receiver,
    Sender,
    Vhosts,
    broker,
    receiver_of,
    sender_of,
)

from policy.addressing.patterns import configured_tokens
from router.amqp.codec import decode
from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute
from router.connection.routed_links import LEAVE_LIMIT_S
from router.core.routed import RoutedIn
from router.core.views import link_rows

ATTACH = 0x12
BROKER = Place(kind="container", text="broker")


def link_routes(net: Net, prefix: str | None = "q", *, pattern: str | None = None, **terms: Any) -> list[LinkRoute]:
    """One in each direction."""
    text = "/".join(configured_tokens(prefix if pattern is None else None, pattern))
    made = []
    for direction in ("send", "receive"):
        terms = {"place": BROKER, "name": f"{text}-{direction}", "key": f"C{text}", **terms}
        made.append(LinkRoute(pattern=text, direction=direction, **terms))
        net.surroundings.link_routes.add(made[-1])
    return made


@pytest.mark.parametrize("is_first", [True, False])
def test_an_attach_costs_one_round_trip_to_the_container(is_first: bool) -> None:
    """Also the first: the session that the container has links in is there before."""
    net = Net()
    if is_first:
        link_routes(net)
    container = broker(net)
    if not is_first:
        link_routes(net)  # at run time
    client = net.client("consumer")
    net.pump()
    receiver = client.receiver("q.1")
    assert client.push_to_router()
    assert container.pull_from_router()
    assert sender_of(container).link.name.endswith("@consumer")
    assert container.push_to_router()
    assert client.pull_from_router()
    assert receiver.is_attached


def test_an_attach_reaches_the_container_with_all_its_fields() -> None:
    """routing 113"""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client("consumer")
    receiver = client.receiver(
        "q.1",
        name="sub",
        source={
            "durability": proton.Terminus.DELIVERIES, "expiry_policy": proton.Terminus.EXPIRE_NEVER, "timeout": 7,
            "distribution_mode": proton.Terminus.DIST_MODE_COPY,
            "filter": {proton.symbol("selector"): proton.Described(proton.symbol("apache.org:selector"), "a > 1")},
            "capabilities": proton.symbol("queue"), "properties": {proton.symbol("p"): 1},
            "outcomes": proton.symbol("amqp:accepted:list"),
        },
    )  # fmt: skip
    net.pump()
    link = sender_of(container).link
    assert link.name == "sub@consumer"
    source = link.remote_source
    assert (source.address, source.durability, source.expiry_policy, source.timeout) == (
        "q.1", proton.Terminus.DELIVERIES, proton.Terminus.EXPIRE_NEVER, 7,
    )  # fmt: skip
    assert source.distribution_mode == proton.Terminus.DIST_MODE_COPY
    for part in ("filter", "capabilities", "properties", "outcomes"):
        getattr(source, part).rewind()
        assert getattr(source, part).next() is not None, part
    assert link.remote_target.address == "to-consumer"
    assert receiver.is_attached
    assert receiver.link.remote_source.durability == proton.Terminus.DELIVERIES
    net.no_errors()


def attach_in(frames: bytearray) -> list[Any]:
    """The fields of the first Attach."""
    at = 0
    while at < len(frames):
        size = int.from_bytes(frames[at : at + 4], "big")
        if size > 8 and (performative := decode(bytes(frames), at + 8)[0]).descriptor == ATTACH:
            return list(performative.value)
        at += size
    raise AssertionError("no Attach")


@pytest.mark.parametrize("kind", ["sender", "receiver"])
def test_a_terminus_without_an_address_is_not_taken_for_none(kind: str) -> None:
    """Broker-J closes a link that has no source. proton writes that of a sender without an address."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    net.pump()
    link = client.sender("q").link if kind == "sender" else client.receiver("q").link
    other = link.source if kind == "sender" else link.target
    other.address = None
    other.type = other.SOURCE if kind == "sender" else other.TARGET
    assert client.push_to_router()
    at = 5 if kind == "sender" else 6
    assert attach_in(container.inbox)[at] is not None
    assert container.pull_from_router()
    assert container.push_to_router()
    assert attach_in(client.inbox)[at] is not None


@pytest.mark.parametrize("way", ["detach", "close", "end"])
@pytest.mark.parametrize("who", ["client", "container"])
def test_a_receiver_that_leaves_in_mid_message_is_not_told_that_it_has_the_whole(who: str, way: str) -> None:
    net = Net()
    link_routes(net)
    container, client = broker(net), net.client()
    receiver: Receiver
    if who == "client":
        receiver = client.receiver("q", credit=10)
        net.pump()
        sender = sender_of(container)
    else:
        sender = client.sender("q")
        net.pump()
        receiver = receiver_of(container)
    net.pump()
    sender.start()
    sender.append(bytes(300_000))
    net.pump()
    if way == "end":
        receiver.link.session.close()
    else:
        getattr(receiver, way)()
    net.pump()
    (item,) = receiver.received
    assert item.is_aborted
    net.nothing_left()


def test_messages_go_both_ways_unchanged() -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    sender, receiver = client.sender("q"), client.receiver("q", credit=5)
    net.pump()
    taking, giving = receiver_of(container, 0), sender_of(container, 1)
    assert sender.credit == 100
    assert giving.credit == 5
    sender.send(b"no AMQP at all")
    giving.send(b"from the broker")
    net.pump()
    assert taking.bodies == [b"no AMQP at all"]
    assert receiver.bodies == [b"from the broker"]
    assert sender.sent[0].outcome == ACCEPTED
    receiver.received[0].accept()
    net.pump()
    assert giving.sent[0].outcome == ACCEPTED
    assert giving.credit == 4
    net.no_errors()


def test_tags_are_those_of_the_sender() -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    sender = net.client().sender("q")
    net.pump()
    receiver_of(container).accepts = False
    for tag, body in (("t", b"m"), ("x" * 32, b"m"), ("large", bytes(200_000))):
        delivery = sender.link.delivery(tag)
        sender.link.send(body)
        sender.link.advance()
        net.pump()
        received = receiver_of(container).received[-1]._delivery
        assert received is not None
        assert received.tag == tag
        delivery.settle()


def test_a_tag_of_33_bytes_ends_the_connection() -> None:
    """routing 97, as decided in §9.2"""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    sender = client.sender("q")
    net.pump()
    sender.link.delivery("x" * 33)
    sender.link.send(b"m")
    sender.link.advance()
    net.pump()
    assert client.refusal.name == "amqp:invalid-field"
    assert receiver_of(container).received == []


def test_the_prefix_is_of_the_container_alone() -> None:
    """routing 114"""
    net = Net()
    link_routes(net, "front", add="back.", remove="front.")
    container = broker(net)
    receiver = net.client().receiver("front.x")
    net.pump()
    assert sender_of(container).link.remote_source.address == "back.x"
    assert receiver.link.remote_source.address == "front.x"


def test_without_a_container_there_is_no_route() -> None:
    """routing 53, 115"""
    net = Net()
    link_routes(net)
    link_routes(net, "$coordinator")
    client = net.client()
    sender = client.sender("q")
    coordinator = client.sender(None, target={"type": proton.Terminus.COORDINATOR})
    net.pump()
    for end in (sender, coordinator):
        assert end.refusal.name == "qd:no-route-to-dest"
    net.no_errors()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_link_that_its_client_ends_before_the_container_has_answered_ends_without_an_error(is_closed: bool) -> None:
    """Issue 34, peer 14; routing 115"""
    net = Net()
    link_routes(net)
    container = broker(net)
    net.pump()
    container.stop_reading()
    client = net.client()
    ends = [client.sender("q"), client.receiver("q")]
    net.pump()
    for end in ends:
        (end.close if is_closed else end.detach)()
    net.pump()
    container.resume_reading()
    net.pump()
    assert [(end.is_detached, end.condition) for end in ends] == [(True, None)] * 2
    net.nothing_left()


def test_containers_get_attaches_in_turn() -> None:
    """routing 115"""
    net = Net()
    link_routes(net, place=Place(kind="connection", text="brokers"))
    net.listener_terms["name"] = "brokers"
    first, second = broker(net, "b1"), broker(net, "b2")
    client = net.client()
    for _ in range(4):
        client.sender("q")
        net.pump()
    assert len(first.attached_by_router) == len(second.attached_by_router) == 2


def test_the_containers_refusal_is_the_clients() -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    container.refusal_of_links = proton.Condition("amqp:unauthorized-access", "not you")
    sender = net.client().sender("q")
    net.pump()
    assert (sender.refusal.name, sender.refusal.description) == ("amqp:unauthorized-access", "not you")
    assert sender.link.remote_target.type == proton.Terminus.UNSPECIFIED
    assert not net.core.links
    net.no_errors()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_detach_of_the_client_reaches_the_container(is_closed: bool) -> None:
    """routing 116"""
    net = Net()
    link_routes(net)
    container = broker(net)
    sender = net.client().sender("q")
    net.pump()
    sender.link.condition = proton.Condition("x:y", "why")
    if is_closed:
        sender.close()
    else:
        sender.link._update_cond()  # proton does it only for a close
        sender.detach()
    net.pump()
    end = receiver_of(container)
    assert end.is_detached
    assert end.was_closed is is_closed
    assert end.refusal.name == "x:y"
    assert not net.core.links
    net.no_errors()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_detach_of_the_container_reaches_the_client(is_closed: bool) -> None:
    """routing 116"""
    net = Net()
    link_routes(net)
    container = broker(net)
    receiver = net.client().receiver("q", credit=1)
    net.pump()
    end = sender_of(container)
    end.link.condition = proton.Condition("amqp:resource-deleted", "queue gone")
    if is_closed:
        end.close()
    else:
        end.link._update_cond()
        end.detach()
    net.pump()
    assert receiver.is_detached
    assert receiver.was_closed is is_closed
    assert receiver.refusal.name == "amqp:resource-deleted"
    assert not net.core.links
    net.no_errors()


def test_the_loss_of_the_container_is_told() -> None:
    """routing 116"""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    sender, receiver = client.sender("q"), client.receiver("q")
    net.pump()
    receiver_of(container, 0).accepts = False
    sender.send(b"m")
    net.pump()
    container.kill()
    net.pump()
    for end in (sender, receiver):
        assert end.was_closed
        assert end.refusal.name == "qd:routed-link-lost"
        assert end.refusal.description == "Connectivity to the peer container was lost"
    assert sender.sent[0].outcome == MODIFIED
    net.nothing_left()


def test_the_loss_of_the_client_is_told() -> None:
    """routing 116"""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    client.receiver("q", credit=1)
    net.pump()
    giving = sender_of(container)
    giving.send(b"m")
    net.pump()
    client.kill()
    net.pump()
    assert giving.refusal.name == "qd:routed-link-lost"
    assert giving.sent[0].outcome == MODIFIED
    net.nothing_left()


def test_what_comes_for_a_client_that_has_left_is_released() -> None:
    """It was settled without an outcome, so the container did not know that it could send it to somebody else."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    client.receiver("q", credit=10)
    net.pump()
    sender = sender_of(container)
    client.kill()
    sendings = [sender.send(b"m") for _ in range(3)]
    net.pump()
    assert [sending.outcome for sending in sendings] == [RELEASED] * 3
    net.nothing_left()


def test_a_client_that_leaves_before_the_answer_leaves_nothing() -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    container.stop_reading()
    client = net.client()
    sender = client.sender("q")
    net.pump()
    sender.close()
    net.pump()
    container.resume_reading()
    net.pump()
    assert all(end.is_detached for end in container.attached_by_router)
    assert sender.is_detached
    net.nothing_left()


def test_a_drain_reaches_the_container_and_its_end_the_client() -> None:
    """routing 69: and no credit is left over, or doubled"""
    net = Net()
    link_routes(net)
    container = broker(net)
    receiver = net.client().receiver("q", credit=10)
    net.pump()
    giving = sender_of(container)
    giving.send(b"one")
    net.pump()
    receiver.link.drain(0)
    net.pump()
    assert giving.link.drain_mode
    giving.link.drained()
    net.pump()
    assert receiver.link.credit == 0
    assert giving.credit == 0
    receiver.link.drain_mode = False
    receiver.flow(3)
    net.pump()
    assert giving.credit == 3
    giving.send(b"two")
    net.pump()
    assert receiver.bodies == [b"one", b"two"]
    net.no_errors()


@pytest.mark.parametrize("when", ["with the attach", "later"])
def test_a_drain_that_comes_with_its_credit_reaches_the_container(when: str) -> None:
    """As of a client that takes what there is and does not wait (JMS receiveNoWait)."""
    net = Net()
    link_routes(net)
    container = broker(net)
    receiver = net.client().receiver("q")
    if when == "later":
        net.pump()
    receiver.link.drain(5)
    net.pump()
    giving = sender_of(container)
    assert giving.link.drain_mode
    assert giving.credit == 5
    giving.send(b"one")
    giving.link.drained()
    net.pump()
    assert receiver.bodies == [b"one"]
    assert receiver.link.credit == 0
    net.no_errors()


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize(
    ("credit", "sent", "size"),
    [
        (1, 1, 10),
        (5, 5, 10),
        (5, 4, 10),
        (1100, 1100, 10),
        (1100, 1024, 10),
        (1, 1, 500_000),
        (5, 5, 500_000),
        (5, 4, 500_000),
    ],
)
def test_a_drain_gets_all_that_the_container_sends_at_once(credit: int, sent: int, size: int, is_settled: bool) -> None:
    """Also where it sends as many as it was asked for, and so has no credit left that it could give up."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    receiver = client.receiver("q", accepts=True)
    net.pump()
    receiver.link.drain(credit)
    net.pump()
    giving = sender_of(container)
    for _ in range(sent):
        giving.send(b"x" * size, is_settled=is_settled)
    if sent < credit:
        net.pump()
        giving.link.drained()
    net.pump()
    assert len(receiver.complete) == sent
    assert receiver.link.credit == 0
    assert is_settled or giving.outcomes == [ACCEPTED] * sent
    flow = client.frames("flow")[-1].fields
    assert flow[5:7] == [credit, 0]  # delivery-count, link-credit
    receiver.link.drain_mode = False
    receiver.flow(1)
    net.pump()
    giving.send(b"later")
    net.pump()
    assert receiver.bodies[-1] == b"later"
    net.no_errors()


@pytest.mark.parametrize("is_own", [True, False])
def test_a_container_may_answer_without_an_address(is_own: bool) -> None:
    """Also to itself: it attaches, and the router routes that back to it. Both links are there, and messages pass."""
    net = Net()
    link_routes(net)
    container = broker(net)
    answer = container._answer_attach

    def answer_plainly(link: Any) -> None:
        link.remote_source.address = link.remote_target.address = None  # it answers with these
        answer(link)

    container._answer_attach = answer_plainly  # type: ignore[method-assign]
    client = container if is_own else net.client()
    sender, receiver = client.sender("q"), client.receiver("q", credit=3, accepts=True)
    net.pump()
    assert [link["owningAddr"] for link in link_rows(net.core)] == ["M0q"] * 4
    attaches = [frame for frame in client.frames("attach") if frame[0] in (sender.link.name, receiver.link.name)]
    for attach in attaches:
        assert attach[5] is not None
        assert attach[6] is not None
    taking, giving = receiver_of(container, 0), sender_of(container, 1)
    sender.send(b"up")
    giving.send(b"down")
    net.pump()
    assert (taking.bodies, receiver.bodies) == ([b"up"], [b"down"])
    net.no_errors()


@pytest.mark.parametrize("is_settled", [True, False])
def test_an_empty_message_goes_on_to_nobody(is_settled: bool) -> None:
    """As on other links: a message has a body."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    sender, receiver = client.sender("q"), client.receiver("q", credit=3)
    net.pump()
    taking, giving = receiver_of(container, 0), sender_of(container, 1)
    for source, sink in ((sender, taking), (giving, receiver)):
        empty = source.send_bytes(b"", is_settled=is_settled)
        source.send(b"good")
        net.pump()
        assert sink.bodies == [b"good"]
        if not is_settled:
            assert empty.outcome == REJECTED
            condition = empty.updates[-1].condition
            assert condition is not None
            assert (condition.name, condition.description) == ("amqp:decode-error", "invalid message format")
    assert (giving.credit, sender.credit) == (2, 99)
    net.no_errors()


def test_large_messages_stream_through() -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    sender = net.client().sender("q")
    net.pump()
    body = bytes(range(256)) * 8000
    sender.send(body)
    sender.send(b"small")
    net.pump()
    assert receiver_of(container).bodies == [body, b"small"]
    assert [each.outcome for each in sender.sent] == [ACCEPTED, ACCEPTED]
    assert sender.credit == 98
    net.no_errors()


def test_management_shows_both_links() -> None:
    """routing 117"""
    net = Net()
    link_routes(net)
    broker(net)
    net.client("c").sender("q.x", name="s")
    net.pump()
    rows = {row["linkName"]: row for row in link_rows(net.core)}
    near, far = rows["s"], rows["s@c"]
    assert (near["peer"], far["peer"]) == (far["identity"], near["identity"])
    assert near["owningAddr"] == far["owningAddr"] == "M0q.x"
    assert (near["capacity"], far["capacity"]) == (250, 0)
    assert near["linkType"] == far["linkType"] == "endpoint"


def test_the_best_pattern_routes() -> None:
    """routing 118"""
    net = Net()
    link_routes(net, pattern="q.*", place=Place(kind="container", text="other"))
    link_routes(net, pattern="q.a")
    container = broker(net)
    client = net.client()
    taken, other, none = client.sender("q.a"), client.sender("q.b"), client.sender("r")
    net.pump()
    assert len(container.attached_by_router) == 1
    assert taken.is_attached
    assert other.refusal.name == "qd:no-route-to-dest"
    assert none.is_attached
    assert not none.is_detached


def test_a_terminus_that_is_to_outlive_its_link_may_be_forbidden() -> None:
    """routing 120"""
    net = Net()
    net.surroundings.link_routes.may_outlive = False
    link_routes(net)
    broker(net)
    client = net.client()
    lasting = client.receiver("q", source={"timeout": 5})
    never = client.receiver("q", source={"expiry_policy": proton.Terminus.EXPIRE_NEVER})
    plain = client.receiver("q")
    net.pump()
    for end in (lasting, never):
        assert end.refusal.name == "qd:link-expiration"
    assert not plain.is_detached


def test_policy_judges_the_name_that_the_client_wrote() -> None:
    group = {"remoteHosts": "*", "sources": "q.mine", "targets": "", "maxSenders": 9, "maxReceivers": 1}
    net = Net(vhosts=Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}))
    link_routes(net, add="ext.")
    container = broker(net)
    client = net.client()
    theirs = client.receiver("q.theirs")
    net.pump()
    assert theirs.refusal.name == "amqp:unauthorized-access"
    assert not container.attached_by_router
    mine = client.receiver("q.mine")
    net.pump()
    assert not mine.is_detached
    over = client.receiver("q.mine")
    net.pump()
    assert over.is_detached
    mine.close()
    net.pump()
    again = client.receiver("q.mine")
    net.pump()
    assert not again.is_detached, "a routed link that is over counts no longer"


def test_a_deleted_route_keeps_its_links() -> None:
    net = Net()
    routes = link_routes(net)
    container = broker(net)
    client = net.client()
    sender = client.sender("q")
    net.pump()
    for route in routes:
        net.surroundings.link_routes.remove(route)
    sender.send(b"m")
    net.pump()
    assert receiver_of(container).bodies == [b"m"]
    client.sender("q")
    net.pump()
    assert len(container.attached_by_router) == 1


def test_the_management_agent_cannot_be_routed_away() -> None:
    """Attack: a link route for everything, and the container answers for the router."""
    net = Net()
    link_routes(net, pattern="#")
    container = broker(net)
    net.core.subscribe("$management", lambda _payload, _link: None)
    net.client().sender("$management")
    net.pump()
    assert not container.attached_by_router


def test_a_detach_is_answered_when_the_container_has_answered() -> None:
    """§15.4; so the name is free at both when the client uses it again."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    sender = client.sender("q", name="same")
    net.pump()
    container.stop_reading()
    sender.close()
    net.pump()
    assert not sender.is_detached
    container.resume_reading()
    net.pump()
    assert sender.is_detached
    assert sender.was_closed
    again = client.sender("q", name="same")
    net.pump()
    assert again.is_attached
    assert not again.is_detached
    again.send(b"m")
    net.pump()
    assert receiver_of(container).bodies == [b"m"]
    net.no_errors()


@pytest.mark.parametrize("who", ["container", "client", "session"])
def test_nobody_is_left_when_one_goes_before_the_answer_to_a_detach(who: str) -> None:
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    sender = client.sender("q")
    net.pump()
    container.stop_reading()
    sender.close()
    net.pump()
    if who == "container":
        container.kill()
        net.pump()
        assert sender.is_detached
    elif who == "client":
        client.kill()
        container.resume_reading()
    else:
        client.session.close()
        net.pump()
        container.resume_reading()
    net.pump()
    net.nothing_left()


def governed(**limits: Any) -> Net:
    group = {"remoteHosts": "*", "sources": "*", "targets": "*", **limits}
    return Net(vhosts=Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}))


def test_the_size_that_a_client_may_send_is_no_limit_to_what_it_gets() -> None:
    """Attack on oneself: a broker's large message would end the client's connection."""
    net = governed(maxMessageSize=1000)
    link_routes(net)
    container = broker(net)
    client = net.client()
    receiver = client.receiver("q", credit=1)
    sender = client.sender("q")
    net.pump()
    assert (receiver.link.remote_max_message_size, sender.link.remote_max_message_size) == (0, 1000)
    sender_of(container, 0).send(bytes(5000))
    net.pump()
    assert receiver.bodies == [bytes(5000)]
    sender.send(bytes(5000))
    net.pump()
    assert client.router_closed
    assert receiver_of(container, 1).bodies == []
    assert not container.router_closed


def test_the_rate_of_a_connection_holds_for_routed_links() -> None:
    """Attack: a link route would lead around maxMessageRate."""
    net = governed(maxMessageRate=5)
    link_routes(net)
    container = broker(net)
    sender = net.client().sender("q")
    net.pump()
    for _ in range(20):
        sender.send(b"m")
    net.pump()
    assert len(receiver_of(container).bodies) <= 6
    net.advance(10)
    assert len(receiver_of(container).bodies) == 20
    net.no_errors()


def test_a_broker_that_sends_beyond_the_credit_loses_its_link_at_once() -> None:
    """Its Detach leaves with its own connection, whatever the client's has to say."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    receiver = client.receiver("q", credit=1)
    net.pump()
    giving = sender_of(container)
    core_link = next(link for link in net.core.links.values() if link.name == giving.link.name)
    assert isinstance(core_link, RoutedIn)
    assert core_link.on_over_credit is not None
    core_link.on_over_credit()
    net.work.finish()
    net.pump()
    assert giving.refusal.name == "amqp:link:transfer-limit-exceeded"
    assert receiver.is_detached
    assert not client.router_closed
    net.nothing_left()


def test_an_address_that_the_container_makes_up_stays_as_it_is() -> None:
    net = Net()
    (route, _) = link_routes(net, "front", add="back.", remove="front.")
    assert route.external("front.x") == "back.x"
    assert route.internal("back.x") == "front.x"
    assert route.internal("made-up") == "made-up"


def crowded(*, count: int = 100, is_settled: bool = True) -> tuple[Net, Client, Client, Sender]:
    """A container that reads nothing any more, and a client that has sent it `count` messages of 10 kB."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client("producer")
    sender = client.sender("q.1")
    net.pump()
    receiver_of(container).flow(200)
    net.pump()
    container.stop_reading()
    for number in range(count):
        sender.send(bytes([number]) * 10_000, is_settled=is_settled)
        net.pump()
    return net, container, client, sender


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_waits_for_a_crowded_container_goes_before_the_senders_detach(is_settled: bool) -> None:
    """The container has all of it, then the Detach; the client has its answer after that."""
    net, container, client, sender = crowded(is_settled=is_settled)
    sender.link.close()
    net.pump()
    assert not sender.link.state & proton.Endpoint.REMOTE_CLOSED
    container.resume_reading()
    net.pump()
    assert [body[0] for body in receiver_of(container).bodies] == list(range(100))
    assert receiver_of(container).link.state & proton.Endpoint.REMOTE_CLOSED
    receiver_of(container).link.close()
    net.pump()
    assert sender.link.state & proton.Endpoint.REMOTE_CLOSED
    client.close()
    container.close()
    net.pump()
    net.nothing_left()
    net.no_errors()


@pytest.mark.parametrize("who", ["client", "container"])
def test_nothing_is_left_of_a_leaving_sender_when_a_connection_is_lost(who: str) -> None:
    """Attack: a client leaves messages for a container that does not read, and goes, again and again."""
    net, container, client, sender = crowded()
    sender.link.close()
    net.pump()
    (client if who == "client" else container).kill()
    net.pump()
    if who == "container":
        assert sender.link.state & proton.Endpoint.REMOTE_CLOSED
        client.close()
    else:
        container.resume_reading()
        container.close()
    net.pump()
    net.nothing_left()
    net.no_errors()


def test_a_container_may_end_a_link_that_a_sender_is_leaving() -> None:
    net, container, client, sender = crowded()
    receiver_of(container).link.close()
    sender.link.close()
    net.pump()
    container.resume_reading()
    net.pump()
    assert sender.link.state & proton.Endpoint.REMOTE_CLOSED
    client.close()
    container.close()
    net.pump()
    net.nothing_left()
    net.no_errors()


def test_a_container_that_takes_nothing_keeps_nobody_from_leaving() -> None:
    net, container, _, sender = crowded()
    sender.link.close()
    net.pump()
    net.advance(LEAVE_LIMIT_S + 1)
    container.resume_reading()
    net.pump()
    assert len(receiver_of(container).bodies) < 100
    receiver_of(container).link.close()
    net.pump()
    assert sender.link.state & proton.Endpoint.REMOTE_CLOSED
    net.nothing_left()


@pytest.mark.parametrize("how", ["connection", "session"])
@pytest.mark.parametrize(("outlives", "is_closed"), [({"expiry_policy": proton.Terminus.EXPIRE_NEVER}, False),
                                                     ({"timeout": 60}, False), ({}, True)])  # fmt: skip
def test_a_durable_subscription_outlives_its_subscribers_connection(
    how: str, outlives: dict[str, Any], is_closed: bool
) -> None:
    """routing 117: JMS clients close connections without detaching; a closing Detach would end the subscription."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client("reader")
    client.receiver("q.news", name="daily", source={"durability": proton.Terminus.DELIVERIES, **outlives})
    net.pump()
    if how == "connection":
        client.close()
    else:
        client.session.close()
    net.pump()
    end = sender_of(container)
    assert end.link.remote_condition.name == "qd:routed-link-lost"
    assert (end.is_detached, end.was_closed) == (True, is_closed)


def test_sharing_is_offered_where_a_broker_may_do_it_and_refused_where_none_does() -> None:
    """JMS clients share subscriptions only where that is offered; by message routing each would get its copy."""
    net = Net()
    before = net.client("early")
    net.pump()
    link_routes(net)
    broker(net)
    client = net.client("team")
    shared = client.receiver("q.news", source={"capabilities": proton.symbol("shared")})
    other = client.receiver("elsewhere", source={"capabilities": proton.symbol("shared")})
    net.pump()
    offered = [list(each.connection.remote_offered_capabilities) for each in (before, client)]
    assert ["SHARED-SUBS" in each for each in offered] == [False, True]
    assert shared.is_attached
    assert other.condition is not None
    assert other.condition.name == "amqp:not-implemented"


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("answers_closed", [True, False])
def test_the_answer_to_a_detach_is_the_containers(is_closed: bool, answers_closed: bool) -> None:
    """With its error, and whether the terminus is gone."""
    net = Net()
    link_routes(net)
    container = broker(net)
    client = net.client()
    receiver = client.receiver("q")
    net.pump()
    giving = sender_of(container)
    del container.ends[giving.link]
    if is_closed:
        receiver.close()
    else:
        receiver.detach()
    net.pump()
    assert not client.frames("detach")
    giving.link.condition = proton.Condition("amqp:resource-deleted", "no longer")
    if answers_closed:
        giving.link.close()
    else:
        giving.link.detach()
    net.pump()
    (answer,) = client.frames("detach")
    assert bool(answer[1]) == (is_closed or answers_closed)
    if answers_closed:  # proton says the error only then
        assert answer[2].value[:2] == ["amqp:resource-deleted", "no longer"]
    net.no_errors()
