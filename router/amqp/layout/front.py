"""What stands in front of a message that passes between routers, as front.c does it, which serves where it is compiled.

`PALISADE_ENGINE=python` in the environment chooses this one.
"""

import os
import secrets
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from router.amqp.sections import FOOTER, PROPERTIES, find_properties
from router.amqp.sections import LOOK_CLOSER as NOT_USUAL

# Instead of what a function returns: the message is written in another way, or its annotations are not known.
LOOK_CLOSER: Final = -1
# What `peel` returns has these parts; as in front.c.
SIZE_MASK, USUAL, PLACE_SHIFT = (1 << 20) - 1, 1 << 20, 21
# What `front` returns has these parts; as in front.c.
PRIORITY_MASK, ASKS, AT_SHIFT = 15, 16, 5
# Sections that are known, and the longest of them.
PLACES, LONGEST_BYTES = 256, 512

_HEADER: Final = 0x005370
_SMALL_ANNOTATIONS, _LARGE_ANNOTATIONS = 0x005372C1, 0x005372D1
_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0
_DEFAULT_PRIORITY, _MAX_PRIORITY = 4, 9
_REPLY_TO, _NULL = 4, 0x40  # its place among the properties; a field that is absent
_FEWEST_BYTES: Final = 8
_u32_at = Struct(">I").unpack_from


class Known(Protocol):
    """The annotations of earlier messages, of one neighbour."""

    def __init__(self, buffer: bytearray) -> None: ...

    def peel(self, size: int, /) -> int:
        """Take the annotations off the message of `size` bytes in the buffer, where they are known. Hot.

        Returns  the bytes that are left, & SIZE_MASK; USUAL, where `sections.find_properties` needs no closer look at
                 those; and the place of the section, >> PLACE_SHIFT. LOOK_CLOSER: nothing has changed
        """

    def remember(self, section: bytes, /) -> int:
        """From now on `peel` takes this section off. Returns its place, below PLACES, from which another may have had
        to go; -1: it is longer than LONGEST_BYTES.
        """


class Front(NamedTuple):
    """known  for a buffer
    front_of  (buffer) → `front`: (bytes) → where annotations belong in the message in the buffer, which has none,
              << AT_SHIFT; | ASKS, where it may have a reply-to; | its priority. LOOK_CLOSER
    """

    known: type[Known]
    front_of: Callable[[bytearray], Callable[[int], int]]


def _header_end(buffer: bytearray, size: int) -> int:
    """Where the header ends, 0 without one; LOOK_CLOSER."""
    word = _u32_at(buffer, 0)[0]
    if word >> 16 != 0x0053:
        return LOOK_CLOSER
    if word >> 8 != _HEADER:
        return 0
    form = word & 0xFF
    if form == _LIST0:
        end = 4
    elif form == _LIST8:
        end = 5 + buffer[4]
    elif form == _LIST32:
        end = 8 + int(_u32_at(buffer, 4)[0])
    else:
        return LOOK_CLOSER
    return end if end <= size else LOOK_CLOSER


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
    if size < _FEWEST_BYTES:
        return LOOK_CLOSER
    at = _header_end(buffer, size)
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


def annotations_in(buffer: bytearray, size: int) -> tuple[int, int]:
    """Where the message-annotations begin and end, where nothing but a header stands before them and they are no longer
    than LONGEST_BYTES; else an end of LOOK_CLOSER.
    """
    at = _header_end(buffer, size) if size >= _FEWEST_BYTES else LOOK_CLOSER
    if at < 0 or at + _FEWEST_BYTES > size:
        return 0, LOOK_CLOSER
    word = _u32_at(buffer, at)[0]
    if word == _SMALL_ANNOTATIONS:
        end = at + 5 + buffer[at + 4]
    elif word == _LARGE_ANNOTATIONS:
        end = at + 8 + int(_u32_at(buffer, at + 4)[0])
    else:
        return 0, LOOK_CLOSER
    return (at, end) if end - at <= LONGEST_BYTES and end + _FEWEST_BYTES <= size else (0, LOOK_CLOSER)


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
        if not _FEWEST_BYTES <= len(section) <= LONGEST_BYTES:
            return -1
        if section not in self._places and len(self._places) >= PLACES:
            self._places.clear()
        return self._places.setdefault(section, len(self._places))


def _bind() -> Front | None:
    """The same in C; None where it was not compiled.

    Raises ImportError where it was compiled from other sources than those beside this file.
    """
    try:
        from router.amqp.layout._walk import ffi, lib
    except ImportError:
        return None
    if not hasattr(lib, "look_ahead"):
        raise ImportError(
            "router.amqp.layout._walk was compiled from older sources: run `make`, or install the router anew"
        )

    class CompiledKnown:
        __slots__ = ("_known", "peel")

        def __init__(self, buffer: bytearray) -> None:
            known = lib.known_new(secrets.randbits(64))
            if not known:
                raise MemoryError
            self._known: Any = ffi.gc(known, lib.known_free)
            self.peel = partial(lib.peel, self._known, ffi.from_buffer("uint8_t[]", buffer))

        def remember(self, section: bytes, /) -> int:
            return int(lib.remember(self._known, section, len(section)))

    return Front(CompiledKnown, lambda buffer: partial(lib.look_ahead, ffi.from_buffer("uint8_t[]", buffer)))


PYTHON: Final = Front(PythonKnown, lambda buffer: partial(_front, buffer))
COMPILED: Final = _bind()
CHOSEN: Final = COMPILED if COMPILED is not None and os.environ.get("PALISADE_ENGINE") != "python" else PYTHON
