"""Owners: they carry out changes of the entities of one type, and know their live values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from router.management.query import Provider, Row

Attributes = Mapping[str, object]


class Scoped(Protocol):
    """Entities that belong to one connection, which alone sees them. All methods get its id; None: no connection."""

    def rows(self, connection_id: int | None, /) -> Iterable[Row]:
        """Yields the columns of schemas/management.json."""
        ...

    def create(self, connection_id: int | None, name: str | None, attributes: Attributes, /) -> Row:
        """Creates an entity and returns its columns. Errors: ManagementError"""
        ...

    def delete(self, connection_id: int | None, identity: str, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of the entities of one type.

    An operation that is None does not exist: the request is answered 501. The agent checks the rights of the requester
    before it calls an owner, and records the change afterwards; an owner does neither. An operation that raises changes
    nothing. ManagementError is the answer to the request; any other exception is our own fault.

    type        short name
    rows        live entities; of a configured type the live values of its entities, by name
    create      (attributes): the result is merged into the attributes. Core types get the normalized columns, and may
                return their `identity`
    update      (before, after): the result is merged into `after`
    delete      (attributes): core types get their columns
    change      (identity, changes, id of the requesting connection): an UPDATE of a live entity of the core
    operations  more operations, in upper case: (application properties) -> body of the reply. Errors: ValidationError.
                Those that begin with GET- need the right to read and leave no record, because they only read. All
                others need the right to update, and do not exist for a type that has no such right
    scoped      the entities of the type belong to connections; then the other members are not set
    """

    type: str
    rows: Provider | None = None
    create: Callable[[Attributes], Attributes | None] | None = None
    update: Callable[[Attributes, Attributes], Attributes | None] | None = None
    delete: Callable[[Attributes], None] | None = None
    change: Callable[[str, Attributes, int | None], None] | None = None
    operations: Mapping[str, Callable[[Row], object]] = field(default_factory=dict)
    scoped: Scoped | None = None


def _nothing(*_: Attributes) -> None:
    """Does nothing: the entity has no effect."""


DUMMY = Owner(type="dummy", create=_nothing, update=_nothing, delete=_nothing, operations={"CALLME": dict})
