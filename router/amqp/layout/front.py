"""What stands in front of a message that passes between routers (front.c)."""

import secrets
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from router.amqp.layout._walk import ffi, lib

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
FEWEST_BYTES: Final = 8
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


def header_end(buffer: bytearray, size: int) -> int:
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


def annotations_in(buffer: bytearray, size: int) -> tuple[int, int]:
    """Where the message-annotations begin and end, where nothing but a header stands before them and they are no longer
    than LONGEST_BYTES; else an end of LOOK_CLOSER.
    """
    at = header_end(buffer, size) if size >= FEWEST_BYTES else LOOK_CLOSER
    if at < 0 or at + FEWEST_BYTES > size:
        return 0, LOOK_CLOSER
    word = _u32_at(buffer, at)[0]
    if word == _SMALL_ANNOTATIONS:
        end = at + 5 + buffer[at + 4]
    elif word == _LARGE_ANNOTATIONS:
        end = at + 8 + int(_u32_at(buffer, at + 4)[0])
    else:
        return 0, LOOK_CLOSER
    return (at, end) if end - at <= LONGEST_BYTES and end + FEWEST_BYTES <= size else (0, LOOK_CLOSER)


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


FRONT: Final = Front(CompiledKnown, lambda buffer: partial(lib.look_ahead, ffi.from_buffer("uint8_t[]", buffer)))
