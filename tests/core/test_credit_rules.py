"""When a sender may send: never more than can be held, and only while somebody can receive."""

from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, RELEASED, Client, Net

from router.amqp.engine import Session
from router.amqp.engine.library import lib
from router.core.budget import Limits
from router.core.out_links import OutLink


def test_no_credit_without_a_consumer_and_all_of_it_when_one_comes() -> None:
    """routing 60, 61, 63"""
    net = Net()
    sender, other = net.client().sender("a"), net.client().sender("a")
    net.pump()
    assert (sender.credit, other.credit) == (0, 0)
    net.client().receiver("a")  # without credit of its own
    net.pump()
    assert (sender.credit, other.credit) == (250, 250)


def test_link_capacity_is_the_window() -> None:
    """routing 61, 62"""
    net = Net(capacity=10)
    receiver = net.client().receiver("a", credit=1000)
    sender = net.client().sender("a")
    net.pump()
    assert sender.credit == 10
    for _ in range(10):
        sender.send()
    net.pump()
    assert sender.credit == 0
    for item in receiver.complete[:4]:
        item.accept()
    net.pump()
    assert sender.credit == 4
    sender.send(is_settled=True)
    net.pump()
    assert sender.credit == 4
    assert len(receiver.complete) == 11


def test_settlement_by_the_sender_gives_its_credit_back() -> None:
    """routing 62: in either direction (§6.1)"""
    net = Net(capacity=3)
    receiver = net.client().receiver("a", credit=1000)
    sender = net.client().sender("a")
    net.pump()
    sendings = [sender.send() for _ in range(3)]
    net.pump()
    assert sender.credit == 0
    sendings[1].settle()
    net.pump()
    assert sender.credit == 1
    receiver.accept_all()
    net.pump()
    assert sender.credit == 3
    assert sender.outcomes == [ACCEPTED, None, ACCEPTED]
    net.nothing_left()


def test_last_consumer_leaving_releases_and_drains() -> None:
    """routing 64, 65"""
    net = Net()
    consumer = net.client()
    consumer.receiver("a", credit=10)
    client = net.client()
    sender = client.sender("a")
    net.pump()
    assert sender.credit == 250
    consumer.kill()
    net.pump()
    assert sender.credit == 250  # what was issued is not taken back
    sending = sender.send()
    net.pump()
    assert sending.outcome == RELEASED
    assert sender.link.drain_mode
    assert sender.link.drained() == 249
    net.pump()
    assert sender.credit == 0
    receiver = net.client().receiver("a", credit=10)
    net.pump()
    assert sender.credit == 250
    assert not sender.link.drain_mode
    sender.send(b"again")
    net.pump()
    assert receiver.bodies == [b"again"]


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, MODIFIED, None])
@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
def test_credit_of_a_settled_message_is_not_lost_when_its_receiver_leaves(distribution: str, state: int | None) -> None:
    """Issue 12, point 2: the outcome and the Detach arrive in one read; routing 64 (§6.1). None: no outcome comes"""
    net = Net({"a": distribution})
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sending = sender.send()
    net.pump()
    if state is not None:
        receiver.complete[0].give(state)
    receiver.close()
    net.pump()
    assert sending.outcome == (state or MODIFIED)
    assert sender.credit == 250
    undelivered = sender.send()
    net.pump()
    assert undelivered.outcome == RELEASED
    assert sender.link.drained() == 249
    net.pump()
    assert sender.credit == 0
    net.client().receiver("a", credit=10)
    net.pump()
    assert sender.credit == 250
    net.nothing_left()


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_sender_without_a_receiver_is_held_to_its_credit(is_settled: bool) -> None:
    """Issue 12, point 2: its messages are released, and whoever sends beyond its credit loses its link all the same"""
    net = Net(capacity=3)
    consumer = net.client()
    consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    consumer.kill()
    for _ in range(3):
        sender.send(is_settled=is_settled)
    net.pump()
    assert sender.credit == 0
    assert not sender.is_detached
    for number in range(3, 6):
        sender.client.say(bare_transfer(number, is_settled=is_settled))
    net.pump()
    assert sender.is_detached
    assert sender.refusal.name == "amqp:link:transfer-limit-exceeded"
    net.nothing_left()


def bare_transfer(number: int, *, is_settled: bool) -> bytes:
    """A whole message on handle 0, whatever the credit."""
    fields = b"\x43\x52" + bytes([number]) + b"\xa0\x01" + bytes([number]) + b"\x43" + (b"\x42", b"\x41")[is_settled]
    body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 5]) + fields + b"\x00\x53\x77\x40"
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def test_a_large_message_that_nobody_receives_holds_its_credit_back() -> None:
    """Issue 12, point 2: also where the rest of an undeliverable message is still to come"""
    net = Net()
    consumer = net.client()
    consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    consumer.kill()
    sending = sender.send(bytes(400_000))
    net.pump()
    assert sending.outcome == RELEASED
    assert sender.link.drained() == 249
    net.pump()
    assert sender.credit == 0


def test_credit_of_a_message_refused_without_a_receiver_returns() -> None:
    """Issue 12, point 2: only undeliverable messages hold credit back (§6.1: refused by the router itself)"""
    net = Net()
    consumer = net.client()
    consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    consumer.kill()
    sending = sender.send_bytes(b"")
    net.pump()
    assert sending.outcome is not None
    assert sender.credit == 250
    assert not sender.link.drain_mode
    net.nothing_left()


def test_a_consumer_returning_before_the_drain_is_answered() -> None:
    """routing 65: no credit is lost or doubled"""
    net = Net()
    consumer = net.client()
    consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    consumer.kill()
    sender.send()
    net.pump()
    net.client().receiver("a", credit=1000)
    net.pump()
    assert sender.credit == 250
    for _ in range(250):
        sender.send()
    net.pump()
    assert sender.credit == 0


def test_presettled_to_nobody_is_dropped_counted_and_drains() -> None:
    """routing 67, 64"""
    net = Net()
    consumer = net.client()
    consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    consumer.kill()
    sender.send(is_settled=True)
    net.pump()
    (link,) = net.core.links.values()
    assert (link.presettled, link.dropped_presettled, link.delivery_count) == (1, 1, 1)
    assert sender.link.drain_mode
    assert sender.link.drained() == 249


def test_anonymous_to_nobody_keeps_its_credit() -> None:
    """routing 66"""
    net = Net()
    sender = net.client().sender(None)
    net.pump()
    sendings = [sender.send(address="nobody") for _ in range(3)]
    sender.send(address="nobody", is_settled=True)
    net.pump()
    assert [sending.outcome for sending in sendings] == [RELEASED] * 3
    assert sender.credit == 250
    assert not sender.link.drain_mode
    (link,) = net.core.links.values()
    assert link.dropped_presettled == 1


def test_receiver_drain_without_messages_is_answered_at_once() -> None:
    """routing 68"""
    net = Net()
    client = net.client()
    receiver = client.receiver("a", credit=10)
    net.pump()
    receiver.drain()
    net.pump()
    assert receiver.credit == 0
    flow = client.frames("flow")[-1]
    assert (flow[4], flow[5], flow[6], flow[8]) == (0, 10, 0, True)


def answers(client: Client) -> list[list[Any]]:
    """[channel, handle, delivery-count, link-credit] of every Flow with `drain` that the client got."""
    flows = [frame for frame in client.frames("flow") if len(frame.fields) > 8 and frame.fields[8]]
    return [[frame.channel, *frame.fields[4:7]] for frame in flows]


def test_drain_without_credit_is_answered() -> None:
    """issue 12.4: Azure's client for Go waits for the Flow, also where its last credit was used up long ago."""
    net = Net()
    consumer = net.client()
    receiver = consumer.receiver("a", credit=2)
    sender = net.client().sender("a")
    net.pump()
    for body in (b"1", b"2"):
        sender.send(body)
    net.pump()
    assert receiver.credit == 0
    for number in (1, 2, 3):
        receiver.drain(0)
        net.pump()
        assert answers(consumer) == [[0, 0, 2, 0]] * number
    sender.send(b"3")
    receiver.flow(5)
    net.pump()
    assert (receiver.bodies, receiver.credit) == ([b"1", b"2", b"3"], 4)
    receiver.drain(0)
    net.pump()
    assert answers(consumer)[3:] == [[0, 0, 7, 0]]
    assert receiver.credit == 0


def test_drain_is_answered_where_the_queue_takes_all_the_credit() -> None:
    """issue 12.4: the messages first"""
    net = Net()
    consumer = net.client()
    receiver = consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    for _ in range(5):
        sender.send()
    net.pump()
    receiver.drain(3)
    net.pump()
    assert len(receiver.complete) == 3
    assert answers(consumer) == [[0, 0, 3, 0]]
    names = [frame.name for frame in consumer.frames() if frame.name in ("transfer", "flow")]
    assert names[-4:] == ["transfer"] * 3 + ["flow"]
    receiver.flow(2)
    net.pump()
    assert len(receiver.complete) == 5


def test_drain_without_credit_names_the_link_and_its_session() -> None:
    """issue 12.4: on two sessions, with handles that links had before"""
    net = Net()
    consumer = net.client()
    second = consumer.connection.session()
    second.open()
    links = [consumer.receiver("a", session=session) for session in (None, second) for _ in range(3)]
    net.pump()
    links[1].close()
    links[3].close()
    net.pump()
    links[1] = consumer.receiver("b" * 300)
    links[3] = consumer.receiver("b", session=second)
    net.pump()
    for link in links:
        link.drain(0)
        net.pump()
    places = [place[:2] for place in answers(consumer)]
    assert places == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_drain_without_credit_is_answered_behind_what_the_window_keeps_back() -> None:
    """issue 12.4: the count is of messages that the receiver has, so the answer waits for them"""
    net = Net()
    consumer = net.client()
    receiver = consumer.receiver("a", credit=1)
    sender = net.client().sender("a")
    net.pump()
    consumer.say(flow_frame(window=0))
    sender.send(bytes(20_000))
    net.pump()
    consumer.say(flow_frame(window=0, delivery_count=0, credit=1, drain=True))
    net.pump()
    assert (answers(consumer), receiver.received) == ([], [])
    consumer.say(flow_frame(window=2**31 - 1))
    net.pump()
    assert len(receiver.complete) == 1
    assert answers(consumer) == [[0, 0, 1, 0]]


def test_drains_that_are_not_read_have_one_answer_under_way() -> None:
    """issue 12.4: attack: drains without end, on a socket that takes nothing"""
    net = Net()
    consumer = net.client()
    receiver = consumer.receiver("a", credit=100)
    sender = net.client().sender("a")
    net.pump()
    consumer.stop_reading()
    for _ in range(10):
        sender.send(bytes(100_000))
        net.pump()
    for _ in range(1000):
        consumer.say(flow_frame(window=2**31 - 1, delivery_count=0, credit=0, drain=True))
    net.pump()
    assert len(net.peer(consumer).engine.drains) <= 1
    consumer.resume_reading()
    net.pump()
    assert receiver.credit <= 100
    assert len(answers(consumer)) < 20


def test_drains_of_many_links_are_answered_beside_one_that_has_to_wait() -> None:
    """issue 12.4: in one read, more than are answered in one go"""
    net = Net()
    consumer = net.client()
    consumer.receiver("a", credit=1)
    idle = [consumer.receiver(f"b{number}") for number in range(200)]
    sender = net.client().sender("a")
    net.pump()
    consumer.say(flow_frame(window=0))
    sender.send(bytes(20_000))
    for receiver in idle:
        receiver.drain(0)
    net.pump()
    assert len(answers(consumer)) == len(idle)  # nothing of theirs is kept back
    assert not net.peer(consumer).engine.drains


def test_receiver_drain_takes_what_is_queued_first() -> None:
    """routing 68 (§6.2)"""
    net = Net()
    receiver = net.client().receiver("a")
    sender = net.client().sender("a")
    net.pump()
    for _ in range(3):
        sender.send()
    net.pump()
    receiver.drain(10)
    net.pump()
    assert len(receiver.complete) == 3
    assert receiver.credit == 0


def test_receiver_drain_is_answered_after_a_full_socket() -> None:
    """routing 68: the drain came while the receiver's socket took nothing"""
    net = Net()
    consumer = net.client()
    receiver = consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    consumer.router.set_blocked(True)
    for _ in range(3):
        sender.send()
    net.pump()
    receiver.drain(10)
    net.pump()
    assert not receiver.received
    consumer.router.set_blocked(False)
    net.work.finish()
    net.pump()
    assert len(receiver.complete) == 3
    assert receiver.credit == 0


def test_receiver_drain_is_answered_after_a_streamed_message() -> None:
    """routing 68, 93"""
    net = Net()
    receiver = net.client().receiver("a")
    sender = net.client().sender("a")
    net.pump()
    sender.start()
    sender.append(b"\x00\x53\x75\xb0\x00\x06\x00\x00" + bytes(300_000))
    net.pump()
    receiver.drain(10)
    net.pump()
    sender.append(bytes(0x60000 - 300_000))
    sender.finish()
    net.pump()
    assert len(receiver.complete) == 1
    assert receiver.credit == 0


def test_presettled_messages_do_not_pile_up_behind_a_closed_session_window() -> None:
    """routing 80: a receiver may grant endless credit and no window; what is held for it stays bounded"""
    net = Net(capacity=10)
    consumer = net.client()
    receiver = consumer.receiver("a", credit=1_000_000)
    other = consumer.receiver("b", credit=1_000_000)
    client = net.client()
    sender, bystander = client.sender("a"), client.sender("b")
    net.pump()
    consumer.say(flow_frame(window=0))
    sent = 0
    for _ in range(100):
        while sender.credit > 0:
            sender.send(bytes(20_000), is_settled=True)
            sent += 1
        net.pump()
    assert 25 < sent < 60
    bystander.send(b"behind the same window", is_settled=True)
    net.pump()
    assert not receiver.received
    consumer.say(flow_frame(window=2**31 - 1))
    net.pump()
    assert len(receiver.complete) == sent
    assert other.bodies == [b"behind the same window"]
    assert sender.credit == 10
    net.nothing_left()


def test_credit_taken_back_is_respected() -> None:
    """routing 68 (§6.2: receiver credit reduced later is respected)"""
    net = Net()
    consumer = net.client()
    receiver = consumer.receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    receiver.drain()
    net.pump()
    sender.send()
    net.pump()
    assert not receiver.received
    receiver.flow(1)
    net.pump()
    assert len(receiver.complete) == 1


@pytest.mark.parametrize("receiver_credit", [0, 10_000])
def test_sender_that_ignores_its_credit_is_closed(receiver_credit: int) -> None:
    """routing 62: credit and unsettled never exceed the capacity; a sender that sends on would fill our memory"""
    net = Net(capacity=10)
    receiver = net.client().receiver("a", credit=receiver_credit)
    sender = net.client().sender("a")
    net.pump()
    for _ in range(12):
        force_send(sender)
    net.pump()
    for _ in range(5000):
        force_send(sender)
    net.pump()
    assert sender.is_detached
    assert sender.refusal.name == "amqp:link:transfer-limit-exceeded"
    assert len(receiver.received) <= 1100
    net.nothing_left()


def force_send(sender: object, frames: int = 1) -> None:
    """Send as if there were credit: proton holds back what has none, so a transfer is made by hand.

    frames  of 15 KB each, the first but for some bytes less
    """
    client = sender.client  # type: ignore[attr-defined]
    client.forced = getattr(client, "forced", -1) + 1
    number = client.forced
    fields = b"\x43\x70" + number.to_bytes(4, "big") + b"\xa0\x04" + number.to_bytes(4, "big") + b"\x43\x42"
    body = b"\x00\x53\x75\xb0" + ((frames - 1) * 15_000).to_bytes(4, "big") if frames > 1 else b"\x00\x53\x77\x40"
    for left in reversed(range(frames)):
        more = fields + (b"\x41" if left else b"\x42")
        transfer = b"\x00\x53\x14\xc0" + bytes([len(more) + 1, 6]) + more + body
        client.say((len(transfer) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + transfer)
        body = bytes(15_000)


def test_messages_without_credit_do_not_pile_up_behind_a_large_one() -> None:
    """Attack: with a receiver that does not read a large message stays where it is, and what is behind it as well."""
    net = Net(capacity=4)
    consumer = net.client()
    consumer.receiver("a", credit=10)
    client = net.client()
    sender = client.sender("a")
    net.pump()
    consumer.stop_reading()
    force_send(sender, frames=200)
    assert net.peer(client).attachment.in_links
    for _ in range(5):
        force_send(sender)
    assert not net.peer(client).attachment.in_links
    net.pump()
    assert sender.refusal.name == "amqp:link:transfer-limit-exceeded"


def test_bogus_delivery_counts_do_not_earn_credit() -> None:
    """routing 62: a Flow that advances the delivery-count by more than the credit is an attack on our arithmetic"""
    net = Net()
    net.client().receiver("a", credit=10)
    client = net.client()
    sender = client.sender("a")
    net.pump()
    for count in (2**31 - 300, 2**31 + 2**30, 0):
        client.say(flow_frame(delivery_count=count))
    net.pump()
    assert sender.credit <= 250
    net.no_errors()
    other = net.client().sender("a")
    net.pump()
    assert other.credit == 250


def flow_frame(*, window: int = 1000, delivery_count: int | None = None, credit: int = 0, drain: bool = False) -> bytes:
    """A Flow of session 0, of its link 0 with a delivery-count."""

    def uint(number: int) -> bytes:
        return b"\x70" + (number % 2**32).to_bytes(4, "big")

    numbers = [0, window, 0, 1000] + ([0, delivery_count, credit, 0] if delivery_count is not None else [])
    fields = b"".join(map(uint, numbers)) + (b"\x41" if drain else b"\x42") * (len(numbers) > 4)
    count = len(numbers) + (len(numbers) > 4)
    body = b"\x00\x53\x13\xc0" + bytes([len(fields) + 1, count]) + fields
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def test_presettled_messages_hold_back_the_sender_of_a_slow_receiver() -> None:
    """routing 80: the window counts what is queued"""
    net = Net(capacity=10)
    receiver = net.client().receiver("a")
    sender = net.client().sender("a")
    net.pump()
    for _ in range(10):
        sender.send(is_settled=True)
    net.pump()
    assert sender.credit == 0
    receiver.flow(4)
    net.pump()
    assert sender.credit == 4
    assert len(receiver.complete) == 4


def test_overload_keeps_the_newest_presettled_messages() -> None:
    """routing 80"""
    net = Net(capacity=10)
    receiver = net.client().receiver("a")
    client = net.client()
    senders = [client.sender("a") for _ in range(3)]
    net.pump()
    for number in range(10):
        for index, sender in enumerate(senders):
            sender.send(b"%d" % (number * 3 + index), is_settled=True)
    net.pump()
    out = next(link for link in net.core.links.values() if link.wire.name == receiver.link.name)
    assert isinstance(out, OutLink)
    assert out.dropped_presettled >= 18
    assert len(out.queue) <= 11
    receiver.flow(100)
    net.pump()
    bodies = [int(body) for body in receiver.bodies]
    assert bodies[0] == 0
    assert bodies[-1] == 29
    assert bodies == sorted(bodies)
    assert all(sender.credit == 10 for sender in senders)
    net.nothing_left()


def test_unsettled_messages_are_never_dropped() -> None:
    """routing 80 (§8.1)"""
    net = Net(capacity=5)
    receiver = net.client().receiver("a")
    client = net.client()
    plain, settled = client.sender("a"), client.sender("a")
    net.pump()
    for _ in range(5):
        plain.send(b"keep")
        settled.send(b"may go", is_settled=True)
    net.pump()
    for _ in range(5):
        settled.send(b"may go", is_settled=True)
    net.pump()
    receiver.flow(100)
    net.pump()
    assert receiver.bodies.count(b"keep") == 5


def test_loss_of_the_queue_gives_the_presettled_credit_back() -> None:
    """routing 67, 88"""
    net = Net(capacity=10)
    consumer, stays = net.client(), net.client()
    consumer.receiver("a")
    sender = net.client().sender("a")
    net.pump()
    for _ in range(10):
        sender.send(is_settled=True)
    net.pump()
    assert sender.credit == 0
    stays.receiver("a")
    consumer.kill()
    net.pump()
    assert sender.credit == 10


def test_modified_and_released_give_credit_back() -> None:
    """routing 62"""
    net = Net(capacity=4)
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    for _ in range(4):
        sender.send()
    net.pump()
    for item, state in zip(receiver.complete, (MODIFIED, RELEASED, ACCEPTED, RELEASED), strict=True):
        item.give(state)
    net.pump()
    assert sender.credit == 4


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize(("size", "count"), [(100_000, 250), (200_000, 150)])
def test_a_receiver_that_takes_nothing_stops_no_other_link_of_its_senders_session(
    size: int, count: int, is_settled: bool
) -> None:
    """What the sender has credit for is more than the session's window: it comes, as far as the account has room."""
    net = Net(limits=Limits())
    stalled = net.client()
    stalled.session.incoming_capacity = 64 * 1024
    link = stalled.receiver("q.a", credit=300).link
    del stalled.ends[link]
    good = net.client().receiver("q.b", credit=50, accepts=True)
    client = net.client()
    bad, sender = client.sender("q.a"), client.sender("q.b")
    net.pump()
    for _ in range(count):
        bad.send(bytes(size), is_settled=is_settled)
    net.pump()
    for _ in range(5):
        sender.send(b"good")
        net.pump()
    assert sender.outcomes == [ACCEPTED] * 5
    assert len(good.bodies) == 5
    (session,) = net.peer(client).engine.sessions.values()
    assert net.peer(client).attachment.account.held <= Limits().connection
    stalled.kill()
    net.pump()
    for _ in range(10):
        sender.send()
        net.pump()
    assert session.backlog_bytes == 0
    # It does not shrink again: frames that the sender has sent by it may be on their way.
    assert window_of(session) >= session.window
    net.no_errors()


def window_of(session: Session) -> int:
    return int(lib.pn_session_get_incoming_capacity(session.pointer))
