"""QUERY: the requested attributes and rows, and the values with their AMQP types. Pure.

Rows come from an iterator, so that a page costs only its own rows. Source: docs/spec/management.md §7.4.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from policy.configuration.kinds.kind import Row as Row
from policy.configuration.schema import MAX_QUOTED_CHARACTERS, EntityType, ValidationError
from policy.configuration.value_texts import shown
from router.values import Array, int_, long, uint, ulong

# The number of attributes of all types together. Without a limit a small request asks for rows of millions of columns.
MAX_ATTRIBUTE_NAMES = 1000
# The core returns all its columns when it is asked for this many or more.
CORE_ALL_COLUMNS = 64


@dataclass(slots=True)
class QueryRows:
    """The body of a reply whose rows are not made yet.

    names  of the columns; None if the body consists only of rows (GET-LOG)
    rows   the values in the order of `names`; None for a row that is not part of the reply, so that the code that makes
           the rows can pause there, too
    """

    names: list[str] | None
    rows: Iterator[list[object] | None]

    def collected(self) -> tuple[object, int | None]:
        """Returns the body and the count of its results."""
        results = [row for row in self.rows if row is not None]
        return self.body(results), self.counted(len(results))

    def counted(self, made: int) -> int | None:
        """Returns the count of a QUERY's results after `made` rows; None if this is no QUERY."""
        return None if self.names is None else made

    def body(self, results: object) -> object:
        """Returns the body after the rows are made."""
        return results if self.names is None else {"attributeNames": self.names, "results": results}


@dataclass(frozen=True, slots=True)
class Rows:
    """Live entities of one type: maps by attribute name, made one by one when they are asked for.

    Core types have the columns of schemas/management.json; other types have at least name and identity.

    make  None among the rows is a pause, during which the caller may route messages. Only `router` has pauses
    """

    make: Callable[[], Iterable[Row | None]]


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Live entities of one type, with access by number and by key: rows that are skipped need not be made.

    page                  rows from a number on
    by_identity, by_name  the row with this identity, or with this name
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
    """Returns the rows without the pauses."""
    return (row for row in rows if row is not None)


def skip(provider: Provider, offset: int) -> Iterator[Row]:
    if isinstance(provider, PagedRows):
        return iter(provider.page(offset))
    return islice(made(provider.make()), offset, None)


def requested_names(body: object) -> list[str]:
    """Returns the attributeNames of the request's body; [] means all. Errors: ValidationError."""
    names = body.get("attributeNames") if isinstance(body, Mapping) else None
    if names is None:
        return []
    if not isinstance(names, list | tuple | Array) or not all(isinstance(name, str) for name in names):
        raise ValidationError("attributeNames must be a list of strings")
    if len(names) > MAX_ATTRIBUTE_NAMES:
        raise ValidationError(f"attributeNames holds more than {MAX_ATTRIBUTE_NAMES} names")
    return [str(name) for name in names]


def number(properties: Row, name: str) -> int:
    """Returns offset, count, limit or indent: an integer or its decimal text; 0 if absent. Errors: ValidationError."""
    value = properties.get(name)
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.strip().removeprefix("-").isdecimal():
        return int(value)
    raise ValidationError(f"'{name}' must be a decimal number, not {shown(value, MAX_QUOTED_CHARACTERS)}")


def page(rows: Iterable[Row | None], count: int) -> Iterator[Row | None]:
    """Yields the first `count` rows; all if it is 0 or less. Pauses (None) do not count as rows."""
    for row in rows:
        yield row
        count -= row is not None
        if count == 0 and row is not None:
            return


def agent_results(rows: Iterable[Row], names: Sequence[str], offset: int, count: int) -> Iterator[list[object] | None]:
    """Yields the page of rows that have a value for at least one of the names; None for each row that is skipped."""
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
    """Returns the columns of a reply for a core type.

    shown  the columns for a request that names none
    """
    if not names:
        return list(shown)
    return list(names) if len(names) < CORE_ALL_COLUMNS else list(entity_type.columns)


def core_results(
    entity_type: EntityType, rows: Iterable[Row | None], names: Sequence[str]
) -> Iterator[list[object] | None]:
    """Returns the values of rows, with the AMQP types that replies promise; None for unknown
    columns, and for pauses.
    """
    columns = _columns(entity_type, names)
    return (None if row is None else _values(columns, row) for row in rows)


def core_map(entity_type: EntityType, row: Row) -> dict[str, object]:
    """Returns all columns, including nulls."""
    names = list(entity_type.columns)
    return dict(zip(names, _values(_columns(entity_type, names), row), strict=True))


_Columns = list[tuple[str, Callable[[object], object] | None]]


def _columns(entity_type: EntityType, names: Sequence[str]) -> _Columns:
    return [(name, _WIRES.get(entity_type.columns.get(name, ""))) for name in names]


def _values(columns: _Columns, row: Row) -> list[object]:
    return [None if make is None or (value := row.get(name)) is None else make(value) for name, make in columns]


def _unsigned(made: Callable[[int], int], highest: int) -> Callable[[object], object]:
    # A counter outside its type reads as the nearest value, so that the query does not fail for all clients. Most
    # counters are zero, and a histogram has 128 of them: making that value only once halves the price of a page.
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
