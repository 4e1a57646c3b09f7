"""The wire of two routers that meet, frame by frame, against the timeline of network §21. In virtual time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memory_net import Fleet, frames
from memory_net.connected import End

from router.amqp.codec import decode, decode_message
from router.connection.lanes import SPARE
from router.values import int_

# Each router's tick, and what follows it at once. "Own": what the timeline of 1.20 has and ours leaves out.
TIMELINE = [
    ("A", "HELLO", {"seen": []}),
    ("B", "HELLO", {"seen": ["A"]}),
    ("A", "HELLO", {"seen": ["B"]}),
    ("A", "LSR", {}),
    ("A", "RA", {"ls_seq": 1, "mobile_seq": 1}),
    ("B", "LSU", {"ls_seq": 0, "peers": {}}),
    ("B", "LSR", {}),
    ("A", "LSU", {"ls_seq": 1, "peers": {"B": 1}}),
    ("B", "HELLO", {"seen": ["A"]}),
    ("B", "LSR", {}),
    ("B", "MAR", {"have_seq": 0}),
    ("B", "RA", {"ls_seq": 1, "mobile_seq": 0}),
    ("A", "MAU", {"mobile_seq": 1, "exist": ["M0addr1"], "hints": [3]}),
    ("A", "LSU", {"ls_seq": 1, "peers": {"B": 1}}),
    ("A", "LSR", {}),
    ("B", "LSU", {"ls_seq": 1, "peers": {"A": 1}}),
]
# Decided (network §21): B asks once for a link state, and its own is told with the neighbour that it has by then.
LEFT_OUT = [9, 13]
SAID_OTHERWISE = {5: ("B", "LSU", {"ls_seq": 0, "peers": {"A": 1}})}


@dataclass(frozen=True)
class Said:
    """A frame on the wire. payload  of a transfer"""

    router: str
    channel: int
    name: str
    fields: list[Any]
    payload: bytes


class Wire:
    """What both ends write, in its order, from the Open on."""

    def __init__(self, ends: dict[str, End]) -> None:
        self._ends = ends
        self._read = dict.fromkeys(ends, 0)
        self.frames: list[Said] = []

    def read(self) -> None:
        for router, end in self._ends.items():
            written = bytes(end.recorded)
            at = max(self._read[router], written.index(b"AMQP\x00") + 8)
            while at + 8 <= len(written):
                size = int.from_bytes(written[at : at + 4], "big")
                (found,) = frames(written[at : at + size]) if size > 8 else (None,)
                if found is not None:
                    _, body_at = decode(written, at + 8)
                    payload = written[body_at : at + size]
                    self.frames.append(Said(router, found.channel, found.name, found.fields, payload))
                at += size
            self._read[router] = at


def meet() -> tuple[Fleet, Wire]:
    """A, which has an address, connects to B. Both have been there for a while."""
    fleet = Fleet("A", "B")
    fleet["A"].client().receiver("addr1", credit=10)
    fleet.tick(2)
    made, taken = fleet.connect("A", "B")
    return fleet, Wire({"A": made, "B": taken})


def tick(fleet: Fleet, wire: Wire, router: str) -> None:
    net = fleet[router]
    net.advance(1.0, step=1.0)
    assert net.host is not None
    net.host.on_second(net.now)
    for _ in range(20):
        for each in fleet.nets.values():
            wire.read()
            each.carry()
    wire.read()


def control(wire: Wire) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for said in wire.frames:
        if said.name == "transfer":
            assert said.fields[4] is True  # settled
            message = decode_message(said.payload)
            opcode = message.application_properties["opcode"]
            body = {str(key): value for key, value in message.body.items()}
            assert body.pop("id") == said.router
            assert (body.pop("pv"), body.pop("area")) == (1, "0")
            assert message.message_annotations == {
                "x-opt-qd.ingress": f"0/{said.router}",
                "x-opt-qd.trace": [f"0/{said.router}"],
            }
            assert body.pop("instance", 1) == 1
            if "ls" in body:
                state = body.pop("ls")
                assert (state["id"], state["ls_seq"]) == (said.router, body["ls_seq"])
                body["peers"] = state["peers"]
            yield said.router, opcode, body


def test_two_routers_that_meet_say_what_the_timeline_has() -> None:
    """network 17, 20, 21, 29, 31, 32, 49: message by message, in its order; all is known after two ticks of each"""
    fleet, wire = meet()
    for _ in range(2):
        for router in ("A", "B"):
            tick(fleet, wire, router)
    expected = [SAID_OTHERWISE.get(at, line) for at, line in enumerate(TIMELINE) if at not in LEFT_OUT]
    assert list(control(wire)) == expected
    for router, other in (("A", "B"), ("B", "A")):
        host = fleet[router].host
        assert host is not None
        assert host.own_links == {other: 1}
        assert host.rows[other].link_state == (router,)
        assert host.rows[other].cost == 1
    assert [router.id for router in fleet["B"].core.table.addresses["M0addr1"].remotes] == ["A"]
    fleet.no_errors()


def test_what_comes_before_the_first_message_is_that_of_the_recipe() -> None:
    """network 6, 7, 8, 9: steps 1 to 3 of the connector, and the acceptor's part"""
    _, wire = meet()
    wire.read()
    said = {router: [frame for frame in wire.frames if frame.router == router] for router in "AB"}
    # 11 sessions, and those of streaming.
    names = ["open", *["begin"] * (11 + 2 * SPARE), *["attach"] * 22]
    assert [frame.name for frame in said["A"] if frame.name != "flow"] == names
    assert sorted(frame.name for frame in said["B"] if frame.name != "flow") == sorted(names)
    assert [frame.channel for frame in said["A"] if frame.name == "attach"] == [n for n in range(11) for _ in range(2)]
    assert [frame.fields[2] for frame in said["A"] if frame.name == "attach"] == [True, False] * 11  # receiver first
    opened, first = (next(frame for frame in said["A"] if frame.name == name) for name in ("open", "attach"))
    assert opened.fields[:5] == ["A", "B", 16384, 32767, 8000]
    source, target = first.fields[5].value, first.fields[6].value
    assert source[:5] == [None, 0, "link-detach", 0, False]
    assert (source[10], target[6]) == ("qd.router", "qd.router")
    assert first.fields[3:5] == [2, 0]
    answers = [frame for frame in said["B"] if frame.name == "attach"]
    asked = [frame for frame in said["A"] if frame.name == "attach"]
    assert [(a.fields[0], a.fields[2]) for a in answers] == [(a.fields[0], not a.fields[2]) for a in asked]
    for router in "AB":
        credit = [frame.fields[6] for frame in said[router] if frame.name == "flow" and len(frame.fields) > 6]
        assert credit == [250] * 11
    assert type(opened.fields[9]["qd.conn-id"]) is int_
