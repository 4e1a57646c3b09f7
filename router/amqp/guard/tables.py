"""The channels and handles that a peer uses, and the fast check of plain frames against them (frames.c)."""

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from router.amqp.buffers import READ_BUFFER
from router.amqp.guard._frames import ffi, lib

# The flags of an entry, as in frames.c.
HAS_ID, IS_SENDER, HAS_MORE = 1, 2, 4
_SESSION, _LINK = 1 << 48, 1 << 49
_MAX_UINT = 0xFFFFFFFF
MAX_CREDIT: Final = 0x7FFFFFFF  # the engine counts in 31 bits
# Attack: 64 KiB of Dispositions that repeatedly name the same thousands of deliveries. Each would be an event.
MAX_SPAN: Final = 8192


def session_key(channel: int) -> int:
    return _SESSION | channel


def link_key(channel: int, handle: int) -> int:
    return _LINK | channel << 32 | handle


class Entry(Protocol):
    """One session or link.

    For a session, `value` is its next delivery-id, valid if it HAS_ID. For a link, `value` is its delivery-count and
    `id` the id of its latest delivery, which HAS_MORE while it is under way. IS_SENDER if the peer sends.
    """

    value: int
    id: int
    flags: int


class Tables(Protocol):
    """The sessions and links of one connection.

    max_frame  bytes of the largest frame that `scan` admits; 0: none
    span  deliveries that the Dispositions of the latest scan named
    """

    max_frame: int

    @property
    def span(self) -> int: ...
    def find(self, key: int) -> Entry | None:
        """Returns the entry, or None. It is valid until the next `add` or `discard`."""

    def add(self, key: int) -> Entry: ...
    def discard(self, key: int) -> None: ...
    def scan(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Returns the offset after the last whole frame, from `start` on, that is plain and correct."""

    @property
    def scan_read(self) -> Callable[[int, int], int]:
        """scan_read(size, MAX_SPAN) does the same as scan for the first `size` bytes of READ_BUFFER. Hot."""


_scan: Final = lib.scan
_read_buffer: Final = ffi.from_buffer("uint8_t[]", READ_BUFFER)
# Attack: keys that all fall into one place of the hash table.
_seed: Final = secrets.randbits(64)


class CompiledTables:
    __slots__ = ("_tables",)

    def __init__(self) -> None:
        tables = lib.tables_new(_seed)
        if not tables:
            raise MemoryError
        self._tables: Any = ffi.gc(tables, lib.tables_free)

    @property
    def max_frame(self) -> int:
        return int(self._tables.max_frame)

    @max_frame.setter
    def max_frame(self, size: int) -> None:
        self._tables.max_frame = size

    @property
    def span(self) -> int:
        return int(self._tables.span)

    def find(self, key: int) -> Any:
        return lib.find(self._tables, key) or None

    def add(self, key: int) -> Any:
        entry = lib.add(self._tables, key)
        if not entry:
            raise MemoryError
        return entry

    def discard(self, key: int) -> None:
        lib.discard(self._tables, key)

    def scan(self, data: bytes | bytearray, start: int, end: int) -> int:
        pointer = ffi.from_buffer("uint8_t[]", data) + start
        return start + int(_scan(self._tables, pointer, end - start, MAX_SPAN))

    @property
    def scan_read(self) -> Callable[[int, int], int]:
        return partial(_scan, self._tables, _read_buffer)
