"""Do all clients find the same properties in a message? (docs/spec/routing.md §13)"""

import itertools
import os
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins.walk import PythonWalk

from router.amqp import sections
from router.amqp.codec import encode
from router.amqp.decoding import MAX_DEPTH
from router.amqp.layout import MALFORMED, CompiledWalk, Walk
from router.amqp.sections import INVALID, MessageFault
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
    descriptor + encoded for descriptor in DESCRIPTORS for user in USER_IDS for encoded in lists(b"\x40" + user, 2)
]


WALKS: dict[str, type[Walk]] = {"python": PythonWalk, "compiled": CompiledWalk}


@pytest.fixture(params=WALKS)
def layout(request: pytest.FixtureRequest) -> type[Walk]:
    found = WALKS[request.param]
    if found is None:
        assert not os.environ.get("PALISADE_REQUIRE_ALL"), "router/amqp/layout/walk.c is not compiled"
        pytest.skip("router/amqp/layout/walk.c is not compiled")
    return found


def user_id(walk: Walk, payload: bytes) -> bytes | None:
    at = walk.found.user_id_at
    return payload[at : at + walk.found.user_id_size] if at >= 0 else None


def read_whole(payload: bytes, layout: type[Walk]) -> bytes | None:
    """The user-id as a strict link finds it. Errors: MessageFault."""
    walk = layout(payload)
    if walk.whole(len(payload)) == MALFORMED:
        raise MessageFault(INVALID)
    # Whatever reads the message after the walk finds nothing wrong, and the same.
    envelope = sections.find(payload, len(payload))
    at = envelope.annotations_at
    assert (walk.found.annotations_at, walk.found.annotations_end) == (at, envelope.annotations_end)
    assert sections.user_id(payload, len(payload), envelope.properties_at) == user_id(walk, payload)
    return user_id(walk, payload)


def read_streamed(payload: bytes, first: int, step: int, layout: type[Walk]) -> bytes | None:
    """The same of a message of which the first bytes are seen, then piece after piece."""
    buffer = bytearray(max(first, step))
    walk = layout(buffer)
    buffer[: len(payload[:first])] = payload[:first]
    if walk.first(min(first, len(payload))) == MALFORMED:
        raise MessageFault(INVALID)
    found = user_id(walk, payload[:first])
    for at in range(first, len(payload), step):
        piece = payload[at : at + step]
        buffer[: len(piece)] = piece
        if walk.next(len(piece)) == MALFORMED:
            raise MessageFault(INVALID)
    if not walk.is_over():
        raise MessageFault(INVALID)
    assert user_id(walk, payload) == found
    return found


def test_there_are_sixteen_encodings() -> None:
    assert len(set(ENCODINGS)) == 16


@pytest.mark.parametrize("properties", ENCODINGS)
def test_every_encoding_is_found_before_the_body(properties: bytes, layout: type[Walk]) -> None:
    """routing 106"""
    for body in (DATA, VALUE, DATA * 3 + FOOTER, b""):
        assert read_whole(properties + body, layout) == b"evil"


@pytest.mark.parametrize("properties", ENCODINGS)
@pytest.mark.parametrize("body", [DATA, VALUE, DATA + DATA, DATA + FOOTER, b"\x00\x53\x76\x45", b"\x00\x53\x77\x40"])
def test_no_encoding_passes_behind_the_body(body: bytes, properties: bytes, layout: type[Walk]) -> None:
    """routing 106"""
    for payload in (
        body + properties, properties + body + properties, body + properties + body,
        FOOTER + properties, FOOTER + properties + body, properties + FOOTER + body + properties,
    ):  # fmt: skip
        with pytest.raises(MessageFault):
            read_whole(payload, layout)


@pytest.mark.parametrize("properties", ENCODINGS)
def test_no_encoding_passes_behind_the_part_that_has_come(properties: bytes, layout: type[Walk]) -> None:
    """routing 106: whatever the pieces are, the seam within the properties included"""
    body = b"\x00\x53\x75\xb0" + (300).to_bytes(4, "big") + bytes(300)
    payload = body + properties
    for step in (1, 7, 1000):
        with pytest.raises(MessageFault):
            read_streamed(payload, 100, step, layout)
    for first in range(len(body), len(payload)):
        with pytest.raises(MessageFault):
            read_streamed(payload, first, 5, layout)


@pytest.mark.parametrize("properties", ENCODINGS)
@pytest.mark.parametrize("code", [0x70, 0x71, 0x72, 0x74, 0x76, 0x77, 0x78])
def test_no_encoding_passes_within_a_list_or_map_that_is_longer_than_its_elements(
    code: int, properties: bytes, layout: type[Walk]
) -> None:
    """routing 106: clients that go by the count would go on with what is hidden there"""
    for count, elements in ((0, b""), (2, b"\xa1\x01k\x40")):
        for short, long in zip(lists(elements + properties, count), lists(elements + properties, count), strict=True):
            for constructor in (short, long):
                form = constructor[:1] if code in (0x70, 0x76) else bytes([constructor[0] + 1])
                section = bytes([0, 0x53, code]) + form + constructor[1:]
                payload = section + DATA if code < 0x75 else section if code < 0x78 else DATA + section
                with pytest.raises(MessageFault):
                    read_whole(payload, layout)


def nested(depth: int) -> bytes:
    encoded = b"\x40"
    for _ in range(depth):
        encoded = b"\xd0" + (len(encoded) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + encoded
    return encoded


MALFORMED_MESSAGES = {
    "two values": VALUE + VALUE,
    "data behind a value": VALUE + DATA,
    "a value behind data": DATA + VALUE,
    "a sequence between data": DATA + b"\x00\x53\x76\x45" + DATA,
    "data behind the footer": DATA + FOOTER + DATA,
    "two footers": DATA + FOOTER + FOOTER,
    "two footers before the body": FOOTER + FOOTER + DATA,
    "a footer before and after the body": FOOTER + DATA + FOOTER,
    "properties behind a footer before the body": FOOTER + b"\x00\x53\x73\x45" + DATA,
    "application-properties behind a footer before the body": FOOTER + b"\x00\x53\x74\xc1\x01\x00" + DATA,
    "two values behind a footer": FOOTER + VALUE + VALUE,
    "annotations behind the body that a footer precedes": FOOTER + DATA + b"\x00\x53\x72\xc1\x01\x00",
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
    "a list32 for a map of annotations": b"\x00\x53\x72\xd0\0\0\0\x04\0\0\0\0" + DATA,
    "a map with a key without a value": b"\x00\x53\x74\xc1\x02\x01\x40" + DATA,
    "an array without a constructor": b"\x00\x53\x77\xe0\x01\x00",
    "an array of what is no type": b"\x00\x53\x77\xe0\x02\x00\x3f",
    "an array that is longer than its elements": b"\x00\x53\x77\xe0\x05\x01\x60\x00\x01\x00",
    "an array of lists one of which is too long": b"\x00\x53\x77\xe0\x07\x01\xc0\x04\x01\x40\x40\x40",
    "an array of texts that ends too early": b"\x00\x53\x77\xe0\x05\x02\xa1\x01a\x01",
    "a list without room for its count": b"\x00\x53\x77\xc0\x00",
    "a list of more elements than it has bytes": b"\x00\x53\x77\xd0\0\0\0\x05\xff\xff\xff\xff\x40",
    "nested too deeply": b"\x00\x53\x77" + nested(MAX_DEPTH + 1),
    "too many descriptors": b"\x00\x53\x77" + b"\x00\x40" * 40 + b"\x40",
    "a name that is none": b"\x00\xa3\x10amqp:header:lost\x45" + DATA,
    "a long name that is none": b"\x00\xb3\x00\x00\x01\x00" + bytes(256) + b"\x45" + DATA,
    "a described list for properties": b"\x00\x53\x73\x00\x40\xc0\x01\x00" + DATA,
    "a list for a message-id": b"\x00\x53\x73" + lists(b"\xc0\x01\x00\x40", 2)[0],
    "a described message-id": b"\x00\x53\x73" + lists(b"\x00\x40\x40\x40", 2)[0] + DATA,
    "a text for a user-id": b"\x00\x53\x73" + lists(b"\x40\xa1\x04evil", 2)[0] + DATA,
}


@pytest.mark.parametrize("which", MALFORMED_MESSAGES)
def test_what_readers_may_take_differently_is_malformed(which: str, layout: type[Walk]) -> None:
    payload = MALFORMED_MESSAGES[which]
    with pytest.raises(MessageFault):
        read_whole(payload, layout)
    for first, step in itertools.product((len(payload) // 2, len(payload)), (1, 3, 100)):
        with pytest.raises(MessageFault):
            read_streamed(payload, first, step, layout)


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
    "a footer with a text for its key before the body, as of rhea": MINE
    + b"\x00\x53\x78\xd1\0\0\0\x09\0\0\0\x02\xa1\x01f\x52\x01"
    + VALUE,
    "a footer before data": MINE + FOOTER + DATA * 3,
    "a footer and no body": MINE + FOOTER,
    "sequences": MINE + described(0x76, [1, "two"]) + described(0x76, []),
    "null": MINE + b"\x00\x53\x77\x40",
    "described": MINE + described(0x77, Described(symbol("type"), ["x"])),
    "data with properties in it": MINE + b"\x00\x53\x75\xa0" + bytes([len(ENCODINGS[0])]) + ENCODINGS[0],
    "many data": MINE + DATA * 2000,
    "nested as deeply as may be": MINE + b"\x00\x53\x77" + nested(MAX_DEPTH),
    "lists and maps within arrays": b"\x00\x53\x77\xf0\0\0\0\x15\0\0\0\x02\xd1" + (b"\0\0\0\x04" + bytes(4)) * 2,
    "arrays within arrays": b"\x00\x53\x77\xe0\x09\x02\xe0\x03\x01\x50\x07\x02\x01\x41",
    "a described array": b"\x00\x53\x77\xe0\x09\x02\x00\xa3\x01t\xa1\x01a\x00",
    "an array of nothings": b"\x00\x53\x77\xe0\x02\xff\x40",
    "an empty array": b"\x00\x53\x77\xe0\x02\x00\xa1",
    "what looks like properties, in a map": MINE + described(0x77, {"raw": ENCODINGS[0]}),
    "what looks like properties, in a long list": MINE
    + described(0x77, [*range(1000), ENCODINGS[0], ENCODINGS[9], *range(1000)]),
    "a long list": MINE + described(0x77, [ubyte(n % 200) for n in range(10_000)]),
    "application-properties that are null": b"\x00\x53\x74\x40" + DATA,
    "no body": MINE,
    "symbolic": b"\x00\xa3\x10amqp:header:list\x45" + MINE + DATA,
}


@pytest.mark.parametrize("which", HONEST)
def test_an_honest_message_is_read_whole_and_in_pieces(which: str, layout: type[Walk]) -> None:
    payload = HONEST[which]
    expected = b"me" if MINE in payload else None
    assert read_whole(payload, layout) == expected
    # A stream begins when all that stands before the application-properties has come.
    start = sections.find(payload, len(payload)).rest_at
    for step in (1, 2, 7, 64, 1000):
        least = min(start + 24, len(payload))
        for first in {least, max(least, (start + len(payload)) // 2), len(payload)}:
            assert read_streamed(payload, first, step, layout) == expected


@pytest.mark.parametrize("properties", ENCODINGS)
def test_no_properties_come_behind_the_first_piece(properties: bytes, layout: type[Walk]) -> None:
    """routing 106: where the first piece ends with a section, too: the user-id is checked when that has come"""
    for before in (b"", b"\x00\x53\x70\x45", described(0x72, {symbol("x-opt-mine"): "v"})):
        for first in range(max(len(before), 1), len(before + properties)):
            with pytest.raises(MessageFault):
                read_streamed(before + properties + DATA, first, 1000, layout)


@given(st.binary(max_size=60), st.sampled_from(ENCODINGS), st.binary(max_size=20))
def test_whatever_stands_before_and_behind_never_hides_it(before: bytes, properties: bytes, behind: bytes) -> None:
    """Either it is found, or the message is refused, or it is within data in one piece."""
    payload = before + properties + behind
    for layout in present():
        with suppress(MessageFault):
            if read_whole(payload, layout) is None:
                assert len(before) > sections.find(payload, len(payload)).body_at


def present() -> list[type[Walk]]:
    return list(WALKS.values())


# Both walks are the same.

values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.text(max_size=5), st.binary(max_size=5), st.integers(0, 300).map(ulong),
        st.sampled_from((Array(symbol, (symbol("a"), symbol("b"))), Array(ubyte, ()), ENCODINGS[0], ENCODINGS[7],
                         Array(list, ([1], ["x", None]), ulong(5)), Array(Array, (Array(ubyte, (ubyte(1),)),)))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(Described, inner, inner),
    ),
    max_leaves=8,
)  # fmt: skip
messages = st.tuples(
    *(
        st.one_of(st.just(b""), made.map(partial(described, code)))
        for code, made in (
            (0x70, st.just([True])),
            (0x72, st.dictionaries(st.sampled_from((symbol("a"), symbol("x-opt-qd.to"))), values, max_size=2)),
            (0x73, st.tuples(st.sampled_from((None, "id")), st.sampled_from((None, b"me")), values).map(list)),
            (0x74, st.dictionaries(st.text(max_size=3), values, max_size=3)),
            (0x77, values),
            (0x78, st.dictionaries(st.text(max_size=3), values, max_size=2)),
        )
    )
).map(b"".join)
changes = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)


def mutated(payload: bytes, changed: list[tuple[int, int]]) -> bytes:
    data = bytearray(payload)
    for at, byte in changed:
        if data:
            data[at % len(data)] = byte
    return bytes(data)


def outcome(layout: type[Walk], pieces: list[bytes]) -> list[object]:
    """All that a walk says of a message in one piece or several."""
    buffer = bytearray(max(map(len, pieces)))
    walk = layout(buffer)
    said: list[object] = []
    for place, piece in enumerate(pieces):
        buffer[: len(piece)] = piece
        look = walk.next if place else walk.first if len(pieces) > 1 else walk.whole
        said.append(look(len(piece)))
        if said[-1] == MALFORMED:
            return said
        said += [walk.found.user_id_at, walk.found.user_id_size, walk.found.annotations_at, walk.found.annotations_end]
    return [*said, bool(walk.is_over())] if len(pieces) > 1 else said


def assert_alike(payload: bytes, first: int, step: int) -> None:
    pieces = [payload[:first], *(payload[at : at + step] for at in range(first, len(payload), step))]
    for cut in ([payload], pieces):
        one, *others = (outcome(walk, cut) for walk in present())
        assert [one] * len(others) == others, payload.hex()


@given(messages, changes, st.integers(1, 100), st.integers(1, 40))
def test_both_walks_say_the_same(payload: bytes, changed: list[tuple[int, int]], first: int, step: int) -> None:
    assert_alike(mutated(payload, changed), first, step)


@given(st.lists(st.sampled_from([bytes([code]) for code in (*range(0x100),)]), max_size=60).map(b"".join))
def test_both_walks_say_the_same_of_any_bytes(payload: bytes) -> None:
    assert_alike(payload, 5, 3)


@pytest.mark.slow
@pytest.mark.parametrize("which", [*HONEST, *MALFORMED_MESSAGES])
def test_both_walks_say_the_same_of_every_change_of_one_byte(which: str) -> None:
    payload = (HONEST | MALFORMED_MESSAGES)[which]
    if len(payload) > 600:
        payload = payload[:200]
    for at in range(len(payload)):
        for byte in {
            0,
            1,
            0x40,
            0x45,
            0x53,
            0x73,
            0xA0,
            0xB0,
            0xC0,
            0xD1,
            0xE0,
            0xFF,
            payload[at] ^ 1,
            payload[at] + 1 & 255,
        }:
            changed = payload[:at] + bytes([byte]) + payload[at + 1 :]
            assert_alike(changed, at + 1, 9)
        assert_alike(payload[:at], at // 2 + 1, 5)


@given(messages)
def test_an_honest_message_of_any_values_passes(payload: bytes) -> None:
    for layout in present():
        walk = layout(payload)
        assert (walk.whole(len(payload)) == MALFORMED) == (not payload)


@given(st.binary(max_size=80), st.integers(1, 20), st.integers(1, 80))
def test_a_message_in_pieces_is_the_message(payload: bytes, step: int, first: int) -> None:
    """What passes in pieces passes whole, with the same user-id."""
    for layout in present():
        with suppress(MessageFault):
            assert read_streamed(payload, first, step, layout) == read_whole(payload, layout)
