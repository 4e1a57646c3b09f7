"""router.amqp.layout.front in Python: what the compiled one is compared with."""

from functools import partial
from struct import Struct
from typing import Final

from router.amqp.layout.front import (
    ASKS,
    AT_SHIFT,
    FEWEST_BYTES,
    LONGEST_BYTES,
    LOOK_CLOSER,
    PLACE_SHIFT,
    PLACES,
    SIZE_MASK,
    USUAL,
    Front,
    annotations_in,
    header_end,
)
from router.amqp.sections import FOOTER, PROPERTIES, find_properties
from router.amqp.sections import LOOK_CLOSER as NOT_USUAL

_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0
_DEFAULT_PRIORITY, _MAX_PRIORITY = 4, 9
_REPLY_TO, _NULL = 4, 0x40  # its place among the properties; a field that is absent
_u32_at = Struct(">I").unpack_from


def _priority_in(buffer: bytearray, end: int) -> int:
    """The priority in a header that ends at `end`; LOOK_CLOSER."""
    if not end or buffer[3] == _LIST0:
        return _DEFAULT_PRIORITY
    at = 6 if buffer[3] == _LIST8 else 12
    if at > end:
        return LOOK_CLOSER
    count = buffer[5] if at == 6 else int(_u32_at(buffer, 8)[0])
    if count < 2:
        return _DEFAULT_PRIORITY
    if at >= end:
        return LOOK_CLOSER
    width = {0x40: 1, 0x41: 1, 0x42: 1, 0x56: 2}.get(buffer[at])  # durable
    if width is None or (at := at + width) >= end:
        return LOOK_CLOSER
    if buffer[at] == 0x40:
        return _DEFAULT_PRIORITY
    return min(buffer[at + 1], _MAX_PRIORITY) if buffer[at] == 0x50 and at + 1 < end else LOOK_CLOSER


def _front(buffer: bytearray, size: int) -> int:
    if size < FEWEST_BYTES:
        return LOOK_CLOSER
    at = header_end(buffer, size)
    if at < 0 or at + 4 > size:
        return LOOK_CLOSER
    priority = _priority_in(buffer, at)
    is_next = buffer[at] == 0 and buffer[at + 1] == 0x53 and PROPERTIES <= buffer[at + 2] <= FOOTER
    if priority < 0 or not is_next:
        return LOOK_CLOSER
    return at << AT_SHIFT | (ASKS if _may_ask(buffer, at, size) else 0) | priority


def _property_size(buffer: bytearray, at: int, room: int) -> int:
    """How many bytes a value of the properties before the reply-to takes, of at most `room`; 0: it is no usual one."""
    kind, size = buffer[at] >> 4, 0
    if 0x4 <= kind <= 0x9:
        size = 1 if kind == 0x4 else 1 + (1 << (kind - 5))
    elif kind == 0xA and room > 1:
        size = 2 + buffer[at + 1]
    elif kind == 0xB and room > 4:
        size = 5 + int(_u32_at(buffer, at + 1)[0])
    return size if size <= room else 0


def _may_ask(buffer: bytearray, at: int, size: int) -> bool:
    """Has the message a reply-to, in properties that begin at `at`? Those that are not written as most are may have."""
    if buffer[at + 2] != PROPERTIES:
        return False
    form = buffer[at + 3]
    if form == _LIST0:
        return False
    value = at + (6 if form == _LIST8 else 12)
    if form not in (_LIST8, _LIST32) or value > size:
        return True
    count = buffer[at + 5] if form == _LIST8 else int(_u32_at(buffer, at + 8)[0])
    if count <= _REPLY_TO:
        return False
    for _ in range(_REPLY_TO):
        width = _property_size(buffer, value, size - value) if value < size else 0
        if not width:
            return True
        value += width
    return value >= size or buffer[value] != _NULL


class PythonKnown:
    """Known where front.c is not compiled."""

    __slots__ = ("_buffer", "_places")

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._places: dict[bytes, int] = {}

    def peel(self, size: int, /) -> int:
        buffer = self._buffer
        at, end = annotations_in(buffer, size) if size <= SIZE_MASK else (0, LOOK_CLOSER)
        if end < 0:
            return LOOK_CLOSER
        place = self._places.get(bytes(buffer[at:end]))
        if place is None:
            return LOOK_CLOSER
        rest = size - end + at
        memoryview(buffer)[at:rest] = buffer[end:size]
        is_usual = find_properties(buffer, rest) != NOT_USUAL
        return place << PLACE_SHIFT | (USUAL if is_usual else 0) | rest

    def remember(self, section: bytes, /) -> int:
        if not FEWEST_BYTES <= len(section) <= LONGEST_BYTES:
            return -1
        if section not in self._places and len(self._places) >= PLACES:
            self._places.clear()
        return self._places.setdefault(section, len(self._places))


PYTHON: Final = Front(PythonKnown, lambda buffer: partial(_front, buffer))
