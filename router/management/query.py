"""QUERY: which attributes and which rows were asked for, and the values with their AMQP types. Pure.

Rows are pulled from an iterator, so that a page costs what a page costs. Source: docs/spec/management.md §7.4.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from policy.configuration.kinds.kind import Row as Row
from policy.configuration.schema import MAX_QUOTED_CHARACTERS, EntityType, ValidationError
from policy.configuration.value_texts import shown
from router.values import Array, int_, long, uint, ulong

# As many as all types have together. Without a bound a small request asks for rows of millions of columns.
MAX_ATTRIBUTE_NAMES = 1000
# The core gives all its columns when asked for this many or more.
CORE_ALL_COLUMNS = 64


@dataclass(slots=True)
class QueryRows:
    """The body of a reply whose rows are yet to be made.

    names  of the columns; None where the rows are all there is to the body (GET-LOG)
    rows   the values in the order of `names`; None for a row that was looked at and is not for the reply, so that
           the code that makes them can pause there as well
    """

    names: list[str] | None
    rows: Iterator[list[object] | None]

    def collected(self) -> tuple[object, int | None]:
        """The body and the count of its results."""
        results = [row for row in self.rows if row is not None]
        return self.body(results), self.counted(len(results))

    def counted(self, made: int) -> int | None:
        """So many rows as the count of a QUERY's results; None where this is none."""
        return None if self.names is None else made

    def body(self, results: object) -> object:
        """The body, once the rows are made."""
        return results if self.names is None else {"attributeNames": self.names, "results": results}


@dataclass(frozen=True, slots=True)
class Rows:
    """Live entities of one type: attribute maps by attribute name, made one by one as they are asked for.

    Core types have the columns of schemas/management.json, others name and identity.
    make  None among the rows is a pause: the caller may let messages pass there. Only `router` makes any
    """

    make: Callable[[], Iterable[Row | None]]


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Live entities of one type that need not be made to be passed over.

    page                  rows from a number on
    by_identity, by_name  the one row of an identity, and of a name
    """

    page: Callable[[int], Iterable[Row]]
    by_identity: Callable[[str], Row | None]
    by_name: Callable[[str], Row | None]

    def make(self) -> Iterable[Row]:
        return self.page(0)

    def find(self, column: str, value: str) -> Row | None:
        return self.by_identity(value) if column == "identity" else self.by_name(value)


Provider = Rows | PagedRows


def made(rows: Iterable[Row | None]) -> Iterator[Row]:
    """The rows, without pausing."""
    return (row for row in rows if row is not None)


def skip(provider: Provider, offset: int) -> Iterator[Row]:
    if isinstance(provider, PagedRows):
        return iter(provider.page(offset))
    return islice(made(provider.make()), offset, None)


def requested_names(body: object) -> list[str]:
    """The attributeNames of the request's body; empty means all. Errors: ValidationError."""
    names = body.get("attributeNames") if isinstance(body, Mapping) else None
    if names is None:
        return []
    if not isinstance(names, list | tuple | Array) or not all(isinstance(name, str) for name in names):
        raise ValidationError("attributeNames must be a list of strings")
    if len(names) > MAX_ATTRIBUTE_NAMES:
        raise ValidationError(f"attributeNames holds more than {MAX_ATTRIBUTE_NAMES} names")
    return [str(name) for name in names]


def number(properties: Row, name: str) -> int:
    """offset, count, limit or indent: an integer or the decimal text of one; 0 when absent. Errors: ValidationError."""
    value = properties.get(name)
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.strip().removeprefix("-").isdecimal():
        return int(value)
    raise ValidationError(f"'{name}' must be a decimal number, not {shown(value, MAX_QUOTED_CHARACTERS)}")


def page(rows: Iterable[Row | None], count: int) -> Iterator[Row | None]:
    """The first `count` rows; all when it is 0 or less. Pauses (None) are no rows."""
    for row in rows:
        yield row
        count -= row is not None
        if count == 0 and row is not None:
            return


def agent_results(rows: Iterable[Row], names: Sequence[str], offset: int, count: int) -> Iterator[list[object] | None]:
    """The page of the rows that have a value for at least one of the names; None for each that is passed over."""
    at = 0
    for row in rows:
        values = [row.get(name) for name in names]
        if all(value is None for value in values):
            yield None
            continue
        at += 1
        yield values if at > offset else None
        if 0 < count <= at - offset:
            return


def core_names(entity_type: EntityType, names: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The columns of a reply for a core type. shown  those for a request that names none"""
    if not names:
        return list(shown)
    return list(names) if len(names) < CORE_ALL_COLUMNS else list(entity_type.columns)


def core_results(
    entity_type: EntityType, rows: Iterable[Row | None], names: Sequence[str]
) -> Iterator[list[object] | None]:
    """The values of rows with the AMQP types that replies promise; None for unknown columns, and for pauses."""
    columns = _columns(entity_type, names)
    return (None if row is None else _values(columns, row) for row in rows)


def core_map(entity_type: EntityType, row: Row) -> dict[str, object]:
    """All columns, nulls included."""
    names = list(entity_type.columns)
    return dict(zip(names, _values(_columns(entity_type, names), row), strict=True))


_Columns = list[tuple[str, Callable[[object], object] | None]]


def _columns(entity_type: EntityType, names: Sequence[str]) -> _Columns:
    return [(name, _WIRES.get(entity_type.columns.get(name, ""))) for name in names]


def _values(columns: _Columns, row: Row) -> list[object]:
    return [None if make is None or (value := row.get(name)) is None else make(value) for name, make in columns]


def _unsigned(made: Callable[[int], int], highest: int) -> Callable[[object], object]:
    # A counter outside its type reads as the nearest value rather than failing everybody's query. Most counters are
    # zero, and a histogram is 128 of them: making that value only once halves the price of a page.
    zero = made(0)

    def wire(value: object) -> object:
        if value == 0:
            return zero
        return made(min(max(int(value), 0), highest)) if isinstance(value, int) else None

    return wire


def _signed(made: Callable[[int], int], bits: int) -> Callable[[object], object]:
    highest = 2 ** (bits - 1) - 1
    return lambda value: made(min(max(int(value), -highest - 1), highest)) if isinstance(value, int) else None


def _list_of(each: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: list(map(each, value)) if isinstance(value, list | tuple) else None


_TO_ULONG = _unsigned(ulong, ulong.HIGHEST)
_TO_LONG = _signed(long, 64)
_WIRES: Mapping[str, Callable[[object], object]] = {
    "string": str,
    "boolean": bool,
    "int": _signed(int_, 32),
    "uint": _unsigned(uint, uint.HIGHEST),
    "ulong": _TO_ULONG,
    "long": _TO_LONG,
    "map": lambda value: dict(value) if isinstance(value, Mapping) else None,
    "list of string": _list_of(str),
    "list of ulong": _list_of(_TO_ULONG),
    "list of long": _list_of(_TO_LONG),
}
