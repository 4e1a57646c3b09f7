"""CREATE, READ, DELETE and QUERY of entities that belong to one connection and that only this connection sees.

Source: docs/spec/management.md §8.9.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from policy.configuration.kinds import kind_of
from policy.configuration.schema import EntityType
from policy.configuration.value_texts import shown
from router.management.owners import Scoped
from router.management.query import QueryRows, Row, core_map, core_names, core_results, number, page, requested_names
from router.management.requests import ManagementError, Requester


class ScopedOperations:
    """The operations of one type, for one request."""

    def __init__(self, scoped: Scoped, entity_type: EntityType, requester: Requester) -> None:
        self._scoped = scoped
        self._type = entity_type
        # Attack: a client has a router pass its request on, and makes entities of that router's connection.
        self._connection = requester.connection_id if requester.is_direct else None

    def perform(self, operation: str, properties: Row, body: object, columns: Sequence[str]) -> tuple[int, object]:
        """Performs an operation.

        columns  for a QUERY that names none
        Errors   ManagementError, ValidationError
        """
        if operation == "QUERY":
            names = core_names(self._type, requested_names(body), columns)
            rows = islice(self._rows(), max(number(properties, "offset"), 0), None)
            results = core_results(self._type, page(rows, number(properties, "count")), names)
            return 200, QueryRows(names, iter(results))
        if operation == "READ":
            return 200, core_map(self._type, self.read(properties))
        if operation == "CREATE":
            return 201, core_map(self._type, self._create(properties, body))
        if operation == "DELETE":
            self._scoped.delete(self._connection, str(self.read(properties)["identity"]))
            return 204, {}
        operations = list(self._type.operations)
        raise ManagementError(501, f"Operation '{operation}' not implemented for '{self._type.long_name}' {operations}")

    def read(self, properties: Row) -> Row:
        """Returns the entity that a request selects. Errors: ManagementError, ValidationError."""
        column, value = kind_of(self._type).selector(properties)
        text = str(value) if isinstance(value, str) else shown(value, 200)
        row = next((row for row in self._rows() if row[column] == text), None)
        if row is None:
            raise ManagementError(404, "Not Found")
        return row

    def _rows(self) -> Iterator[Row]:
        return iter(self._scoped.rows(self._connection))

    def _create(self, properties: Row, body: object) -> Row:
        if not isinstance(body, Mapping):
            raise ManagementError(400, "Body of request must be a map")
        name = properties.get("name", body.get("name"))
        if name is not None and not isinstance(name, str):
            raise ManagementError(400, f"'name' must be text, not {shown(name, 80)}")
        given = {str(key): value for key, value in body.items() if isinstance(key, str)}
        return self._scoped.create(self._connection, str(name) if name is not None else None, given)
