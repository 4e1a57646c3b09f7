"""The same bytes lead to the same, however they are cut into reads, however short the turns, and whenever nobody reads.

Frames wait in several places: the beginning of one in the intake, those of a turn that is over, and those that must not
be answered while the peer does not read. None may be lost, come twice or overtake another.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import Client, Net

from router.amqp.buffers import READ_BUFFER
from router.amqp.engine import intake

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

OBSERVER_CREDIT = 100_000
LARGE_BYTES = 70_000  # more than one read, and streamed
LARGEST = 120
MOST_BYTES = 16_000  # of a message in one Transfer
LEFT_OUT = 4  # bytes of a message that come in a Transfer of their own, perhaps
SENDING = (0, 1)  # channels and handles on which the peer sends


@dataclass(frozen=True)
class Manner:
    """How the bytes of one connection come and go.

    reads        sizes of the reads, in turn
    blocks       at which of the steps the peer stops or resumes reading
    late         at which of the steps a read comes although frames wait: it was under way
    frames       acted on in one turn
    """

    reads: tuple[int, ...] = (65536,)
    blocks: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    frames: int = 16


class Script:
    """What a peer says that keeps the rules.

    It sends on links that it has credit for since before `data`, and attaches, detaches, begins and ends others.
    """

    def __init__(self) -> None:
        self.before = wire.HEADER + wire.frame(wire.open_("p"))
        for channel in SENDING:
            self.before += wire.frame(wire.begin(), channel)
            for handle in SENDING:
                name = f"s{channel}{handle}"
                self.before += wire.frame(wire.attach(name, handle, is_receiver=False, address="a"), channel)
        self.data = b""
        self.links: dict[int, set[int]] = {channel: set() for channel in SENDING}
        self.next_id = dict.fromkeys(SENDING, 0)
        self.under_way: dict[tuple[int, int], int] = {}
        self.names = 0

    def step(self, kind: str, channel: int, handle: int, size: int) -> None:
        others = self.links.get(channel)
        if kind == "send":
            self.send(channel % 2, handle % 2, size)
        elif others is None:
            self.links[channel] = set()
            self.say(wire.begin(), channel)
        elif kind == "end" and channel not in SENDING:
            del self.links[channel]
            self.say(wire.end(), channel)
        elif handle + 2 not in others:
            self.names += 1
            others.add(handle + 2)
            # Also to what nobody may attach: the answers are an Attach and a Detach.
            where = "a" if size % 3 else None
            self.say(wire.attach(f"l{self.names}", handle + 2, is_receiver=size % 2 == 0, address=where), channel)
        elif kind == "detach":
            others.discard(handle + 2)
            self.say(wire.detach(handle + 2), channel)
        else:
            self.say(wire.flow(echo=size % 2 == 0), channel)

    def send(self, channel: int, handle: int, size: int) -> None:
        """A message, or the beginning of one, or its rest."""
        number = self.under_way.pop((channel, handle), None)
        if number is not None:
            self.say(wire.transfer(handle, number, bytes(LEFT_OUT), is_settled=None), channel)
            return
        number = self.next_id[channel]
        self.next_id[channel] += 1
        length = LARGE_BYTES if size == LARGEST else size + 16
        body = (b"%d.%d.%d." % (channel, handle, number)).ljust(length - LEFT_OUT, b".")
        payload = b"\0Su\xb0" + length.to_bytes(4, "big") + body
        while len(payload) > MOST_BYTES:
            self.say(wire.transfer(handle, number, payload[:MOST_BYTES], is_last=False, is_settled=None), channel)
            payload = payload[MOST_BYTES:]
        is_last = size % 4 != 0
        if not is_last:
            self.under_way[channel, handle] = number
        payload += bytes(LEFT_OUT) if is_last else b""
        self.say(wire.transfer(handle, number, payload, is_last=is_last, is_settled=size % 3 == 0), channel)

    def say(self, performative: bytes, channel: int) -> None:
        self.data += wire.frame(performative, channel)


def play(script: Script, end: bytes, manner: Manner) -> Any:
    """What the router makes of the bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "FRAMES_PER_TURN", manner.frames)
        net = Net(default="multicast")
        observer = net.client("observer")
        receiver = observer.receiver("a", credit=OBSERVER_CREDIT, accepts=True)
        net.pump()
        peer = net.client(opens=False)
        peer.push_to_router = lambda: False  # type: ignore[method-assign]
        peer.pull_from_router = lambda: bool(peer.inbox.clear())  # type: ignore[method-assign,func-returns-value]
        speak(net, peer, script.before, Manner())
        net.pump()
        speak(net, peer, script.data + end, manner)
        net.pump()
        net.no_errors()
        bodies: dict[bytes, list[bytes]] = {}
        for item in receiver.complete:
            body = item.body
            bodies.setdefault(b".".join(body.split(b".", 3)[:3]), []).append(body)
        result = bodies, answers(peer), peer.router.is_closed
        net.nothing_left()
        return result


def speak(net: Net, peer: Client, data: bytes, manner: Manner) -> None:
    router, at, step = peer.router, 0, 0
    is_blocked = False
    while True:
        if step in manner.blocks:
            is_blocked = not is_blocked
            router.set_blocked(is_blocked)
            net.work.finish()
        is_late = step in manner.late and at < len(data) and not router.is_closed
        if router.has_more and not is_late:
            peer.go_on()
        elif at == len(data) or (router.waits_for_room and not is_late):
            if not is_blocked:
                return
            is_blocked = False
            router.set_blocked(False)
            net.work.finish()
        else:
            size = min(manner.reads[step % len(manner.reads)], len(data) - at)
            begin = router.lay()
            READ_BUFFER[begin : begin + size] = data[at : at + size]
            at += size
            router.receive_read(size)
            net.work.finish()
        step += 1


def answers(peer: Client) -> Any:
    """What the router has answered, but for what it may say in one or in several, and for its own channels and handles.

    Who has closed, or was closed, may miss the last answers.
    """
    counted: Counter[Any] = Counter()
    channels: dict[int, int] = {}  # ours -> theirs
    for frame in peer.frames():
        if frame.name == "begin":
            assert frame[0] is not None
            channels[frame.channel] = frame[0]
        if frame.name in ("begin", "attach", "detach", "end"):
            counted[frame.name, channels[frame.channel], frame[0] if frame.name == "attach" else None] += 1
        elif frame.name == "close":
            return str(frame[0].value) if frame[0] else ""
    return counted


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "attach", "detach", "end", "flow"]),
        st.integers(0, 3), st.integers(0, 3), st.integers(0, LARGEST),
    ),
    max_size=100,
)  # fmt: skip
manners = st.builds(
    Manner,
    reads=st.lists(st.sampled_from([1, 2, 7, 8, 9, 30, 100, 1000, 65535, 65536]), min_size=1, max_size=6).map(tuple),
    blocks=st.frozensets(st.integers(0, 60), max_size=8),
    late=st.frozensets(st.integers(0, 60), max_size=8),
    frames=st.sampled_from([1, 2, 3, 16]),
)
VIOLATION, CLOSE = wire.frame(wire.transfer(9, 0, b"x")), wire.frame(wire.close())


@pytest.mark.slow
@settings(deadline=None)
@given(steps, manners, st.sampled_from([b"", VIOLATION, CLOSE]))
def test_the_same_bytes_lead_to_the_same(drawn: list[tuple[str, int, int, int]], manner: Manner, end: bytes) -> None:
    script = Script()
    for step in drawn:
        script.step(*step)
    assert play(script, end, manner) == play(script, end, Manner())


def test_a_begin_is_answered_as_such_although_its_end_is_in_the_same_read() -> None:
    """An answer without a remote channel would be a session that the router begins."""
    net = Net()
    peer = net.client(opens=False)
    peer.say(wire.HEADER + wire.frame(wire.open_("p")) + (wire.frame(wire.begin(), 3) + wire.frame(wire.end(), 3)) * 4)
    assert [frame[0] for frame in peer.frames("begin")] == [3] * 4
    assert len(peer.frames("end")) == 4
