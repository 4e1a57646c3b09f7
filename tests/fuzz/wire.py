"""AMQP frames byte by byte, right and wrong ones: a second encoder, that holds nobody to any rule."""

import struct
from typing import Final

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
NAMES: Final = ("open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close")
HEADER: Final = b"AMQP\x00\x01\x00\x00"
NULL: Final = b"\x40"
TRUE, FALSE = b"\x41", b"\x42"
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def uint(value: int) -> bytes:
    value &= 0xFFFFFFFF
    return b"\x43" if value == 0 else bytes((0x52, value)) if value < 256 else b"\x70" + value.to_bytes(4, "big")


def ulong(value: int) -> bytes:
    return b"\x44" if value == 0 else bytes((0x53, value)) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def ushort(value: int) -> bytes:
    return b"\x60" + (value & 0xFFFF).to_bytes(2, "big")


def ubyte(value: int) -> bytes:
    return bytes((0x50, value & 0xFF))


def boolean(value: bool) -> bytes:
    return TRUE if value else FALSE


def _sized(short: int, long: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((short, len(data))) + data
    return bytes((long,)) + len(data).to_bytes(4, "big") + data


def text(value: str) -> bytes:
    return _sized(0xA1, 0xB1, value.encode())


def symbol(value: str) -> bytes:
    return _sized(0xA3, 0xB3, value.encode())


def binary(value: bytes) -> bytes:
    return _sized(0xA0, 0xB0, value)


def _compound(short: int, long: int, count: int, body: bytes) -> bytes:
    if count < 256 and len(body) < 255:
        return bytes((short, len(body) + 1, count)) + body
    return struct.pack(">BII", long, len(body) + 4, count) + body


def list_of(*items: bytes) -> bytes:
    return _compound(0xC0, 0xD0, len(items), b"".join(items)) if items else b"\x45"


def map_of(*items: bytes) -> bytes:
    """Keys and values in turn; nobody counts them."""
    return _compound(0xC1, 0xD1, len(items), b"".join(items))


def described(code: int, value: bytes) -> bytes:
    return b"\x00" + ulong(code) + value


def performative(code: int, *fields: bytes) -> bytes:
    kept = len(fields)
    while kept and fields[kept - 1] == NULL:
        kept -= 1
    return described(code, list_of(*fields[:kept]))


def frame(body: bytes, channel: int = 0, *, kind: int = 0, offset: int = 2, size: int | None = None) -> bytes:
    """size  what the header says; the true size when None"""
    said = len(body) + 8 if size is None else size
    return struct.pack(">IBBH", said & 0xFFFFFFFF, offset, kind, channel & 0xFFFF) + body


def source(address: str | None, *, is_dynamic: bool = False, filters: bytes = NULL) -> bytes:
    where = NULL if address is None else text(address)
    dynamic = TRUE if is_dynamic else NULL
    return performative(0x28, where, NULL, NULL, NULL, dynamic, NULL, NULL, filters)


def target(address: str | None, *, is_dynamic: bool = False) -> bytes:
    where = NULL if address is None else text(address)
    return performative_of_terminus(0x29, where, is_dynamic)


def performative_of_terminus(code: int, address: bytes, is_dynamic: bool) -> bytes:
    return performative(code, address, NULL, NULL, NULL, TRUE if is_dynamic else NULL)


def open_(container: str = "c", hostname: str | None = None, *, max_frame: int = 65536, channels: int = 100) -> bytes:
    where = NULL if hostname is None else text(hostname)
    return performative(OPEN, text(container), where, uint(max_frame), ushort(channels))


def begin(
    remote: int | None = None, *, next_id: int = 0, incoming: int = 2048, outgoing: int = 2048,
    handle_max: int | None = None,
) -> bytes:  # fmt: skip
    answer = NULL if remote is None else ushort(remote)
    most = NULL if handle_max is None else uint(handle_max)
    return performative(BEGIN, answer, uint(next_id), uint(incoming), uint(outgoing), most)


def attach(
    name: str, handle: int, *, is_receiver: bool, address: str | None = "a", is_dynamic: bool = False,
    filters: bytes = NULL, unsettled: bytes = NULL, capabilities: bytes = NULL, properties: bytes = NULL,
) -> bytes:  # fmt: skip
    ours, theirs = ("to", address) if is_receiver else (address, "from")
    return performative(
        ATTACH, text(name), uint(handle), boolean(is_receiver), NULL, NULL,
        source(theirs, is_dynamic=is_dynamic and is_receiver, filters=filters),
        target(ours, is_dynamic=is_dynamic and not is_receiver),
        unsettled, NULL, NULL if is_receiver else uint(0), NULL, capabilities, capabilities, properties,
    )  # fmt: skip


def flow(
    handle: int | None = None, *, credit: int = 0, count: int | None = None, next_in: int | None = 0,
    window: int = 2048, next_out: int = 0, drain: bool = False, echo: bool = False,
) -> bytes:  # fmt: skip
    head = (NULL if next_in is None else uint(next_in), uint(window), uint(next_out), uint(2048))
    if handle is None:
        return performative(FLOW, *head, NULL, NULL, NULL, NULL, NULL, boolean(echo))
    counted = NULL if count is None else uint(count)
    return performative(FLOW, *head, uint(handle), counted, uint(credit), NULL, boolean(drain), boolean(echo))


def transfer(
    handle: int, delivery_id: int | None, payload: bytes = b"", *, is_last: bool = True,
    is_settled: bool | None = False, is_aborted: bool = False, state: bytes = NULL, tag: bytes | None = None,
) -> bytes:  # fmt: skip
    number = NULL if delivery_id is None else uint(delivery_id)
    name = NULL if delivery_id is None and tag is None else binary(tag or (delivery_id or 0).to_bytes(8, "big"))
    settled = NULL if is_settled is None else boolean(is_settled)
    fields = (uint(handle), number, name, uint(0), settled, boolean(not is_last), NULL, state, NULL,
              TRUE if is_aborted else NULL)  # fmt: skip
    return performative(TRANSFER, *fields) + payload


def disposition(
    *, is_receiver: bool, first: int, last: int | None = None, is_settled: bool = True, state: bytes = NULL
) -> bytes:
    until = NULL if last is None else uint(last)
    return performative(DISPOSITION, boolean(is_receiver), uint(first), until, boolean(is_settled), state)


def detach(handle: int, *, is_closed: bool = True, error: bytes = NULL) -> bytes:
    return performative(DETACH, uint(handle), boolean(is_closed), error)


def end(error: bytes = NULL) -> bytes:
    return performative(END, error)


def close(error: bytes = NULL) -> bytes:
    return performative(CLOSE, error)


def error(condition: str, description: str = "", info: bytes = NULL) -> bytes:
    return performative(0x1D, symbol(condition), text(description), info)


ACCEPTED, RELEASED = performative(0x24), performative(0x26)
REJECTED = performative(0x25, error("amqp:x", "no"))
MODIFIED = performative(0x27, TRUE, TRUE, map_of(symbol("k"), text("v")))
RECEIVED = performative(0x23, uint(0), ulong(0))
TRANSACTIONAL = performative(0x34, binary(b"t"))


def message(size: int) -> bytes:
    """A message with one data section of `size` bytes."""
    return b"\x00\x53\x75" + binary(bytes(size))


def describe(data: bytes) -> str:
    """One frame in words, for reports: `ch 1 begin 00531145`."""
    if len(data) < 8:
        return data.hex()
    channel, body = int.from_bytes(data[6:8], "big"), data[8:]
    known = body[:2] == b"\x00\x53" and len(body) > 2 and 0x10 <= body[2] <= 0x18
    name = NAMES[body[2] - 0x10] if known else "?"
    return f"ch {channel} {name} {data.hex() if len(data) < 400 else data[:400].hex() + '…'}"
