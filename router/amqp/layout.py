"""Whether every receiver of a message finds the properties that we found, and no others.

For links whose user-id is checked: what the check saw must be what any client sees. A properties section behind the
body is one way to show a client another; others hide one in a map that is longer than its elements, where clients that
go by the count and clients that go by the size read on at different places.

Sources: AMQP 1.0 §3.2; docs/spec/routing.md §13.
"""

import re
from struct import Struct
from typing import Final

from router.amqp.codec import CodecError
from router.amqp.decoding import CONSTRUCTORS, MAX_DEPTH, skip_width
from router.amqp.sections import (
    ABSENT,
    APPLICATION_PROPERTIES,
    FOOTER,
    INVALID,
    LOOK_CLOSER,
    PROPERTIES,
    QUICK,
    VALUE,
    Buffer,
    Envelope,
    MessageFault,
    descriptor_at,
)

# Body sections begun within one read. Stops a message of many empty ones from keeping the router busy walking them.
MAX_SECTIONS_AT_ONCE: Final = 1024
# Elements of lists and maps that are counted in one message. Stops messages that are one big list from keeping the
# router busy. What is not counted may not hold anything that may be another properties section.
MAX_COUNTED_ELEMENTS: Final = 4096
_SIZED_1, _SIZED_4, _LIST_OR_MAP, _ARRAY, _UNKNOWN = 0, -1, -2, -3, -4
# The longest beginning of a section: a symbolic descriptor with a long length, and a constructor with its size.
_LONGEST_START: Final = 64



def _size_of(constructor: int) -> int:
    if constructor not in CONSTRUCTORS:
        return _UNKNOWN
    kind = constructor >> 4
    fixed = {0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17}
    return fixed.get(kind) or {0xA: _SIZED_1, 0xB: _SIZED_4, 0xE: _ARRAY, 0xF: _ARRAY}.get(kind, _LIST_OR_MAP)


_three_u32 = Struct(">III").unpack_from
_u32_at = Struct(">I").unpack_from
_EMPTY_HEADER: Final = 0x00537045
_EMPTY_PROPERTIES: Final = 0x00537345
# Bodies in one piece, whose size every client goes by: binary, string. How the size is written: 1 byte or 4.
_SIMPLE: Final = {
    (0x5300 | code) << 8 | constructor: width
    for code in (0x75, 0x77)
    for constructor, width in ((0xA0, 1), (0xA1, 1), (0xB0, 4), (0xB1, 4))
}
# Body and footer by the first four bytes, added to those that may stand before them.
_BODIES: Final = {
    (0x5300 | code) << 8 | constructor: (code, width)
    for code, forms in (
        (0x75, ((0xA0, 1), (0xB0, 4))),
        (0x76, ((0x45, 0), (0xC0, 1), (0xD0, 4))),
        (0x77, ((0x40, 0), (0x45, 0), (0xA0, 1), (0xA1, 1), (0xB0, 4), (0xB1, 4))),
        (0x77, ((0xC0, 1), (0xC1, 1), (0xD0, 4), (0xD1, 4))),
        (0x78, ((0xC1, 1), (0xD1, 4))),
    )
    for constructor, width in forms
}  # fmt: skip
_WHOLE: Final = {**QUICK, **_BODIES}

# How long a value with a constructor is, by the constructor; or how that is to be found out.
_COMPOUND: Final = 0xC0
_SIZES: Final = [_size_of(constructor) for constructor in range(256)]

# What may be the beginning of properties with a user-id, for the most lenient of clients: the descriptor 0x73 in any
# encoding of an integer, or its name, and a list that is not empty.
_MAYBE_PROPERTIES: Final = re.compile(
    rb"\x73[\xc0\xd0](?:(?<=\0[\x50-\x55]..)|(?<=\0[\x60\x61]\0..)|(?<=\0[\x70\x71]\0{3}..)|(?<=\0[\x80\x81]\0{7}..))",
    re.DOTALL,
)
_NAME: Final = b"amqp:properties:list"
_LONGEST_MATCH: Final = 32


def is_simple(buffer: Buffer, size: int) -> bool:
    """True for nothing but perhaps an empty header and empty properties, and one body in one piece. Hot."""
    if size < 13:
        return False
    first, second, third = _three_u32(buffer)
    at = 0
    if first == _EMPTY_HEADER:
        first, at = (third, 8) if second == _EMPTY_PROPERTIES else (second, 4)
    width = _SIMPLE.get(first)
    if width == 1:
        return at + 5 + buffer[at + 4] == size
    return width == 4 and at + 8 <= size and at + 8 + int(_u32_at(buffer, at + 4)[0]) == size


def find_properties(buffer: Buffer, size: int) -> int:
    """As sections.find_properties, of a whole message that every client reads alike to its end."""
    at, last, found = 0, 0, ABSENT
    sections_left, elements_left = MAX_SECTIONS_AT_ONCE, MAX_COUNTED_ELEMENTS
    while at + 4 <= size:
        quick = _WHOLE.get(_u32_at(buffer, at)[0])
        sections_left -= 1
        if quick is None or sections_left < 0:
            return LOOK_CLOSER
        code, width = quick
        if not _may_follow(code, last) or at + 4 + width > size:
            return LOOK_CLOSER
        value_at = at + 3
        if code == PROPERTIES:
            found = value_at
        if width == 1:
            at += 5 + buffer[at + 4]
        elif width:
            at += 8 + _u32_at(buffer, at + 4)[0]
        else:
            at += 4
        if buffer[value_at] >= _COMPOUND:
            if at > size:
                return LOOK_CLOSER
            try:
                elements_left = count_out(buffer, value_at, at, elements_left)
            except MessageFault:
                return LOOK_CLOSER
            if elements_left < 0:
                return LOOK_CLOSER
        last = code
    return found if at == size and last else LOOK_CLOSER


def count_out(buffer: Buffer | memoryview, at: int, end: int, left: int) -> int:
    """Does every list and map in the value that stands between `at` and `end` end where its elements do?

    left     how many elements may be looked at
    Returns  how many are left then; less than 0: not known, for they are more, or arrays that are not looked into
    Errors   MessageFault(INVALID): it does not, so that clients would go on reading at different places
    """
    around: list[tuple[int, int]] = []  # of the lists and maps around this one: where they end, elements to come
    limit, count = end, 1
    while True:
        while not count:
            if at != limit:
                raise MessageFault(INVALID)
            if not around:
                return left
            limit, count = around.pop()
        left -= 1
        if left < 0:
            return -1
        if at >= limit:
            raise MessageFault(INVALID)
        constructor = buffer[at]
        size = _SIZES[constructor]
        if size > 0:
            at += size
        elif size == _SIZED_1:
            at += 2 + buffer[at + 1] if at + 1 < limit else limit
        elif size == _SIZED_4:
            at += 5 + _u32_at(buffer, at + 1)[0] if at + 5 <= limit else limit
        elif constructor == 0:  # a descriptor, and the value
            at += 1
            count += 1
            continue
        elif size == _ARRAY:
            return -1
        else:
            width = 4 if constructor >= 0xD0 else 1
            if size != _LIST_OR_MAP or at + 1 + 2 * width > limit or len(around) >= MAX_DEPTH:
                raise MessageFault(INVALID)
            around.append((limit, count - 1))
            if width == 1:
                limit, count = at + 2 + buffer[at + 1], buffer[at + 2]
            else:
                limit, count = at + 5 + _u32_at(buffer, at + 1)[0], _u32_at(buffer, at + 5)[0]
            if limit > around[-1][0]:
                raise MessageFault(INVALID)
            at += 1 + 2 * width
            continue
        if at > limit:
            raise MessageFault(INVALID)
        count -= 1


def _may_follow(code: int, last: int) -> bool:
    """May a section stand behind another? Bodies are data, or sequences, or one value."""
    if last <= APPLICATION_PROPERTIES or code == FOOTER:
        return code > last
    return code == last < VALUE


def has_others(buffer: Buffer, size: int, properties_at: int) -> bool:
    """Is there anything, wherever it is, that a client may take for properties other than those at `properties_at`?"""
    if any(match.start() + 1 != properties_at for match in _MAYBE_PROPERTIES.finditer(buffer, 0, size)):
        return True
    at = buffer.find(_NAME, 0, size)
    while at >= 0:
        if at + len(_NAME) != properties_at:
            return True
        at = buffer.find(_NAME, at + 1, size)
    return False


class Rest:
    """The sections from the application-properties on, walked as they come, and whether any may be mistaken.

    Errors of all methods: MessageFault(INVALID) for sections out of order, or a second one that must be alone, or too
    many; for a list or map that does not end where its elements do; and for what may be other properties, where that
    could not be looked at.
    """

    __slots__ = ("_elements_left", "_kept", "_last", "_left", "_pending", "_tail")

    def __init__(self, buffer: Buffer, envelope: Envelope, *, is_whole: bool) -> None:
        """The first `envelope.size` bytes of the message are in the buffer. is_whole  it has no more"""
        size = envelope.size
        self._last = 0  # the section before
        self._left = 0  # bytes to come of the value that has begun
        self._pending = 0  # values to come of the section that has begun
        self._kept = b""  # the beginning of a section whose kind is not clear yet
        self._tail = b""  # the last bytes seen, where they matter: other properties may begin in them
        self._elements_left = MAX_COUNTED_ELEMENTS  # less than 0: there are lists or maps that were not counted
        view = memoryview(buffer)[:size]
        at = 0
        try:
            while at < envelope.rest_at:
                _, value_at = descriptor_at(view, at)
                at = skip_width(view, view[value_at], value_at + 1)
                self._see(view, value_at, at)
        except (CodecError, IndexError):
            raise MessageFault(INVALID) from None
        self._walk(view, envelope.rest_at)
        if is_whole:
            self.end()
        if self._elements_left < 0:
            self._look_for_others(buffer, size, envelope.properties_at)

    def feed(self, buffer: Buffer, size: int) -> None:
        """The next `size` bytes of the message are in the buffer."""
        view = memoryview(buffer)[:size]
        if self._left >= size:
            self._left -= size
        else:
            at, self._left = self._left, 0
            if self._kept:
                view, at, self._kept = memoryview(self._kept + bytes(view)), 0, b""
            self._walk(view, at)
        if self._elements_left < 0:
            self._look_for_others(buffer, size, ABSENT)

    def end(self) -> None:
        """The message has ended."""
        if self._left or self._pending or self._kept:
            raise MessageFault(INVALID)

    def _walk(self, view: memoryview, at: int) -> None:
        end, sections = len(view), 0
        while at < end:
            start = at
            try:
                if self._pending:
                    at = self._begin_value(view, view[at], at + 1)
                    self._pending -= 1
                else:
                    code, value_at = descriptor_at(view, at)
                    sections += 1
                    if not _may_follow(code, self._last) or sections > MAX_SECTIONS_AT_ONCE:
                        raise MessageFault(INVALID)
                    at = self._begin_value(view, view[value_at], value_at + 1)
                    self._last = code
                    self._see(view, value_at, at)
            except (CodecError, IndexError, MessageFault):
                if end - start >= _LONGEST_START:
                    raise MessageFault(INVALID) from None
                self._kept = bytes(view[start:])
                return
        self._left = at - end

    def _begin_value(self, view: memoryview, constructor: int, at: int) -> int:
        """Where the value ends whose constructor stands before `at`; of a described one, where its descriptor begins.
        """
        if constructor == 0:
            self._pending += 2
            if self._pending > MAX_DEPTH:
                raise MessageFault(INVALID)
            return at
        return skip_width(view, constructor, at)

    def _see(self, view: memoryview, value_at: int, end: int) -> None:
        """Count out a section's value, where it is a list or map and has all come."""
        if self._elements_left < 0 or 0 < view[value_at] < _COMPOUND:
            return
        is_here = view[value_at] and end <= len(view)
        self._elements_left = count_out(view, value_at, end, self._elements_left) if is_here else -1

    def _look_for_others(self, buffer: Buffer, size: int, properties_at: int) -> None:
        seam = self._tail + bytes(buffer[: min(size, _LONGEST_MATCH)])
        if has_others(buffer, size, properties_at) or (self._tail and has_others(seam, len(seam), ABSENT)):
            raise MessageFault(INVALID)
        last = bytes(buffer[max(size - _LONGEST_MATCH, properties_at + 1) : size])  # without the message's own
        self._tail = (self._tail + last)[-_LONGEST_MATCH:]
