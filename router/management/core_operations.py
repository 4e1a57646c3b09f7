"""CREATE, READ, UPDATE, DELETE and QUERY of the types whose entities are in the routing core.

Source: docs/spec/management.md §7.3, §7.4, §8.1, §8.6 to §8.9.
"""

from collections.abc import Mapping
from typing import Final

from policy.configuration.kinds import kind_of
from policy.configuration.kinds.core_kind import CoreKind
from policy.configuration.schema import EntityType, ValidationError
from policy.configuration.value_texts import shown
from router.management.query import QueryRows, Row, core_map, core_names, core_results, number, page, requested_names
from router.management.requests import CHANGE_NOT_ALLOWED, ManagementError, Requester
from router.management.scoped_operations import ScopedOperations
from router.management.views import Views

CRUD: Final = frozenset({"QUERY", "CREATE", "READ", "UPDATE", "DELETE"})


class CoreOperations:
    def __init__(self, views: Views) -> None:
        self._views = views

    def perform(
        self,
        operation: str,
        entity_type: EntityType,
        properties: Row,
        body: object,
        *,
        requester: Requester,
    ) -> tuple[int, object]:
        """Returns status and body of the reply. Errors: ManagementError, ValidationError."""
        kind = kind_of(entity_type)
        if operation in kind.forbidden:
            raise ManagementError(403, "Forbidden")
        if (scoped := self._scoped(entity_type, requester)) is not None:
            return scoped.perform(operation, properties, body, self._views.store.extensions.columns(entity_type))
        if operation == "QUERY":
            return 200, self._query(entity_type, properties, body)
        if operation == "READ":
            return 200, core_map(entity_type, self._read(entity_type, properties))
        if operation == "UPDATE":
            found = kind.wanted(entity_type, lambda: self._read(entity_type, properties), body)
            if found is not None:
                return 200, self._update(entity_type, *found, requester)
        elif isinstance(kind, CoreKind):
            perform = {"CREATE": self._create, "DELETE": self._delete}[operation]
            return perform(entity_type, properties, body)
        if operation in entity_type.operations:
            raise ManagementError(501, f"Operation '{operation}' not implemented on {entity_type.long_name}")
        raise ManagementError(
            501, f"Operation '{operation}' not implemented for '{entity_type.long_name}' {list(entity_type.operations)}"
        )

    def _scoped(self, entity_type: EntityType, requester: Requester) -> ScopedOperations | None:
        scoped = self._views.store.owner(entity_type).scoped
        return ScopedOperations(scoped, entity_type, requester) if scoped is not None else None

    def find(self, entity_type: EntityType, properties: Row, requester: Requester) -> Row | None:
        """Returns the entity that a request selects, in its present state; None if it selects none."""
        scoped = self._scoped(entity_type, requester)
        try:
            return scoped.read(properties) if scoped is not None else self._read(entity_type, properties)
        except (ManagementError, ValidationError):
            return None

    def error_body(self, operation: str, entity_type: EntityType) -> object:
        """Returns the body of an error reply (§7.2)."""
        if operation == "QUERY":
            return kind_of(entity_type).refused_query
        return None if operation == "CREATE" else {}

    def _query(self, entity_type: EntityType, properties: Row, body: object) -> object:
        shown = self._views.store.extensions.columns(entity_type)
        names = core_names(entity_type, requested_names(body), shown)
        offset, count = max(number(properties, "offset"), 0), number(properties, "count")
        rows = page(self._views.core_rows(entity_type, offset), count)
        return QueryRows(names, iter(core_results(entity_type, rows, names)))

    def _read(self, entity_type: EntityType, properties: Row) -> Row:
        """Returns the entity that a request selects. Errors: ManagementError, ValidationError."""
        column, value = kind_of(entity_type).selector(properties)
        row = self._views.core_find(entity_type, column, _text(value))
        if row is None:
            raise ManagementError(404, "Not Found")
        return row

    def _create(self, entity_type: EntityType, properties: Row, body: object) -> tuple[int, object]:
        name = properties.get("name")
        if name is None and isinstance(body, Mapping):
            name = body.get("name")
        if name is not None and not isinstance(name, str):
            raise ManagementError(400, f"'name' must be text, not {shown(name, 80)}")
        entity = self._views.store.create_core(entity_type, str(name) if name is not None else None, body)
        return 201, core_map(entity_type, self._views.core_row(entity))

    def _delete(self, entity_type: EntityType, properties: Row, _body: object) -> tuple[int, object]:
        row = self._read(entity_type, properties)
        entity = self._views.store.find_core(entity_type, "identity", str(row["identity"]))
        if entity is None:
            raise ManagementError(404, "Not Found")
        self._views.store.delete(entity)
        return 204, {}

    def _update(self, entity_type: EntityType, row: Row, changes: Mapping[str, object], requester: Requester) -> object:
        """Changes a row. Only requesters with the right to change administrative status may change adminStatus."""
        if "adminStatus" in changes and not requester.is_admin_update_allowed:
            raise ManagementError(403, CHANGE_NOT_ALLOWED)
        if changes:
            change = self._views.store.owner(entity_type).change
            if change is None:
                raise ManagementError(501, f"Operation 'UPDATE' not implemented on {entity_type.long_name}")
            change(str(row["identity"]), changes, requester.connection_id)
        return core_map(entity_type, {**row, **changes})


def _text(value: object) -> str:
    return str(value) if isinstance(value, str) else shown(value, 200)
