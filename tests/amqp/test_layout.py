"""Do all clients find the same properties in a message? (docs/spec/routing.md §13)"""

import itertools
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.amqp import layout, sections
from router.amqp.codec import encode
from router.amqp.sections import LOOK_CLOSER, MessageFault
from router.values import Array, Described, symbol, ubyte, ulong

DATA = b"\x00\x53\x75\xa0\x03abc"
VALUE = b"\x00\x53\x77\xa1\x02hi"
FOOTER = b"\x00\x53\x78\xc1\x01\x00"
DESCRIPTORS = (
    b"\x00\x53\x73",
    b"\x00\x80" + (0x73).to_bytes(8, "big"),
    b"\x00\xa3\x14amqp:properties:list",
    b"\x00\xb3\x00\x00\x00\x14amqp:properties:list",
)
USER_IDS = (b"\xa0\x04evil", b"\xb0\x00\x00\x00\x04evil")


def lists(fields: bytes, count: int) -> tuple[bytes, bytes]:
    return (
        b"\xc0" + bytes([len(fields) + 1, count]) + fields,
        b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + fields,
    )


ENCODINGS = [
    descriptor + encoded
    for descriptor in DESCRIPTORS
    for user in USER_IDS
    for encoded in lists(b"\x40" + user, 2)
]


def read_whole(payload: bytes) -> bytes | None:
    """The user-id as a strict link finds it. Errors: MessageFault."""
    size = len(payload)
    if layout.is_simple(payload, size):
        return None
    at = layout.find_properties(payload, size)
    if at == LOOK_CLOSER:
        envelope = sections.find(payload, size)
        layout.Rest(payload, envelope, is_whole=True)
        at = envelope.properties_at
    return sections.user_id(payload, size, at)


def read_streamed(payload: bytes, first: int, step: int) -> bytes | None:
    """The same of a message of which the first bytes are seen, then piece after piece."""
    envelope = sections.find(payload, first)
    found = sections.user_id(payload, first, envelope.properties_at)
    rest = layout.Rest(payload[:first], envelope, is_whole=False)
    for at in range(first, len(payload), step):
        piece = payload[at : at + step]
        rest.feed(piece, len(piece))
    rest.end()
    return found


def test_there_are_sixteen_encodings() -> None:
    assert len(set(ENCODINGS)) == 16


@pytest.mark.parametrize("properties", ENCODINGS)
def test_every_encoding_is_found_before_the_body(properties: bytes) -> None:
    """routing 106"""
    for body in (DATA, VALUE, DATA * 3 + FOOTER, b""):
        assert read_whole(properties + body) == b"evil"


@pytest.mark.parametrize("properties", ENCODINGS)
@pytest.mark.parametrize("body", [DATA, VALUE, DATA + DATA, DATA + FOOTER, b"\x00\x53\x76\x45", b"\x00\x53\x77\x40"])
def test_no_encoding_passes_behind_the_body(body: bytes, properties: bytes) -> None:
    """routing 106"""
    for payload in (body + properties, properties + body + properties, body + properties + body):
        with pytest.raises(MessageFault):
            read_whole(payload)


@pytest.mark.parametrize("properties", ENCODINGS)
def test_no_encoding_passes_behind_the_part_that_has_come(properties: bytes) -> None:
    """routing 106: whatever the pieces are, the seam within the properties included"""
    body = b"\x00\x53\x75\xb0" + (300).to_bytes(4, "big") + bytes(300)
    payload = body + properties
    for step in (1, 7, 1000):
        with pytest.raises(MessageFault):
            read_streamed(payload, 100, step)
    for first in range(len(body), len(payload)):
        with pytest.raises(MessageFault):
            read_streamed(payload, first, 5)


@pytest.mark.parametrize("properties", ENCODINGS)
@pytest.mark.parametrize("code", [0x70, 0x71, 0x72, 0x74, 0x76, 0x77, 0x78])
def test_no_encoding_passes_within_a_list_or_map_that_is_longer_than_its_elements(code: int, properties: bytes) -> None:
    """routing 106: clients that go by the count would go on with what is hidden there"""
    for count, elements in ((0, b""), (2, b"\xa1\x01k\x40")):
        for short, long in zip(lists(elements + properties, count), lists(elements + properties, count), strict=True):
            for constructor in (short, long):
                form = constructor[:1] if code in (0x70, 0x76) else bytes([constructor[0] + 1])
                section = bytes([0, 0x53, code]) + form + constructor[1:]
                payload = section + DATA if code < 0x75 else section if code < 0x78 else DATA + section
                with pytest.raises(MessageFault):
                    read_whole(payload)


ORDERS = {
    "two values": VALUE + VALUE,
    "data behind a value": VALUE + DATA,
    "a value behind data": DATA + VALUE,
    "a sequence between data": DATA + b"\x00\x53\x76\x45" + DATA,
    "data behind the footer": DATA + FOOTER + DATA,
    "two footers": DATA + FOOTER + FOOTER,
    "a header behind the body": DATA + b"\x00\x53\x70\x45",
    "empty properties behind the body": DATA + b"\x00\x53\x73\x45",
    "application-properties behind the body": DATA + b"\x00\x53\x74\xc1\x01\x00",
    "annotations behind application-properties": b"\x00\x53\x74\xc1\x01\x00\x00\x53\x72\xc1\x01\x00" + DATA,
    "something unknown behind the body": DATA + b"\x00\x53\x79\x45",
    "a cut body": DATA[:-1],
    "a cut descriptor": DATA + b"\x00\x53",
    "a cut size": b"\x00\x53\x75\xb0\x00\x00",
    "no described value": DATA + b"\x40",
    "a descriptor without a value": b"\x00\x53\x77",
    "endless descriptors": b"\x00\x53\x77" + bytes(200),
    "too many sections": b"\x00\x53\x75\xa0\x00" * 1025,
}


@pytest.mark.parametrize("which", ORDERS)
def test_sections_out_of_order_are_malformed(which: str) -> None:
    payload = ORDERS[which]
    with pytest.raises(MessageFault):
        read_whole(payload)
    if which == "too many sections":
        return
    for first, step in itertools.product((len(payload) // 2, len(payload)), (1, 3, 100)):
        with pytest.raises(MessageFault):
            read_streamed(payload, first, step)


def described(code: int, value: Any) -> bytes:
    return encode(Described(ulong(code), value))


MINE = described(0x73, ["id", b"me", "to"])
HONEST = {
    "data": DATA,
    "long data": b"\x00\x53\x75\xb0\x00\x00\x00\x05hello",
    "empty header and properties": b"\x00\x53\x70\x45\x00\x53\x73\x45" + DATA,
    "everything": described(0x70, [True, ubyte(4), None])
    + described(0x71, {symbol("d"): [1, {"deep": [None]}]})
    + described(0x72, {symbol("x-opt-mine"): "v"})
    + MINE
    + described(0x74, {"k": "v", "n": 1})
    + described(0x77, {"a": [1, 2, {"b": Described(symbol("t"), "x")}], "n": Array(ubyte, (ubyte(1), ubyte(2)))})
    + described(0x78, {symbol("f"): 1}),
    "sequences": MINE + described(0x76, [1, "two"]) + described(0x76, []),
    "null": MINE + b"\x00\x53\x77\x40",
    "described": MINE + described(0x77, Described(symbol("type"), ["x"])),
    "data with properties in it": MINE + b"\x00\x53\x75\xa0" + bytes([len(ENCODINGS[0])]) + ENCODINGS[0],
    "many data": MINE + DATA * 1000,
    "no body": MINE,
    "symbolic": b"\x00\xa3\x10amqp:header:list\x45" + MINE + DATA,
}


@pytest.mark.parametrize("which", HONEST)
def test_an_honest_message_is_read_whole_and_in_pieces(which: str) -> None:
    payload = HONEST[which]
    expected = b"me" if MINE in payload else None
    assert read_whole(payload) == expected
    # A stream begins when all that stands before the application-properties has come.
    start = sections.find(payload, len(payload)).rest_at
    for step in (1, 2, 7, 64, 1000):
        least = min(start + 24, len(payload))
        for first in {least, max(least, (start + len(payload)) // 2), len(payload)}:
            assert read_streamed(payload, first, step) == expected


def test_a_map_with_properties_in_it_passes_only_whole() -> None:
    """Of one that streams it cannot be said in time that it ends where its elements do."""
    payload = MINE + described(0x77, {"raw": ENCODINGS[0]})
    assert read_whole(payload) == b"me"
    with pytest.raises(MessageFault):
        read_streamed(payload, len(payload) - 5, 1)


def test_a_map_too_large_to_be_counted_passes_without_anything_like_properties() -> None:
    large = described(0x77, [ubyte(n % 200) for n in range(10_000)])
    assert read_whole(MINE + large) == b"me"
    with pytest.raises(MessageFault):
        read_whole(MINE + described(0x77, [*range(10_000), ENCODINGS[0]]))
    with pytest.raises(MessageFault):
        read_whole(MINE + described(0x77, [*range(10_000), ENCODINGS[9]]))


def test_a_stream_of_what_cannot_be_counted_is_searched_across_its_pieces() -> None:
    payload = MINE + described(0x77, [*range(1000), ENCODINGS[0], *range(1000)])
    first = len(MINE) + 50
    for step in (1, 5, 13, 4096):
        with pytest.raises(MessageFault):
            read_streamed(payload, first, step)
    assert read_streamed(MINE + described(0x77, [*range(1000), b"plain", *range(1000)]), first, 100) == b"me"


@given(st.binary(max_size=60), st.sampled_from(ENCODINGS), st.binary(max_size=20))
def test_whatever_stands_before_and_behind_never_hides_it(before: bytes, properties: bytes, behind: bytes) -> None:
    """Either it is found, or the message is refused, or it is within data in one piece."""
    payload = before + properties + behind
    with suppress(MessageFault):
        envelope = sections.find(payload, len(payload))
        if read_whole(payload) is None:
            body = payload[envelope.body_at :]
            assert body[:1] == b"\x00"
            assert not layout.has_others(payload, envelope.body_at, envelope.properties_at)


@given(st.binary(max_size=80), st.integers(1, 20), st.integers(1, 80))
def test_any_bytes_are_read_or_refused(payload: bytes, step: int, first: int) -> None:
    """No exception but MessageFault, and no difference between whole and in pieces where both are read."""
    for read in (read_whole, lambda data: read_streamed(data, min(first, len(data)), step)):
        with suppress(MessageFault):
            read(payload)
