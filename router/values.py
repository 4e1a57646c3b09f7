"""AMQP 1.0 scalar types as small immutable Python classes.

Imports nothing of ours. Each class subclasses the Python type it behaves like, so code that only wants the value
need not know it: `ubyte(3) == 3`, `symbol("x") == "x"`. Constructors raise ValueError outside the type's range.

AMQP type            Python
null, boolean        None, bool
ubyte ... long       ubyte, ushort, uint, ulong, byte, short, int_, long; a plain int means `int_` if it
                     fits, else `long`
float, double        float_, float
char, string, symbol char, str, symbol
binary               bytes
uuid, timestamp      uuid.UUID, timestamp (milliseconds since the epoch, signed)
decimal32/64/128     decimal32, decimal64, decimal128 (opaque: the encoded bytes)
list, map, array     list, dict, Array
described            Described

Source: AMQP 1.0 part 1, §1.6.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NewType, Self


class _Integer(int):
    __slots__ = ()
    LOWEST: ClassVar[int]
    HIGHEST: ClassVar[int]

    def __new__(cls, value: int = 0) -> Self:
        made = super().__new__(cls, value)
        if not cls.LOWEST <= made <= cls.HIGHEST:
            raise ValueError(f"{cls.__name__.rstrip('_')} is between {cls.LOWEST} and {cls.HIGHEST}, not {int(made)}")
        return made


class ubyte(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 2**8 - 1


class ushort(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 2**16 - 1


class uint(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 2**32 - 1


class ulong(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = 0, 2**64 - 1


class byte(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**7), 2**7 - 1


class short(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**15), 2**15 - 1


class int_(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**31), 2**31 - 1


class long(_Integer):
    __slots__ = ()
    LOWEST, HIGHEST = -(2**63), 2**63 - 1


class timestamp(_Integer):
    """Milliseconds since 1970-01-01T00:00:00 UTC; negative values are allowed."""

    __slots__ = ()
    LOWEST, HIGHEST = -(2**63), 2**63 - 1


class float_(float):
    """A 32-bit float: the value is rounded to a value that 32 bits can represent."""

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Self:
        try:
            return super().__new__(cls, struct.unpack(">f", struct.pack(">f", value))[0])
        except OverflowError:
            raise ValueError(f"{value!r} does not fit a 32-bit float") from None


class symbol(str):
    """ASCII text from a constrained domain (names of capabilities, mechanisms, conditions)."""

    __slots__ = ()

    def __new__(cls, value: str = "") -> Self:
        if not value.isascii():
            raise ValueError(f"a symbol is ASCII, not {value!r}")
        return super().__new__(cls, value)


class char(str):
    """One Unicode code point."""

    __slots__ = ()

    def __new__(cls, value: str = "\0") -> Self:
        if len(value) != 1 or "\ud800" <= value <= "\udfff":
            raise ValueError(f"a char is one Unicode code point, not {value!r}")
        return super().__new__(cls, value)


class _Decimal(bytes):
    __slots__ = ()
    WIDTH: ClassVar[int]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.WIDTH:
            raise ValueError(f"{cls.__name__} is {cls.WIDTH} bytes, not {len(value)}")
        return super().__new__(cls, value)


class decimal32(_Decimal):
    __slots__ = ()
    WIDTH = 4


class decimal64(_Decimal):
    __slots__ = ()
    WIDTH = 8


class decimal128(_Decimal):
    __slots__ = ()
    WIDTH = 16


@dataclass(frozen=True, slots=True)
class Described:
    """A described value.

    descriptor  normally a ulong or a symbol
    value       any AMQP value
    """

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one AMQP type.

    type        the Python class of every element: `symbol`, `ulong`, `str`, `list`, `Array`, `type(None)` ...
    descriptor  when set, every element is described by it (`values` holds the bare values)
    """

    type: type
    values: tuple[Any, ...]
    descriptor: Any = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


# A delivery, as the engine identifies it. Other modules only keep it, compare it and pass it back.
Handle = NewType("Handle", object)


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """A delivery state that is kept longer than its delivery.

    code  the code of its descriptor
    data  the encoded fields of a state that AMQP's core does not define, for example a transaction's; else empty
    """

    code: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """An AMQP error: condition symbol and description."""

    name: str
    description: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.description}".rstrip()
