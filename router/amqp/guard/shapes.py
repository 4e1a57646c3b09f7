"""Checks that a value is built as AMQP 1.0 §1.2 to §1.6 says, at all levels. Pure. Nothing is decoded.

The AMQP engine cuts off a size that is too large, and trusts sizes more than counts. After a described value that is
described again it continues at the wrong place. All programs read a value that passes this check in the same way.
"""

from typing import Final

from router.amqp.decoding import MAX_DEPTH, Buffer, CodecError

# The bytes of content by the high nibble of a constructor of fixed width.
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_KNOWN: Final = frozenset(
    (
        *(0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72),
        *(0x73, 0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0),
        *(0xD1, 0xE0, 0xF0),
    )
)
_BYTES: Final = {code: 1 + _FIXED[code >> 4] for code in _KNOWN if code < 0xA0}  # including the constructor
_MAPS, _ARRAYS = (0xC1, 0xD1), (0xE0, 0xF0)
_LIST_WIDTH: Final = {0xC0: 1, 0xD0: 4}  # bytes of a list's size, and of its number of elements
_NULL: Final = 0x40
_ANY: Final = 2**63  # for values that are already counted


class TooManyValues(CodecError):
    """Compound values contain more elements than allowed."""


class Room:
    """The number of elements that compound values may still contain, all together.

    A described value counts as three.
    """

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, count: int) -> None:
        """Errors: TooManyValues"""
        self.left -= count
        if self.left < 0:
            raise TooManyValues("too many elements")


def measure(data: Buffer, at: int, limit: int, room: Room, depth: int = 0) -> int:
    """Returns the offset after the value at `at`, which must end by `limit`. Errors: CodecError, TooManyValues."""
    if at >= limit:
        raise CodecError("the value is cut short")
    code = data[at]
    if code != 0:
        return _content(data, code, at + 1, limit, room, depth)
    if limit - at < 3 or data[at + 1] == 0:
        raise CodecError("a descriptor is missing or is itself described")
    room.take(2)
    value = measure(data, at + 1, limit, room, depth + 1)
    if value >= limit or data[value] == 0:
        raise CodecError("a described value is missing or is described again")
    return measure(data, value, limit, room, depth + 1)


def _content(data: Buffer, code: int, at: int, limit: int, room: Room, depth: int) -> int:
    """Returns the offset after the content at `at` of a value whose constructor is `code`."""
    if code not in _KNOWN:
        raise CodecError(f"0x{code:02x} is no AMQP format code")
    if code < 0xA0:
        end = at + _FIXED[code >> 4]
        if end > limit:
            raise CodecError("the value is cut short")
        return end
    width = 1 if code >> 4 in (0xA, 0xC, 0xE) else 4
    start = at + width
    end = start + int.from_bytes(data[at:start], "big")
    if start > limit or end > limit:
        raise CodecError("the value is cut short")
    if code >= 0xC0:
        if depth >= MAX_DEPTH:
            raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
        first = start + width
        if first > end:
            raise CodecError("a compound value has no room for its element count")
        count = int.from_bytes(data[start:first], "big")
        behind = _elements(data, code, count, first, end, room, depth + 1)
        if behind != end:
            raise CodecError("a compound value is longer than its elements")
    return end


def _elements(data: Buffer, code: int, count: int, at: int, end: int, room: Room, depth: int) -> int:
    if code in _ARRAYS:
        return _array(data, count, at, end, room, depth)
    if code in _MAPS and count & 1:
        raise CodecError("a map has a key without a value")
    # Each element takes at least one byte. This prevents a long loop over a false count.
    if count > end - at:
        raise CodecError("a compound value claims more elements than it has bytes")
    room.take(count)
    for _ in range(count):
        # This avoids a call for each of thousands of small elements. A cut element ends past `end`, which is checked
        # later.
        size = _BYTES.get(data[at]) if at < end else None
        at = at + size if size is not None else measure(data, at, end, room, depth)
    return at


def _array(data: Buffer, count: int, at: int, end: int, room: Room, depth: int) -> int:
    if at < end and data[at] == 0:
        room.take(2)
        at = measure(data, at + 1, end, room, depth)
    if at >= end or data[at] not in _KNOWN:
        raise CodecError("an array has no constructor")
    code = data[at]
    at += 1
    if code < 0xA0:
        room.take(count)
        return at + count * _FIXED[code >> 4]
    if count > end - at:
        raise CodecError("an array claims more elements than it has bytes")
    room.take(count)
    for _ in range(count):
        at = _content(data, code, at, end, room, depth)
    return at


def field_of(described: bytes, index: int) -> bytes:
    """Returns one encoded field of a described list that has passed `measure`; empty if it is null or absent."""
    if not described:
        return b""
    end, room = len(described), Room(_ANY)
    at = measure(described, 1, end, room)
    width = _LIST_WIDTH.get(described[at])
    if width is None:
        return b""
    first = at + 1 + 2 * width
    if index >= int.from_bytes(described[at + 1 + width : first], "big"):
        return b""
    at = first
    for _ in range(index):
        at = measure(described, at, end, room)
    return b"" if described[at] == _NULL else described[at : measure(described, at, end, room)]
