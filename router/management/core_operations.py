"""CREATE, READ, UPDATE, DELETE and QUERY of the types whose entities live in the routing core.

Source: docs/spec/management.md §7.3, §7.4, §8.1, §8.6 to §8.9.
"""

from collections.abc import Callable, Mapping

from router.management.entities import ManagementError
from router.management.query import QueryRows, Row, core_map, core_names, core_results, number, page, requested_names
from router.management.redaction import shown
from router.management.requests import Requester
from router.management.rules import CORE_CONFIG_TYPES
from router.management.schema import EntityType
from router.management.views import Views

CRUD = frozenset({"QUERY", "CREATE", "READ", "UPDATE", "DELETE"})
_FORBIDDEN_OPERATIONS = frozenset({("router", "CREATE"), ("router", "DELETE"), ("connection", "DELETE")})
# Connections between routers are the network's, not the operator's of one router.
_ROUTER_ROLES = ("inter-router", "edge")

ConnectionUpdate = Callable[[str, Mapping[str, object], int | None], None]


class CoreOperations:
    def __init__(self, views: Views, update_connection: ConnectionUpdate | None) -> None:
        self._views = views
        self._update_connection_handler = update_connection

    def perform(
        self,
        operation: str,
        entity_type: EntityType,
        properties: Row,
        body: object,
        *,
        requester: Requester,
    ) -> tuple[int, object]:
        """Status and body of the reply. Errors: ManagementError, ValidationError."""
        kind = entity_type.short_name
        if kind == "console" or (kind, operation) in _FORBIDDEN_OPERATIONS:
            raise ManagementError(403, "Forbidden")
        if operation == "QUERY":
            return 200, self._query(entity_type, properties, body)
        if operation == "READ":
            return 200, core_map(entity_type, self._read(entity_type, properties))
        if kind in CORE_CONFIG_TYPES and operation == "CREATE":
            name = properties.get("name")
            if name is None and isinstance(body, Mapping):
                name = body.get("name")
            if name is not None and not isinstance(name, str):
                raise ManagementError(400, f"'name' must be text, not {shown(name, 80)}")
            entity = self._views.store.create_core(entity_type, str(name) if name is not None else None, body)
            return 201, core_map(entity_type, self._views.core_row(entity))
        if kind in CORE_CONFIG_TYPES and operation == "DELETE":
            return self._delete(entity_type, properties)
        if kind == "connection" and operation == "UPDATE":
            return self._update_connection(entity_type, properties, body, requester)
        if kind == "router.link" and operation == "UPDATE":
            row = self._read(entity_type, properties)
            if not isinstance(body, Mapping) or body.get("adminStatus") is None:
                raise ManagementError(400, "Bad Request")
            return 200, core_map(entity_type, row)
        if operation in entity_type.operations:
            raise ManagementError(501, f"Operation '{operation}' not implemented on {entity_type.long_name}")
        raise ManagementError(
            501, f"Operation '{operation}' not implemented for '{entity_type.long_name}' {list(entity_type.operations)}"
        )

    def find(self, entity_type: EntityType, properties: Row) -> Row | None:
        """The entity that a request selects, as it is; None where it selects none."""
        try:
            return self._read(entity_type, properties)
        except ManagementError:
            return None

    def error_body(self, operation: str, entity_type: EntityType) -> object:
        """The body of an error reply (§7.2)."""
        if operation == "QUERY" and entity_type.short_name == "console":
            return {"attributeNames": [], "results": []}
        return None if operation == "CREATE" else {}

    def _query(self, entity_type: EntityType, properties: Row, body: object) -> object:
        names = core_names(entity_type, requested_names(body))
        offset, count = max(number(properties, "offset"), 0), number(properties, "count")
        rows = page(self._views.core_rows(entity_type, offset), count)
        return QueryRows(names, iter(core_results(entity_type, rows, names)))

    def _read(self, entity_type: EntityType, properties: Row) -> Row:
        """The entity that identity, else name, selects."""
        identity, name = properties.get("identity"), properties.get("name")
        if identity is None and entity_type.short_name == "connection":
            raise ManagementError(400, "Name not supported. Identity required")
        if identity is None and name is None:
            is_binding = "binding " if entity_type.short_name == "binding" else ""
            raise ManagementError(400, f"No {is_binding}name or identity provided")
        column, value = ("identity", identity) if identity is not None else ("name", name)
        row = self._views.core_find(entity_type, column, _text(value))
        if row is None:
            raise ManagementError(404, "Not Found")
        return row

    def _delete(self, entity_type: EntityType, properties: Row) -> tuple[int, object]:
        row = self._read(entity_type, properties)
        entity = self._views.store.find_core(entity_type, "identity", str(row["identity"]))
        if entity is None:
            raise ManagementError(404, "Not Found")
        self._views.store.delete(entity)
        return 204, {}

    def _update_connection(
        self, entity_type: EntityType, properties: Row, body: object, requester: Requester
    ) -> tuple[int, object]:
        identity = properties.get("identity")
        changes = {
            name: body[name]
            for name in ("adminStatus", "enableProtocolTrace")
            if isinstance(body, Mapping) and body.get(name) is not None
        }
        if identity is None or not changes:
            raise ManagementError(400, "Bad Request")
        try:
            row = self._read(entity_type, {"identity": identity})
        except ManagementError:
            raise ManagementError(400, "Bad Request") from None
        status = changes.pop("adminStatus", "enabled")
        trace = changes.pop("enableProtocolTrace", None)
        if status not in ("enabled", "deleted"):
            raise ManagementError(400, "Bad Request")
        wanted: dict[str, object] = {}
        if trace is not None:
            attribute = entity_type.attributes["enableProtocolTrace"]
            wanted["enableProtocolTrace"] = attribute.convert(trace, entity_type.long_name)
        if status == "deleted":
            if not requester.is_admin_update_allowed or row.get("role") in _ROUTER_ROLES:
                raise ManagementError(403, "You are not allowed to perform this operation.")
            wanted["adminStatus"] = "deleted"
        if wanted:
            if self._update_connection_handler is None:
                raise ManagementError(501, f"Operation 'UPDATE' not implemented on {entity_type.long_name}")
            self._update_connection_handler(str(row["identity"]), wanted, requester.connection_id)
        return 200, core_map(entity_type, {**row, **wanted})


def _text(value: object) -> str:
    return str(value) if isinstance(value, str) else shown(value, 200)
