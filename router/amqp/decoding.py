"""Decodes AMQP 1.0 values. Pure, strict, bounded: the only exception on any input is CodecError.

Every value has one Python form, see router/values.py. Source: AMQP 1.0 part 1.
"""

import struct
import uuid
from typing import Any

from router.values import (
    Array,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float_,
    int_,
    long,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

Buffer = bytes | bytearray | memoryview

# Attack: nesting bombs (lists in lists, descriptors of descriptors) exhaust the interpreter's stack.
MAX_DEPTH = 32
# The limit for each decode() call. Attack: a few bytes that claim 2^32 elements of width zero (an array of null, true,
# list0). All other elements take at least one byte of the input, so the caller's limit on the input limits them.
MAX_ZERO_WIDTH_ELEMENTS = 4096
# Used without a limit of the caller: the bytes limit the values.
_ANY_COUNT = 2**63


class CodecError(ValueError):
    """The bytes are not a well-formed AMQP value, or the value has no AMQP encoding. The text contains no payload."""


_FIXED: dict[int, tuple[struct.Struct, type]] = {
    0x50: (struct.Struct(">B"), ubyte),
    0x60: (struct.Struct(">H"), ushort),
    0x70: (struct.Struct(">I"), uint),
    0x52: (struct.Struct(">B"), uint),
    0x80: (struct.Struct(">Q"), ulong),
    0x53: (struct.Struct(">B"), ulong),
    0x51: (struct.Struct(">b"), byte),
    0x61: (struct.Struct(">h"), short),
    0x71: (struct.Struct(">i"), int_),
    0x54: (struct.Struct(">b"), int_),
    0x81: (struct.Struct(">q"), long),
    0x55: (struct.Struct(">b"), long),
    0x83: (struct.Struct(">q"), timestamp),
    0x72: (struct.Struct(">f"), float_),
    0x82: (struct.Struct(">d"), float),
    0x74: (struct.Struct("4s"), decimal32),
    0x84: (struct.Struct("8s"), decimal64),
    0x94: (struct.Struct("16s"), decimal128),
}
_CONSTANT: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: uint(0), 0x44: ulong(0)}
_ARRAY_TYPE: dict[int, type] = {
    **{code: made for code, (_, made) in _FIXED.items()},
    0x40: type(None),
    0x41: bool,
    0x42: bool,
    0x43: uint,
    0x44: ulong,
    0x45: list,
    0x56: bool,
    0x73: char,
    0x98: uuid.UUID,
    0xA0: bytes,
    0xB0: bytes,
    0xA1: str,
    0xB1: str,
    0xA3: symbol,
    0xB3: symbol,
    0xC0: list,
    0xD0: list,
    0xC1: dict,
    0xD1: dict,
    0xE0: Array,
    0xF0: Array,
}
# The bytes after the constructor, by the high nibble of the format code. For A to F the width of the size that follows.
_WIDTH = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16, 0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
_SKIP: dict[int, tuple[int, bool]] = {code: (_WIDTH[code >> 4], code >= 0xA0) for code in _ARRAY_TYPE}

CONSTRUCTORS = frozenset(_ARRAY_TYPE)  # constructors of values that are not described

_U32 = struct.Struct(">I")


def decode(data: Buffer, offset: int = 0) -> tuple[Any, int]:
    """Returns the value that starts at `offset`, and the offset after it.

    Map keys may be null, booleans, integers, text and binary. Other keys are refused. Compound keys have no Python
    form. An attacker can choose uuids and described values whose hashes collide, so that a map of them costs quadratic
    time. Keys must also differ as Python values: 1 and true are one key.
    """
    if not 0 <= offset <= len(data):
        raise CodecError(f"offset {offset} is outside the {len(data)} bytes given")
    return _Decoder(data, _ANY_COUNT).value(offset, len(data), 0)


def decode_counted(data: Buffer, offset: int, max_values: int) -> tuple[Any, int, int]:
    """Decodes like `decode`, and also returns the number of values: elements of compound values, and descriptors.

    Accepts at most `max_values` of them. A value of one or two bytes takes a microsecond, and about fifty bytes of
    memory. If the caller limits only the bytes, a megabyte of such values takes a second.
    """
    decoder = _Decoder(data, max_values)
    value, end = decoder.value(offset, len(data), 0)
    return value, end, max_values - decoder.values_left


def skip_width(data: Buffer, code: int, offset: int) -> int:
    """Returns the end of the value whose constructor `code` is before `offset`. It may be after the end of the data.

    Errors  CodecError: no such constructor, or its size is cut short.
    """
    entry = _SKIP.get(code)
    if entry is None:
        raise CodecError(f"0x{code:02x} is no AMQP format code")
    width, is_sized = entry
    if not is_sized:
        return offset + width
    if offset + width > len(data):
        raise CodecError("the value is cut short")
    return offset + width + (data[offset] if width == 1 else int(_U32.unpack_from(data, offset)[0]))


def skip(data: Buffer, offset: int = 0) -> int:
    """Returns the offset after the value that starts at `offset`.

    Reads only constructors and sizes, so the content of a compound value is not checked.
    """
    end = len(data)
    if offset < 0:
        raise CodecError(f"offset {offset} is negative")
    pending = 1
    while pending:
        if offset >= end:
            raise CodecError("the value is cut short")
        code = data[offset]
        offset += 1
        if code == 0:  # described: descriptor and value follow
            pending += 1
            continue
        entry = _SKIP.get(code)
        if entry is None:
            raise CodecError(f"0x{code:02x} is no AMQP format code")
        width, is_sized = entry
        if is_sized:
            if offset + width > end:
                raise CodecError("the value is cut short")
            size = data[offset] if width == 1 else _U32.unpack_from(data, offset)[0]
            offset += size
        offset += width
        if offset > end:
            raise CodecError("the value is cut short")
        pending -= 1
    return offset


class _Decoder:
    """One decode() call. `limit` is the end of the innermost enclosing value: nothing after it is read."""

    __slots__ = ("data", "values_left", "zero_width_left")

    def __init__(self, data: Buffer, max_values: int) -> None:
        self.data = data
        self.values_left = max_values
        self.zero_width_left = MAX_ZERO_WIDTH_ELEMENTS

    def count(self, values: int) -> None:
        self.values_left -= values
        if self.values_left < 0:
            raise CodecError("it holds more values than are accepted here")

    def value(self, offset: int, limit: int, depth: int) -> tuple[Any, int]:
        if depth > MAX_DEPTH:
            raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
        if offset >= limit:
            raise CodecError("the value is cut short")
        code = self.data[offset]
        if code == 0:
            self.count(1)
            descriptor, offset = self.value(offset + 1, limit, depth + 1)
            value, offset = self.value(offset, limit, depth + 1)
            return Described(descriptor, value), offset
        return self.content(code, offset + 1, limit, depth)

    def content(self, code: int, offset: int, limit: int, depth: int) -> tuple[Any, int]:
        """Returns the value with the constructor `code` and its content at `offset`, and the offset after it."""
        data = self.data
        fixed = _FIXED.get(code)
        if fixed is not None:
            layout, made = fixed
            end = offset + layout.size
            if end > limit:
                raise CodecError("the value is cut short")
            return made(layout.unpack_from(data, offset)[0]), end
        if code in _CONSTANT:
            return _CONSTANT[code], offset
        if code == 0x45:
            return [], offset
        if code == 0x56:
            if offset >= limit:
                raise CodecError("the value is cut short")
            if data[offset] > 1:
                raise CodecError("a boolean is 0x00 or 0x01")
            return data[offset] == 1, offset + 1
        if code == 0x73 or code == 0x98:
            end = offset + (4 if code == 0x73 else 16)
            if end > limit:
                raise CodecError("the value is cut short")
            raw = bytes(data[offset:end])
            if code == 0x98:
                return uuid.UUID(bytes=raw), end
            try:
                return char(raw.decode("utf-32-be")), end
            except ValueError:
                raise CodecError("a char is not a Unicode code point") from None
        return self.sized(code, offset, limit, depth)

    def sized(self, code: int, offset: int, limit: int, depth: int) -> tuple[Any, int]:
        entry = _SKIP.get(code)
        if entry is None or not entry[1]:
            raise CodecError(f"0x{code:02x} is no AMQP format code")
        width = entry[0]
        start = offset + width
        if start > limit:
            raise CodecError("the value is cut short")
        end = start + self.unsigned(offset, width)
        if end > limit:
            raise CodecError("the value is cut short")
        if code >= 0xC0:
            if start + width > end:
                raise CodecError("a compound value has no room for its element count")
            count = self.unsigned(start, width)
            if code >= 0xE0:
                return self.array(count, start + width, end, depth), end
            if code & 1:
                return self.map(count, start + width, end, depth), end
            return self.list(count, start + width, end, depth), end
        kind = code & 0x0F
        if kind == 0:
            return bytes(self.data[start:end]), end
        try:
            if kind == 1:
                return str(self.data[start:end], "utf-8"), end
            return symbol(str(self.data[start:end], "ascii")), end
        except UnicodeDecodeError:
            raise CodecError("a string is not UTF-8" if kind == 1 else "a symbol is not ASCII") from None

    def unsigned(self, offset: int, width: int) -> int:
        if width == 1:
            return self.data[offset]
        found: int = _U32.unpack_from(self.data, offset)[0]
        return found

    def list(self, count: int, offset: int, end: int, depth: int) -> list[Any]:
        # Each element takes at least one byte. Refusing here prevents a long loop over a false count.
        if count > end - offset:
            raise CodecError("a list claims more elements than it has bytes")
        self.count(count)
        found = []
        for _ in range(count):
            element, offset = self.value(offset, end, depth + 1)
            found.append(element)
        if offset != end:
            raise CodecError("a list is longer than its elements")
        return found

    def map(self, count: int, offset: int, end: int, depth: int) -> dict[Any, Any]:
        if count & 1:
            raise CodecError("a map has a key without a value")
        if count > end - offset:
            raise CodecError("a map claims more elements than it has bytes")
        self.count(count)
        found: dict[Any, Any] = {}
        for _ in range(count // 2):
            key, offset = self.value(offset, end, depth + 1)
            if not (key is None or isinstance(key, str | int | bytes)):
                raise CodecError("a map key is neither text, integer, boolean, binary nor null")
            if key in found:
                raise CodecError("a map has two equal keys")
            found[key], offset = self.value(offset, end, depth + 1)
        if offset != end:
            raise CodecError("a map is longer than its elements")
        return found

    def array(self, count: int, offset: int, end: int, depth: int) -> Array:
        if depth >= MAX_DEPTH:
            raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
        if offset >= end:
            raise CodecError("an array has no constructor")
        code = self.data[offset]
        offset += 1
        descriptor = None
        if code == 0:
            descriptor, offset = self.value(offset, end, depth + 1)
            if offset >= end:
                raise CodecError("an array has no constructor")
            code = self.data[offset]
            offset += 1
            if descriptor is None:
                raise CodecError("an array's descriptor is null")
        kind = _ARRAY_TYPE.get(code)
        if kind is None:
            raise CodecError(f"0x{code:02x} is no AMQP format code for array elements")
        if code < 0x50:
            self.zero_width_left -= count
            if self.zero_width_left < 0:
                raise CodecError(f"arrays hold more than {MAX_ZERO_WIDTH_ELEMENTS} elements of width zero")
        elif count > end - offset:
            raise CodecError("an array claims more elements than it has bytes")
        self.count(count)
        found = []
        for _ in range(count):
            element, offset = self.content(code, offset, end, depth + 1)
            found.append(element)
        if offset != end:
            raise CodecError("an array is longer than its elements")
        return Array(kind, tuple(found), descriptor)
