"""Issue 12, point 1: multicast is settled end to end (routing §7.3, §9.1).

The sender gets the merged outcome when the last copy has one; settled where all receivers have settled. Then whoever
settles first settles for all.
"""

from collections.abc import Sequence
from typing import Any

import proton
import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Net, Received, Receiver, Sender, Sending

from router.core.in_links import InLink
from router.core.out_links import OutLink

LARGE = 300_000
SIZES = pytest.mark.parametrize("size", [10, LARGE], ids=["whole", "streamed"])
HOW = pytest.mark.parametrize("how", ["close", "detach", "kill", "end", "leave"])


def made(count: int, *, target: str | None = "m", **terms: Any) -> tuple[Net, Sender, list[Receiver]]:
    net = Net({"m": "multicast"}, session_bytes=1 << 20, **terms)
    receivers = [net.client().receiver("m", credit=10) for _ in range(count)]
    sender = net.client().sender(target)
    net.pump()
    return net, sender, receivers


def sent(net: Net, sender: Sender, receivers: Sequence[Receiver], size: int = 10) -> tuple[Sending, list[Received]]:
    sending = sender.send(bytes(size), address="m")
    net.pump()
    return sending, [receiver.complete[-1] for receiver in receivers]


def told(sending: Sending) -> list[tuple[int, bool]]:
    return [(update.state, update.is_settled) for update in sending.updates]


def in_link(net: Net) -> InLink:
    (link,) = [link for link in net.core.links.values() if isinstance(link, InLink)]
    return link


def nothing_is_open(net: Net) -> None:
    for link in net.core.links.values():
        if isinstance(link, OutLink):
            assert link.load == 0
            assert not link.unsettled
            assert link.wire.unsettled_count == 0
        else:
            assert not link.merging
            assert link.held == 0


def leave(end: Receiver | Sender, how: str) -> None:
    client = end.client
    if how == "kill":
        client.kill()
    elif how == "end":
        client.session.close()
    elif how == "leave":
        client.close()
    else:
        getattr(end, how)()


@SIZES
@pytest.mark.parametrize("target", ["m", None])
@pytest.mark.parametrize("outcome", [ACCEPTED, REJECTED, RELEASED, MODIFIED])
def test_multicast_is_settled_end_to_end(size: int, target: str | None, outcome: int) -> None:
    net, sender, receivers = made(3, target=target)
    sending, items = sent(net, sender, receivers, size)
    for item in items:
        assert not sending.updates
        item.give(outcome, is_settled=False)
        net.pump()
    assert told(sending) == [(outcome, False)]
    assert not any(item.came_settled for item in items)
    assert sender.credit == 249
    sending.settle()
    net.pump()
    assert all(item.came_settled for item in items)
    assert all(item.states[-1:] != [REJECTED] or outcome == REJECTED for item in items)
    assert sender.credit == 250
    link = in_link(net)
    counted = {ACCEPTED: link.accepted, REJECTED: link.rejected, RELEASED: link.released, MODIFIED: link.modified}
    assert counted == {state: int(state == outcome) for state in counted}
    for item in items:
        item.settle()  # too late, and harmless
    net.pump()
    nothing_is_open(net)
    net.nothing_left()


@SIZES
@pytest.mark.parametrize("target", ["m", None])
def test_the_last_receiver_to_settle_settles_the_senders_delivery(size: int, target: str | None) -> None:
    net, sender, receivers = made(3, target=target)
    sending, items = sent(net, sender, receivers, size)
    for item in items:
        item.give(ACCEPTED, is_settled=False)
    net.pump()
    for item in items:
        assert told(sending) == [(ACCEPTED, False)]
        item.settle()
        net.pump()
    assert told(sending) == [(ACCEPTED, False), (ACCEPTED, True)]
    assert sender.credit == 250
    assert in_link(net).accepted == 1
    nothing_is_open(net)
    net.nothing_left()


@SIZES
def test_receivers_of_each_kind_in_one_multicast(size: int) -> None:
    """One accepts and settles, one wants settled messages, one only accepts, one settles later than it accepts."""
    net, sender, receivers = made(3)
    presettled = net.client().receiver("m", credit=10, snd_settle_mode=proton.Link.SND_SETTLED)
    net.pump()
    sending, (plain, waiting, late) = sent(net, sender, receivers, size)
    assert presettled.complete[0].came_settled
    waiting.give(REJECTED, is_settled=False)
    net.pump()
    plain.accept()
    net.pump()
    assert not sending.updates
    late.give(MODIFIED, is_settled=False)
    net.pump()
    assert told(sending) == [(REJECTED, False)]
    late.settle()
    net.pump()
    assert told(sending) == [(REJECTED, False)]
    sending.settle()
    net.pump()
    assert waiting.came_settled
    assert sender.credit == 250
    assert in_link(net).rejected == 1
    nothing_is_open(net)
    net.nothing_left()


@SIZES
def test_a_sender_that_settles_before_all_have_decided_settles_every_copy(size: int) -> None:
    """Those that have decided, those that have not, and those that wait for credit."""
    net, sender, receivers = made(2)
    starved = net.client().receiver("m")
    net.pump()
    sending = sender.send(bytes(size))
    net.pump()
    decided, undecided = (receiver.received[-1] for receiver in receivers)
    if size < LARGE:
        decided.give(ACCEPTED, is_settled=False)
        net.pump()
    sending.settle()
    starved.flow(10)
    net.pump()
    assert decided.came_settled
    assert undecided.came_settled
    assert starved.complete[0].came_settled
    assert not sending.updates
    assert sender.credit == 250
    nothing_is_open(net)
    sending, items = sent(net, sender, [*receivers, starved], size)  # the engine makes this delivery of the last one
    for item in items:
        item.accept()
    net.pump()
    assert told(sending) == [(ACCEPTED, True)]
    net.nothing_left()


@SIZES
@HOW
def test_a_receiver_that_leaves_after_its_outcome_counts_as_settled(size: int, how: str) -> None:
    net, sender, receivers = made(2)
    sending, items = sent(net, sender, receivers, size)
    for item in items:
        item.give(ACCEPTED, is_settled=False)
    net.pump()
    assert told(sending) == [(ACCEPTED, False)]
    leave(receivers[0], how)
    net.pump()
    assert told(sending) == [(ACCEPTED, False)]
    leave(receivers[1], how)
    net.pump()
    assert told(sending) == [(ACCEPTED, False), (ACCEPTED, True)]
    assert sender.credit == 250
    nothing_is_open(net)
    net.nothing_left()


@SIZES
@HOW
def test_a_receiver_that_leaves_without_an_outcome_is_the_last_to_decide(size: int, how: str) -> None:
    net, sender, receivers = made(2)
    sending, items = sent(net, sender, receivers, size)
    items[0].give(RELEASED, is_settled=False)
    net.pump()
    assert not sending.updates
    leave(receivers[1], how)
    net.pump()
    assert told(sending) == [(MODIFIED, False)]
    assert sending.updates[0].failed
    sending.settle()
    net.pump()
    assert items[0].came_settled
    assert in_link(net).modified == 1
    assert sender.credit == 250
    nothing_is_open(net)
    net.nothing_left()


@SIZES
@HOW
@pytest.mark.parametrize("target", ["m", None])
def test_copies_are_settled_when_their_sender_is_gone(size: int, how: str, target: str | None) -> None:
    """Receivers would wait for ever: those that have decided, and those that decide later."""
    net, sender, receivers = made(2, target=target)
    _, items = sent(net, sender, receivers, size)
    items[0].give(ACCEPTED, is_settled=False)
    net.pump()
    leave(sender, how)
    net.pump()
    assert items[0].came_settled
    assert not items[1].came_settled
    items[1].give(REJECTED, is_settled=False)
    net.pump()
    assert items[1].came_settled
    nothing_is_open(net)
    net.nothing_left()


@pytest.mark.parametrize("is_sliced", [False, True])
def test_many_copies_are_settled_in_turns_when_their_sender_is_gone(is_sliced: bool) -> None:
    """Attack: a sender leaves as many as it may; nobody else waits for that."""
    net, sender, receivers = made(4, is_sliced=is_sliced, capacity=100)
    for receiver in receivers:
        receiver.flow(200)
    net.pump()
    for _ in range(100):
        sender.send()
    net.pump()
    for receiver in receivers:
        for item in receiver.complete:
            item.give(ACCEPTED, is_settled=False)
    net.pump()
    assert all(told(sending) == [(ACCEPTED, False)] for sending in sender.sent)
    for item in receivers[0].complete[:50]:
        item.settle()
    receivers[1].client.kill()
    sender.client.kill()
    for item in receivers[2].complete[50:]:
        item.settle()
    net.pump()
    assert all(item.came_settled or item.is_settled_here for item in receivers[0].complete)
    assert all(item.came_settled or item.is_settled_here for item in receivers[2].complete)
    assert all(item.came_settled for item in receivers[3].complete)
    nothing_is_open(net)
    net.nothing_left()


@pytest.mark.parametrize("state", [proton.Delivery.RECEIVED, 0])
def test_a_state_that_is_no_outcome_decides_nothing(state: int) -> None:
    net, sender, receivers = made(2)
    sending, items = sent(net, sender, receivers)
    items[0].give(ACCEPTED, is_settled=False)
    if state:
        items[1].give(state, is_settled=False, section_number=1, section_offset=2)
    net.pump()
    assert not sending.updates
    items[1].give(ACCEPTED, is_settled=False)
    net.pump()
    assert told(sending) == [(ACCEPTED, False)]
    net.nothing_left()


def test_the_first_outcome_of_a_copy_stands() -> None:
    net, sender, receivers = made(2)
    sending, items = sent(net, sender, receivers)
    for state in (ACCEPTED, REJECTED, RELEASED):
        items[0].give(state, is_settled=False)
        net.pump()
    items[1].give(MODIFIED, is_settled=False)
    net.pump()
    assert told(sending) == [(ACCEPTED, False)]
    items[0].give(REJECTED)
    items[1].settle()
    net.pump()
    assert told(sending)[-1] == (ACCEPTED, True)
    assert sender.credit == 250
    nothing_is_open(net)
    net.nothing_left()


def test_a_streamed_message_whose_sender_settles_before_its_end_arrives() -> None:
    """Its last transfers say settled: nobody is to settle any more but the router."""
    for distribution in ("multicast", "balanced"):
        net = Net({"m": distribution}, session_bytes=1 << 20)
        receivers = [net.client().receiver("m", credit=10) for _ in range(2 if distribution == "multicast" else 1)]
        sender = net.client().sender("m")
        net.pump()
        sending = sender.start()
        sender.append(b"\x00\x53\x75\xb0\x00\x06\x00\x00" + bytes(300_000))
        net.pump()
        assert receivers[0].received
        sender.append(bytes(0x60000 - 300_000))
        sending.settle()
        net.pump()
        assert [len(receiver.complete) for receiver in receivers] == [1] * len(receivers)
        for receiver in receivers:
            item = receiver.complete[0]
            if not item.came_settled:
                item.give(ACCEPTED, is_settled=False)
        net.pump()
        assert all(receiver.complete[0].came_settled for receiver in receivers)
        assert sender.credit == 250
        nothing_is_open(net)
        net.nothing_left()


def test_a_senders_settlement_costs_no_search_when_all_have_decided() -> None:
    """Attack: receivers with many messages of others unsettled; each settlement would look at all of them."""
    net, sender, receivers = made(2)
    sending, items = sent(net, sender, receivers)
    for item in items:
        item.give(ACCEPTED, is_settled=False)
    net.pump()

    class Unsearchable(dict[Any, Any]):
        def items(self) -> Any:
            raise AssertionError("searched")

    for link in net.core.links.values():
        if isinstance(link, OutLink):
            link.unsettled = Unsearchable(link.unsettled)
    sending.settle()
    net.pump()
    net.no_errors()
    assert all(item.came_settled for item in items)


@pytest.mark.parametrize("order", range(24))
def test_outcome_settlement_and_detach_in_one_read(order: int) -> None:
    """The sender settles and leaves, the receivers decide and settle, on one connection and in every order."""
    net = Net({"m": "multicast"})
    client = net.client()
    receivers = [client.receiver("m", credit=10), client.receiver("m", credit=10)]
    sender = client.sender("m")
    net.pump()
    sending, items = sent(net, sender, receivers)
    items[0].give(ACCEPTED, is_settled=False)
    net.pump()
    steps = [sending.settle, lambda: items[1].give(ACCEPTED, is_settled=False), items[0].settle, sender.close]
    for place in range(4, 0, -1):
        order, at = divmod(order, place)
        steps.pop(at)()
    net.pump()
    for receiver in receivers:
        receiver.close()
    net.pump()
    nothing_is_open(net)
    net.nothing_left()
