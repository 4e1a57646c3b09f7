"""The guard: what a peer may say, frame by frame, and that the two ways of letting plain frames pass agree."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins.tables import PythonTables

from router.amqp.codec import CodecError, decode, encode
from router.amqp.guard import Guard, Refused
from router.amqp.guard.performatives import MAX_VALUES
from router.amqp.guard.shapes import Room, measure
from router.amqp.guard.tables import MAX_SPAN, CompiledTables, Tables, link_key, session_key
from router.values import Array, Described, symbol, ubyte, uint, ulong, ushort

HEADER = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ACCEPTED = Described(ulong(0x24), [])
NOTHING_WRONG = "nothing was refused"
ENOUGH = 1_000_000  # elements


def frame(code: int, *fields: Any, channel: int = 0, payload: bytes = b"") -> bytes:
    return raw(encode(Described(ulong(code), list(fields))) + payload, channel=channel)


def raw(body: bytes, *, channel: int = 0, kind: int = 0, offset: int = 2) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes([offset, kind]) + channel.to_bytes(2, "big") + body


def begin(*, channel: int = 0, remote_channel: int | None = None) -> bytes:
    answered = ushort(remote_channel) if remote_channel is not None else None
    return frame(BEGIN, answered, uint(0), uint(100), uint(100), channel=channel)


def attach(handle: int, *, is_receiver: bool = False, channel: int = 0, count: int | None = 0) -> bytes:
    initial = uint(count) if count is not None else None
    fields = (f"link {handle}", uint(handle), is_receiver, None, None, None, None, None, None, initial)
    return frame(ATTACH, *fields, channel=channel)


def transfer(
    handle: int, number: int | None, *, more: bool = False, aborted: bool = False, channel: int = 0, tag: Any = b"t"
) -> bytes:
    delivery = uint(number) if number is not None else None
    fields = (uint(handle), delivery, tag, uint(0), False, more, None, None, None, aborted)
    return frame(TRANSFER, *fields, channel=channel, payload=b"\x00SwC")


def flow(handle: int | None, *, count: int | None = 0, credit: int = 10, channel: int = 0) -> bytes:
    fields = (
        uint(0), uint(100), uint(0), uint(100), uint(handle) if handle is not None else None,
        uint(count) if count is not None else None, uint(credit),
    )  # fmt: skip
    return frame(FLOW, *fields, channel=channel)


def disposition(first: int, last: int | None = None, *, state: Any = ACCEPTED, channel: int = 0) -> bytes:
    return frame(DISPOSITION, True, uint(first), uint(last) if last is not None else None, True, state, channel=channel)


def detach(handle: int, *, channel: int = 0) -> bytes:
    return frame(DETACH, uint(handle), True, channel=channel)


STARTED = (HEADER, frame(OPEN, "peer"), begin())
SENDING = (*STARTED, attach(0))
RECEIVING = (*STARTED, attach(0, is_receiver=True))


def guard(tables: type[Tables] = PythonTables) -> Guard:
    return Guard(max_frame_bytes=1024, channel_max=10, tables=tables)


def say(watched: Guard, *frames: bytes) -> list[bytes]:
    """What of the frames the engine sees. Errors: Refused."""
    data = b"".join(frames)
    at, seen = 0, []
    while at < len(data):
        stop = watched.scan(data, at, len(data))
        if stop > at:
            seen.append(data[at:stop])
            at = stop
            continue
        if watched.is_over:
            break
        size = watched.measure(data, at, len(data))
        assert size <= len(data) - at, "a frame of the test is cut short"
        if watched.admit(watched.read(memoryview(data)[at : at + size])):
            seen.append(data[at : at + size])
        at += size
    return seen


def verdict(*frames: bytes, tables: type[Tables] = PythonTables) -> str:
    """The condition with which the last of the frames is refused, after all others were admitted."""
    watched = guard(tables)
    say(watched, *frames[:-1])
    try:
        say(watched, frames[-1])
    except Refused as refused:
        return refused.condition.name
    return NOTHING_WRONG


@pytest.fixture(params=["python", "compiled"])
def tables(request: pytest.FixtureRequest) -> type[Tables]:
    return PythonTables if request.param == "python" else CompiledTables


ADMITTED = {
    "the header, an Open": (HEADER, frame(OPEN, "peer")),
    "two channels": (*STARTED, begin(channel=10)),
    "a channel again, after its End": (*STARTED, frame(END), begin()),
    "a handle again, after its Detach": (*SENDING, detach(0), attach(0)),
    "a handle again, on a session that was begun again": (*SENDING, frame(END), begin(), attach(0)),
    "one handle on two channels": (*SENDING, begin(channel=1), attach(0, channel=1)),
    "an empty frame": (*STARTED, raw(b"", channel=7)),
    "an extended header": (*STARTED, raw(b"more" + frame(END)[8:], offset=3)),
    "a delivery": (*SENDING, transfer(0, 7)),
    "deliveries in their order, on two links": (*SENDING, attach(1), transfer(0, 7), transfer(1, 8), transfer(0, 9)),
    "delivery-ids that wrap around": (*SENDING, transfer(0, 0xFFFFFFFF), transfer(0, 0)),
    "a delivery in pieces, between others": (
        *SENDING, attach(1), transfer(0, 7, more=True), transfer(1, 8), transfer(0, None, more=True), transfer(0, 7),
        transfer(1, 9),
    ),
    "an aborted delivery, and one more": (
        *SENDING, transfer(0, 7, more=True), transfer(0, None, more=True, aborted=True), transfer(0, 8),
    ),
    "a Flow of the session": (*STARTED, flow(None, count=None)),
    "a Flow of a receiver": (*RECEIVING, flow(0)),
    "a Flow of a sender that gives up credit": (*SENDING, transfer(0, 0), flow(0, count=9)),
    "a Disposition of many": (*STARTED, disposition(5, 5 + MAX_SPAN + 1)),
    "a Disposition with another state": (*STARTED, disposition(5, state=Described(ulong(0x26), []))),
    "a Disposition with a state of one's own": (*STARTED, disposition(5, state=Described(ulong(0x999), [1, "two"]))),
    "a Close": (*STARTED, frame(CLOSE)),
}  # fmt: skip
REFUSED = {
    "another header": (b"AMQP\x03\x01\x00\x00", "amqp:connection:framing-error"),
    "a frame shorter than its header": (*STARTED, b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
    "a frame over the limit": (*STARTED, b"\x00\x00\x04\x01\x02\x00\x00\x00", "amqp:connection:framing-error"),
    "data that begin in the header": (*STARTED, raw(b"", offset=1), "amqp:connection:framing-error"),
    "data that begin behind the frame": (*STARTED, raw(b"", offset=3), "amqp:connection:framing-error"),
    "a SASL frame": (*STARTED, raw(frame(END)[8:], kind=1), "amqp:connection:framing-error"),
    "an unknown performative": (*STARTED, frame(0x19), "amqp:not-implemented"),
    "a symbolic descriptor": (*STARTED, raw(encode(Described(symbol("amqp:end:list"), []))), "amqp:decode-error"),
    "no described list": (*STARTED, raw(encode("end")), "amqp:decode-error"),
    "a map for a list": (*STARTED, raw(b"\x00S\x17\xc1\x01\x00"), "amqp:decode-error"),
    "fields behind their number": (*STARTED, raw(b"\x00S\x11\xc0\x0a\x04\x40CR\x01R\x01R\x05"), "amqp:decode-error"),
    "fewer fields than their number": (*STARTED, raw(b"\x00S\x13\xc0\x06\x05\x40R\x01R\x01"), "amqp:decode-error"),
    "a list longer than its frame": (*STARTED, raw(b"\x00S\x17\xc0\x09\x01\x40"), "amqp:decode-error"),
    "bytes behind the performative": (*STARTED, raw(frame(END)[8:] + b"\x40"), "amqp:decode-error"),
    "a described value described again": (
        *STARTED, raw(b"\x00S\x17\xc0\x07\x01\x00S\x1d\x00S\x1dE"), "amqp:decode-error",
    ),
    "a mistyped field": (*STARTED, frame(DETACH, ubyte(0)), "amqp:decode-error"),
    "a boolean of two": (*SENDING, raw(b"\x00S\x16\xc0\x04\x02CV\x02"), "amqp:decode-error"),
    "a missing field": (*STARTED, frame(DETACH), "amqp:invalid-field"),
    "too many fields": (*STARTED, frame(END, None, None), "amqp:decode-error"),
    "a Begin before the Open": (HEADER, begin(), "amqp:not-allowed"),
    "an empty frame before the Open": (HEADER, raw(b""), "amqp:not-allowed"),
    "a second Open": (*STARTED, frame(OPEN, "peer"), "amqp:not-allowed"),
    "an Open on channel 1": (HEADER, frame(OPEN, "peer", channel=1), "amqp:not-allowed"),
    "a channel begun twice": (*STARTED, begin(), "amqp:not-allowed"),
    "an answer to a Begin that was none": (*STARTED, begin(channel=1, remote_channel=0), "amqp:invalid-field"),
    "a channel too high": (*STARTED, begin(channel=11), "amqp:connection:framing-error"),
    "a channel that the peer excludes": (
        HEADER, frame(OPEN, "peer", None, None, ushort(3)), begin(channel=4), "amqp:connection:framing-error",
    ),
    "an End of nothing": (*STARTED, frame(END, channel=1), "amqp:not-allowed"),
    "a second End": (*STARTED, frame(END), frame(END), "amqp:not-allowed"),
    "an Attach without session": (*STARTED, attach(0, channel=1), "amqp:not-allowed"),
    "an Attach after the End": (*STARTED, frame(END), attach(0), "amqp:not-allowed"),
    "a handle attached twice": (*SENDING, attach(0), "amqp:session:handle-in-use"),
    "a handle too high": (*STARTED, attach(0x80000000), "amqp:connection:framing-error"),
    "a Detach of nothing": (*STARTED, detach(0), "amqp:invalid-field"),
    "a Detach of a handle above all attached": (*SENDING, detach(0), detach(1), "amqp:invalid-field"),
    "a Detach after the End": (*SENDING, detach(0), frame(END), detach(0), "amqp:not-allowed"),
    "a Detach on a session begun again": (*SENDING, detach(0), frame(END), begin(), detach(0), "amqp:invalid-field"),
    "a Transfer without link": (*STARTED, transfer(0, 0), "amqp:invalid-field"),
    "a Transfer after the Detach": (*SENDING, transfer(0, 0), detach(0), transfer(0, 1), "amqp:invalid-field"),
    "a Transfer after the End": (*SENDING, frame(END), transfer(0, 0), "amqp:not-allowed"),
    "a Transfer to oneself": (*RECEIVING, transfer(0, 0), "amqp:not-allowed"),
    "a Transfer without delivery-id": (*SENDING, transfer(0, None), "amqp:invalid-field"),
    "a Transfer without delivery-tag": (*SENDING, transfer(0, 0, tag=None), "amqp:invalid-field"),
    "a delivery-tag of 33 bytes": (*SENDING, transfer(0, 0, tag=b"t" * 33), "amqp:invalid-field"),
    "a delivery-id left out": (*SENDING, transfer(0, 0), transfer(0, 2), "amqp:session:invalid-field"),
    "a delivery-id twice": (*SENDING, transfer(0, 0), transfer(0, 0), "amqp:session:invalid-field"),
    "another delivery-id in mid-message": (
        *SENDING, transfer(0, 0, more=True), transfer(0, 1, more=True), "amqp:invalid-field",
    ),
    "a Flow without session": (*STARTED, flow(None, channel=1), "amqp:not-allowed"),
    "a Flow of no link": (*STARTED, flow(0), "amqp:invalid-field"),
    "a Flow of more credit than there is": (*RECEIVING, flow(0, credit=0x80000000), "amqp:invalid-field"),
    "a sender's Flow without delivery-count": (*SENDING, flow(0, count=None), "amqp:invalid-field"),
    "a sender's Flow that goes back": (
        *STARTED, attach(0, count=5), transfer(0, 0), flow(0, count=4), "amqp:invalid-field",
    ),
    "a Disposition without session": (*STARTED, disposition(0, channel=1), "amqp:not-allowed"),
    "a Disposition of a range that goes back": (*STARTED, disposition(5, 4), "amqp:not-allowed"),
}  # fmt: skip


@pytest.mark.parametrize("what", ADMITTED)
def test_what_amqp_allows_is_admitted(what: str, tables: type[Tables]) -> None:
    watched = guard(tables)
    assert b"".join(say(watched, *ADMITTED[what])) == b"".join(ADMITTED[what])


@pytest.mark.parametrize("what", REFUSED)
def test_what_amqp_does_not_allow_is_refused(what: str, tables: type[Tables]) -> None:
    """routing 3, 4, 96"""
    *frames, condition = REFUSED[what]
    assert verdict(*frames, tables=tables) == condition  # type: ignore[arg-type]


def test_nothing_behind_a_close_is_looked_at(tables: type[Tables]) -> None:
    watched = guard(tables)
    assert b"".join(say(watched, *STARTED, frame(CLOSE), begin(), b"\x00" * 100)).endswith(frame(CLOSE))
    assert watched.is_over


def test_the_engine_does_not_see_a_count_without_the_message_under_way(tables: type[Tables]) -> None:
    """Some senders count a message when it is complete; the engine would make new credit of the difference."""
    watched = guard(tables)
    lagging = flow(0, count=0)
    seen = say(watched, *SENDING, transfer(0, 0, more=True), lagging, lagging, transfer(0, None))
    assert lagging not in seen
    assert seen[-1] == transfer(0, None)


def test_the_engine_does_not_see_a_second_detach_of_a_handle(tables: type[Tables]) -> None:
    """issue 12.6: it closes nothing, and what follows is served."""
    watched = guard(tables)
    seen = say(watched, *SENDING, detach(0), detach(0), detach(0), attach(0), transfer(0, 0))
    assert b"".join(seen) == b"".join((*SENDING, detach(0), attach(0), transfer(0, 0)))


def test_a_channel_that_the_engine_reads_as_a_mark_is_refused() -> None:
    watched = Guard(max_frame_bytes=0, channel_max=65535)
    say(watched, HEADER, frame(OPEN, "peer"), begin(channel=32767))
    with pytest.raises(Refused, match="channel_max 32767"):
        say(watched, begin(channel=65534))


def test_a_frame_is_measured_from_its_first_four_bytes() -> None:
    watched = guard()
    say(watched, *STARTED)
    assert watched.measure(b"\x00\x00\x00\x20\x02\x00\x00\x00", 0, 8) == 0x20
    assert watched.measure(b"\x00\x00", 0, 2) == 8


def test_our_open_may_lower_the_limits(tables: type[Tables]) -> None:
    watched = guard(tables)
    say(watched, *SENDING)
    watched.offer(max_frame_bytes=600, channel_max=1)
    with pytest.raises(Refused, match="600"):
        watched.measure(b"\x00\x00\x02\x59\x02\x00\x00\x00", 0, 8)
    large = frame(TRANSFER, uint(0), uint(0), b"t", payload=b"p" * 700)
    assert watched.scan(large, 0, len(large)) == 0
    with pytest.raises(Refused, match="channel_max 1"):
        say(watched, begin(channel=2))


def test_our_open_may_raise_the_limits(tables: type[Tables]) -> None:
    """A vhost group may have more sessions and larger frames than the listener."""
    watched = Guard(max_frame_bytes=512, channel_max=1, tables=tables)
    say(watched, HEADER, frame(OPEN, "peer", None, None, ushort(20)))
    watched.offer(max_frame_bytes=2048, channel_max=9)
    assert say(watched, begin(channel=9), attach(0, channel=9))
    large = frame(TRANSFER, uint(0), uint(0), b"t", payload=b"p" * 1000, channel=9)
    assert watched.scan(large, 0, len(large)) == len(large)
    with pytest.raises(Refused, match="channel_max 9"):
        say(watched, begin(channel=10))


def test_the_peers_open_lowers_what_ours_allows(tables: type[Tables]) -> None:
    watched = Guard(max_frame_bytes=512, channel_max=1, tables=tables)
    say(watched, HEADER, frame(OPEN, "peer", None, None, ushort(5)))
    watched.offer(channel_max=9)
    with pytest.raises(Refused, match="channel_max 5"):
        say(watched, begin(channel=6))


def test_dispositions_of_many_deliveries_end_a_turn(tables: type[Tables]) -> None:
    """Attack: 64 KiB of Dispositions that name the same thousands of deliveries over and over."""
    watched = guard(tables)
    say(watched, *STARTED)
    wide = disposition(0, MAX_SPAN // 2 - 1)
    data = wide * 20
    stop = watched.scan(data, 0, len(data))
    assert stop == 2 * len(wide)
    assert watched.cost(watched.read(wide)) > MAX_SPAN // 128


def test_an_attach_beside_many_links_costs_more() -> None:
    watched = guard()
    say(watched, *STARTED)
    before = watched.cost(watched.read(attach(4000)))
    say(watched, *(attach(handle) for handle in range(4000)))
    assert (before, watched.cost(watched.read(attach(4000)))) == (1, 3)


@pytest.mark.parametrize("nesting", [1, 7])
def test_a_frame_holds_so_many_values_and_no_more(nesting: int) -> None:
    """Attack: 15,000 symbols without a letter in the capabilities of one Attach."""
    watched = guard()
    say(watched, *STARTED)

    def with_values(count: int) -> bytes:
        lists = [[None] * (count // nesting - 1)] * nesting
        return frame(BEGIN, None, uint(0), uint(1), uint(1), None, None, None, {symbol("k"): lists}, channel=1)

    few = MAX_VALUES - nesting - 20
    assert watched.read(with_values(few)) is not None
    with pytest.raises(Refused, match="more than 2048 values") as refused:
        watched.read(with_values(MAX_VALUES + nesting))
    assert refused.value.condition.name == "amqp:resource-limit-exceeded"


def test_high_handles_are_for_sessions_of_many_links() -> None:
    """Attack: handles that fall into one place of the engine's hash table."""
    watched = guard()
    say(watched, *STARTED, attach(0xFFFF), *(attach(handle) for handle in range(100)))
    with pytest.raises(Refused, match="remote handle 65536 is too high"):
        say(watched, attach(0x10000))


@pytest.mark.slow
def test_a_session_may_have_more_links_than_handles_are_free_to_choose() -> None:
    watched = guard()
    say(watched, *STARTED, *(attach(handle) for handle in range(0x10010)))
    assert say(watched, attach(4 * 0x10000))


def test_a_large_control_frame_costs_more() -> None:
    watched = Guard(max_frame_bytes=0, channel_max=10)
    say(watched, HEADER)
    small = watched.read(frame(OPEN, "peer"))
    large = watched.read(frame(OPEN, "peer" * 10_000))
    assert watched.cost(small) == 1
    assert watched.cost(large) > 30
    with pytest.raises(Refused, match="over the limit"):
        watched.read(frame(OPEN, "peer" * 100_000))


# The two ways of letting plain frames pass.

uints = st.one_of(st.none(), st.integers(0, 4), st.sampled_from((255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)))
bools = st.sampled_from((None, True, False))
states = st.sampled_from((None, ACCEPTED, Described(ulong(0x26), []), Described(ulong(0x999), [1])))


def as_uint(value: int | None) -> uint | None:
    return uint(value) if value is not None else None


plain_frames = st.one_of(
    st.builds(
        lambda handle, number, tag, rest, payload, channel: frame(
            TRANSFER, as_uint(handle), as_uint(number), tag, *rest, channel=channel, payload=payload
        ),
        uints, uints, st.sampled_from((None, b"", b"tag", b"t" * 33)),
        st.lists(bools, max_size=9), st.binary(max_size=20), st.integers(0, 2),
    ),
    st.builds(
        lambda values, rest, channel: frame(FLOW, *map(as_uint, values), *rest, channel=channel),
        st.lists(uints, min_size=3, max_size=8), st.lists(bools, max_size=3), st.integers(0, 2),
    ),
    st.builds(
        lambda role, first, last, settled, state, channel: frame(
            DISPOSITION, role, as_uint(first), as_uint(last), settled, state, channel=channel
        ),
        bools, uints, uints, bools, states, st.integers(0, 2),
    ),
    st.sampled_from((raw(b""), raw(b"", channel=9), transfer(0, 0), transfer(1, 1, more=True), flow(2))),
)  # fmt: skip
changes = st.one_of(st.none(), st.tuples(st.integers(0, 60), st.integers(0, 255)), st.integers(1, 40))


def changed(data: bytes, change: tuple[int, int] | int | None) -> bytes:
    """One byte another one, or the end cut off, the frame's size right again."""
    if change is None or not data:
        return data
    if isinstance(change, int):
        data = data[: max(len(data) - change, 8)]
        return len(data).to_bytes(4, "big") + data[4:]
    place = 4 + change[0] % (len(data) - 4)
    return data[:place] + bytes([change[1]]) + data[place + 1 :]


def state_of(watched: Guard) -> list[tuple[int, ...] | None]:
    keys = [session_key(channel) for channel in range(3)]
    keys += [link_key(channel, handle) for channel in range(3) for handle in range(4)]
    found = [watched.tables.find(key) for key in keys]
    return [(entry.value, entry.id, entry.flags) if entry is not None else None for entry in found]


@pytest.mark.slow
@given(st.lists(st.tuples(plain_frames, changes), max_size=12))
def test_both_ways_admit_the_same_frames(drawn: list[tuple[bytes, Any]]) -> None:
    """Whatever the frames: the same are passed by both, with the same state behind them; and what they pass, the
    machine admits, too."""
    frames = [changed(data, change) for data, change in drawn]
    both = [guard(PythonTables), guard(CompiledTables)]
    for watched in both:
        say(watched, HEADER, frame(OPEN, "peer"), begin(), begin(channel=1), attach(0), attach(1, channel=1))
        say(watched, attach(2, is_receiver=True), attach(3, is_receiver=True, channel=1))
    judge = guard(PythonTables)
    say(judge, HEADER, frame(OPEN, "peer"), begin(), begin(channel=1), attach(0), attach(1, channel=1))
    say(judge, attach(2, is_receiver=True), attach(3, is_receiver=True, channel=1))
    for data in frames:
        stops = [watched.scan(data, 0, len(data)) for watched in both]
        assert stops[0] == stops[1]
        assert both[0].tables.span == both[1].tables.span
        assert state_of(both[0]) == state_of(both[1])
        if stops[0]:
            judge.admit(judge.read(data))
            assert state_of(judge) == state_of(both[0])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=300))
def test_the_compiled_tables_hold_what_was_put_in(steps: list[tuple[bool, int]]) -> None:
    tables, held = CompiledTables(), {}
    for number, (adds, handle) in enumerate(steps):
        key = link_key(1, handle)
        if adds and handle not in held:
            tables.add(key).value = held[handle] = number
        elif not adds:
            held.pop(handle, None)
            tables.discard(key)
    for handle in range(41):
        entry = tables.find(link_key(1, handle))
        assert (entry.value if entry is not None else None) == held.get(handle)


# Shapes

values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.text(max_size=5), st.binary(max_size=5), st.integers(0, 300).map(uint),
        st.sampled_from((symbol("s"), Array(symbol, (symbol("a"), symbol("b"))), Array(uint, ()), ulong(2**40))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(Described, st.just(ulong(1)), st.lists(inner, max_size=3)),
    ),
    max_leaves=20,
)  # fmt: skip


@given(values)
def test_well_formed_values_are_measured(value: Any) -> None:
    encoded = encode(value)
    assert measure(encoded + b"@", 0, len(encoded) + 1, Room(ENOUGH)) == len(encoded)
    for cut in range(len(encoded)):
        with pytest.raises(CodecError):
            measure(encoded, 0, cut, Room(ENOUGH))


@given(values, st.integers(0, 200), st.integers(0, 255))
def test_what_is_measured_is_what_is_decoded(value: Any, place: int, byte: int) -> None:
    """A value that the strict decoder takes is measured to the same end, unless it is described twice."""
    encoded = bytearray(encode(value))
    encoded[place % len(encoded)] = byte
    try:
        _, end = decode(encoded)
    except CodecError:
        return
    try:
        measured = measure(encoded, 0, len(encoded), Room(ENOUGH))
    except CodecError as error:
        measured, text = end, str(error)
    else:
        text = "a descriptor"
    assert measured == end
    assert "describe" in text or "descriptor" in text
