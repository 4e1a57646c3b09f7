"""Rates set, changed and lifted while connections are open, and whatever else may happen."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED
from paced_net import PIECE_BYTES, Load, attach, change, drain, paced, taken_in


def test_what_waits_on_a_link_that_policy_ends_goes_nowhere() -> None:
    """Decided again, and denied: what the router has not taken yet is not forwarded."""
    net = paced(maxMessageRate=5)
    receiver = drain(net)
    client, (sender, other) = attach(net, 2)
    for each in (sender, other):
        for _ in range(5):
            each.send()
    net.pump()
    change(net, client, maxMessageRate=5, targets="b")
    assert sender.is_detached
    assert other.is_detached
    assert len(receiver.complete) == 5
    assert not net.timers
    net.nothing_left()


@pytest.mark.parametrize("links", [1, 3])
def test_a_rate_can_be_set_changed_and_lifted(links: int) -> None:
    net = paced()
    receiver = drain(net)
    client, senders = attach(net, links)
    assert [sender.credit for sender in senders] == [250] * links
    change(net, client, maxMessageRate=10)
    assert taken_in(net, senders, 2) <= 30
    change(net, client, maxMessageRate=100)
    assert 190 <= taken_in(net, senders, 2) <= 310
    change(net, client, maxMessageRate=2)
    assert taken_in(net, senders, 3) <= 8
    change(net, client)
    assert not net.timers
    assert net.peer(client).attachment.pacing is None
    assert all(sender.credit == 250 for sender in senders)
    load = Load(net, senders)
    for sender in senders:
        for _ in range(250):
            sender.send()
    net.pump()
    assert load.count() - load.taken[0][1] == 250 * links
    assert all(outcome == ACCEPTED for sender in senders for outcome in sender.outcomes)
    assert len(receiver.complete) == sum(len(sender.sent) for sender in senders)
    net.nothing_left()


@pytest.mark.parametrize("key", ["maxMessageRate", "maxByteRate"])
def test_credit_from_before_is_worth_nothing_at_a_rate_of_nothing(key: str) -> None:
    net = paced()
    receiver = drain(net)
    client, (sender,) = attach(net)
    change(net, client, **{key: 0})
    for _ in range(20):
        sender.send()
    net.advance(5)
    assert receiver.received == []
    change(net, client)
    assert sender.outcomes == [ACCEPTED] * 20


def test_a_link_of_a_slow_time_has_the_whole_window_afterwards() -> None:
    net = paced(maxMessageRate=3)
    drain(net)
    client, (sender,) = attach(net)
    assert sender.credit == 3
    change(net, client, maxMessageRate=100)
    assert sender.credit == 100
    change(net, client)
    assert sender.credit == 250


def test_a_rate_is_lifted_in_the_middle_of_a_large_message() -> None:
    net = paced(maxByteRate=10_000)
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending = sender.send(bytes(2_000_000))
    net.advance(1)
    assert not receiver.complete
    change(net, client)
    net.pump()
    assert len(receiver.complete) == 1
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_lifting_a_rate_takes_the_rest_of_what_nobody_gets() -> None:
    net = paced(maxByteRate=10_000)
    receiver = net.client().receiver("a", credit=10)
    client, (sender,) = attach(net)
    sending = sender.start()
    sender.append(b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(300_000))
    net.pump()
    receiver.close()
    sender.append(bytes((1 << 20) - 300_000))
    sender.finish()
    net.advance(1)
    assert sending.outcome is None
    change(net, client)
    assert sending.outcome is not None
    net.nothing_left()


def test_equal_rates_change_nothing() -> None:
    net = paced(maxMessageRate=5)
    drain(net)
    client, senders = attach(net)
    Load(net, senders).run(1)
    pacing = net.peer(client).attachment.pacing
    change(net, client, maxMessageRate=5)
    assert net.peer(client).attachment.pacing is pacing
    assert taken_in(net, senders, 1) <= 6


def test_a_connection_without_a_rate_has_nothing_of_it() -> None:
    """The hot path pays nothing: the slots hold what they would without pacing."""
    net = paced()
    drain(net)
    client, _ = attach(net, hostname="else")
    (link,) = net.peer(client).attachment.in_links
    assert link.attachment.pacing is None
    assert link.address is not None
    wire: Any = link.wire
    node: Any = link.address
    assert wire.forward is node.forward
    assert link.grant == link.wire.grant


# Anything at all

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.sampled_from([1, 500, 140_000, 400_000]), st.booleans()),
        st.tuples(st.just("begin"), st.integers(0, 3), st.integers(1, 200_000)),
        st.tuples(st.just("abort"), st.integers(0, 3)),
        st.tuples(st.just("detach"), st.integers(0, 3)),
        st.tuples(st.just("attach")),
        st.tuples(st.just("leave")),
        st.tuples(st.just("come")),
        st.tuples(st.just("pass"), st.floats(0.1, 3.0)),
        st.tuples(
            st.just("change"),
            st.none() | st.integers(0, 20),
            st.none() | st.sampled_from([0, 1, 50_000, 1_000_000]),
        ),
    ),
    max_size=25,
)


@given(st.integers(1, 20), st.none() | st.integers(1, 500_000), st.sampled_from(["balanced", "multicast"]), steps)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_every_message_has_an_outcome_and_nothing_is_left(
    messages: int, size: int | None, distribution: str, script: list[tuple[Any, ...]]
) -> None:
    rates = {"maxMessageRate": messages} | ({} if size is None else {"maxByteRate": size})
    net = paced(capacity=6, **rates)
    net.distributions["a"] = distribution
    receivers = [net.client().receiver("a", credit=1_000_000, accepts=True)]
    client, senders = attach(net, 2)
    for name, *more in script:
        sender = senders[more[0] % len(senders)] if name in ("send", "begin", "abort", "detach") else None
        open_ = sender.sent[-1] if sender and sender.sent and not sender.sent[-1].is_settled_here else None
        is_partial = open_ is not None and sender is not None and sender.link.current == open_.delivery
        if name == "send" and sender is not None and sender.credit > 0 and not is_partial:
            sender.send(bytes(more[1]), is_settled=more[2])
        elif name == "begin" and sender is not None and sender.credit > 0 and not is_partial:
            sender.start()
            sender.append(bytes(more[1]))
        elif name == "abort" and is_partial and open_ is not None:
            open_.abort()
        elif name == "detach" and sender is not None and len(senders) > 1 and not is_partial:
            senders.remove(sender)
            sender.detach()
        elif name == "attach" and len(senders) < 4:
            senders.append(client.sender("a"))
        elif name == "leave" and receivers:
            receivers.pop().close()
        elif name == "come" and len(receivers) < 3:
            receivers.append(net.client().receiver("a", credit=1_000_000, accepts=True))
        elif name == "pass":
            net.advance(more[0])
        elif name == "change":
            rates = dict(zip(("maxMessageRate", "maxByteRate"), more, strict=True))
            change(net, client, **{key: rate for key, rate in rates.items() if rate is not None})
        net.pump()
    net.no_errors()
    change(net, client)
    assert not net.timers
    for sender in senders:
        for sending in sender.sent:
            is_partial = not sending.is_settled_here and sender.link.current == sending.delivery
            assert sending.outcome is not None or sending.is_settled_here or is_partial
    net.nothing_left()


@pytest.mark.parametrize("rate", [0, 100_000])
def test_a_message_that_began_before_there_was_a_rate_is_held_back_too(rate: int) -> None:
    """Attack: one endless message would pass by every rate that is set later."""
    net = paced()
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending, size = sender.start(), 3_000_000
    sender.append(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(300_000))
    net.pump()
    change(net, client, maxByteRate=rate)
    came = len(receiver.received[0].payload)
    sender.append(bytes(size - 300_000))
    sender.finish()
    net.advance(2)
    assert len(receiver.received[0].payload) - came <= 3 * rate + PIECE_BYTES
    change(net, client)
    assert len(receiver.complete[0].payload) == size + 8
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_what_nobody_gets_of_a_message_is_held_back_by_a_rate_that_is_set_meanwhile() -> None:
    """Attack: one endless message that is released unread would pass by every rate that is set later."""
    net = paced()
    receiver = net.client().receiver("a", credit=10)
    client, (sender,) = attach(net)
    sending, size = sender.start(), 2_000_000
    sender.append(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(300_000))
    net.pump()
    receiver.close()
    net.pump()
    change(net, client, maxByteRate=100_000)
    sender.append(bytes(size - 300_000))
    sender.finish()
    net.advance(5)
    assert sending.outcome is None
    change(net, client)
    assert sending.outcome is not None
    net.nothing_left()
