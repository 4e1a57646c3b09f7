"""A peer's frames on sessions and links that the router opens: answers, right and wrong ones, and later frames.

A scenario cannot know the channels that the router will use. So its steps hold a seed each, and the frames are made of
it when the step is done, from what the router has said by then: the same scenario gives the same frames.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import wire

from router.amqp.codec import CodecError, decode

LAST_CHANNEL: Final = 99  # the highest that may be used: the lowest are used by what the scenario itself says


@dataclass
class Link:
    name: str
    is_receiver: bool  # the peer
    sent: int = 0


@dataclass
class Session:
    theirs: int  # the router's channel
    links: dict[int, Link] = field(default_factory=dict)  # by the peer's handle
    awaiting: list[Link] = field(default_factory=list)  # the router's Attaches
    next_id: int = 0


class Answers:
    """One peer's part of what the router opens."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.channel_max = LAST_CHANNEL
        self.begun: list[int] = []  # the router's channels whose Begin has no answer
        self.was_begun: list[int] = []
        self.sessions: dict[int, Session] = {}  # by the peer's channel
        self.said: list[bytes] = []

    # What the router says

    def hear(self, data: bytes) -> None:
        self.heard += data
        at = 0
        while len(self.heard) - at >= 8:
            is_header = self.heard[at : at + 4] == b"AMQP"
            size = 8 if is_header else int.from_bytes(self.heard[at : at + 4], "big")
            if len(self.heard) - at < size:
                break
            if not is_header and size > 8 and self.heard[at + 5] == 0:
                self._take(bytes(self.heard[at : at + size]))
            at += size
        del self.heard[:at]

    def _take(self, frame: bytes) -> None:
        channel = int.from_bytes(frame[6:8], "big")
        if frame[10] not in (wire.OPEN, wire.BEGIN, wire.ATTACH):
            return
        try:
            fields: list[Any] = decode(frame, 8)[0].value
        except CodecError:
            return
        if frame[10] == wire.OPEN and len(fields) > 3 and fields[3] is not None:
            self.channel_max = min(self.channel_max, fields[3])
        if frame[10] == wire.BEGIN and fields[0] is None:
            self.begun.append(channel)
            self.was_begun.append(channel)
        if frame[10] == wire.ATTACH:
            for session in self.sessions.values():
                if session.theirs == channel and not any(link.name == fields[0] for link in session.links.values()):
                    session.awaiting.append(Link(fields[0], not fields[2]))

    # What the peer says

    def frames(self, seed: bytes) -> list[bytes]:
        """seed  some bytes, then the liberties that may be taken, by comma"""
        chance = random.Random(seed)
        liberties = seed[8:].decode().split(",")
        made = self._frames(chance, liberties)
        if "duplicate" in liberties and self.said and chance.random() < 0.1:
            made.append(chance.choice(self.said))
        self.said += made
        return made

    def _frames(self, chance: random.Random, liberties: Sequence[str]) -> list[bytes]:
        is_bold = chance.random() < 0.15
        if is_bold and "answer" in liberties:
            remote = chance.choice((*self.was_begun, 0, 1, 2, 65535))
            channel = chance.choice((*self.sessions, self._free_channel()))
            return [wire.frame(wire.begin(remote), channel)]
        if self.begun and chance.random() < 0.8:
            return [self._begin(chance)]
        if not self.sessions:
            return []
        channel = chance.choice(list(self.sessions))
        session = self.sessions[channel]
        if session.awaiting and chance.random() < 0.8:
            return self._attach(channel, session, session.awaiting.pop(0), chance)
        choice = chance.random()
        if choice < 0.04:
            del self.sessions[channel]
            return [wire.frame(wire.end(), channel)]
        if choice < 0.08:  # a link of its own; the router ignores it
            return self._attach(channel, session, Link(f"own{chance.randrange(3)}", chance.random() < 0.5), chance)
        if is_bold and session.links and "name twice" in liberties:
            other = chance.choice(list(session.links.values()))
            return self._attach(channel, session, Link(other.name, other.is_receiver), chance)
        if not session.links:
            return []
        handle = chance.choice(list(session.links))
        return [wire.frame(body, channel) for body in self._use(session, handle, chance)]

    def _free_channel(self) -> int:
        return max(set(range(self.channel_max + 1)) - set(self.sessions), default=0)

    def _begin(self, chance: random.Random) -> bytes:
        channel, ours = self._free_channel(), self.begun.pop(0)
        self.sessions[channel] = Session(ours)
        most = chance.choice((None, None, None, 0, 1))
        return wire.frame(wire.begin(ours, incoming=chance.choice((2048, 2048, 0, 2)), handle_max=most), channel)

    def _attach(self, channel: int, session: Session, link: Link, chance: random.Random) -> list[bytes]:
        handle = min(set(range(40)) - set(session.links))
        attach = wire.frame(wire.attach(link.name, handle, is_receiver=link.is_receiver, address="a"), channel)
        if chance.random() < 0.1:
            return [attach, wire.frame(wire.detach(handle, error=wire.error("amqp:x")), channel)]
        session.links[handle] = link
        return [attach]

    def _use(self, session: Session, handle: int, chance: random.Random) -> list[bytes]:
        link = session.links[handle]
        choice = chance.random()
        if choice < 0.08:
            del session.links[handle]
            return [wire.detach(handle, is_closed=chance.random() < 0.7)]
        if choice < 0.3:
            last = chance.randrange(9)
            return [wire.disposition(is_receiver=link.is_receiver, first=0, last=last, state=wire.ACCEPTED)]
        if link.is_receiver:
            return [wire.flow(handle, credit=chance.choice((0, 1, 10)), next_out=session.next_id)]
        made = []
        for _ in range(min(chance.choice((1, 3)), 100 - link.sent)):
            made.append(wire.transfer(handle, session.next_id, wire.message(chance.choice((0, 50, 5000))),
                                      is_settled=chance.random() < 0.5))  # fmt: skip
            session.next_id += 1
            link.sent += 1
        return made
