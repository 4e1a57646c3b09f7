"""router.amqp.guard.tables in Python: what the compiled ones are compared with."""

from collections.abc import Callable
from typing import Final

from router.amqp.buffers import READ_BUFFER
from router.amqp.guard.performatives import DISPOSITION, FLOW, FRAME_HEADER_BYTES, MAX_TAG_BYTES, TRANSFER
from router.amqp.guard.tables import HAS_ID, HAS_MORE, IS_SENDER, MAX_CREDIT, MAX_SPAN, link_key, session_key

_MAX_UINT = 0xFFFFFFFF


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
        session, link = entries.get(session_key(channel)), entries.get(link_key(channel, handle))
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
        if (
            left > 11
            or at != behind
            or behind != end
            or None in values[1:4]
            or session_key(channel) not in self.entries
        ):
            return False
        if (handle := values[4]) is None:
            return True
        link = self.entries.get(link_key(channel, handle))
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
        if session_key(channel) not in self.entries:
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
