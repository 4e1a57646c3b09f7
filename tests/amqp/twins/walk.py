"""router.amqp.layout.walk in Python: what the compiled walk is compared with."""

from struct import Struct
from typing import Final

from router.amqp.decoding import CONSTRUCTORS, MAX_DEPTH
from router.amqp.layout.walk import MALFORMED, NOTHING, SOMETHING, Found
from router.amqp.sections import (
    APPLICATION_PROPERTIES,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SYMBOLIC,
    VALUE,
    Buffer,
)

# Instead of a number of bytes taken.
_BAD, _CUT = -1, 0
# How the values of a level are written; as in walk.c.
_SIZED, _OPEN, _UNTYPED = 0, 1, 2
_ENDLESS: Final = 1 << 64
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_MAPS: Final = frozenset((0xC1, 0xD1))
_USER_IDS: Final = frozenset((0x40, 0xA0, 0xB0))
_CODES: Final = {name.encode(): code for name, code in SYMBOLIC.items()}
_LONGEST_NAME: Final = max(map(len, _CODES))
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
# By constructor: the bytes of a value of fixed width. Others have a size.
_FIXED_WIDTHS: Final = {code: _FIXED[code >> 4] for code in CONSTRUCTORS if code < 0xA0}
# By constructor: the bytes of a value with it, or how its size is written; not of lists, maps and arrays.
_SIZED_1, _SIZED_4, _UNKNOWN = -1, -2, 0
_SIZED_BY: Final = {code: _SIZED_1 if code < 0xB0 else _SIZED_4 for code in CONSTRUCTORS if 0xA0 <= code < 0xC0}
_SIZES: Final = [
    _FIXED_WIDTHS[code] + 1 if code in _FIXED_WIDTHS else _SIZED_BY.get(code, _UNKNOWN) for code in range(0x100)
]
_u32_at = Struct(">I").unpack_from
_three_u32 = Struct(">III").unpack_from

_EMPTY_HEADER: Final = 0x00537045
_EMPTY_PROPERTIES: Final = 0x00537345
# Bodies in one piece: binary, string. How the size is written: 1 byte or 4.
_SIMPLE: Final = {
    (0x5300 | code) << 8 | constructor: width
    for code in (0x75, 0x77)
    for constructor, width in ((0xA0, 1), (0xA1, 1), (0xB0, 4), (0xB1, 4))
}


class _Level:
    """The level of nesting of the values that come next; as in walk.c."""

    __slots__ = ("end", "form", "left")

    def __init__(self, end: int, left: int, form: int) -> None:
        self.end = end
        self.left = left
        self.form = form


def _is_simple(buffer: Buffer, size: int) -> bool:
    """True for nothing but perhaps an empty header and empty properties, and one body in one piece."""
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


def _may_follow(code: int, last: int, *, is_early: bool) -> bool:
    """May a section come after another? Bodies are data, or sequences, or one value.

    is_early  the footer stands before the body, where rhea puts it: nothing that the router reads follows it either way
    """
    if not HEADER <= code <= FOOTER:
        return False
    if code == FOOTER:
        return last != FOOTER and not is_early
    if last <= APPLICATION_PROPERTIES:
        return code > last
    if last == FOOTER:
        return is_early and code > APPLICATION_PROPERTIES
    return code == last < VALUE


class PythonWalk:
    """The walk where walk.c is not compiled."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._start()

    @property
    def found(self) -> Found:
        return self

    def whole(self, size: int, /) -> int:
        self._start()
        if _is_simple(self._buffer, size):
            return NOTHING
        return self._what() if self._walk(memoryview(self._buffer)[:size]) and self.is_over() else MALFORMED

    def first(self, size: int, /) -> int:
        self._start()
        is_right = self._walk(memoryview(self._buffer)[:size])
        if not is_right or (self._section < APPLICATION_PROPERTIES and self._levels):
            return MALFORMED
        self._is_late = True
        return self._what()

    def next(self, size: int, /) -> int:
        return NOTHING if self._walk(memoryview(self._buffer)[:size]) else MALFORMED

    def is_over(self) -> bool:
        return bool(self._section and not self._levels and not self._kept)

    def _start(self) -> None:
        self.user_id_at = self.annotations_at = self.annotations_end = -1
        self.user_id_size = 0
        self._at = 0  # where in the message we are
        self._skip_to = 0  # up to there nothing is looked at
        self._section = 0  # the latest; 0 before the first
        self._fields = 0  # of the properties, as far as they matter: the first two
        self._is_late = False  # the first piece of a stream is gone
        self._is_early = False  # the footer stands before the body
        self._kept = b""  # what was cut at the end of a piece
        self._levels: list[_Level] = []  # the section's value is the only one in the first

    def _what(self) -> int:
        return SOMETHING if self.user_id_at >= 0 or self.annotations_at >= 0 else NOTHING

    def _walk(self, data: memoryview) -> bool:
        """Walk on through a piece. False: malformed."""
        if self._kept:
            data = memoryview(self._kept + bytes(data))
            self._kept = b""
        at, end = 0, len(data)
        while True:
            if self._at < self._skip_to:
                step = min(self._skip_to - self._at, end - at)
                self._at += step
                at += step
                if self._at < self._skip_to:
                    return True
            if not self._leave():
                return False
            if self._levels and at < end:
                step = self._pass_over_plain_values(data, at, end)
                if step:
                    at += step
                    self._at += step
                    continue
            if at == end:
                return True
            taken = self._begin_value(data, at, end) if self._levels else self._begin_section(data, at, end)
            if taken == _BAD:
                return False
            if taken == _CUT:
                self._kept = bytes(data[at:])
                return True
            self._at += taken
            at += taken

    def _pass_over_plain_values(self, data: memoryview, at: int, end: int) -> int:
        """Those of the innermost level that come next and have all come, in one go: bytes taken, 0 without."""
        level = self._levels[-1]
        if level.form > _OPEN or (self._section < APPLICATION_PROPERTIES and not self._is_free()):
            return 0
        start, left, limit = at, level.left, min(end, at + level.end - self._at)
        while left and at < limit:
            size = _SIZES[data[at]]
            if size == _SIZED_1:
                size = 2 + data[at + 1] if at + 2 <= limit else _UNKNOWN
            elif size == _SIZED_4:
                size = 5 + int(_u32_at(data, at + 1)[0]) if at + 5 <= limit else _UNKNOWN
            if size <= 0 or at + size > limit:
                break
            at += size
            left -= 1
        level.left = left
        return at - start

    def _is_free(self) -> bool:
        """May any value come next, in one of the sections that the router reads?"""
        depth = len(self._levels)
        return depth > 2 or (depth == 2 and (self._section != PROPERTIES or self._fields > 1))

    def _leave(self) -> bool:
        """Leave what has no more values to come. False: it does not end there."""
        levels = self._levels
        while levels:
            level = levels[-1]
            if level.left or level.form == _UNTYPED:
                return True
            if level.form != _OPEN and self._at != level.end:
                return False
            levels.pop()
            if not levels and self._section == MESSAGE_ANNOTATIONS:
                self.annotations_end = self._at
        return True

    def _push(self, end: int, left: int, form: int) -> bool:
        if len(self._levels) > MAX_DEPTH:
            return False
        self._levels.append(_Level(end, left, form))
        return True

    def _begin_section(self, data: memoryview, at: int, end: int) -> int:
        """A section's descriptor; `at` < `end`, here and below. Returns how many bytes it has, _CUT or _BAD."""
        room = end - at
        if data[at]:
            return _BAD
        if room < 2:
            return _CUT
        form = data[at + 1]
        if form == 0x53:
            size = 3
            if room < size:
                return _CUT
            code = data[at + 2]
        elif form == 0x80:
            size = 10
            if room < size:
                return _CUT
            code = int.from_bytes(data[at + 2 : at + size], "big")
        elif form == 0xA3 or form == 0xB3:
            start = 3 if form == 0xA3 else 6
            if room < start:
                return _CUT
            length = int.from_bytes(data[at + 2 : at + start], "big")
            if length > _LONGEST_NAME:
                return _BAD
            size = start + length
            if room < size:
                return _CUT
            code = _CODES.get(bytes(data[at + start : at + size]), 0)
        else:
            return _BAD
        may_follow = _may_follow(code, self._section, is_early=self._is_early)
        if not may_follow or (self._is_late and code < APPLICATION_PROPERTIES):
            return _BAD
        if code == FOOTER:
            self._is_early = self._section <= APPLICATION_PROPERTIES
        self._section = code
        if code == MESSAGE_ANNOTATIONS:
            self.annotations_at = self._at
        return size if self._push(_ENDLESS, 1, _OPEN) else _BAD

    def _begin_value(self, data: memoryview, at: int, end: int) -> int:
        """The next value of the innermost level: all of it, or up to its first element."""
        level = self._levels[-1]
        if self._at >= level.end:
            return _BAD
        form = level.form
        if form == _UNTYPED:
            return self._begin_array(level, data[at])
        own, code = (0, form) if form > _UNTYPED else (1, data[at])
        is_property = self._section == PROPERTIES and len(self._levels) == 2 and self._fields < 2
        if self._section < APPLICATION_PROPERTIES and not self._is_in_place(code, is_property=is_property):
            return _BAD
        if code == 0:
            level.left -= 1
            return 1 if self._push(level.end, 2, _OPEN) else _BAD
        fixed = _FIXED_WIDTHS.get(code)
        if fixed is not None:
            self._skip_to = self._at + 1 + fixed
            if self._skip_to > level.end:
                return _BAD
            level.left -= 1
            self._fields += is_property
            return 1
        if code not in CONSTRUCTORS:
            return _BAD
        width = 4 if code >> 4 & 1 else 1
        taken = own + (width if code < 0xC0 else 2 * width)
        if taken > level.end - self._at:
            return _BAD
        if taken > end - at:
            return _CUT
        at += own
        size = data[at] if width == 1 else int(_u32_at(data, at)[0])
        value_end = self._at + own + width + size
        if value_end > level.end:
            return _BAD
        level.left -= 1
        if code < 0xC0:
            self._skip_to = value_end
            if is_property and self._fields == 1:
                self.user_id_at, self.user_id_size = self._at + taken, size
            self._fields += is_property
            return taken
        count = data[at + 1] if width == 1 else int(_u32_at(data, at + 4)[0])
        return taken if self._begin_compound(code, self._at + taken, value_end, count) else _BAD

    def _is_in_place(self, code: int, *, is_property: bool) -> bool:
        """Is a value with this constructor what has to stand here? Checked are sections that the router reads."""
        if len(self._levels) == 1:
            return code in (_LISTS if self._section in (HEADER, PROPERTIES) else _MAPS)
        if not is_property:
            return True
        return 0x40 <= code < 0xC0 if self._fields == 0 else code in _USER_IDS  # message-id, user-id

    def _begin_array(self, level: _Level, code: int) -> int:
        """The constructor of an array's elements; all of the elements, where they are equally long."""
        if code == 0:  # the descriptor, then the constructor
            return 1 if self._push(level.end, 1, _OPEN) else _BAD
        if code not in CONSTRUCTORS:
            return _BAD
        level.form = code
        fixed = _FIXED_WIDTHS.get(code)
        if fixed is None:
            return 1
        if level.left * fixed != level.end - self._at - 1:
            return _BAD
        level.left = 0
        self._skip_to = level.end
        return 1

    def _begin_compound(self, code: int, first: int, end: int, count: int) -> bool:
        if first > end:
            return False
        if code >= 0xE0:
            return self._push(end, count, _UNTYPED)
        if code & 1 and count & 1:  # a map has a value for each key
            return False
        return self._push(end, count, _SIZED) if count else first == end
