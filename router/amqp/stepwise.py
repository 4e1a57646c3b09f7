"""Decodes and encodes long values in steps, so that ten thousand addresses do not delay messages.

A step takes less than a tenth of a millisecond. Reading is as strict as `decoding`. Long lists and maps may contain
long lists, maps and texts, but no other long values.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

from router.amqp.decoding import _U32, MAX_DEPTH, Buffer, CodecError, _Decoder
from router.amqp.encoding import encode
from router.values import int_

# The number of values in a step.
AT_ONCE: Final = 128
# A value of fewer bytes is read at once. A longer value must be a list, a map or a text.
_SHORT_BYTES: Final = 256
_LISTS_AND_MAPS: Final = frozenset((0xC0, 0xC1, 0xD0, 0xD1))
_TEXTS: Final = frozenset((0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3))
_SMALL: Final = tuple(int_(code - 256 if code > 127 else code) for code in range(256))
_WRITTEN: Final = tuple(bytes((0x54, code)) for code in range(256))


def decode_in_steps(data: Buffer, offset: int, max_values: int) -> Generator[None, None, tuple[Any, int]]:
    """Decodes like `decode`, and yields at least every AT_ONCE values. Returns the value and the offset after it.

    max_values  accepted in all its lists, maps and arrays together
    """
    return (yield from _value(_Decoder(data, max_values), offset, len(data), 0))


def _value(decoder: _Decoder, offset: int, limit: int, depth: int) -> Generator[None, None, tuple[Any, int]]:
    data = decoder.data
    if offset >= limit:
        raise CodecError("the value is cut short")
    code = data[offset]
    if code in _TEXTS:
        return decoder.value(offset, limit, depth)
    width = 4 if code >= 0xD0 else 1
    start = offset + 1 + width
    if code not in _LISTS_AND_MAPS or start + width > limit:
        # Attack: an array or a descriptor that takes long.
        return decoder.value(offset, min(limit, offset + _SHORT_BYTES), depth)
    end = start + decoder.unsigned(offset + 1, width)
    if end - offset <= _SHORT_BYTES or end > limit or start + width > end:
        return decoder.value(offset, limit, depth)
    if depth >= MAX_DEPTH:
        raise CodecError(f"values are nested more than {MAX_DEPTH} deep")
    count = decoder.unsigned(start, width)
    if count > end - start - width:
        raise CodecError("a list or map claims more elements than it has bytes")
    decoder.count(count)
    return (yield from (_map if code & 1 else _list)(decoder, count, start + width, end, depth)), end


def _list(decoder: _Decoder, count: int, offset: int, end: int, depth: int) -> Generator[None, None, list[Any]]:
    data, found = decoder.data, list[Any]()
    for number in range(1, count + 1):
        code = data[offset] if offset < end else -1
        if code == 0xA1 and (last := offset + 2 + (data[offset + 1] if offset + 1 < end else 0)) <= end:
            # A fast path for the usual elements.
            try:
                found.append(str(data[offset + 2 : last], "utf-8"))
            except UnicodeDecodeError:
                raise CodecError("a string is not UTF-8") from None
            offset = last
        elif code == 0x54 and offset + 2 <= end:
            found.append(_SMALL[data[offset + 1]])
            offset += 2
        else:
            element, offset = yield from _value(decoder, offset, end, depth + 1)
            found.append(element)
            if code in _LISTS_AND_MAPS or code in _TEXTS:
                yield
        if number % AT_ONCE == 0:
            yield
    if offset != end:
        raise CodecError("a list is longer than its elements")
    return found


def _map(decoder: _Decoder, count: int, offset: int, end: int, depth: int) -> Generator[None, None, dict[Any, Any]]:
    if count & 1:
        raise CodecError("a map has a key without a value")
    found: dict[Any, Any] = {}
    for number in range(count // 2):
        key, offset = yield from _value(decoder, offset, end, depth + 1)
        if not (key is None or isinstance(key, str | int | bytes)):
            raise CodecError("a map key is neither text, integer, boolean, binary nor null")
        if key in found:
            raise CodecError("a map has two equal keys")
        code = decoder.data[offset] if offset < end else -1
        found[key], offset = yield from _value(decoder, offset, end, depth + 1)
        if number % AT_ONCE == 0 or code in _LISTS_AND_MAPS or code in _TEXTS:
            yield
    if offset != end:
        raise CodecError("a map is longer than its elements")
    return found


def encode_wide(value: Any) -> bytes:
    """Encodes `value` with all its maps and lists in their wide form, whatever their size."""
    kind = type(value)
    if kind is str:
        text: bytes = value.encode()
        return bytes((0xA1, len(text))) + text if len(text) < 256 else encode(value)
    if kind is int_ and -128 <= value <= 127:
        code: int = value & 255
        return _WRITTEN[code]
    if isinstance(value, dict):
        return _compound(0xD1, b"".join(encode_wide(part) for pair in value.items() for part in pair), 2 * len(value))
    if isinstance(value, list | tuple):
        return _compound(0xD0, b"".join(map(encode_wide, value)), len(value))
    return encode(value)


def encode_wide_in_steps(value: Mapping[Any, Any]) -> Generator[None, None, bytes]:
    """Encodes a map like `encode_wide`, but in steps: some values may be long lists. Yields every AT_ONCE elements."""
    content = bytearray()
    for key, part in value.items():
        content += encode_wide(key)
        if not isinstance(part, list):
            content += encode_wide(part)
            continue
        elements = bytearray()
        for at in range(0, len(part), AT_ONCE):
            elements += b"".join(map(encode_wide, part[at : at + AT_ONCE]))
            yield
        content += _compound(0xD0, elements, len(part))
    return _compound(0xD1, content, 2 * len(value))


def _compound(code: int, content: bytes | bytearray, count: int) -> bytes:
    sizes: bytes = _U32.pack(len(content) + 4) + _U32.pack(count)
    return bytes((code,)) + sizes + content
