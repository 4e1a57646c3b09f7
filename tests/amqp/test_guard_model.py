"""The guard against a naive model of AMQP's rules, which knows nothing of tables, bytes and turns.

The model keeps sets and lists of what a peer and the router have said and asks them one rule after the other. Random
sequences of all performatives, between them sessions and links that the router begins: the guard admits exactly what
the model admits, whether its tables are compiled or not.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins.tables import PythonTables

from router.amqp.guard import CannotBegin, Guard, Refused
from router.amqp.guard.tables import CompiledTables, Tables

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

OUR_CHANNEL_MAX = 5
ALL_TABLES = [PythonTables, CompiledTables]
EXAMPLES = int(os.environ.get("PALISADE_FUZZ_EXAMPLES", "400"))


@dataclass(frozen=True)
class Said:
    """One performative with the fields that matter; what is None is left out of the frame."""

    what: str
    channel: int = 0
    remote: int | None = None
    handle: int | None = 0
    handle_max: int | None = None
    is_receiver: bool = False
    number: int | None = None  # delivery-id; first of a Disposition
    last: int | None = None
    more: bool = False
    aborted: bool = False
    count: int | None = None
    credit: int = 0
    channel_max: int = 100
    name: str = "l"

    def frame(self) -> bytes:
        makers: dict[str, Callable[[], bytes]] = {
            "open": lambda: wire.open_(channels=self.channel_max),
            "begin": lambda: wire.begin(self.remote, handle_max=self.handle_max),
            "attach": lambda: wire.attach(self.name, self.handle or 0, is_receiver=self.is_receiver),
            "transfer": lambda: wire.transfer(
                self.handle or 0, self.number, b"x", is_last=not self.more, is_aborted=self.aborted
            ),
            "flow": lambda: wire.flow(self.handle, count=self.count, credit=self.credit),
            "disposition": lambda: wire.disposition(
                is_receiver=self.is_receiver, first=self.number or 0, last=self.last, state=wire.ACCEPTED
            ),
            "detach": lambda: wire.detach(self.handle or 0),
            "end": wire.end,
            "close": wire.close,
            "empty": lambda: b"",
        }
        return wire.frame(makers[self.what](), self.channel)


def is_ahead(count: int, of: int) -> bool:
    """In the order of serial numbers (RFC 1982): not before `of`."""
    return (count - of) % 2**32 < 2**31


@dataclass
class Delivery:
    number: int
    is_over: bool


@dataclass
class ModelLink:
    peer_sends: bool
    count: int = 0
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def under_way(self) -> Delivery | None:
        return self.deliveries[-1] if self.deliveries and not self.deliveries[-1].is_over else None


@dataclass
class ModelSession:
    most_links: int
    ours: int | None = None  # our channel, where the router began it
    awaited: list[tuple[str, bool]] = field(default_factory=list)  # links of ours: their name, whether the peer sends
    links: dict[int, ModelLink] = field(default_factory=dict)
    highest: int = -1  # handle attached
    numbers: list[int] = field(default_factory=list)  # delivery-ids so far


class Model:
    """What AMQP 1.0 part 2 lets a peer say."""

    def __init__(self) -> None:
        self.is_open = self.is_closed = False
        self.channel_max = OUR_CHANNEL_MAX
        self.sessions: dict[int, ModelSession] = {}
        self.awaited: list[int] = []  # our channels whose Begin has no answer

    def router_begins(self, channel: int) -> bool:
        if not self.is_open or self.is_closed or len(self.sessions) + len(self.awaited) > self.channel_max:
            return False
        for session in self.sessions.values():
            if session.ours == channel:
                session.ours = None  # it was ended by us, or the channel would not be free
        self.awaited.append(channel)
        return True

    def router_attaches(self, channel: int, name: str, *, peer_sends: bool) -> bool:
        for session in self.sessions.values():
            if session.ours == channel and not self.is_closed:
                if len(session.links) + len(session.awaited) >= session.most_links:
                    return False
                session.awaited.append((name, peer_sends))
                return True
        return False

    def admits(self, said: Said) -> bool:
        """Take it as said where it may be. Nothing is asked any more after a False."""
        if self.is_closed:
            return True  # nobody looks at it
        if said.what == "open":
            is_right = not self.is_open and said.channel == 0
            self.is_open, self.channel_max = True, min(self.channel_max, said.channel_max)
            return is_right
        if not self.is_open:
            return False
        if said.what == "empty":
            return True
        if said.what == "close":
            self.is_closed = True
            return True
        if said.what == "begin":
            if said.channel in self.sessions or said.channel > self.channel_max:
                return False
            most = 2**31 if said.handle_max is None else said.handle_max + 1
            if said.remote is not None:
                if said.remote not in self.awaited:
                    return False
                self.awaited.remove(said.remote)
            elif len(self.sessions) + len(self.awaited) > self.channel_max:
                return False
            self.sessions[said.channel] = ModelSession(most, said.remote)
            return True
        session = self.sessions.get(said.channel)
        if session is None:
            return False
        if said.what == "end":
            del self.sessions[said.channel]
            return True
        if said.what == "disposition":
            return said.last is None or is_ahead(said.last, said.number or 0)
        if said.what == "attach":
            return self.attaches(session, said)
        if said.what == "flow" and said.handle is None:
            return True
        link = session.links.get(said.handle or 0)
        if link is None:
            return said.what == "detach" and (said.handle or 0) <= session.highest  # it was detached before
        if said.what == "detach":
            del session.links[said.handle or 0]
            return True
        return self.flows(link, said) if said.what == "flow" else self.transfers(session, link, said)

    def attaches(self, session: ModelSession, said: Said) -> bool:
        handle = said.handle or 0
        if handle in session.links or handle >= 2**31 or handle > max(0xFFFF, 4 * len(session.links)):
            return False
        if (said.name, not said.is_receiver) in session.awaited:
            session.awaited.remove((said.name, not said.is_receiver))
        elif len(session.links) + len(session.awaited) >= session.most_links:
            return False
        session.links[handle] = ModelLink(peer_sends=not said.is_receiver)
        session.highest = max(session.highest, handle)
        return True

    def flows(self, link: ModelLink, said: Said) -> bool:
        if not link.peer_sends:
            return said.credit < 2**31
        if said.count is None:
            return False
        if link.under_way is not None and said.count == (link.count - 1) % 2**32:
            return True  # it has not counted the one under way yet
        if not is_ahead(said.count, link.count):
            return False
        link.count = said.count
        return True

    def transfers(self, session: ModelSession, link: ModelLink, said: Said) -> bool:
        if not link.peer_sends:
            return False
        delivery = link.under_way
        if delivery is None:
            if said.number is None or (session.numbers and said.number != (session.numbers[-1] + 1) % 2**32):
                return False
            delivery = Delivery(said.number, is_over=False)
            session.numbers.append(said.number)
            link.deliveries.append(delivery)
            link.count = (link.count + 1) % 2**32
        elif said.number not in (None, delivery.number):
            return False
        delivery.is_over = said.aborted or not said.more
        return True


numbers = st.one_of(st.none(), st.integers(0, 6), st.sampled_from([0xFFFFFFFE, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000]))
handles = st.one_of(st.integers(0, 3), st.sampled_from([0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF]))
channels = st.one_of(st.integers(0, 2), st.sampled_from([OUR_CHANNEL_MAX, OUR_CHANNEL_MAX + 1, 32768, 65534, 65535]))
anything: st.SearchStrategy[Said] = st.builds(
    Said,
    what=st.sampled_from(
        ["open", "begin", "attach", "transfer", "flow", "disposition", "detach", "end", "close", "empty"]
    ),
    channel=channels, remote=st.sampled_from([None, None, None, None, 0, 1, 65535]),
    handle=st.one_of(st.none(), handles), handle_max=st.sampled_from([None, None, 0, 1]), is_receiver=st.booleans(),
    number=numbers, last=numbers, more=st.booleans(), aborted=st.booleans(), count=numbers,
    credit=st.sampled_from([0, 10, 0x7FFFFFFF, 0x80000000]), channel_max=st.sampled_from([0, 1, 3, 100]),
    name=st.sampled_from("lxy"),
)  # fmt: skip


def likely(draw: Any, model: Model) -> Said:
    """Something that the model may well admit as things stand: random frames alone come nowhere."""
    if not model.is_open:
        return Said("open", channel_max=draw(st.sampled_from([0, 1, 3, 100])))
    if model.awaited and draw(st.integers(0, 2)) == 0:
        remote = draw(st.sampled_from(model.awaited))
        return Said("begin", draw(st.integers(0, 3)), remote, handle_max=draw(st.sampled_from([None, None, 0, 1])))
    if not model.sessions or draw(st.integers(0, 9)) == 0:
        return Said("begin", draw(st.integers(0, 2)), handle_max=draw(st.sampled_from([None, None, 0, 1])))
    channel = draw(st.sampled_from(sorted(model.sessions)))
    session = model.sessions[channel]
    if session.awaited and draw(st.integers(0, 1)) == 0:
        name, peer_sends = draw(st.sampled_from(session.awaited))
        return Said("attach", channel, handle=draw(st.integers(0, 3)), is_receiver=not peer_sends, name=name)
    if not session.links or draw(st.integers(0, 5)) == 0:
        return Said("attach", channel, handle=draw(st.integers(0, 3)), is_receiver=draw(st.booleans()))
    handle = draw(st.sampled_from(sorted(session.links)))
    link = session.links[handle]
    what = draw(st.sampled_from(["transfer"] * 5 + ["flow", "flow", "disposition", "detach", "end"]))
    number = (session.numbers[-1] + 1) % 2**32 if session.numbers else draw(st.sampled_from([0, 0xFFFFFFFE]))
    if link.under_way is not None and what == "transfer":
        number = link.under_way.number
    ahead = draw(st.integers(-1, 2))
    return Said(
        what, channel, handle=handle, number=number, last=draw(st.sampled_from([None, number, (number + 3) % 2**32])),
        more=draw(st.booleans()), aborted=draw(st.integers(0, 4)) == 0, count=(link.count + ahead) % 2**32,
        credit=draw(st.integers(0, 9)), is_receiver=draw(st.booleans()),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("tables", ALL_TABLES, ids=lambda each: each.__name__)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_the_guard_admits_exactly_what_the_model_admits(tables: type[Tables], data: st.DataObject) -> None:
    model, guard = Model(), Guard(max_frame_bytes=65536, channel_max=OUR_CHANNEL_MAX, tables=tables)
    guard.admit(guard.read(wire.HEADER))
    told: list[Said | str] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if data.draw(st.integers(0, 4)) == 0:
            told.append(router_acts(data.draw, model, guard))
        is_wild = data.draw(st.integers(0, 11)) == 0
        said = data.draw(anything) if is_wild else likely(data.draw, model)
        told.append(said)
        may_be = model.admits(said)
        assert admits(guard, said.frame()) == may_be, told
        if not may_be:
            return


def router_acts(draw: Any, model: Model, guard: Guard) -> str:
    """The router begins a session or attaches a link, where both agree that it may. Returns which."""
    guard.written()
    channel = draw(st.integers(0, 3))
    if draw(st.booleans()) or not any(session.ours is not None for session in model.sessions.values()):
        if channel in model.awaited:
            return "nothing"
        if is_done(guard.promise_session):
            guard.begun.sent(channel)
            assert model.router_begins(channel)
        else:
            assert not model.router_begins(channel)
        return f"the router begins on {channel}"
    name, peer_sends = draw(st.sampled_from("xy")), draw(st.booleans())
    if any(session.ours == channel and (name, peer_sends) in session.awaited for session in model.sessions.values()):
        return "nothing"  # a session has one link of a name and direction
    was_done = is_done(lambda: guard.promise_link(channel, name.encode(), peer_sends=peer_sends))
    assert was_done == model.router_attaches(channel, name, peer_sends=peer_sends)
    return f"the router attaches {name} on {channel}"


def is_done(act: Callable[[], None]) -> bool:
    try:
        act()
    except CannotBegin:
        return False
    return True


def admits(guard: Guard, frame: bytes) -> bool:
    """One frame, as the intake has it judged: what is plain passes by the scan, the rest by the machine."""
    if guard.scan(frame, 0, len(frame)) == len(frame) or guard.is_over:
        return True
    try:
        assert guard.measure(frame, 0, len(frame)) == len(frame)
        guard.admit(guard.read(frame))
    except Refused:
        return False
    return True
