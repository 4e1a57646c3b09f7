"""The walk through a message's sections (walk.c)."""

from functools import partial
from typing import Any, Protocol

from router.amqp.layout._walk import ffi, lib
from router.amqp.sections import Buffer

# The contents of a message: a user-id or message-annotations are something.
MALFORMED, NOTHING, SOMETHING = -1, 0, 1


class Found(Protocol):
    """user_id_at       where the user-id's bytes begin, from the start of the message; -1: it has none
    annotations_at   where the message-annotations begin, -1 without, and end
    """

    user_id_at: int
    user_id_size: int
    annotations_at: int
    annotations_end: int


class Walk(Protocol):
    """Of the messages in one buffer, one after the other. found  of the latest"""

    @property
    def found(self) -> Found: ...

    def __init__(self, buffer: Buffer) -> None: ...

    def whole(self, size: int, /) -> int:
        """The buffer begins with a message of `size` bytes. Returns MALFORMED, NOTHING or SOMETHING. Hot."""

    def first(self, size: int, /) -> int:
        """The buffer begins with the first bytes of a message. Returns as `whole`: malformed is a message of which a
        section before the application-properties has not all come.
        """

    def next(self, size: int, /) -> int:
        """The buffer begins with more of that message. Returns MALFORMED or NOTHING."""

    def is_over(self) -> bool:
        """After `first` and `next`: has all come that has begun?"""


class CompiledWalk:
    __slots__ = ("_buffer", "first", "found", "is_over", "next", "whole")

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = ffi.from_buffer("uint8_t[]", buffer)
        self.found: Any = ffi.new("walk_t *")
        self.whole = partial(lib.whole, self.found, self._buffer)
        self.first = partial(lib.first, self.found, self._buffer)
        self.next = partial(lib.next, self.found, self._buffer)
        self.is_over = partial(lib.is_over, self.found)
