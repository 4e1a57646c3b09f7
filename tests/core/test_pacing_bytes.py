"""maxByteRate: small messages and large ones, held back by credit and the session's window."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED, REJECTED
from paced_net import PIECE_BYTES, STEP_S, Load, attach, drain, paced


@pytest.mark.slow
@given(rate=st.integers(1000, 300_000), size=st.integers(1, 40_000), links=st.integers(1, 3), is_settled=st.booleans())
@settings(max_examples=20, deadline=None)
def test_no_more_bytes_than_the_rate_in_any_time(rate: int, size: int, links: int, is_settled: bool) -> None:
    net = paced(20, maxByteRate=rate)
    receiver = drain(net)
    _, senders = attach(net, links)
    load = Load(net, senders, is_settled=is_settled, size=size).run(2, step=0.1)
    load.check(rate, burst=rate + size + 100, each=size)
    net.advance(load.sent * (size + 100) / rate + 1)
    assert len(receiver.complete) == load.sent
    net.nothing_left()


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_large_message_is_read_no_faster_than_its_bytes_may_come(is_settled: bool) -> None:
    """A message of 4 MB at 1 MB/s: what is read of it is held back by the session's window."""
    rate, size = 1_000_000, 4_000_000
    net = paced(maxByteRate=rate)
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending = sender.start()
    sender.append(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size))
    if is_settled:
        sending.settle()
    else:
        sender.finish()
    net.pump()
    taken = [(net.now, len(receiver.received[0].payload))]
    while not receiver.complete:
        assert net.now - taken[0][0] < 10
        net.advance(STEP_S, step=STEP_S)
        taken.append((net.now, len(receiver.received[0].payload)))
    for index, (began, before) in enumerate(taken):
        for ended, after in taken[index:]:
            assert after - before <= rate * (ended - began) + rate + PIECE_BYTES
    assert 2.5 <= net.now - taken[0][0] <= 3.5
    assert len(receiver.complete[0].payload) == size + 8
    assert sending.outcome == (None if is_settled else ACCEPTED)
    assert net.peer(client).attachment.held_back_count > 0
    net.nothing_left()


def test_a_large_message_is_followed_by_what_waits_behind_it() -> None:
    net = paced(maxByteRate=200_000)
    receiver = drain(net)
    _, (sender,) = attach(net)
    for number in range(4):
        sender.send(bytes(300_000) if number % 2 == 0 else b"small")
    net.advance(10)
    assert [len(body) for body in receiver.bodies] == [300_000, 5, 300_000, 5]
    net.nothing_left()


def test_a_large_message_leaves_room_for_the_other_links() -> None:
    """They are served in turn: who streams does not take all there is, each time."""
    net = paced(maxByteRate=100_000)
    drain(net)
    receiver = drain(net, "b")
    client, (large,) = attach(net)
    small = client.sender("b")
    net.pump()
    large.send(bytes(3_000_000))
    net.pump()
    sendings = []
    for _ in range(10):
        sendings.append(small.send(b"between"))
        net.advance(2)
    assert len(receiver.complete) >= 5
    assert all(sending.outcome == ACCEPTED for sending in sendings[:5])
    assert large.outcomes == [None]
    net.nothing_left()


def test_bytes_that_nobody_gets_count_all_the_same() -> None:
    """Attack: messages that are released unread would cost us what the rate was to spare."""
    net = paced(maxByteRate=100_000)
    receiver = net.client().receiver("a", credit=10)
    _, (sender,) = attach(net)
    sending = sender.start()
    size = 1_000_000
    sender.append(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(300_000))
    net.pump()
    receiver.close()
    sender.append(bytes(size - 300_000))
    sender.finish()
    net.advance(5)
    assert sending.outcome is None
    net.advance(6)
    assert sending.outcome is not None
    net.nothing_left()


@pytest.mark.parametrize("size", [100_000, 600_000])
def test_a_message_that_is_too_large_ends_the_connection_as_without_a_rate(size: int) -> None:
    net = paced(maxByteRate=50_000, maxMessageSize=300_000)
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending = sender.send(bytes(size))
    net.advance(20)
    assert client.is_closed_by_router == (size > 300_000)
    assert len(receiver.complete) == (size <= 300_000)
    assert sending.outcome == (ACCEPTED if size <= 300_000 else REJECTED)
    net.nothing_left()
