"""Who gets a message: balanced, closest, multicast, unavailable, anonymous; and in which order."""

from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Net, Receiver, at


def counts(receivers: list[Receiver]) -> list[int]:
    return [len(receiver.complete) for receiver in receivers]


def test_balanced_spreads_over_idle_receivers() -> None:
    """routing 70"""
    net = Net()
    receivers = [net.client().receiver("a", credit=100) for _ in range(3)]
    sender = net.client().sender("a")
    net.pump()
    for _ in range(9):
        sender.send(is_settled=True)
    net.pump()
    assert counts(receivers) == [3, 3, 3]


def test_balanced_prefers_whoever_has_least_in_hand() -> None:
    """routing 70 (§7.1)"""
    net = Net()
    lazy = net.client().receiver("a", credit=100)
    busy = net.client().receiver("a", credit=100, accepts=True)
    sender = net.client().sender("a")
    net.pump()
    for _ in range(20):
        sender.send()
        net.pump()
    assert counts([lazy, busy]) == [1, 19]


def test_balanced_counts_what_is_queued() -> None:
    """routing 70: a receiver without credit is not given everything (§7.1: queued plus unsettled)"""
    net = Net()
    starved, fed = net.client().receiver("a"), net.client().receiver("a", credit=100)
    sender = net.client().sender("a")
    net.pump()
    for _ in range(10):
        sender.send()
    net.pump()
    assert counts([starved, fed]) == [0, 5]
    starved.flow(10)
    net.pump()
    assert counts([starved, fed]) == [5, 5]


def test_closest_takes_turns_whatever_the_load() -> None:
    """routing 73, 74"""
    net = Net({"a": "closest"})
    starved = net.client().receiver("a")
    receivers = [starved, net.client().receiver("a", credit=100), net.client().receiver("a", credit=100, accepts=True)]
    sender = net.client().sender("a")
    net.pump()
    for _ in range(9):
        sender.send()
        net.pump()
    assert counts(receivers) == [0, 3, 3]
    starved.flow(10)
    net.pump()
    assert counts(receivers) == [3, 3, 3]


def test_closest_gives_in_process_consumers_everything() -> None:
    """routing 73 (§7.2 step 1)"""
    net = Net()
    taken: list[bytes] = []
    net.core.subscribe("agent", lambda payload, link: taken.append(payload))
    receiver = net.client().receiver("agent", credit=10)
    sender = net.client().sender("agent")
    net.pump()
    sendings = [sender.send(b"1"), sender.send(b"2"), sender.send(b"3", is_settled=True)]
    net.pump()
    assert len(taken) == 3
    assert [sending.outcome for sending in sendings[:2]] == [ACCEPTED, ACCEPTED]
    assert not receiver.received
    assert sender.credit == 250


@pytest.mark.parametrize("is_settled", [True, False])
def test_multicast_gives_everybody_a_copy(is_settled: bool) -> None:
    """routing 75"""
    net = Net({"m": "multicast"})
    receivers = [net.client().receiver("m", credit=10, accepts=True) for _ in range(3)]
    sender = net.client().sender("m")
    net.pump()
    sending = sender.send(b"all", is_settled=is_settled)
    net.pump()
    assert [receiver.bodies for receiver in receivers] == [[b"all"]] * 3
    assert all(receiver.received[0].came_settled is is_settled for receiver in receivers)
    if not is_settled:
        assert sending.outcome == ACCEPTED
    assert sender.credit == 250
    net.nothing_left()


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ((ACCEPTED, REJECTED, MODIFIED), REJECTED),
        ((RELEASED, ACCEPTED, MODIFIED), ACCEPTED),
        ((MODIFIED, RELEASED, RELEASED), MODIFIED),
        ((RELEASED, RELEASED, RELEASED), RELEASED),
        ((0x999, ACCEPTED, ACCEPTED), REJECTED),  # extension states count as rejected
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_multicast_outcome_is_made_of_all(states: tuple[int, ...], outcome: int, order: int) -> None:
    """routing 76"""
    net = Net({"m": "multicast"})
    client = net.client()
    receivers = [net.client().receiver("m", credit=10) for _ in states]
    sender = client.sender("m")
    net.pump()
    sending = sender.send()
    net.pump()
    for receiver, state in list(zip(receivers, states, strict=True))[::order]:
        assert sending.outcome is None
        receiver.complete[0].give(state)
        net.pump()
    assert [update.state for update in sending.updates] == [outcome]
    assert len(client.frames("disposition")) == 1
    assert sender.credit == 250
    net.nothing_left()


def test_multicast_receiver_lost_with_a_copy_counts_as_modified() -> None:
    """routing 77"""
    net = Net({"m": "multicast"})
    clients = [net.client() for _ in range(2)]
    for client in clients:
        client.receiver("m", credit=10)
    sender = net.client().sender("m")
    net.pump()
    sending = sender.send()
    net.pump()
    clients[0].kill()
    net.pump()
    assert sending.outcome is None
    clients[1].kill()
    net.pump()
    assert sending.outcome == MODIFIED


def test_multicast_receiver_lost_before_its_copy_counts_as_released() -> None:
    """routing 77 (§7.3)"""
    net = Net({"m": "multicast"})
    starved, other = net.client(), net.client()
    starved.receiver("m")
    receiver = other.receiver("m", credit=10)
    sender = net.client().sender("m")
    net.pump()
    first, second = sender.send(), sender.send()
    net.pump()
    receiver.complete[0].accept()
    receiver.complete[1].give(RELEASED)
    net.pump()
    starved.kill()
    net.pump()
    assert (first.outcome, second.outcome) == (ACCEPTED, RELEASED)


@pytest.mark.parametrize("address", ["m", None])
def test_multicast_sender_settling_first_settles_the_copies(address: str | None) -> None:
    """routing 78"""
    net = Net({"m": "multicast"})
    receivers = [net.client().receiver("m", credit=10) for _ in range(2)]
    starved = net.client().receiver("m")
    sender = net.client().sender(address)
    net.pump()
    sending = sender.send(address="m")
    net.pump()
    sending.settle()
    net.pump()
    assert all(receiver.complete[0].came_settled for receiver in receivers)
    receivers[0].accept_all()  # too late, and harmless
    net.pump()
    assert not sending.updates
    starved.flow(1)
    net.pump()
    assert starved.received[0].came_settled
    assert sender.credit == 250
    net.nothing_left()


def test_multicast_to_nobody() -> None:
    """routing 66, 64 (§7.3: targeted as with others, anonymous released)"""
    net = Net({"m": "multicast"})
    sender, anonymous = net.client().sender("m"), net.client().sender(None)
    net.pump()
    assert sender.credit == 0
    sending = anonymous.send(address="m")
    net.pump()
    assert sending.outcome == RELEASED
    assert anonymous.credit == 250


def test_multicast_reaches_receivers_and_in_process_consumers() -> None:
    """routing 75 (§7.3: one per in-process consumer)"""
    net = Net({"m": "multicast"})
    receiver = net.client().receiver("m", credit=10)
    sender = net.client().sender("m")
    net.pump()
    taken: list[bytes] = []
    net.core.subscribe("m", lambda payload, link: taken.append(payload))
    sending = sender.send()
    net.pump()
    assert len(taken) == 1
    receiver.complete[0].give(RELEASED)
    net.pump()
    assert sending.outcome == ACCEPTED


def test_unavailable_through_an_anonymous_link_is_rejected() -> None:
    """routing 79"""
    net = Net({"shut": "unavailable"})
    sender = net.client().sender(None)
    net.pump()
    sending = sender.send(address="shut")
    sender.send(address="shut", is_settled=True)
    net.pump()
    (update,) = sending.updates
    assert update.condition is not None
    assert update.condition.name == "amqp:not-found"
    assert update.condition.description == "Deliveries cannot be sent to an unavailable address"
    assert sender.credit == 250


def test_anonymous_messages_go_where_they_say_each_by_itself() -> None:
    """routing 104, 66 (§5.2 step 3)"""
    net = Net({"m": "multicast", "c": "closest"})
    receivers = {address: net.client().receiver(address, credit=10, accepts=True) for address in ("a", "m", "c")}
    sender = net.client().sender(None)
    net.pump()
    sendings = [sender.send(address.encode(), address=address) for address in ("a", "m", "nobody", "c", "amqp:/a")]
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED, ACCEPTED, RELEASED, ACCEPTED, ACCEPTED]
    assert receivers["a"].bodies == [b"a", b"amqp:/a"]
    assert receivers["m"].bodies == [b"m"]
    assert receivers["c"].bodies == [b"c"]
    assert receivers["a"].complete[1].message.address == "amqp:/a"
    net.nothing_left()


@pytest.mark.parametrize("fields", [{}, {"id": "has properties"}, {"address": ""}])
def test_anonymous_message_without_an_address_is_rejected(fields: dict[str, Any]) -> None:
    """routing 98"""
    net = Net()
    sender = net.client().sender(None)
    net.pump()
    sending = sender.send(**fields)
    sender.send(is_settled=True, **fields)
    net.pump()
    (update,) = sending.updates
    assert update.condition is not None
    assert update.condition.name == "amqp:precondition-failed"
    assert update.condition.description == "Routing failure: no address present"
    assert sender.credit == 250


def test_order_between_one_sender_and_one_receiver_is_kept() -> None:
    """routing 82: settled, unsettled and streamed messages, queues, credit in drops and full sockets"""
    net = Net(capacity=50)
    consumer = net.client()
    receiver = consumer.receiver("a", accepts=True)
    sender = net.client().sender("a")
    net.pump()
    number = 0
    for turn in range(12):
        while sender.credit > 0:
            body = b"%05d" % number + bytes(200_000 if number % 17 == 5 else 10)
            sender.send(body, is_settled=number % 3 == 0)
            number += 1
        if turn % 4 == 1:
            consumer.stop_reading()
        net.pump()
        consumer.resume_reading()
        receiver.flow(7)
        net.pump()
    receiver.flow(1000)
    net.pump()
    assert [int(body[:5]) for body in receiver.bodies] == list(range(number))
    assert number > 80
    net.nothing_left()


def test_a_receiver_on_the_senders_own_connection() -> None:
    """routing 70"""
    net = Net()
    client = net.client()
    receiver, sender = client.receiver("a", credit=10, accepts=True), client.sender("a")
    net.pump()
    sending = sender.send(b"self")
    net.pump()
    assert receiver.bodies == [b"self"]
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_router_made_messages_reach_receivers() -> None:
    """routing 47: what management answers to a dynamic reply address"""
    net = Net()
    receiver = net.client().receiver(None, credit=1, source={"dynamic": True})
    net.pump()
    from memory_net import encoded

    assert net.core.send(at(receiver.link.remote_source.address), encoded(b"answer"))
    assert not net.core.send(at("nobody"), encoded(b"answer"))
    net.work.finish()
    net.pump()
    assert receiver.bodies == [b"answer"]
    assert receiver.received[0].came_settled
