"""The frames of the peers of one router, in orders that honest peers keep and, where a liberty is taken, in others.

`scenario(seed, liberties)` is a pure function: the same arguments give the same steps, so that a crash is named by
them. A scenario is a few peers that share addresses, and steps: bytes in pieces of any size, a peer that stops reading
or goes away without a word, time that passes.

A liberty is one rule of AMQP that the peers do not keep. Without any they are honest, if hasty.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import wire

LIBERTIES: Final = (
    "answer",  # a Begin claims to answer one of ours
    "begin twice",  # on one channel
    "channel",  # a frame on a channel that was never begun, or is ended
    "high channel",
    "handle twice",  # Attach on a handle in use
    "name twice",  # Attach of a name in use
    "handle",  # a handle never attached, or detached
    "high handle",
    "direction",  # Transfer on a link on which the peer receives
    "delivery id",
    "no delivery id",
    "continuation",  # a Transfer goes on with another delivery's id
    "credit",  # transfers without
    "handle-max",  # a small one in Begin
    "window",
    "flow numbers",
    "disposition range",
    "outcome",
    "state on transfer",
    "many values",  # in a field that may hold any
    "before open",
    "after close",
    "open twice",
    "duplicate",  # a frame comes twice
    "swap",  # two frames in the other order
    "types",  # a field is null, or of another type
    "body",  # bits of a performative flipped
    "truncate",
    "framing",  # size, offset, type, channel
)
NUMBERS: Final = (0, 1, 2, 3, 7, 255, 256, 0x7FFE, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF, 0x10000, 0x7FFFFFFE, 0x7FFFFFFF,
                  0x80000000, 0x80000001, 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF)  # fmt: skip
ADDRESSES: Final = ("a", "a", "a", "b", "m", "c", None)
VALUES: Final = (wire.NULL, wire.TRUE, wire.FALSE, b"\x45", wire.uint(0), wire.uint(0xFFFFFFFF), wire.ulong(1 << 63),
                 wire.text("x"), wire.symbol("y"), wire.binary(b"z" * 40), wire.map_of(wire.text("k"), wire.TRUE),
                 wire.map_of(wire.text("k")), b"\xe0\x05\x02\x56\x00\x01", b"\xf0\x00\x00\x00\x09\x00\x00\x00\x05\x45",
                 b"\xe0\x0a\x02\xe0\x02\x01\x56\x00\x02\x01\x56", wire.described(0x24, b"\x45"),
                 b"\x00\x00\x53\x10\x45\x45", b"\xb0\xff\xff\xff\xff", b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff",
                 b"\xc0\x01\xff", b"\xd1\x00\x00\x00\x04\xff\xff\xff\xff", b"\x55\xff",
                 b"\x98" + bytes(16))  # fmt: skip


@dataclass
class Link:
    name: str
    handle: int
    is_receiver: bool  # the peer
    sent: int = 0
    open_id: int | None = None  # of a delivery whose end is still to come


@dataclass
class Session:
    channel: int
    links: dict[int, Link] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)  # detached handles
    next_id: int = 0
    granted: int = 0


@dataclass(frozen=True)
class Step:
    """what  "join", "say", "pass", "stall", "read", "leave", "wait"; "open", where the router begins, attaches or ends
          something on that peer's connection, and "answer", where the peer says something to that
    peer   its number
    data   what it says; a seed of "open" and "answer"
    """

    what: str
    peer: int
    data: bytes = b""


@dataclass(frozen=True)
class Scenario:
    terms: dict[str, object]
    kinds: tuple[str, ...]  # of the peers: "client", "server" (behind a connector), "guest" (under a policy)
    steps: tuple[Step, ...]


class Peer:
    """Makes one peer's frames, one at a time."""

    def __init__(self, number: int, kind: str, chance: random.Random, liberties: Sequence[str]) -> None:
        self.number, self.kind, self.chance = number, kind, chance
        self.takes = frozenset(liberties)
        self.sessions: dict[int, Session] = {}
        self.ended: list[int] = []
        self.is_open = self.is_closed = False
        self.names = 0
        self.said: list[bytes] = []
        self.boldness = chance.choice((0.02, 0.1, 0.3))
        self.is_narrow = chance.random() < 0.3  # its windows are small, and its messages come in many parts

    def dares(self, liberty: str, share: float = 1.0) -> bool:
        return liberty in self.takes and self.chance.random() < self.boldness * share

    def number_at_large(self) -> int:
        return self.chance.choice(NUMBERS) if self.chance.random() < 0.7 else self.chance.randrange(1 << 32)

    # Frames

    def frames(self) -> list[bytes]:
        """The next thing to say: mostly one frame."""
        if not self.is_open and not self.dares("before open", 0.5):
            self.is_open = True
            return [self.open()]
        if self.is_closed and not self.dares("after close", 3):
            return []
        if self.is_open and self.dares("open twice", 0.3):
            return [self.open()]
        chance = self.chance
        if not self.sessions or (chance.random() < 0.05 and len(self.sessions) < 6):
            return [self.begin()]
        session = self.sessions[chance.choice(list(self.sessions))]
        links = list(session.links.values())
        if len(links) < 2 or (chance.random() < 0.08 and len(links) < 8):
            return [self.attach(session)]
        link = chance.choice(links)
        choice = chance.random()
        if choice < 0.62:
            return self.use(session, link)
        if choice < 0.80:
            return [self.disposition(session)]
        if choice < 0.86:
            return [self.session_flow(session)]
        if choice < 0.94:
            return [self.detach(session, link)]
        if choice < 0.98:
            return [self.end(session)]
        if choice < 0.99:
            self.is_closed = True
            return [wire.frame(wire.close(chance.choice((wire.NULL, wire.error("amqp:x", "bye")))))]
        return [wire.EMPTY_FRAME]

    def open(self) -> bytes:
        chance = self.chance
        most = chance.choice((65536, 65536, 512, 4096, 0, 0xFFFFFFFF) if "window" in self.takes else (65536, 512, 4096))
        hostname = "v" if self.kind == "guest" else None
        channels = chance.choice((100, 100, 100, 65535, 0))
        return wire.frame(wire.open_(f"p{self.number}", hostname, max_frame=most, channels=channels))

    def begin(self) -> bytes:
        chance = self.chance
        channel = min(set(range(40)) - set(self.sessions))
        if self.sessions and self.dares("begin twice", 5):
            channel = chance.choice(list(self.sessions))
        if self.dares("high channel", 5):
            channel = chance.choice((100, 101, 32766, 32767, 32768, 32769, 65533, 65534, 65535))
        remote = None
        if self.dares("answer", 8):
            remote = chance.choice((0, 0, 0, 1, 2, 3, channel, 65534, 65535, chance.randrange(65536)))
        numbers = {}
        if self.dares("window", 5):
            numbers = {key: self.number_at_large() for key in ("next_id", "incoming", "outgoing")}
        elif chance.random() < 0.2 or self.is_narrow:
            numbers = {"incoming": chance.choice((0, 1, 1, 3))}
        old = self.sessions.get(channel)
        if old is None:
            self.sessions[channel] = Session(channel)
        if channel in self.ended:
            self.ended.remove(channel)
        if self.dares("handle-max", 5):
            numbers["handle_max"] = chance.choice((0, 0, 1, 3))
        return wire.frame(wire.begin(remote, **numbers), channel)

    def channel_for(self, session: Session) -> int:
        if self.dares("channel", 1):
            known = [*self.ended, *self.sessions, 0, 1, 5, 99]
            return self.chance.choice(known)
        if self.dares("high channel", 0.3):
            return self.chance.choice((100, 32767, 32768, 65534, 65535))
        return session.channel

    def handle_for(self, session: Session, link: Link) -> int:
        if self.dares("handle", 1):
            return self.chance.choice([*session.gone, *session.links, 0, 1, 9])
        if self.dares("high handle", 1):
            return self.chance.choice((0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF))
        return link.handle

    def attach(self, session: Session) -> bytes:
        chance = self.chance
        handle = min(set(range(40)) - set(session.links))
        if chance.random() < 0.2:
            handle = chance.choice((40, 1000, 0x7FFFFFFF))
            while handle in session.links:
                handle -= 1
        if session.links and self.dares("handle twice", 5):
            handle = chance.choice(list(session.links))
        if self.dares("high handle", 3):
            handle = chance.choice((0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF))
        self.names += 1
        name = f"l{self.names}"
        is_receiver = chance.random() < 0.5
        if session.links and self.dares("name twice", 5):
            other = chance.choice(list(session.links.values()))
            name = other.name
            is_receiver = other.is_receiver if chance.random() < 0.7 else is_receiver
        address = chance.choice(ADDRESSES)
        if is_receiver and address is None and chance.random() < 0.8:
            address = "a"
        if self.kind == "guest" and chance.random() < 0.2:
            address = "forbidden"
        session.links[handle] = Link(name, handle, is_receiver)
        if handle in session.gone:
            session.gone.remove(handle)
        is_dynamic = chance.random() < 0.08
        composites: dict[str, bytes] = {}
        if self.dares("many values", 2):
            composites[chance.choice(("filters", "unsettled", "properties"))] = self.many_values()
            composites["capabilities"] = chance.choice((wire.NULL, wire.list_of(*[wire.symbol("x")] * 500)))
        return wire.frame(
            wire.attach(name, handle, is_receiver=is_receiver, address=None if is_dynamic else address,
                        is_dynamic=is_dynamic, **composites),
            self.channel_for(session),
        )  # fmt: skip

    def many_values(self) -> bytes:
        """A map whose values are few bytes each and many in number, flat or one inside the other."""
        count, value = self.chance.choice((30, 300, 1900, 9000)), self.chance.choice((wire.NULL, b"\x45", wire.uint(7)))
        if self.chance.random() < 0.2:
            for _ in range(self.chance.choice((5, 30, 200))):
                value = wire.list_of(value)
            return wire.map_of(wire.symbol("k"), value)
        if self.chance.random() < 0.5:
            return wire.map_of(wire.symbol("k"), wire.list_of(*[value] * count))
        keys = (wire.symbol(f"k{number}") for number in range(count))
        return wire.map_of(*(item for key in keys for item in (key, value)))

    def use(self, session: Session, link: Link) -> list[bytes]:
        if link.is_receiver:
            if self.dares("direction", 1):
                return self.transfers(session, link)
            return [self.link_flow(session, link)]
        if self.chance.random() < 0.05:
            return [self.link_flow(session, link)]
        return self.transfers(session, link)

    def transfers(self, session: Session, link: Link) -> list[bytes]:
        chance = self.chance
        if link.open_id is None and link.sent >= 200 and not self.dares("credit", 3):
            return [self.detach(session, link)]
        made = []
        count = chance.choice((1, 1, 1, 3, 12)) if "credit" not in self.takes else chance.choice((1, 3, 12, 60))
        for _ in range(count):
            if link.open_id is None and link.sent >= 200 and "credit" not in self.takes:
                break
            made.append(self.transfer(session, link))
        return made

    def transfer(self, session: Session, link: Link) -> bytes:
        chance = self.chance
        is_last = chance.random() < (0.3 if self.is_narrow else 0.75)
        size = chance.choice((0, 1, 100, 100, 300)) if chance.random() < 0.97 else chance.choice((5000, 30000))
        is_settled: bool | None = chance.random() < 0.3
        is_aborted = False
        state = wire.NULL
        if self.dares("state on transfer", 2):
            state = chance.choice((wire.ACCEPTED, wire.REJECTED, self.large_state(), wire.RELEASED, wire.MODIFIED,
                                   wire.RECEIVED, wire.TRANSACTIONAL, chance.choice(VALUES)))  # fmt: skip
        if self.dares("many values", 1):
            state = self.state_of_many_values()
        if link.open_id is None:
            delivery_id: int | None = session.next_id
            payload = wire.message(size)
            session.next_id = (session.next_id + 1) & 0xFFFFFFFF
            link.sent += 1
            if self.dares("delivery id", 1):
                others = (session.next_id, (session.next_id - 2) & 0xFFFFFFFF, 0, self.number_at_large())
                delivery_id = chance.choice(others)
            if self.dares("no delivery id", 1):
                delivery_id = None
            if not is_last:
                link.open_id = session.next_id - 1
        else:
            delivery_id = chance.choice((None, link.open_id))
            payload = bytes(size)
            is_settled = chance.choice((None, False, True))
            is_aborted = chance.random() < 0.15
            if self.dares("continuation", 2):
                delivery_id = chance.choice((link.open_id + 1, session.next_id, 0, self.number_at_large()))
            if is_last or is_aborted:
                link.open_id = None
        handle, channel = self.handle_for(session, link), self.channel_for(session)
        named = self.sessions[channel].links.get(handle) if channel in self.sessions else None
        if named is not None and named.is_receiver and "direction" not in self.takes:
            handle, channel = link.handle, session.channel
        body = wire.transfer(
            handle, delivery_id, payload, is_last=is_last, is_settled=is_settled,
            is_aborted=is_aborted, state=state,
        )  # fmt: skip
        return wire.frame(body, channel)

    def large_state(self) -> bytes:
        """Larger than a frame of some receivers."""
        size = self.chance.choice((400, 440, 480, 500, 700, 5000))
        return self.chance.choice((
            wire.performative(0x25, wire.error("amqp:x", "x" * size)),
            wire.performative(0x27, wire.TRUE, wire.TRUE, wire.map_of(wire.symbol("k"), wire.text("v" * size))),
            wire.performative(0x34, wire.binary(bytes(size))),
        ))  # fmt: skip

    def state_of_many_values(self) -> bytes:
        many = self.many_values()
        return self.chance.choice((
            wire.performative(0x25, wire.error("amqp:x", "no", many)),
            wire.performative(0x27, wire.TRUE, wire.FALSE, many),
            wire.performative(0x34, wire.binary(b"t"), wire.performative(0x27, wire.TRUE, wire.TRUE, many)),
            wire.described(0x99, many),
        ))  # fmt: skip

    def link_flow(self, session: Session, link: Link) -> bytes:
        chance = self.chance
        numbers: dict[str, Any] = {"credit": chance.choice((0, 1, 2, 10, 100)), "count": chance.choice((0, 0, 1, 5))}
        if not link.is_receiver:
            numbers = {"count": link.sent, "credit": 0}
        numbers["next_in"] = chance.choice((0, None, 1))
        numbers["next_out"] = session.next_id
        if self.dares("flow numbers", 2):
            for key in ("credit", "count", "next_in", "window", "next_out"):
                if chance.random() < 0.5:
                    numbers[key] = self.number_at_large()
        elif chance.random() < 0.1 or self.is_narrow:
            numbers["window"] = chance.choice((0, 1, 5))
        body = wire.flow(self.handle_for(session, link), drain=chance.random() < 0.1, echo=chance.random() < 0.1,
                         **numbers)  # fmt: skip
        return wire.frame(body, self.channel_for(session))

    def session_flow(self, session: Session) -> bytes:
        chance = self.chance
        windows = (0, 1, 2) if self.is_narrow else (2048, 0, 1, 100)
        numbers: dict[str, Any] = {"window": chance.choice(windows), "next_out": session.next_id}
        if self.dares("flow numbers", 2):
            numbers = {key: self.number_at_large() for key in ("next_in", "window", "next_out")}
        return wire.frame(wire.flow(None, echo=chance.random() < 0.3, **numbers), self.channel_for(session))

    def disposition(self, session: Session) -> bytes:
        chance = self.chance
        is_receiver = chance.random() < 0.7
        first = chance.randrange(12) if is_receiver else chance.randrange(max(session.next_id, 1))
        last = chance.choice((None, first, first + chance.randrange(6)))
        if self.dares("disposition range", 2):
            first, last = chance.choice((0, first, self.number_at_large())), self.number_at_large()
        states = [wire.ACCEPTED] * 4 + [wire.RELEASED, wire.REJECTED, wire.MODIFIED, wire.RECEIVED, wire.NULL]
        state = chance.choice(states)
        if self.dares("outcome", 3):
            state = chance.choice((wire.TRANSACTIONAL, self.large_state(), wire.described(0x25, chance.choice(VALUES)),
                                   wire.performative(0x25, chance.choice(VALUES)),
                                   wire.performative(0x27, *(chance.choice(VALUES) for _ in range(3))),
                                   wire.performative(0x23, *(chance.choice(VALUES) for _ in range(2))),
                                   wire.described(chance.randrange(256), chance.choice(VALUES)),
                                   chance.choice(VALUES)))  # fmt: skip
        is_settled = chance.random() < 0.7
        if self.dares("many values", 3):
            state, is_settled = self.state_of_many_values(), chance.random() < 0.2
        return wire.frame(
            wire.disposition(is_receiver=is_receiver, first=first, last=last, is_settled=is_settled, state=state),
            self.channel_for(session),
        )

    def detach(self, session: Session, link: Link) -> bytes:
        handle = self.handle_for(session, link)
        if session.links.pop(handle, None) is not None:
            session.gone.append(handle)
        error = self.some_error()
        body = wire.detach(handle, is_closed=self.chance.random() < 0.6, error=error)
        return wire.frame(body, self.channel_for(session))

    def end(self, session: Session) -> bytes:
        channel = self.channel_for(session)
        if self.sessions.pop(channel, None) is not None:
            self.ended.append(channel)
        return wire.frame(wire.end(self.some_error()), channel)

    def some_error(self) -> bytes:
        """Of a Detach or an End; mostly none."""
        if self.dares("many values", 3):
            return wire.error("amqp:x", "no", self.many_values())
        return wire.error("amqp:x") if self.chance.random() < 0.1 else wire.NULL

    # What befalls frames on their way

    def spoilt(self, frame: bytes) -> bytes:
        chance = self.chance
        if len(frame) > 12:
            if self.dares("types", 0.5):
                frame = self.with_another_type(frame)
            if self.dares("body", 0.5):
                data = bytearray(frame)
                for _ in range(chance.choice((1, 1, 2, 4))):
                    data[chance.randrange(8, min(len(data), 80))] = chance.choice((
                        chance.randrange(256), 0x40, 0x41, 0x43, 0x45, 0x00, 0x53, 0xFF, 0xC0, 0xD0, 0xE0, 0xA3
                    ))  # fmt: skip
                frame = bytes(data)
            if self.dares("truncate", 0.5):
                frame = wire.frame(frame[8 : chance.randrange(8, len(frame))], int.from_bytes(frame[6:8], "big"))
        if self.dares("framing", 0.5):
            data = bytearray(frame)
            which = chance.randrange(5)
            if which == 0:
                data[0:4] = chance.choice((0, 1, 7, 8, 9, len(data) - 1, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "big")
            elif which == 1:
                data[4] = chance.choice((0, 1, 3, 4, 100, 255))
            elif which == 2:
                data[5] = chance.choice((1, 2, 255))
            elif which == 3:
                data[6:8] = chance.randbytes(2)
            else:
                data[8:8] = bytes(4)
                data[4] = 3
                data[0:4] = len(data).to_bytes(4, "big")
            frame = bytes(data)
        return frame

    def with_another_type(self, frame: bytes) -> bytes:
        """One field of the performative's list is another value."""
        body = frame[8:]
        if body[:2] != b"\x00\x53" or len(body) < 6 or body[3] not in (0xC0, 0xD0):
            return frame
        at, size, count = (6, body[4] - 1, body[5]) if body[3] == 0xC0 else (
            12, int.from_bytes(body[4:8], "big") - 4, int.from_bytes(body[8:12], "big"))  # fmt: skip
        fields, rest = split_values(body[at : at + size], count), body[at + size :]
        if not fields:
            return frame
        which = self.chance.randrange(len(fields) + 1)
        value = self.chance.choice(VALUES)
        if which == len(fields):
            fields.append(value)
        else:
            fields[which] = value
        code = body[2]
        return wire.frame(wire.described(code, wire.list_of(*fields)) + rest, int.from_bytes(frame[6:8], "big"))


def split_values(data: bytes, count: int) -> list[bytes]:
    """The encoded values one after the other; fewer where they are not understood."""
    found: list[bytes] = []
    at = 0
    while at < len(data) and len(found) < count:
        start, at = at, end_of_value(data, at)
        found.append(data[start:at])
    return found


def end_of_value(data: bytes, at: int, *, is_inner: bool = False) -> int:
    if at >= len(data):
        return at
    code = data[at]
    if code == 0:  # proton goes no deeper either
        return at + 1 if is_inner else end_of_value(data, end_of_value(data, at + 1, is_inner=True), is_inner=True)
    width = (0, 1, 2, 4, 8, 16)[(code >> 4) - 4] if 0x40 <= code < 0xA0 else None
    if width is not None:
        return at + 1 + width
    if code >> 4 in (0xA, 0xC, 0xE):
        return at + 2 + (data[at + 1] if at + 1 < len(data) else 0)
    return at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")


class Manners:
    """Drops what a liberty that is not given would need, however it came about: a flipped bit is enough for it.

    Reads frames as leniently as proton does: a list's count counts for nothing, what is not of the type is 0.
    """

    def __init__(self, liberties: Sequence[str]) -> None:
        self.may_answer, self.may_send_back = "answer" in liberties, "direction" in liberties
        self.receiving: set[tuple[int, int]] = set()  # channel and handle of links on which the peer receives

    def admits(self, frame: bytes) -> bool:
        channel, at = int.from_bytes(frame[6:8], "big"), 4 * frame[4] if len(frame) > 8 else 0
        body = frame[at:] if at >= 8 else frame[8:]
        if len(body) < 4 or body[0] != 0:
            return True
        code_end = min(end_of_value(body, 1), len(body))
        code = body[code_end - 1]
        if body[code_end : code_end + 1] not in (b"\xc0", b"\xd0"):
            return True
        is_short = body[code_end] == 0xC0
        start, width = (code_end + 3, 1) if is_short else (code_end + 9, 4)
        size = int.from_bytes(body[code_end + 1 : code_end + 1 + width], "big") - width
        fields = split_values(body[start : start + max(size, 0)], 100)
        if code == wire.BEGIN and not self.may_answer:
            return not fields or fields[0][0] == 0x40
        if code == wire.ATTACH and len(fields) > 1:
            link = channel, number_of(fields[1])
            self.receiving.discard(link)
            if len(fields) > 2 and (fields[2][0] == 0x41 or (fields[2][0] == 0x56 and fields[2] != b"\x56\x00")):
                self.receiving.add(link)
        if code == wire.TRANSFER and not self.may_send_back:
            return (channel, number_of(fields[0]) if fields else 0) not in self.receiving
        return True


def number_of(value: bytes) -> int:
    return int.from_bytes(value[1:], "big") if value[0] in (0x52, 0x70) else 0


GREETING: Final = {
    "client": wire.HEADER,
    "guest": wire.HEADER,
    # SASL as a server: its header, one mechanism, the outcome; then AMQP.
    "server": b"AMQP\x03\x01\x00\x00"
    + wire.frame(wire.performative(0x40, b"\xe0\x0c\x01\xa3\x09ANONYMOUS"), kind=1)
    + wire.frame(wire.performative(0x44, wire.ubyte(0)), kind=1)
    + wire.HEADER,
}


def scenario(seed: str, liberties: Sequence[str]) -> Scenario:
    chance = random.Random(seed)
    kinds = tuple(chance.choice(("client", "client", "client", "guest", "server")) for _ in range(chance.randint(1, 4)))
    terms: dict[str, object] = {
        "capacity": chance.choice((250, 250, 4)),
        "strip": chance.choice(("both", "both", "in", "out", "none")),
        "is_stingy": chance.random() < 0.3,
        "is_sliced": chance.random() < 0.5,
        "streams_at": chance.choice((None, None, 150)),
    }
    # Most scenarios take a liberty or two out of those they may; some are honest, some take all.
    taken = list(liberties)
    if len(taken) > 2 and chance.random() < 0.8:
        taken = chance.sample(taken, chance.choice((1, 1, 2, 3)))
    peers = [Peer(number, kind, chance, taken) for number, kind in enumerate(kinds)]
    steps: list[Step] = []
    present: list[Peer] = []
    hasty = chance.random() < 0.5  # many frames in one piece
    total = chance.choice((15, 40, 100, 200))
    queued: dict[int, list[bytes]] = {peer.number: [] for peer in peers}
    manners = [Manners(liberties) for _ in peers]
    waiting = list(peers)
    opens = chance.random() < 0.4  # the router opens sessions and links, too
    for _ in range(total):
        if waiting and (not present or chance.random() < 0.2):
            peer = waiting.pop()
            present.append(peer)
            steps.append(Step("join", peer.number))
            queued[peer.number].append(GREETING[peer.kind])
        if not present:
            break
        peer = chance.choice(present)
        mine = queued[peer.number]
        for frame in peer.frames():
            mine.append(peer.spoilt(frame))
            if peer.dares("duplicate", 0.5):
                mine.append(mine[-1])
            if peer.said and peer.dares("duplicate", 0.2):
                mine.append(chance.choice(peer.said))
            peer.said.append(frame)
        if len(mine) > 1 and peer.dares("swap", 1):
            at = chance.randrange(len(mine) - 1)
            mine[at], mine[at + 1] = mine[at + 1], mine[at]
        if not hasty or chance.random() < 0.2:
            say(steps, peer.number, mine, chance, manners[peer.number])
        if opens and peer.is_open:
            open_more(steps, peer.number, taken, chance)
        befall(steps, peer, present, queued, chance, manners)
    for peer in present:
        say(steps, peer.number, queued[peer.number], chance, manners[peer.number])
    return Scenario(terms, kinds, tuple(steps))


def say(steps: list[Step], peer: int, frames: list[bytes], chance: random.Random, manners: Manners) -> None:
    """Everything queued, in one read or several."""
    data = b"".join(frame for frame in frames if manners.admits(frame))
    frames.clear()
    if not data:
        return
    pieces = chance.choice((1, 1, 1, 2, 5))
    cuts = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(pieces - 1))})
    for start, stop in pairwise(cuts):
        steps.append(Step("say", peer, data[start:stop]))
    if chance.random() < 0.5:
        steps.append(Step("pass", peer))


def open_more(steps: list[Step], peer: int, liberties: Sequence[str], chance: random.Random) -> None:
    for what, share in (("open", 0.3), ("answer", 0.5), ("answer", 0.5)):
        if chance.random() < share:
            steps.append(Step(what, peer, f"{chance.randrange(1 << 32):08x}".encode() + ",".join(liberties).encode()))


def befall(
    steps: list[Step], peer: Peer, present: list[Peer], queued: dict[int, list[bytes]], chance: random.Random,
    manners: list[Manners],
) -> None:  # fmt: skip
    happening: list[tuple[float, Callable[[], None]]] = [
        (0.03, lambda: steps.append(Step("stall", peer.number))),
        (0.04, lambda: steps.append(Step("read", peer.number))),
        (0.01, lambda: steps.append(Step("wait", peer.number))),
    ]
    for share, happen in happening:
        if chance.random() < share:
            happen()
    if chance.random() < 0.01:
        say(steps, peer.number, queued[peer.number], chance, manners[peer.number])
        steps.append(Step("leave", peer.number))
        present.remove(peer)
