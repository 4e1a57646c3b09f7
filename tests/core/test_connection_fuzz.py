"""Any bytes at all: no exception gets out, the connection is closed as specified, and nobody else notices.

PALISADE_FUZZ_EXAMPLES  how many examples of each kind (default 60)
"""

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED, Client, Net, encoded
from proton import symbol

EXAMPLES = int(os.environ.get("PALISADE_FUZZ_EXAMPLES", "60"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def record_sender() -> bytes:
    """What an honest sender writes: links, large and small messages, settlement, an abort, detach, end, close."""
    net = Net()
    net.client().receiver("a", credit=100, accepts=True)
    client = net.client("fuzz")
    sender, anonymous = client.sender("a"), client.sender(None)
    net.pump()
    sender.send(b"one", id="1", address="a", annotations={symbol("x-opt-qd.to"): "b"})
    anonymous.send(b"two", address="a", properties={"k": "v"})
    sender.send(bytes(2000), is_settled=True)
    net.pump()
    aborted = sender.start()
    sender.append(encoded(bytes(500)))
    net.pump()
    aborted.abort()
    net.pump()
    sender.close()
    net.pump()
    client.close()
    net.pump()
    return bytes(client.uttered)


def record_receiver() -> bytes:
    """What an honest receiver writes: dynamic and filtered sources, credit, drain, every outcome, detach, close."""
    net = Net()
    client = net.client("fuzz", hostname="v")
    receiver = client.receiver("a", credit=4, source={"filter": {symbol("f"): "x"}})
    client.receiver(None, credit=1, source={"dynamic": True})
    net.pump()
    sender = net.client().sender("a")
    net.pump()
    for state in (0x24, 0x25, 0x26, 0x27):
        sender.send()
        net.pump()
        receiver.complete[-1].give(state)
        net.pump()
    receiver.drain(3)
    net.pump()
    receiver.detach()
    net.pump()
    client.close()
    net.pump()
    return bytes(client.uttered)


SESSIONS = {"sender": record_sender(), "receiver": record_receiver()}


class Bystanders:
    """A pair that must go on working whatever a third peer does."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.receiver = net.client().receiver("bystander", credit=1000, accepts=True)
        self.sender = net.client().sender("bystander")
        net.pump()

    def check(self) -> None:
        sending = self.sender.send(b"still here")
        self.net.pump()
        assert sending.outcome == ACCEPTED


def silent(net: Net) -> Client:
    """A client whose bytes the test writes."""
    client = net.client(opens=False)
    client.push_to_router = lambda: False  # type: ignore[method-assign]
    client._take = lambda data: None  # type: ignore[method-assign]
    return client


def check(net: Net, client: Client, bystanders: Bystanders) -> None:
    """No crash of ours, and a closed connection said why, to the peer and to the record."""
    net.pump()
    net.no_errors()
    if client.router_closed:
        said_close = b"\x00\x53\x18" in client.recorded
        assert said_close or [audit["reason"] for audit in net.audits] == ["unexpected_header"]
    for audit in net.audits:
        assert audit["reason"] in ("malformed_frame", "unexpected_header", "handshake_aborted"), audit
        # Who has left is told nothing.
        assert audit["reason"] == "handshake_aborted" or audit["condition"].startswith("amqp:")
    bystanders.check()
    net.nothing_left()


def split(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """`data` in pieces, as sockets deliver it."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        yield data[start:end]


@fuzzed
@given(st.binary(min_size=1, max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    """routing 1, 27"""
    net = Net()
    bystanders, client = Bystanders(net), silent(net)
    client.say(data)
    check(net, client, bystanders)


@pytest.mark.slow
@fuzzed
@given(st.binary(min_size=1, max_size=400))
def test_random_bytes_after_the_header_are_refused(data: bytes) -> None:
    """routing 1"""
    net = Net()
    bystanders, client = Bystanders(net), silent(net)
    client.say(b"AMQP\x00\x01\x00\x00" + data)
    check(net, client, bystanders)


@pytest.mark.parametrize("which", SESSIONS)
def test_an_honest_session_replays(which: str) -> None:
    """routing 82: byte by byte, or frame by frame"""
    whole = SESSIONS[which]
    for pieces in ([whole[:8], *frames_of(whole)], [bytes([byte]) for byte in whole]):
        net = Net()
        bystanders, client = Bystanders(net), silent(net)
        for piece in pieces:
            client.say(piece)
        assert client.router_closed
        assert not net.audits
        check(net, client, bystanders)


@pytest.mark.slow
@pytest.mark.parametrize("which", SESSIONS)
def test_a_session_cut_anywhere_leaves_nothing(which: str) -> None:
    """routing 89, 92: the socket ends at every offset"""
    data = SESSIONS[which]
    step = max(len(data) // (10 * EXAMPLES), 1)
    net = Net()
    bystanders = Bystanders(net)
    for length in range(0, len(data), step):
        client = silent(net)
        client.say(data[:length])
        client.kill()
    net.pump()
    check(net, net.clients[-1], bystanders)


@pytest.mark.slow
@pytest.mark.parametrize("which", SESSIONS)
@fuzzed
@given(data=st.data())
def test_a_mutated_session_harms_nobody(which: str, data: st.DataObject) -> None:
    """routing 83, 90: bytes changed, inserted, removed; in pieces of any size"""
    mutated = bytearray(SESSIONS[which])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(mutated) - 1))
        kind = data.draw(st.sampled_from(["change", "insert", "remove", "repeat"]))
        if kind == "change":
            mutated[at] = data.draw(st.sampled_from([0, 1, 0x40, 0x41, 0x43, 0x45, 0x53, 0x7F, 0x80, 0xC0, 0xD0, 0xFF]))
        elif kind == "insert":
            mutated[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        elif kind == "remove":
            del mutated[at : at + data.draw(st.integers(1, 8))]
        else:
            mutated[at:at] = mutated[at : at + data.draw(st.integers(1, 64))]
    net = Net()
    bystanders, client = Bystanders(net), silent(net)
    for piece in split(bytes(mutated), data.draw(st.lists(st.integers(0, 10_000), max_size=5))):
        client.say(piece)
    check(net, client, bystanders)


def frames_of(session: bytes) -> list[bytes]:
    at, found = 8, []
    while at < len(session):
        size = int.from_bytes(session[at : at + 4], "big")
        found.append(session[at : at + size])
        at += size
    return found


ALL_FRAMES = [frame for session in SESSIONS.values() for frame in frames_of(session)]


@fuzzed
@given(st.lists(st.sampled_from(range(len(ALL_FRAMES))), max_size=30), st.booleans())
def test_frames_in_any_order_harm_nobody(order: list[int], opens: bool) -> None:
    """routing 83, 90: honest frames of two sessions, shuffled and repeated"""
    net = Net()
    bystanders, client = Bystanders(net), silent(net)
    start = SESSIONS["sender"][:8] + (b"".join(frames_of(SESSIONS["sender"])[:3]) if opens else b"")
    client.say(start)
    for index in order:
        client.say(ALL_FRAMES[index])
    check(net, client, bystanders)


@fuzzed
@given(st.data())
def test_mutated_frames_after_an_honest_start_harm_nobody(data: st.DataObject) -> None:
    """routing 83, 90: each frame keeps its size, so that what is inside it is looked at"""
    which = data.draw(st.sampled_from(sorted(SESSIONS)))
    net = Net()
    bystanders, client = Bystanders(net), silent(net)
    client.say(SESSIONS[which][:8])
    for number, frame in enumerate(frames_of(SESSIONS[which])):
        mutated = bytearray(frame)
        if number > 1 and data.draw(st.integers(0, 3)) == 0:
            for _ in range(data.draw(st.integers(1, 3))):
                mutated[data.draw(st.integers(4, len(mutated) - 1))] = data.draw(st.integers(0, 255))
        client.say(bytes(mutated))
    check(net, client, bystanders)
