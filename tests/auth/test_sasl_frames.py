"""The SASL frame codec: golden bytes, round trips, and hostile input."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.sasl_frames import (
    MAX_MECHANISMS,
    MAX_RECEIVED_FRAME_BYTES,
    OK_FRAME,
    OUTCOME_OK,
    Challenge,
    FrameReader,
    Init,
    Mechanisms,
    Outcome,
    Response,
    SaslFrame,
    SaslFrameError,
    _decode_body,
    _usual,
    encode,
    encode_challenge,
    encode_offer,
)

NAMES = st.from_regex(r"[A-Z0-9_-]{1,20}", fullmatch=True)
FRAMES = st.one_of(
    st.lists(NAMES, max_size=12).map(lambda names: Mechanisms(names=tuple(names))),
    st.builds(
        Init,
        mechanism=NAMES,
        initial_response=st.none() | st.binary(max_size=300),
        hostname=st.none() | st.text(max_size=20),
    ),
    st.binary(max_size=300).map(lambda data: Challenge(challenge=data)),
    st.binary(max_size=300).map(lambda data: Response(response=data)),
    st.builds(Outcome, code=st.integers(0, 4), additional_data=st.none() | st.binary(max_size=300)),
)


def framed(body: bytes, *, size: int | None = None, offset: int = 2, kind: int = 1) -> bytes:
    return struct.pack(">IBBH", 8 + len(body) if size is None else size, offset, kind, 0) + body


def read_all(data: bytes) -> list[SaslFrame]:
    reader = FrameReader()
    reader.feed(data)
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


def test_mechanisms_have_the_bytes_of_the_standard() -> None:
    body = b"\x00\x53\x40\xc0\x15\x01\xe0\x12\x02\xa3\x05PLAIN\x09ANONYMOUS"
    assert encode(Mechanisms(names=("PLAIN", "ANONYMOUS"))) == framed(body)


def test_an_empty_offer_is_an_empty_array() -> None:
    assert encode(Mechanisms(names=())) == framed(b"\x00\x53\x40\xc0\x05\x01\xe0\x02\x00\xa3")


def test_outcome_has_the_bytes_of_the_standard() -> None:
    assert encode(Outcome(code=1)) == framed(b"\x00\x53\x44\xc0\x03\x01\x50\x01")


def test_init_as_other_clients_write_it_is_read() -> None:
    """A wide list, a long-form descriptor, a symbolic one, wide values and trailing nulls are all one type."""
    long_form = b"\x00\x80" + (0x41).to_bytes(8, "big") + b"\xd0\x00\x00\x00\x12\x00\x00\x00\x03"
    expected = Init(mechanism="PLAIN", initial_response=b"x")
    assert read_all(framed(long_form + b"\xb3\x00\x00\x00\x05PLAIN\xa0\x01x\x40")) == [expected]
    symbolic = b"\x00\xa3\x13amqp:sasl-init:list\xc0\x0b\x02\xa3\x05PLAIN\xa0\x01x"
    assert read_all(framed(symbolic)) == [expected]


@pytest.mark.parametrize("field", [b"\xa3\x05PLAIN", b"\xb3\x00\x00\x00\x05PLAIN", b"\xe0\x08\x01\xa3\x05PLAIN"])
def test_a_single_mechanism_may_come_without_its_array(field: bytes) -> None:
    body = b"\x00\x53\x40\xc0" + bytes((len(field) + 1, 1)) + field
    assert read_all(framed(body)) == [Mechanisms(names=("PLAIN",))]


def test_an_extended_header_is_skipped() -> None:
    """AMQP 1.0 §5.3.1: the extended header is ignored."""
    body = encode(Outcome(code=0))[8:]
    assert read_all(framed(b"\xff\xff\xff\xff" + body, offset=3)) == [Outcome(code=0)]


@given(FRAMES)
def test_a_frame_survives_the_wire_or_is_too_long_for_it(frame: SaslFrame) -> None:
    try:
        data = encode(frame)
    except SaslFrameError:
        return
    assert len(data) <= 512
    assert read_all(data) == [frame]


def test_a_frame_longer_than_the_standard_is_not_sent_but_is_accepted() -> None:
    with pytest.raises(SaslFrameError):
        encode(Response(response=b"t" * 505))
    token = b"t" * 20000
    body = b"\x00\x53\x43\xd0" + struct.pack(">II", 4 + 5 + len(token), 1) + b"\xb0" + struct.pack(">I", len(token))
    assert read_all(framed(body + token)) == [Response(response=token)]


def is_short(frame: SaslFrame) -> bool:
    try:
        return len(encode(frame)) <= 512
    except SaslFrameError:
        return False


SHORT_FRAMES = FRAMES.filter(is_short)


@given(st.lists(SHORT_FRAMES, min_size=1, max_size=4), st.binary(max_size=40), st.integers(1, 30))
def test_frames_come_out_alike_however_the_bytes_are_cut_and_the_rest_is_intact(
    frames: list[SaslFrame], rest: bytes, step: int
) -> None:
    data = b"".join(encode(frame) for frame in frames) + rest
    reader = FrameReader()
    taken: list[SaslFrame] = []
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while len(taken) < len(frames) and (frame := reader.next_frame()) is not None:
            taken.append(frame)
    assert taken == frames
    assert reader.take_rest() == rest
    assert reader.pending_bytes == 0


INIT = encode(Init(mechanism="PLAIN", initial_response=b"\0user\0password", hostname="example.com"))
SAMPLES = [
    INIT,
    encode(Mechanisms(names=("SCRAM-SHA-256", "PLAIN"))),
    encode(Response(response=b"abc")),
    encode(Outcome(code=0, additional_data=b"v=1")),
]


@pytest.mark.parametrize("data", SAMPLES)
def test_a_truncated_stream_waits_for_more(data: bytes) -> None:
    for length in range(len(data)):
        assert read_all(data[:length]) == []


@pytest.mark.parametrize("data", SAMPLES)
def test_a_frame_that_ends_early_is_refused_at_every_offset(data: bytes) -> None:
    """The size says that the frame is whole, its values do not fit."""
    for length in range(8, len(data)):
        with pytest.raises(SaslFrameError):
            read_all(framed(data[8:length]))


@pytest.mark.parametrize("data", SAMPLES)
def test_one_wrong_byte_never_raises_anything_else(data: bytes) -> None:
    for at in range(len(data)):
        for value in (0, 1, 0x40, 0x7F, 0x80, 0xA0, 0xB0, 0xE0, 0xF0, 0xFF):
            try:
                read_all(data[:at] + bytes((value,)) + data[at + 1 :])
            except SaslFrameError:
                continue


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    try:
        read_all(data)
    except SaslFrameError:
        return


@given(st.sampled_from([0x40, 0x41, 0x42, 0x43, 0x44]), st.binary(max_size=80))
def test_random_fields_never_raise_anything_else(descriptor: int, fields: bytes) -> None:
    body = bytes((0x00, 0x53, descriptor, 0xC0, len(fields) + 1, 3)) + fields
    try:
        read_all(framed(body))
    except SaslFrameError:
        return


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (framed(b"", kind=0), "frame type 0"),
        (framed(b"", size=MAX_RECEIVED_FRAME_BYTES + 1), "at most 65536"),
        (framed(b"", size=0xFFFFFFFF), "at most 65536"),
        (framed(b"", size=4), "data offset"),
        (framed(b"", size=8, offset=1), "data offset"),
        (framed(b"", size=8, offset=3), "data offset"),
        (framed(b""), "ends within"),
        (framed(INIT[8:] + b"\x00"), "after the body"),
        (framed(b"\x00\x53\x10\x45"), "none of the five"),
        (framed(b"\x00\x53\x41\x45"), "without a mechanism"),
        (framed(b"\x00\x53\x43\x45"), "missing"),
        (framed(b"\x00\x53\x44\xc0\x03\x01\x50\x05"), "outcome code 5"),
        (framed(b"\x00\x53\x44\xc0\x03\x01\x60\x05"), "ubyte"),
        (framed(b"\x00\x53\x41\xc0\x05\x01\xa1\x02PL"), "type 0xa1"),
        (framed(b"\x00\x53\x41\xc0\x05\x01\xa3\x02\xff\xff"), "not ASCII"),
        (framed(b"\x00\x53\x41\xc0\x08\x03\xa3\x01P\x40\xa1\x01\xff"), "not UTF-8"),
        (framed(b"\x00\x53\x43\xc0\x05\x02\xa0\x01x\x40"), "more fields"),
        (framed(b"\x00\x53\x43\xd0\x00\x00\x00\x07\xff\xff\xff\xff\xa0\x01x"), "more fields"),
        (framed(b"\x00\x53\x43\xc0\x00"), "shorter than its own count"),
        (framed(b"\x00\x53\x40\xc0\x07\x01\xe0\x04\x01\xa1\x01P"), "not symbols"),
        (framed(b"\x00\x53\x40\xc0\x08\x01\xe0\x05\x01\xa3\x01PP"), "longer than its count"),
    ],
)
def test_malformed_frames_are_named(data: bytes, says: str) -> None:
    with pytest.raises(SaslFrameError, match=says):
        read_all(data)


def test_an_oversized_frame_is_refused_on_its_header() -> None:
    """Attack: announce 4 GiB and trickle the body."""
    reader = FrameReader()
    reader.feed(b"\xff\xff\xff\xff\x02\x01\x00\x00")
    with pytest.raises(SaslFrameError):
        reader.next_frame()


def test_an_array_that_announces_more_symbols_than_a_library_has_is_refused() -> None:
    """Attack: a small frame that becomes many objects."""
    with pytest.raises(SaslFrameError, match=str(MAX_MECHANISMS)):
        read_all(framed(b"\x00\x53\x40\xc0\x05\x01\xe0\x02\xff\xa3"))


def test_nothing_that_may_hold_a_password_is_printed() -> None:
    for frame in (Init(mechanism="PLAIN", initial_response=b"\0u\0hunter2"), Response(response=b"\0u\0hunter2")):
        assert "hunter2" not in repr(frame)


# The short ways


@given(st.one_of(FRAMES.map(lambda frame: encode(frame, 65_536)[8:]), st.binary(max_size=40)), st.data())
def test_the_short_way_reads_what_the_long_one_reads_or_nothing(body: bytes, data: st.DataObject) -> None:
    """Also of a body with a byte changed, cut off or added."""
    change = data.draw(st.sampled_from(["none", "byte", "cut", "more"]))
    at = data.draw(st.integers(0, max(len(body) - 1, 0)))
    if change == "byte" and body:
        body = body[:at] + bytes((data.draw(st.integers(0, 255)),)) + body[at + 1 :]
    elif change == "cut":
        body = body[:at]
    elif change == "more":
        body += data.draw(st.binary(min_size=1, max_size=3))
    try:
        expected: SaslFrame | None = _decode_body(body)
    except SaslFrameError:
        expected = None
    try:
        found = _usual(body)
    except SaslFrameError:
        assert expected is None
        return
    assert found is None or found == expected


def test_the_short_way_is_the_usual_one() -> None:
    init = Init(mechanism="SCRAM-SHA-256", initial_response=b"n,,n=alice,r=nonce")
    assert _usual(encode(init)[8:]) == init
    for response in (b"", b"c=biws,r=nonce,p=proof", b"x" * 255):
        frame = Response(response=response)
        assert (_usual(encode(frame)[8:]) == frame) is (len(response) < 250)


@pytest.mark.parametrize("size", [0, 1, 100, 238, 239, 240, 251, 252, 253, 255, 256, 400])
def test_a_challenge_has_the_same_bytes_by_the_short_way(size: int) -> None:
    data = bytes(range(256)) * 2
    assert encode_challenge(data[:size]) == encode(Challenge(challenge=data[:size]))


def test_what_is_written_the_same_each_time_is_what_would_be_encoded() -> None:
    assert encode(Outcome(code=OUTCOME_OK)) == OK_FRAME
    assert encode_offer(("SCRAM-SHA-256", "PLAIN")) == encode(Mechanisms(names=("SCRAM-SHA-256", "PLAIN")))
