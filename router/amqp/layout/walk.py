"""Walks through a message's sections (walk.c)."""

from functools import partial
from typing import Any, Protocol

from router.amqp.layout._walk import ffi, lib
from router.amqp.sections import Buffer

# The result of a walk. SOMETHING: the message has a user-id or message-annotations.
MALFORMED, NOTHING, SOMETHING = -1, 0, 1


class Found(Protocol):
    """The sections that a walk found.

    user_id_at       the offset of the user-id's bytes in the message; -1: it has none
    annotations_at   the begin of the message-annotations, -1 without; annotations_end is their end
    """

    user_id_at: int
    user_id_size: int
    annotations_at: int
    annotations_end: int


class Walk(Protocol):
    """Walks through the messages in one buffer, one after the other.

    found  in the latest message
    """

    @property
    def found(self) -> Found: ...

    def __init__(self, buffer: Buffer) -> None: ...

    def whole(self, size: int, /) -> int:
        """Walks a message of `size` bytes at the start of the buffer. Returns MALFORMED, NOTHING or SOMETHING. Hot."""

    def first(self, size: int, /) -> int:
        """Walks the first bytes of a message at the start of the buffer. Returns the same as `whole`.

        The message is also malformed if a section before the application-properties has not arrived completely.
        """

    def next(self, size: int, /) -> int:
        """Walks more bytes of that message, at the start of the buffer. Returns MALFORMED or NOTHING."""

    def is_over(self) -> bool:
        """Returns True if, after `first` and `next`, everything that has begun has arrived completely."""


class CompiledWalk:
    __slots__ = ("_buffer", "first", "found", "is_over", "next", "whole")

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = ffi.from_buffer("uint8_t[]", buffer)
        self.found: Any = ffi.new("walk_t *")
        self.whole = partial(lib.whole, self.found, self._buffer)
        self.first = partial(lib.first, self.found, self._buffer)
        self.next = partial(lib.next, self.found, self._buffer)
        self.is_over = partial(lib.is_over, self.found)
