"""Attack: frames whose bytes are not an AMQP performative, or are one with impossible fields.

The AMQP engine reads a field of a wrong type as 0, ignores a list's count and cuts what is too long. So two readers of
such a frame see different things. Each is refused before any part of it is carried out.
"""

import pytest
from frames_attacker import besieged_router, send_to_router, wire
from harness import RunningRouter

router = besieged_router

OPEN, BEGIN = wire.frame(wire.open_("attacker", "localhost")), wire.frame(wire.begin())
SESSION = OPEN + BEGIN
NULL, TRUE, uint, text = wire.NULL, wire.TRUE, wire.uint, wire.text


def body(code: int, *fields: bytes) -> bytes:
    return wire.frame(wire.described(code, wire.list_of(*fields)))


def attach(**changed: bytes) -> bytes:
    fields = {"name": text("l"), "handle": uint(0), "role": wire.FALSE, "snd": NULL, "rcv": NULL,
              "source": wire.source("x"), "target": wire.target("guests.a"), "unsettled": NULL, "incomplete": NULL,
              "count": uint(0)}  # fmt: skip
    return SESSION + body(wire.ATTACH, *(fields | changed).values())


def begin(**changed: bytes) -> bytes:
    fields = {"remote": NULL, "next": uint(0), "incoming": uint(10), "outgoing": uint(10)}
    return OPEN + body(wire.BEGIN, *(fields | changed).values())


LINK = attach()


def transfer(**changed: bytes) -> bytes:
    fields = {"handle": uint(0), "id": uint(0), "tag": wire.binary(b"t"), "format": uint(0), "settled": wire.FALSE,
              "more": wire.FALSE}  # fmt: skip
    return LINK + wire.frame(
        wire.described(wire.TRANSFER, wire.list_of(*(fields | changed).values())) + wire.message(1)
    )


NESTED_ARRAY = b"\xe0\x08\x01\xe0\x05\x01\xe0\x02\x01\x40"
ODD_MAP = wire.map_of(text("k"), text("v"), text("alone"))
ENDLESS = b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff"
MALFORMED = {
    # The frame
    "size 7": b"\x00\x00\x00\x07\x02\x00\x00\x00",
    "size 0": b"\x00\x00\x00\x00\x02\x00\x00\x00",
    "size over the maximum": OPEN + (1 << 20).to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(1000),
    "size 2^32-1": OPEN + b"\xff\xff\xff\xff\x02\x00\x00\x00",
    "offset 0": wire.frame(wire.open_(), offset=0),
    "offset 1": wire.frame(wire.open_(), offset=1),
    "offset beyond the frame": wire.frame(wire.open_(), offset=255),
    "a SASL frame": OPEN + wire.frame(wire.performative(0x41, wire.symbol("ANONYMOUS")), kind=1),
    "a SASL outcome": OPEN + wire.frame(wire.performative(0x44, wire.ubyte(0)), kind=1),
    "an unknown type": OPEN + wire.frame(wire.begin(), kind=2),
    # The performative
    "an unknown performative": OPEN + body(0x19, uint(0)),
    "a section in its place": OPEN + wire.frame(wire.message(3)),
    "no descriptor": OPEN + wire.frame(wire.list_of(NULL, uint(0), uint(1), uint(1))),
    "a map for a list": OPEN + wire.frame(wire.described(wire.BEGIN, wire.map_of(NULL, uint(0)))),
    "a number for a list": OPEN + wire.frame(wire.described(wire.BEGIN, uint(0))),
    "null for a list": OPEN + wire.frame(wire.described(wire.BEGIN, NULL)),
    "a described list": OPEN + wire.frame(wire.described(wire.BEGIN, wire.described(wire.BEGIN, b"\x45"))),
    "a described descriptor": OPEN + wire.frame(b"\x00\x00\x53\x11\x53\x11" + wire.list_of(NULL, uint(0))),
    "a list shorter than its count": OPEN + wire.frame(b"\x00\x53\x11\xc0\x02\x09\x40"),
    "a list longer than its count": OPEN
    + wire.frame(b"\x00\x53\x11\xc0" + bytes((len(uint(0)) * 3 + 2, 1)) + NULL + uint(0) * 3),
    "a list beyond the frame": OPEN + wire.frame(b"\x00\x53\x11\xc0\xff\x04" + NULL + uint(0) * 3),
    "a list of 2^32-1": OPEN + wire.frame(b"\x00\x53\x11" + ENDLESS),
    "cut in a field": OPEN + wire.frame(wire.begin()[:-2]),
    # Open
    "open without a container": body(wire.OPEN, NULL, text("h")),
    "open with nothing": body(wire.OPEN),
    "open of a number": body(wire.OPEN, uint(3)),
    "open with an odd map": body(wire.OPEN, text("c"), *([NULL] * 8), ODD_MAP),
    "open with arrays in arrays": body(wire.OPEN, text("c"), *([NULL] * 6), NESTED_ARRAY),
    # Begin
    "begin with nothing": OPEN + body(wire.BEGIN),
    "begin without windows": OPEN + body(wire.BEGIN, NULL, uint(0)),
    "begin with a text for a window": begin(incoming=text("10")),
    "begin with a uint for a channel": begin(remote=uint(0)),
    "begin with a null outgoing id": begin(next=NULL),
    # Attach
    "attach without a name": attach(name=NULL),
    "attach with a binary name": attach(name=wire.binary(b"l")),
    "attach without a handle": attach(handle=NULL),
    "attach with a ubyte for a handle": attach(handle=wire.ubyte(0)),
    "attach with a ulong for a handle": attach(handle=wire.ulong(0)),
    "attach without a role": attach(role=NULL),
    "attach with a number for a role": attach(role=uint(1)),
    "attach with 2 for true": attach(role=b"\x56\x02"),
    "attach with nothing": SESSION + body(wire.ATTACH),
    "attach with an endless source": attach(source=wire.described(0x28, ENDLESS)),
    "attach with a source described twice": attach(source=wire.described(0x28, wire.source("x"))),
    # Transfer
    "transfer with nothing": LINK + body(wire.TRANSFER),
    "transfer without a handle": transfer(handle=NULL),
    "transfer with a text for an id": transfer(id=text("0")),
    "transfer with a number for more": transfer(more=uint(1)),
    # The rest
    "flow with nothing": LINK + body(wire.FLOW),
    "flow without windows": LINK + body(wire.FLOW, uint(0), NULL, NULL, NULL),
    "flow with a text for credit": LINK
    + body(wire.FLOW, uint(0), uint(1), uint(0), uint(1), uint(0), uint(0), text("9")),
    "disposition with nothing": LINK + body(wire.DISPOSITION),
    "disposition without a first": LINK + body(wire.DISPOSITION, TRUE, NULL),
    "disposition with a text for its role": LINK + body(wire.DISPOSITION, text("me"), uint(0)),
    "detach with nothing": LINK + body(wire.DETACH),
    "detach with a text for a handle": LINK + body(wire.DETACH, text("0")),
    "end with a text for an error": SESSION + body(wire.END, text("x")),
    "close with a text for an error": OPEN + body(wire.CLOSE, text("x")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_closes_the_connection_with_a_condition(name: str, router: RunningRouter) -> None:
    assert send_to_router(router, MALFORMED[name]).startswith("amqp:")
