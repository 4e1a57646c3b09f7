"""Encodes AMQP 1.0 values, always in the shortest encoding. Pure. Source: AMQP 1.0 part 1."""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from router.amqp.decoding import MAX_DEPTH, MAX_ZERO_WIDTH_ELEMENTS, CodecError
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

_U32 = struct.Struct(">I")


class Encoded(bytes):
    """A value that is already encoded. It is copied unchanged into the value around it."""


def encoded_list(content: bytes | bytearray, count: int) -> bytes:
    """Returns the encoding of a list of `count` elements, whose encodings follow one another in `content`."""
    return b"\xd0" + _size32(len(content) + 4) + _size32(count) + content


def encode(value: Any) -> bytes:
    """Returns the shortest AMQP encoding of `value`. CodecError if it has none (see router/values.py for the forms)."""
    out = bytearray()
    _encode(value, out, 0)
    return bytes(out)


def _encode(value: Any, out: bytearray, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
    (_WRITERS.get(type(value)) or _writer_of(value))(value, out, depth)


def _writer_of(value: Any) -> "_Writer":
    writer = next((found for base, found in _BASES if isinstance(value, base)), None)
    if writer is None:
        raise CodecError(f"a {type(value).__name__} has no AMQP encoding")
    return writer


def _sized(out: bytearray, code8: int, content: bytes | bytearray) -> None:
    """Writes a value with its size. `code8` is the one-byte-size form; the four-byte form is always 0x10 above it."""
    if len(content) < 256:
        out += bytes((code8, len(content)))
    else:
        out.append(code8 + 0x10)
        out += _size32(len(content))
    out += content


def _size32(size: int) -> bytes:
    if size >= 2**32:
        raise CodecError("a value is longer than 4 GiB")
    return _U32.pack(size)


def _compound(out: bytearray, code8: int, count: int, content: bytearray) -> None:
    if len(content) < 255 and count < 256:
        out += bytes((code8, len(content) + 1, count))
    else:
        out.append(code8 + 0x10)
        out += _size32(len(content) + 4)
        out += _size32(count)
    out += content


def _text(value: str) -> bytes:
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise CodecError("a string holds a lone surrogate") from None


def _write_none(value: None, out: bytearray, depth: int) -> None:
    out.append(0x40)


def _write_bool(value: bool, out: bytearray, depth: int) -> None:
    out.append(0x41 if value else 0x42)


def _write_int(value: int, out: bytearray, depth: int) -> None:
    if not -(2**63) <= value < 2**63:
        raise CodecError("an integer does not fit 64 bits; use ulong for 2^63 and above")
    if -(2**31) <= value < 2**31:
        _write_signed(0x54, 0x71, ">i", value, out)
    else:
        _write_signed(0x55, 0x81, ">q", value, out)


def _write_signed(small: int, wide: int, layout: str, value: int, out: bytearray) -> None:
    if -128 <= value < 128:
        out += bytes((small, value & 0xFF))
    else:
        out.append(wide)
        out += struct.pack(layout, value)


def _write_uint(value: int, out: bytearray, depth: int) -> None:
    if value == 0:
        out.append(0x43)
    elif value < 256:
        out += bytes((0x52, value))
    else:
        out.append(0x70)
        out += struct.pack(">I", value)


def _write_ulong(value: int, out: bytearray, depth: int) -> None:
    if not value:
        out.append(0x44)
    elif value < 256:
        out += bytes((0x53, value))
    else:
        out.append(0x80)
        out += struct.pack(">Q", value)


def _write_long(value: int, out: bytearray, depth: int) -> None:
    _write_signed(0x55, 0x81, ">q", value, out)


def _write_str(value: str, out: bytearray, depth: int) -> None:
    _sized(out, 0xA1, _text(value))


def _write_symbol(value: str, out: bytearray, depth: int) -> None:
    _sized(out, 0xA3, value.encode("ascii"))


def _write_bytes(value: bytes, out: bytearray, depth: int) -> None:
    _sized(out, 0xA0, value)


def _write_encoded(value: Encoded, out: bytearray, depth: int) -> None:
    out += value


def _write_fixed(code: int, layout: str) -> Callable[[Any, bytearray, int], None]:
    def write(value: Any, out: bytearray, depth: int) -> None:
        out.append(code)
        out += struct.pack(layout, value)

    return write


def _write_char(value: str, out: bytearray, depth: int) -> None:
    out.append(0x73)
    out += value.encode("utf-32-be")


def _write_uuid(value: uuid.UUID, out: bytearray, depth: int) -> None:
    out.append(0x98)
    out += value.bytes


def _write_list(value: list[Any] | tuple[Any, ...], out: bytearray, depth: int) -> None:
    if not value:
        out.append(0x45)
        return
    if depth >= MAX_DEPTH:
        raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
    # The same as _encode, without a call for each element: management's replies are rows of many small values.
    content, writers = bytearray(), _WRITERS
    for element in value:
        (writers.get(type(element)) or _writer_of(element))(element, content, depth + 1)
    _compound(out, 0xC0, len(value), content)


def _write_map(value: dict[Any, Any], out: bytearray, depth: int) -> None:
    content = bytearray()
    for key, element in value.items():
        _encode(key, content, depth + 1)
        _encode(element, content, depth + 1)
    _compound(out, 0xC1, 2 * len(value), content)


def _write_described(value: Described, out: bytearray, depth: int) -> None:
    out.append(0)
    _encode(value.descriptor, out, depth + 1)
    _encode(value.value, out, depth + 1)


# All elements of an array share one constructor, so it is always the widest of the type.
_ARRAY_CODE: dict[type, tuple[int, str]] = {
    ubyte: (0x50, ">B"),
    ushort: (0x60, ">H"),
    uint: (0x70, ">I"),
    ulong: (0x80, ">Q"),
    byte: (0x51, ">b"),
    short: (0x61, ">h"),
    int_: (0x71, ">i"),
    int: (0x71, ">i"),
    long: (0x81, ">q"),
    timestamp: (0x83, ">q"),
    float_: (0x72, ">f"),
    float: (0x82, ">d"),
    bool: (0x56, ">?"),
    decimal32: (0x74, "4s"),
    decimal64: (0x84, "8s"),
    decimal128: (0x94, "16s"),
}


def _array_element(kind: type, element: Any, depth: int) -> bytes:
    """Returns the content of one element, without a constructor. Variable width always has a four-byte size."""
    layout = _ARRAY_CODE.get(kind)
    if layout is not None:
        return struct.pack(layout[1], element)
    if kind is char:
        return str(element).encode("utf-32-be")
    if kind is uuid.UUID:
        found: bytes = element.bytes
        return found
    if kind is str or kind is symbol or kind is bytes:
        raw = element if kind is bytes else _text(element)
        return _size32(len(raw)) + raw
    content = bytearray()
    if kind is Array:
        return _array_content(element, depth)
    if kind is list:
        for inner in element:
            _encode(inner, content, depth + 1)
        return _size32(len(content) + 4) + _size32(len(element)) + content
    for key, inner in element.items():
        _encode(key, content, depth + 1)
        _encode(inner, content, depth + 1)
    return _size32(len(content) + 4) + _size32(2 * len(element)) + content


_WIDE_CODE: dict[type, int] = {
    **{kind: code for kind, (code, _) in _ARRAY_CODE.items()},
    type(None): 0x40,
    char: 0x73,
    uuid.UUID: 0x98,
    bytes: 0xB0,
    str: 0xB1,
    symbol: 0xB3,
    list: 0xD0,
    dict: 0xD1,
    Array: 0xF0,
}


def _array_content(value: Array, depth: int) -> bytes:
    if depth >= MAX_DEPTH:
        raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
    code = _WIDE_CODE.get(value.type)
    if code is None:
        raise CodecError(f"an array cannot hold {value.type.__name__}")
    content = bytearray()
    if value.descriptor is not None:
        content.append(0)
        _encode(value.descriptor, content, depth + 1)
    content.append(code)
    if code == 0x40:
        if any(element is not None for element in value.values):
            raise CodecError("an array of null holds something else")
        if len(value.values) > MAX_ZERO_WIDTH_ELEMENTS:
            raise CodecError(f"arrays hold more than {MAX_ZERO_WIDTH_ELEMENTS} elements of width zero")
    else:
        for element in value.values:
            if not isinstance(element, int if value.type is int_ else value.type):
                raise CodecError(f"an array of {value.type.__name__} holds a {type(element).__name__}")
            try:
                content += _array_element(value.type, element, depth + 1)
            except struct.error:
                raise CodecError(f"an element of an array of {value.type.__name__} is out of range") from None
    return _size32(len(content) + 4) + _size32(len(value.values)) + content


def _write_array(value: Array, out: bytearray, depth: int) -> None:
    out.append(0xF0)
    out += _array_content(value, depth)


_Writer = Callable[[Any, bytearray, int], None]
_WRITERS: dict[type, _Writer] = {
    type(None): _write_none,
    bool: _write_bool,
    ubyte: _write_fixed(0x50, ">B"),
    ushort: _write_fixed(0x60, ">H"),
    uint: _write_uint,
    ulong: _write_ulong,
    byte: _write_fixed(0x51, ">b"),
    short: _write_fixed(0x61, ">h"),
    int_: _write_int,
    long: _write_long,
    timestamp: _write_fixed(0x83, ">q"),
    float_: _write_fixed(0x72, ">f"),
    float: _write_fixed(0x82, ">d"),
    char: _write_char,
    symbol: _write_symbol,
    uuid.UUID: _write_uuid,
    decimal32: _write_fixed(0x74, "4s"),
    decimal64: _write_fixed(0x84, "8s"),
    decimal128: _write_fixed(0x94, "16s"),
    int: _write_int,
    str: _write_str,
    bytes: _write_bytes,
    list: _write_list,
    tuple: _write_list,
    dict: _write_map,
    Array: _write_array,
    Described: _write_described,
    Encoded: _write_encoded,
}
# For subclasses (enums, ordered maps, bytearray ...): the first match in this order.
_BASES: tuple[tuple[type, _Writer], ...] = (
    (int, _write_int),
    (float, _write_fixed(0x82, ">d")),
    (str, _write_str),
    (bytes, _write_bytes),
    (bytearray, _write_bytes),
    (memoryview, _write_bytes),
    (dict, _write_map),
    (list, _write_list),
    (tuple, _write_list),
)
