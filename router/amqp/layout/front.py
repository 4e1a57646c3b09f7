"""Handles the front of a message that passes between routers (front.c)."""

import secrets
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from router.amqp.layout._walk import ffi, lib

# The result of a function if the message has another form, or its annotations are not known.
LOOK_CLOSER: Final = -1
# The parts of the result of `peel`, as in front.c.
SIZE_MASK, USUAL, PLACE_SHIFT = (1 << 20) - 1, 1 << 20, 21
# The parts of the result of `front`, as in front.c.
PRIORITY_MASK, ASKS, AT_SHIFT = 15, 16, 5
# The maximum number of known sections, and the maximum size of each.
PLACES, LONGEST_BYTES = 256, 512

_HEADER: Final = 0x005370
_SMALL_ANNOTATIONS, _LARGE_ANNOTATIONS = 0x005372C1, 0x005372D1
_LIST0, _LIST8, _LIST32 = 0x45, 0xC0, 0xD0
FEWEST_BYTES: Final = 8
_u32_at = Struct(">I").unpack_from


class Known(Protocol):
    """The annotations of one neighbour's earlier messages."""

    def __init__(self, buffer: bytearray) -> None: ...

    def peel(self, size: int, /) -> int:
        """Removes the annotations from the message of `size` bytes in the buffer, if they are known. Hot.

        Returns  the bytes that are left, & SIZE_MASK; USUAL, if `sections.find_properties` needs no closer look at
                 them; and the place of the section, >> PLACE_SHIFT. LOOK_CLOSER: nothing has changed
        """

    def remember(self, section: bytes, /) -> int:
        """Makes `peel` remove this section from now on.

        Returns its place, below PLACES. Another section may have lost this place. Returns -1 if the section is longer
        than LONGEST_BYTES.
        """


class Front(NamedTuple):
    """The functions for the front of messages.

    known  for a buffer
    front_of  (buffer) → `front`: (bytes) → the place for annotations in the message in the buffer, which has none, <<
              AT_SHIFT; | ASKS, if it may have a reply-to; | its priority. LOOK_CLOSER if the message has another form
    """

    known: type[Known]
    front_of: Callable[[bytearray], Callable[[int], int]]


def header_end(buffer: bytearray, size: int) -> int:
    """Returns the end of the header, 0 without one; LOOK_CLOSER if it has another form."""
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
    """Returns the begin and the end of the message-annotations.

    The end is LOOK_CLOSER if more than a header comes before them, or if they are longer than LONGEST_BYTES.
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
