"""maxMessageRate: what one connection may send in a second, held back by credit, never dropped."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED
from paced_net import STEP_S, Load, attach, drain, paced
from test_credit_rules import force_send


@pytest.mark.slow
@given(
    rate=st.integers(1, 60),
    links=st.integers(1, 4),
    is_settled=st.booleans(),
    capacity=st.sampled_from([1, 5, 250]),
    pauses=st.lists(st.floats(0.0, 2.5), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_no_more_messages_than_the_rate_in_any_time(
    rate: int, links: int, is_settled: bool, capacity: int, pauses: list[float]
) -> None:
    net = paced(capacity, maxMessageRate=rate)
    receiver = drain(net)
    _, senders = attach(net, links)
    load = Load(net, senders, is_settled=is_settled)
    for pause in (*pauses, 0.0):
        load.run(0.8, step=0.1)
        net.advance(pause)
    load.check(rate, burst=rate)
    net.advance(load.sent / rate + 1)
    assert len(receiver.complete) == load.sent
    net.nothing_left()


@pytest.mark.slow
def test_a_sender_has_its_rate_but_no_more() -> None:
    """After the first second's worth: what is granted in three more, to one link, although its capacity is less."""
    net = paced(maxMessageRate=1000)
    drain(net)
    _, senders = attach(net)
    load = Load(net, senders).run(3)
    assert 3_500 <= load.count() <= 4_000
    load.check(1000, burst=1000)


@pytest.mark.parametrize("is_settled", [True, False])
def test_many_links_share_one_rate_and_none_is_starved(is_settled: bool) -> None:
    net = paced(maxMessageRate=40)
    drain(net)
    client = net.client(hostname="slow")
    senders = [client.sender("a") for _ in range(5)]
    other = client.connection.session()
    other.open()
    senders += [client.sender("a", session=other) for _ in range(5)]
    net.pump()
    load = Load(net, senders, is_settled=is_settled).run(20)
    load.check(40, burst=40)
    assert load.count() >= 40 * 20
    counts = [link.delivery_count for link in load.links()]
    assert min(counts) >= 40


def test_more_connections_than_one_have_each_their_own_rate() -> None:
    net = paced(maxMessageRate=20)
    drain(net)
    loads = [Load(net, attach(net)[1]) for _ in range(2)]
    for _ in range(20):
        for load in loads:
            load.run(0.1)
    assert all(load.count() >= 50 for load in loads)


def test_another_connection_is_not_slowed() -> None:
    net = paced(maxMessageRate=5)
    drain(net)
    slow, fast = Load(net, attach(net)[1]), Load(net, attach(net, hostname="else")[1])
    slow.run(1)
    assert net.now - slow.taken[0][0] == pytest.approx(1)
    before = net.now
    for _ in range(5):
        for sender in fast.senders:
            for _ in range(sender.credit):
                sender.send()
        net.pump()
    assert net.now == before  # no time has passed
    assert fast.count() == 5 * 250


def test_a_held_back_connection_shows_it() -> None:
    net = paced(maxMessageRate=5)
    drain(net)
    client, senders = attach(net)
    assert net.peer(client).attachment.held_back_count == 0
    Load(net, senders).run(2)
    assert net.peer(client).attachment.held_back_count >= 3


def test_credit_is_bounded_by_the_rate_from_the_start() -> None:
    net = paced(maxMessageRate=7)
    drain(net)
    _, (one, other) = attach(net, 2)
    assert (one.credit, other.credit) == (7, 7)
    for _ in range(7):
        one.send()
    net.pump()
    assert (one.credit, one.outcomes) == (0, [ACCEPTED] * 7)
    for _ in range(7):
        other.send()
    net.pump()
    assert other.outcomes == [None] * 7
    _, (late,) = attach(net)  # another connection
    assert late.credit == 7


def test_what_attaches_while_senders_wait_gets_its_credit_later() -> None:
    net = paced(maxMessageRate=3)
    drain(net)
    client, (sender,) = attach(net)
    for _ in range(3):
        sender.send()
    net.pump()
    late = client.sender("a")
    net.pump()
    assert late.credit == 0
    net.advance(2)
    assert late.credit == 3


@pytest.mark.parametrize("key", ["maxMessageRate", "maxByteRate"])
def test_a_rate_of_nothing_lets_nothing_through(key: str) -> None:
    net = paced(**{key: 0})
    receiver = drain(net)
    _, (sender,) = attach(net)
    assert sender.credit == 0
    net.advance(10)
    assert sender.credit == 0
    assert receiver.received == []
    assert not net.timers
    net.nothing_left()


def test_anonymous_senders_are_held_back_too() -> None:
    net = paced(maxMessageRate=4)
    receiver = drain(net)
    _, (sender,) = attach(net, address=None)
    for _ in range(4):
        sender.send(address="a")
    net.pump()
    assert sender.credit == 0
    net.advance(0.75)
    assert len(receiver.complete) == 4
    assert sender.credit == 4


# Nothing lost, nothing left


@pytest.mark.parametrize("how", ["detach", "close", "kill", "end"])
@pytest.mark.parametrize("is_settled", [True, False])
def test_what_has_come_is_delivered_when_its_link_goes(how: str, is_settled: bool) -> None:
    net = paced(maxMessageRate=5)
    receiver = drain(net)
    client, senders = attach(net, 2)
    for sender in senders:
        for _ in range(5):
            sender.send(is_settled=is_settled)
    net.pump()
    assert len(receiver.complete) == 5
    if how == "detach":
        for sender in senders:
            sender.detach()
    elif how == "close":
        client.close()
    elif how == "end":
        assert client.session is not None
        client.session.close()
    else:
        client.kill()
    net.pump()
    assert len(receiver.complete) == 10
    assert not net.timers
    net.nothing_left()


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_has_come_behind_a_large_message_is_delivered_too(is_settled: bool) -> None:
    """The large message streams, and the rate holds it, when the link goes."""
    net = paced(maxByteRate=100_000)
    receiver = drain(net)
    _, (sender,) = attach(net)
    sender.send(bytes(700_000), is_settled=is_settled)
    for _ in range(3):
        sender.send(is_settled=is_settled)
    net.pump()
    assert not receiver.complete
    sender.detach()
    net.pump()
    assert len(receiver.complete) == 4
    net.nothing_left()


def test_a_link_that_goes_leaves_its_debt_to_the_connection() -> None:
    """Attack: attach, send, detach, again: each time a window would pass that the rate does not allow."""
    net = paced(maxMessageRate=10)
    receiver = drain(net)
    client = net.client(hostname="slow")
    began = net.now
    for _ in range(200):
        sender = client.sender("a")
        net.pump()
        for _ in range(sender.credit):
            sender.send(is_settled=True)
        net.pump()
        sender.detach()
        net.advance(STEP_S, step=STEP_S)
    assert len(receiver.complete) <= 10 * (net.now - began) + 2 * 10
    net.nothing_left()


@pytest.mark.parametrize("frames", [1, 20])
def test_who_sends_without_credit_and_detaches_passes_no_rate(frames: int) -> None:
    """Attack: what has come on a link that goes is taken at once, and who goes again and again pays nothing."""
    net = paced(maxMessageRate=3)
    receiver = drain(net)
    client, (sender,) = attach(net)
    for _ in range(5):
        for _ in range(200 // frames):
            force_send(sender, frames)
        sender.close()
        net.pump()
        sender = client.sender("a")
        net.pump()
    assert len(receiver.received) == 3
    net.nothing_left()


@pytest.mark.parametrize("rate", [0, 1])
def test_messages_without_credit_do_not_pile_up_while_nothing_is_taken(rate: int) -> None:
    """Attack: the engine keeps them all, and at a rate of nothing would for ever."""
    net = paced(maxMessageRate=rate)
    drain(net)
    _, (sender,) = attach(net)
    for _ in range(5):
        force_send(sender)
    net.pump()
    assert sender.is_detached
    assert sender.condition is not None
    assert sender.condition.name == "amqp:link:transfer-limit-exceeded"
    net.nothing_left()


def test_a_sender_that_ignores_its_credit_is_closed_when_its_messages_are_looked_at() -> None:
    net = paced(maxMessageRate=2)
    receiver = drain(net)
    _, (sender,) = attach(net)
    for _ in range(40):
        force_send(sender)
    net.advance(3)
    assert sender.is_detached
    assert sender.condition is not None
    assert sender.condition.name == "amqp:link:transfer-limit-exceeded"
    assert len(receiver.received) <= 10
    net.nothing_left()


def test_credit_that_was_kept_is_not_given_when_nobody_can_receive_any_more() -> None:
    """routing 60: as without a rate"""
    net = paced(maxMessageRate=2)
    receiver = drain(net)
    _, (sender,) = attach(net)
    for _ in range(2):
        sender.send()
    net.pump()
    receiver.close()
    net.advance(5)
    assert sender.credit == 0
    drain(net)
    assert sender.credit == 2


def test_a_failure_while_waiting_messages_are_taken_ends_that_connection_only() -> None:
    net = paced(maxMessageRate=1)
    drain(net)
    client, (sender, other) = attach(net, 2)
    bystander = attach(net, hostname="else")[1][0]
    sender.send()
    net.pump()
    other.send()
    net.pump()
    (link,) = (link for link in net.core.links.values() if link.name == other.link.name and not link.delivery_count)

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    wire: Any = link.wire
    wire.forward = fail
    net.advance(3)
    assert client.is_closed_by_router
    bystander.send()
    net.pump()
    assert bystander.outcomes == [ACCEPTED]
    assert not net.timers
