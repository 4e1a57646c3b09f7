"""The engine by itself: frames in, calls to its owner and bytes out."""

from collections.abc import Callable
from typing import Any

import pytest

from router.amqp.codec import decode, encode
from router.amqp.engine import MAX_CONTROL_VALUE_BYTES, Engine, EngineError, IncomingWire, OutgoingWire, Session
from router.amqp.guard import Guard
from router.amqp.terminus import Condition, RemoteOpen, Violation
from router.values import Array, Described, symbol, ubyte, uint, ulong, ushort

HEADER = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET = 0x28, 0x29


def frame(code: int, *fields: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    body = encode(Described(ulong(code), list(fields))) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def terminus(code: int, address: Any = None, *more: Any) -> Described:
    return Described(ulong(code), [address, *more])


class Owner:
    """Writes down what it is told; answers everything with yes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.written = bytearray()
        self.touched: set[Engine] = set()
        self.raises: Exception | None = None
        self.engine = Engine(
            self,
            self.written.extend,
            self.touched,
            container_id="QDR",
            max_frame_bytes=1 << 20,
            channel_max=100,
            idle_timeout_ms=0,
        )

    def say(self, *frames: bytes) -> None:
        self.engine.receive(b"".join(frames))
        self.engine.flush()

    def heard(self, name: str) -> list[Any]:
        return [value for called, value in self.calls if called == name]

    def note_deliveries(self) -> None:
        self.calls.append(("note_deliveries", None))

    def on_open(self, remote: RemoteOpen) -> None:
        self.calls.append(("open", remote))
        self.engine.open(properties={}, capabilities=Array(symbol, ()))

    def on_begin(self, session: Session) -> None:
        self.calls.append(("begin", session))
        session.accept(incoming_capacity_bytes=1)

    def on_end(self, session: Session) -> None:
        self.calls.append(("end", session))

    def on_attach(self, link: IncomingWire | OutgoingWire) -> None:
        self.calls.append(("attach", (link, link.source, link.target)))
        if self.raises is not None:
            raise self.raises
        link.accept()

    def on_detach(self, link: IncomingWire | OutgoingWire, *, is_closed: bool) -> None:
        self.calls.append(("detach", is_closed))

    def on_close(self, condition: Condition | None) -> None:
        self.calls.append(("close", condition))

    def on_transport_error(self, condition: Condition) -> None:
        self.calls.append(("error", condition))

    def crash(self, error: Exception) -> None:
        raise error


def opened(*more: bytes) -> Owner:
    owner = Owner()
    owner.say(HEADER, frame(OPEN, "peer", "host"), frame(BEGIN, None, uint(0), uint(100), uint(100)), *more)
    return owner


def attach(name: str, *, is_receiver: bool, source: Any = None, target: Any = None, handle: int = 0) -> bytes:
    return frame(ATTACH, name, uint(handle), is_receiver, ubyte(2), ubyte(0), source, target, None, None, uint(0))


def test_open_is_told_with_what_the_router_looks_at() -> None:
    """routing 1 (§1.4)"""
    owner = Owner()
    capabilities = Array(symbol, (symbol("one"), symbol("two")))
    properties = {symbol("k"): "v"}
    fields = ("peer", "host", uint(5000), ushort(7), None, None, None, capabilities, None, properties)
    owner.say(HEADER, frame(OPEN, *fields))
    (remote,) = owner.heard("open")
    assert (remote.container_id, remote.hostname, remote.offered_capabilities) == ("peer", "host", ("one", "two"))
    assert remote.properties == {"k": "v"}


def test_one_capability_may_stand_by_itself() -> None:
    """routing 3 (§1.4: array of symbol or one symbol)"""
    owner = Owner()
    owner.say(HEADER, frame(OPEN, "peer", None, None, None, None, None, None, symbol("one")))
    assert owner.heard("open")[0].offered_capabilities == ("one",)
    assert owner.heard("open")[0].hostname is None


def test_a_session_capacity_below_a_frame_is_one_frame() -> None:
    """routing 10: proton would end the connection with an error of its own"""
    owner = opened()
    assert not owner.heard("error")
    begin = [described for described in spoken(owner) if described.descriptor == BEGIN]
    assert begin[0].value[2] == 1


def spoken(owner: Owner) -> list[Described]:
    data, at, found = bytes(owner.written), 8, []
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size > 8:
            found.append(decode(data, at + 8)[0])
        at += size
    return found


def test_termini_are_told_as_the_peer_wrote_them() -> None:
    """routing 49"""
    rest = (uint(2), symbol("never"), uint(9), False, None, symbol("copy"), None, None, None, symbol("cap"))
    source = terminus(SOURCE, "a", *rest)
    owner = opened(attach("r", is_receiver=True, source=source, target=terminus(TARGET, "b")))
    ((link, told, target),) = owner.heard("attach")
    assert isinstance(link, OutgoingWire)
    assert (told.address, told.durability, told.expiry_policy, told.timeout_s) == ("a", 2, "never", 9)
    assert (told.distribution_mode, told.capabilities, target.address) == ("copy", ("cap",), "b")


@pytest.mark.parametrize("address", [None, ""])
def test_no_address_is_none(address: str | None) -> None:
    """routing 51 (§3.1: the empty string counts as null)"""
    owner = opened(attach("s", is_receiver=False, source=None, target=terminus(TARGET, address)))
    ((link, source, target),) = owner.heard("attach")
    assert isinstance(link, IncomingWire)
    assert source is None
    assert target.address is None


def test_text_that_is_not_utf8_is_an_error_of_the_peer() -> None:
    """routing 95: named, and its event does not come again"""
    owner = opened()
    bad = attach("s", is_receiver=False, source=None, target=terminus(TARGET, "~~")).replace(b"~~", b"\xff\xfe")
    with pytest.raises(EngineError) as caught:
        owner.engine.receive(bad)
    assert caught.value.condition.name == "amqp:decode-error"
    assert not owner.heard("attach")
    owner.engine.drain()
    owner.say(attach("fine", is_receiver=False, source=None, target=None, handle=1))
    assert len(owner.heard("attach")) == 1


def test_a_value_over_the_limit_is_not_decoded() -> None:
    """routing 4: Open properties of megabytes"""
    owner = Owner()
    huge = {symbol("k"): "v" * (MAX_CONTROL_VALUE_BYTES + 1)}
    with pytest.raises(EngineError, match="over the limit"):
        owner.engine.receive(HEADER + frame(OPEN, "peer", None, None, None, None, None, None, None, None, huge))


def test_what_the_owner_raises_passes_through_once() -> None:
    """routing 90"""
    owner = opened()
    owner.raises = KeyError("once")
    with pytest.raises(KeyError):
        owner.engine.receive(attach("s", is_receiver=False, source=None, target=None))
    owner.engine.drain()
    owner.engine.flush()
    assert len(owner.heard("attach")) == 1


def test_an_engine_that_has_stopped_listening_tells_nothing() -> None:
    """routing 90"""
    owner = opened(attach("s", is_receiver=False, source=None, target=None))
    owner.engine.stop_listening()
    before = len(owner.calls)
    owner.say(frame(DETACH, uint(0), True), frame(END), frame(CLOSE))
    assert len(owner.calls) == before


def test_a_blocked_engine_keeps_its_bytes() -> None:
    """routing 93"""
    owner = Owner()
    owner.engine.is_blocked = True
    owner.say(HEADER, frame(OPEN, "peer"))
    assert not owner.written
    owner.engine.is_blocked = False
    owner.engine.flush()
    assert owner.written.startswith(HEADER)


@pytest.mark.parametrize(
    "nonsense",
    [
        frame(TRANSFER, uint(9), uint(0), b"t", uint(0)),
        frame(BEGIN, ushort(7), uint(0), uint(1), uint(1), channel=3),
        frame(FLOW, None, uint(1), uint(1), uint(1), channel=50),
        frame(BEGIN, None, uint(0), uint(1), uint(1), channel=500),
        frame(DETACH, uint(3)),
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\x7f\xff\xff\xff\x02\x00\x00\x00",
    ],
)
def test_frames_that_make_no_sense_are_transport_errors(nonsense: bytes) -> None:
    """routing 1: each names a condition, and the peer is told"""
    owner = opened(nonsense)
    (error,) = owner.heard("error")
    assert error.name.startswith("amqp:")
    assert spoken(owner)[-1].descriptor == CLOSE


def test_an_engine_that_has_fallen_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take whatever comes, keep it, and never write again. The guard lets it not come to that."""
    monkeypatch.setattr(Guard, "is_crowded", lambda guard, performative: False)
    owner = Owner()
    owner.say(HEADER, frame(OPEN, "peer", None, None, ushort(0)))
    begin = frame(BEGIN, None, uint(0), uint(10), uint(10))
    owner.engine.receive((begin + frame(END)) * 2)
    with pytest.raises(Violation, match="cannot be answered"):
        owner.engine.flush()
    owner.engine.flush()


def transfers(*numbers: int) -> bytes:
    return b"".join(frame(TRANSFER, uint(0), uint(each), bytes([each]), uint(0), payload=b"hello") for each in numbers)


def windows_told(owner: Owner, begin: int) -> list[tuple[int, Any]]:
    """Incoming window and handle of each Flow written since."""
    flows = [each.value for each in spoken(owner)[begin:] if each.descriptor == FLOW]
    return [(fields[1], fields[4] if len(fields) > 4 else None) for fields in flows]


def test_a_window_is_told_by_the_session_where_its_link_has_gone() -> None:
    """proton would name the handle -2 to a peer that sent while our Detach was under way; that peer would go."""
    owner = opened(attach("in", is_receiver=False, source=terminus(SOURCE), target=terminus(TARGET, "a")))
    ((link, _, _),) = owner.heard("attach")
    link.grant(5)
    owner.engine.flush()
    link.close()
    owner.engine.flush()
    begin = len(spoken(owner))
    owner.say(transfers(0))
    owner.say(transfers(1))
    assert windows_told(owner, begin) == [(1, None), (1, None)]
    assert not owner.heard("error")


@pytest.mark.parametrize("is_ours", [False, True])
def test_a_window_that_a_link_has_used_up_before_its_detach_is_told(is_ours: bool) -> None:
    """Or the session's other senders would wait for it for ever."""
    source, target = terminus(SOURCE), terminus(TARGET, "a")
    owner = opened(
        attach("in", is_receiver=False, source=source, target=target),
        attach("other", is_receiver=False, source=source, target=target, handle=1),
    )
    link = owner.heard("attach")[0][0]
    link.grant(5)
    owner.engine.flush()
    if is_ours:
        link.close()
        owner.engine.flush()
    begin = len(spoken(owner))
    owner.say(transfers(0), frame(DETACH, uint(0), True))
    assert windows_told(owner, begin) == [(1, None if is_ours else 0)]
    assert not owner.heard("error")


def test_no_window_is_told_of_a_session_that_has_gone() -> None:
    """It would have the channel -2."""
    owner = opened(attach("in", is_receiver=False, source=terminus(SOURCE), target=terminus(TARGET, "a")))
    ((link, _, _),), (session,) = owner.heard("attach"), owner.heard("begin")
    link.grant(5)
    owner.engine.flush()
    session.close()
    owner.engine.flush()
    begin = len(spoken(owner))
    owner.say(transfers(0), frame(END))
    assert windows_told(owner, begin) == []
    assert not owner.heard("error")


def test_freeing_twice_is_harmless() -> None:
    """routing 90"""
    owner = opened(attach("s", is_receiver=False, source=None, target=None))
    owner.engine.free()
    owner.engine.free()
    owner.engine.flush()
    assert owner.engine.is_freed


@pytest.mark.parametrize("gone", ["link", "session", "connection"])
def test_what_the_engine_has_released_is_not_asked(gone: str) -> None:
    """Else an order of events that nobody thought of would read memory that is another's."""
    owner = opened(attach("s", is_receiver=False))
    ((link, *_),), (session,) = owner.heard("attach"), owner.heard("begin")
    asking: list[Callable[[], object]] = [lambda: link.grant(1), lambda: link.credit, lambda: link.remote_condition]
    if gone == "link":
        owner.say(frame(DETACH, uint(0), True))
    else:
        asking += [session.show_window, lambda: session.backlog_bytes, lambda: session.is_full]
        if gone == "session":
            owner.say(frame(END))
        else:
            owner.engine.free()
            asking += [owner.engine.close, lambda: owner.engine.tick(1)]
    for ask in asking:
        with pytest.raises(TypeError, match="Released"):
            ask()


def test_a_link_that_is_released_is_closed_in_silence() -> None:
    """Nor does it count among those whose Detach the peer still owes: it owes none."""
    owner = opened(attach("s", is_receiver=False), frame(DETACH, uint(0), True))
    ((link, *_),) = owner.heard("attach")
    owner.written.clear()
    link.close()
    link.detach(Condition(name="x:y", description=""))
    link.detach_as(link, is_closed=True)
    owner.engine.flush()
    assert (bytes(owner.written), owner.engine.unanswered) == (b"", 0)
