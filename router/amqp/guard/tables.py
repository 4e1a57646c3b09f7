"""The channels and handles that a peer uses, and the frames that pass by a few comparisons with them.

The same as frames.c does it, which serves where it is compiled (`PALISADE_ENGINE=python` chooses this one).
"""

import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from router.amqp.buffers import READ_BUFFER
from router.amqp.guard.performatives import DISPOSITION, FLOW, FRAME_HEADER_BYTES, MAX_TAG_BYTES, TRANSFER

# Of an entry, as in frames.c.
HAS_ID, IS_SENDER, HAS_MORE = 1, 2, 4
_SESSION, _LINK = 1 << 48, 1 << 49
_MAX_UINT = 0xFFFFFFFF
MAX_CREDIT: Final = 0x7FFFFFFF  # the engine counts in 31 bits
# Stops 64 KiB of Dispositions that name the same thousands of deliveries over and over: each would be an event.
MAX_SPAN: Final = 8192


def session_key(channel: int) -> int:
    return _SESSION | channel


def link_key(channel: int, handle: int) -> int:
    return _LINK | channel << 32 | handle


class Entry(Protocol):
    """A session: `value` is its next delivery-id, once it HAS_ID. A link: `value` is its delivery-count, `id` that of
    its latest delivery, which HAS_MORE while it is under way; IS_SENDER where the peer sends."""

    value: int
    id: int
    flags: int


class Tables(Protocol):
    """max_frame  bytes of the largest frame that `scan` admits; 0: none
    span  deliveries that the Dispositions of the latest scan named
    """

    max_frame: int

    @property
    def span(self) -> int: ...
    def find(self, key: int) -> Entry | None:
        """Valid until the next `add` or `discard`."""

    def add(self, key: int) -> Entry: ...
    def discard(self, key: int) -> None: ...
    def scan(self, data: bytes | bytearray, start: int, end: int) -> int:
        """The offset behind the last whole frame from `start` on that is plain and as it should be."""

    @property
    def scan_read(self) -> Callable[[int, int], int]:
        """scan_read(size, MAX_SPAN): the same for the first `size` bytes of READ_BUFFER. Hot."""


class _Entry:
    __slots__ = ("flags", "id", "value")

    def __init__(self) -> None:
        self.value = self.id = self.flags = 0


class _NotPlain(Exception):
    """The frame is for machine.py to judge."""


class PythonTables:
    """Tables where frames.c is not compiled."""

    __slots__ = ("entries", "max_frame", "span")

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}
        self.max_frame = 0
        self.span = 0

    def find(self, key: int) -> _Entry | None:
        return self.entries.get(key)

    def add(self, key: int) -> _Entry:
        entry = self.entries[key] = _Entry()
        return entry

    def discard(self, key: int) -> None:
        self.entries.pop(key, None)

    def scan(self, data: bytes | bytearray, start: int, end: int) -> int:
        self.span = 0
        at = start
        while end - at >= FRAME_HEADER_BYTES:
            size = int.from_bytes(data[at : at + 4], "big")
            if size < FRAME_HEADER_BYTES or size > self.max_frame or size > end - at:
                break
            if data[at + 4] != 2 or data[at + 5] != 0:
                break
            if size > FRAME_HEADER_BYTES:
                if size < FRAME_HEADER_BYTES + 4 or data[at + 8] != 0 or data[at + 9] != 0x53:
                    break
                admit = _ADMIT.get(data[at + 10])
                if admit is None:
                    break
                try:
                    if not admit(self, data[at + 6] << 8 | data[at + 7], data, at + 11, at + size):
                        break
                except _NotPlain:
                    break
            at += size
        return at

    @property
    def scan_read(self) -> Callable[[int, int], int]:
        return lambda size, _span: self.scan(READ_BUFFER, 0, size)

    def admit_transfer(self, channel: int, data: bytes | bytearray, at: int, end: int) -> bool:
        left, at, end = _open_list(data, at, end)
        handle, at = _uint(data, at, end, left)
        number, at = _uint(data, at, end, left - 1)
        has_tag, at = _tag(data, at, end, left - 2)
        _, at = _uint(data, at, end, left - 3)
        if left > 4:
            _, at = _bool(data, at, end)
        more: bool | None = None
        if left > 5:
            more, at = _bool(data, at, end)
        for _ in range(6, min(left, 9)):  # rcv-settle-mode, state, resume
            at = _null(data, at, end)
        if left > 9:
            aborted, at = _bool(data, at, end)
            more = more and not aborted
        if left > 10:
            _, at = _bool(data, at, end)
        if left > 11 or at != end or handle is None:
            return False
        entries = self.entries
        session, link = entries.get(_SESSION | channel), entries.get(_LINK | channel << 32 | handle)
        if session is None or link is None or not link.flags & IS_SENDER:
            return False
        if link.flags & HAS_MORE:
            if number is not None and number != link.id:
                return False
        else:
            if number is None or not has_tag or (session.flags & HAS_ID and number != session.value):
                return False
            session.value = (number + 1) & _MAX_UINT
            session.flags |= HAS_ID
            link.id = number
            link.value = (link.value + 1) & _MAX_UINT
        link.flags = link.flags | HAS_MORE if more else link.flags & ~HAS_MORE
        return True

    def admit_flow(self, channel: int, data: bytes | bytearray, at: int, end: int) -> bool:
        left, at, behind = _open_list(data, at, end)
        values: list[int | None] = []
        for index in range(8):
            value, at = _uint(data, at, behind, left - index)
            values.append(value)
        drains: bool | None = None
        if left > 8:
            drains, at = _bool(data, at, behind)
        if left > 9:  # echo
            _, at = _bool(data, at, behind)
        if left > 10:
            at = _null(data, at, behind)
        if left > 11 or at != behind or behind != end or None in values[1:4] or _SESSION | channel not in self.entries:
            return False
        if (handle := values[4]) is None:
            return True
        link = self.entries.get(_LINK | channel << 32 | handle)
        if link is None or link.flags & IS_SENDER or drains:  # machine.py notes a drain
            return False
        return (values[6] or 0) <= MAX_CREDIT

    def admit_disposition(self, channel: int, data: bytes | bytearray, at: int, end: int) -> bool:
        left, at, behind = _open_list(data, at, end)
        role, at = _bool(data, at, behind)
        first, at = _uint(data, at, behind, left - 1)
        last, at = _uint(data, at, behind, left - 2)
        if left > 3:
            _, at = _bool(data, at, behind)
        if left > 4:
            is_accepted = data[at : min(at + 4, behind)] == b"\x00\x53\x24\x45"
            at = at + 4 if is_accepted else _null(data, at, behind)
        if left > 5:
            _, at = _bool(data, at, behind)
        if left > 6 or at != behind or behind != end or role is None or first is None:
            return False
        if _SESSION | channel not in self.entries:
            return False
        span = (last - first) & _MAX_UINT if last is not None else 0
        if span >= MAX_SPAN or self.span >= MAX_SPAN - span:
            return False
        self.span += span + 1
        return True


_ADMIT: Final = {
    TRANSFER: PythonTables.admit_transfer,
    FLOW: PythonTables.admit_flow,
    DISPOSITION: PythonTables.admit_disposition,
}


def _open_list(data: bytes | bytearray, at: int, end: int) -> tuple[int, int, int]:
    """(number of elements, offset of the first, offset behind the last)."""
    room = end - at
    if room >= 3 and data[at] == 0xC0:
        size = data[at + 1]
        if 1 <= size <= room - 2:
            return data[at + 2], at + 3, at + 2 + size
    elif room >= 9 and data[at] == 0xD0:
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        if 4 <= size <= room - 5:
            return int.from_bytes(data[at + 5 : at + 9], "big"), at + 9, at + 5 + size
    raise _NotPlain


def _uint(data: bytes | bytearray, at: int, end: int, left: int) -> tuple[int | None, int]:
    if left <= 0:
        return None, at
    if at < end:
        code = data[at]
        if code == 0x52 and at + 2 <= end:
            return data[at + 1], at + 2
        if code == 0x43:
            return 0, at + 1
        if code == 0x40:
            return None, at + 1
        if code == 0x70 and at + 5 <= end:
            return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise _NotPlain


def _bool(data: bytes | bytearray, at: int, end: int) -> tuple[bool | None, int]:
    if at < end:
        code = data[at]
        if code == 0x42:
            return False, at + 1
        if code == 0x41:
            return True, at + 1
        if code == 0x40:
            return None, at + 1
        if code == 0x56 and at + 2 <= end and data[at + 1] <= 1:
            return data[at + 1] == 1, at + 2
    raise _NotPlain


def _null(data: bytes | bytearray, at: int, end: int) -> int:
    if at >= end or data[at] != 0x40:
        raise _NotPlain
    return at + 1


def _tag(data: bytes | bytearray, at: int, end: int, left: int) -> tuple[bool, int]:
    if left <= 0:
        return False, at
    if at < end and data[at] == 0x40:
        return False, at + 1
    if at + 2 <= end and data[at] == 0xA0 and data[at + 1] <= MAX_TAG_BYTES and data[at + 1] <= end - at - 2:
        return True, at + 2 + data[at + 1]
    raise _NotPlain


def _bind() -> type[Tables] | None:
    """Tables in C; None where they were not compiled."""
    try:
        from router.amqp.guard._frames import ffi, lib
    except ImportError:
        return None
    seed = secrets.randbits(64)
    read_buffer = ffi.from_buffer("uint8_t[]", READ_BUFFER)
    scan = lib.scan

    class CompiledTables:
        __slots__ = ("_tables",)

        def __init__(self) -> None:
            tables = lib.tables_new(seed)
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
            return start + int(scan(self._tables, pointer, end - start, MAX_SPAN))

        @property
        def scan_read(self) -> Callable[[int, int], int]:
            return partial(scan, self._tables, read_buffer)

    return CompiledTables


COMPILED: Final = _bind()
CHOSEN: Final[type[Tables]] = (
    COMPILED if COMPILED is not None and os.environ.get("PALISADE_ENGINE") != "python" else PythonTables
)
