"""What is known of the beginning of a message between routers: the compiled code does what the one in Python does."""

import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins.front import PYTHON

from router.amqp import sections
from router.amqp.codec import encode
from router.amqp.layout import front
from router.amqp.layout.front import (
    ASKS,
    AT_SHIFT,
    FRONT,
    LONGEST_BYTES,
    LOOK_CLOSER,
    PLACE_SHIFT,
    SIZE_MASK,
    USUAL,
    Front,
)
from router.amqp.sections import MessageFault, RouterAnnotations
from router.values import Described, symbol, ulong

BODY = b"\x00\x53\x75\xa0\x05hello"
PROPERTIES = b"\x00\x53\x73\xc0\x05\x02\x40\xa0\x01u"
HEADERS = {
    b"": 4,
    b"\x00\x53\x70\x45": 4,
    b"\x00\x53\x70\xc0\x01\x00": 4,
    b"\x00\x53\x70\xc0\x02\x01\x41": 4,
    b"\x00\x53\x70\xc0\x03\x02\x40\x40": 4,
    b"\x00\x53\x70\xc0\x04\x02\x41\x50\x07": 7,
    b"\x00\x53\x70\xc0\x05\x02\x56\x01\x50\x00": 0,
    b"\x00\x53\x70\xc0\x06\x04\x42\x50\xff\x40\x41": 9,
    b"\x00\x53\x70\xd0\x00\x00\x00\x07\x00\x00\x00\x02\x40\x50\x03": 3,
}
SECTION = sections.section_of(RouterAnnotations(to="a", ingress="0/A", trace=("0/A",)))
LONG_SECTION = sections.section_of(RouterAnnotations(to="a" * 300, ingress="0/A", trace=("0/A",)))


@pytest.fixture(params=[pytest.param(PYTHON, id="python"), pytest.param(FRONT, id="compiled")])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def front_of(kind: Front, payload: bytes) -> int:
    """From a buffer that ends with the message: a sanitizer sees what is read behind it."""
    return kind.front_of(bytearray(payload))(len(payload))


class Peeler:
    """Takes annotations off one message at a time."""

    def __init__(self, kind: Front, size: int = 2000) -> None:
        self.buffer = bytearray(size)
        self.known = kind.known(self.buffer)

    def peel(self, payload: bytes) -> tuple[bytes, bool, int] | None:
        """(the rest, whether it is written as most are, the place); None: look closer"""
        self.buffer[: len(payload)] = payload
        found = self.known.peel(len(payload))
        if found == LOOK_CLOSER:
            assert self.buffer[: len(payload)] == payload
            return None
        return bytes(self.buffer[: found & SIZE_MASK]), bool(found & USUAL), found >> PLACE_SHIFT


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("rest", [BODY, PROPERTIES + BODY, b"\x00\x53\x74\xc1\x01\x00" + BODY])
def test_annotations_belong_behind_the_header_whose_priority_is_known(header: bytes, rest: bytes, kind: Front) -> None:
    assert front_of(kind, header + rest) == len(header) << AT_SHIFT | HEADERS[header]


ASKING = {
    "no reply-to": ([None, None, "to", "subject", None, "correlation"], False),
    "no more properties": ([None, b"user", "to"], False),
    "a reply-to": ([None, None, None, None, "here"], True),
    "behind a message-id": ([ulong(7), None, "to", "x" * 300, "here", "correlation"], True),
    "of another type": ([uuid.UUID(int=1), b"user", None, None, 7], True),
    "behind a message-id that is a list": ([[1], None, None, None, None], True),
}


@pytest.mark.parametrize("fields", ASKING.values(), ids=ASKING)
@pytest.mark.parametrize("header", HEADERS)
def test_a_message_with_a_reply_to_is_told(header: bytes, fields: tuple[list[Any], bool], kind: Front) -> None:
    properties, asks = fields
    found = front_of(kind, header + encode(Described(ulong(0x73), properties)) + BODY)
    assert found == len(header) << AT_SHIFT | (ASKS if asks else 0) | HEADERS[header]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(SECTION + BODY, id="annotations"),
        pytest.param(b"\x00\x53\x71\xc1\x01\x00" + BODY, id="delivery-annotations"),
        pytest.param(
            b"\x00\x80" + (0x72).to_bytes(8, "big") + b"\xc1\x01\x00" + BODY, id="annotations, long descriptor"
        ),
        pytest.param(b"\x00\x53\x70\x45\x00\x80" + (0x72).to_bytes(8, "big") + b"\xc1\x01\x00" + BODY, id="behind it"),
        pytest.param(b"\x00\x80" + (0x70).to_bytes(8, "big") + b"\x45" + BODY, id="header, long descriptor"),
        pytest.param(b"\x00\xa3\x10amqp:header:list\x45" + BODY, id="header, symbol"),
        pytest.param(b"\x00\x53\x70\xc0\xff\x02\x40\x50\x07" + BODY, id="header beyond the message"),
        pytest.param(b"\x00\x53\x70\xd0\xff\xff\xff\xff\x00\x00\x00\x02" + BODY, id="header of four gigabytes"),
        pytest.param(b"\x00\x53\x70\xc0\x00" + BODY, id="header without a count"),
        pytest.param(b"\x00\x53\x70\xc0\x01\x02" + BODY, id="header shorter than its count"),
        pytest.param(b"\x00\x53\x70\xc0\x03\x02\x40\x50" + BODY, id="priority beyond the header"),
        pytest.param(b"\x00\x53\x70\xc0\x04\x02\x40\x70\x07" + BODY, id="priority of another type"),
        pytest.param(b"no message", id="opaque"),
        pytest.param(b"\x00\x53\x75\xa0", id="short"),
        pytest.param(b"", id="empty"),
    ],
)
def test_whatever_else_there_is_needs_a_closer_look(payload: bytes, kind: Front) -> None:
    assert front_of(kind, payload) == LOOK_CLOSER
    assert Peeler(kind).peel(payload) is None


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("section", [SECTION, LONG_SECTION])
def test_known_annotations_are_taken_off(section: bytes, header: bytes, kind: Front) -> None:
    peeler = Peeler(kind)
    message = header + section + PROPERTIES + BODY
    assert peeler.peel(message) is None
    place = peeler.known.remember(section)
    assert peeler.peel(message) == (header + PROPERTIES + BODY, True, place)


def test_a_message_that_is_no_usual_one_is_told(kind: Front) -> None:
    peeler = Peeler(kind)
    place = peeler.known.remember(SECTION)
    for rest in (PROPERTIES + PROPERTIES + BODY, SECTION + BODY, b"\x00\x53\x73\xc0\xff\x00" + BODY, b"nothing " * 2):
        assert peeler.peel(SECTION + rest) == (rest, False, place)


def test_a_section_is_known_byte_for_byte(kind: Front) -> None:
    """Attack: annotations that differ from known ones in one byte, to be taken for them."""
    peeler = Peeler(kind)
    peeler.known.remember(SECTION)
    for at in range(len(SECTION)):
        other = bytearray(SECTION + BODY)
        other[at] ^= 1
        assert peeler.peel(bytes(other)) is None


def test_of_two_sections_none_is_taken_for_the_other(kind: Front) -> None:
    """Attack: a thousand sections, more than there are places: one that had to go is not known any more."""
    peeler = Peeler(kind)
    kept: dict[int, bytes] = {}
    for number in range(1000):
        section = sections.section_of(RouterAnnotations(to=f"a{number}", ingress="0/A", trace=("0/A",)))
        place = peeler.known.remember(section)
        assert 0 <= place < front.PLACES
        if place == 0 and kind is PYTHON:
            kept.clear()
        kept[place] = section
    for place, section in kept.items():
        assert peeler.peel(section + BODY) == (BODY, True, place)
    gone = sections.section_of(RouterAnnotations(to="a0", ingress="0/A", trace=("0/A",)))
    if gone not in kept.values():
        assert peeler.peel(gone + BODY) is None


def test_what_is_too_long_or_too_short_is_not_remembered(kind: Front) -> None:
    known = Peeler(kind).known
    assert known.remember(b"\x00\x53\x72\xd1" + bytes(LONGEST_BYTES)) == -1
    assert known.remember(b"") == -1
    assert known.remember(b"\x00\x53\x72\xc1\x01\x00") == -1


def messages(chance: random.Random) -> bytes:
    """A message between routers, perhaps torn."""
    parts = [
        chance.choice(list(HEADERS)),
        chance.choice((SECTION, LONG_SECTION, b"")),
        chance.choice((PROPERTIES, b"\x00\x53\x73\x45", b"")),
        chance.choice((b"\x00\x53\x74" + encode({"k": 1}), b"")),
        chance.choice((BODY, BODY * 2, b"\x00\x53\x77" + encode([symbol("x")]), b"")),
    ]
    if not chance.randrange(4):
        chance.shuffle(parts)
    torn = bytearray(b"".join(parts))
    for _ in range(chance.choice((0, 0, 1, 3))):
        if torn:
            at = chance.randrange(len(torn))
            torn[at : at + chance.randrange(2)] = bytes(chance.randrange(256) for _ in range(chance.randrange(3)))
    return bytes(torn[: chance.choice((len(torn), len(torn), chance.randrange(len(torn) + 1)))])


@given(seed=st.integers(0, 1 << 32))
def test_both_see_the_same(seed: int) -> None:
    """And what they make out is what `sections.find` does, where that finds anything."""
    payload = messages(random.Random(seed))
    seen = [front_of(kind, payload) for kind in (PYTHON, FRONT)]
    assert seen[0] == seen[1]
    peeled = []
    for kind in (PYTHON, FRONT):
        peeler = Peeler(kind, max(len(payload), 1))
        while peeler.known.remember(SECTION) == peeler.known.remember(LONG_SECTION):
            # By its secret seed both have one place, from which the first had to go.
            peeler = Peeler(kind, max(len(payload), 1))
        found = peeler.peel(payload)
        peeled.append(found and found[:2])
    assert peeled[0] == peeled[1]
    try:
        envelope = sections.find(payload, len(payload))
    except MessageFault:
        return
    if seen[0] != LOOK_CLOSER:
        assert (envelope.annotations_at, envelope.insert_annotations_at) == (-1, seen[0] >> AT_SHIFT)
    if peeled[0] is not None:
        rest = payload[: envelope.annotations_at] + payload[envelope.annotations_end :]
        assert peeled[0][0] == rest
        assert peeled[0][1] == (sections.find_properties(rest, len(rest)) != sections.LOOK_CLOSER)
