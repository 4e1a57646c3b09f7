"""The management agent: a request in, a response out.

No operation, type or attribute of a request is ever looked up but in the schema and in explicit tables, and no request
raises: what is not foreseen is answered 500 and logged. Sources: docs/spec/management.md §5, §7, §8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from router.effects import Emit, LogLevel, log
from router.faults import fault_text
from router.management.core_operations import CRUD, CoreOperations
from router.management.entities import Entity, EntityStore, ManagementError
from router.management.node_operations import NodeOperations
from router.management.query import Provider, QueryRows, Row, agent_results, number, requested_names
from router.management.redaction import shown
from router.management.schema import MAX_QUOTED_CHARACTERS, EntityType, Schema, ValidationError
from router.management.views import Views

__all__ = ["Agent", "ManagementError", "Provider", "QueryRows", "Request", "Response"]

DESCRIPTIONS: Mapping[int, str] = {200: "OK", 201: "Created", 204: "No Content"}
# What older books call operations; not listed by GET-OPERATIONS.
OPERATION_ALIASES: Mapping[str, str] = {
    "GET-SCHEMA-JSON": "GET-JSON-SCHEMA",
    "DISCOVER-MGMT-NODES": "GET-MGMT-NODES",
}
# An operation's name goes to the log twice before anything is known about it.
MAX_OPERATION_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """properties     the application-properties; anything else counts as none
    body           of the amqp-value section
    connection_id  of the connection it came on; None for the router itself
    """

    properties: object = field(repr=False)
    body: object = field(default=None, repr=False)
    connection_id: int | None = None
    is_admin_update_allowed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """statusCode, statusDescription and body of the reply."""

    status: int
    description: str
    body: object = field(repr=False)


def no_log_entries(_: int) -> Iterator[list[object]]:
    return iter(())


def no_nodes() -> Sequence[str]:
    return []


ConnectionUpdate = Callable[[str, Mapping[str, object], int | None], None]


class Agent:
    """Answers management requests.

    providers          live entities by short type name
    management_nodes   GET-MGMT-NODES: addresses of the management nodes of all routers in the network
    log_entries        GET-LOG: the last so many entries, 0 for all (logrules.LogRing.entries)
    update_connection  (identity, changes, id of the requesting connection): carries out what an UPDATE of a connection
                       asks for: adminStatus "deleted" or enableProtocolTrace; may raise ManagementError. None: 501
    is_debug_enabled   whether the debug lines of AGENT are wanted; making them takes time
    """

    def __init__(
        self,
        schema: Schema,
        store: EntityStore,
        providers: Mapping[str, Provider],
        emit: Emit,
        *,
        management_nodes: Callable[[], Sequence[str]] = no_nodes,
        log_entries: Callable[[int], Iterator[list[object]]] = no_log_entries,
        update_connection: ConnectionUpdate | None = None,
        is_debug_enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        self.schema = schema
        self.store = store
        self._emit = emit
        self._is_debug_enabled = is_debug_enabled
        self._views = Views(schema, store, providers)
        self._core = CoreOperations(self._views, update_connection)
        self._node = NodeOperations(schema, management_nodes, log_entries)

    def handle(self, request: Request) -> Response:
        """Answer one request. Never raises."""
        response = self.begin(request)
        if isinstance(response.body, QueryRows):
            try:
                return Response(status=200, description="OK", body=response.body.collected())
            except Exception as error:
                return self.failed(error)
        return response

    def failed(self, error: Exception) -> Response:
        """The answer to a request that our own fault kept from being carried out."""
        self._log("error", f"Unexpected {fault_text(error)}")
        return Response(status=500, description="InternalError: the request could not be carried out", body={})

    def begin(self, request: Request) -> Response:
        """Answer one request; the body may be QueryRows, which may raise anything. Never raises itself.
        """
        properties = _text_keys(request.properties)
        operation = properties.get("operation")
        word = operation[:MAX_OPERATION_CHARACTERS] if isinstance(operation, str) else ""
        if self._is_debug_enabled():
            what = shown({"properties": properties, "body": request.body})
            self._log("debug", f"Agent request {word} {what}")
        doing = word
        try:
            if not word:
                raise ManagementError(400, f"No 'operation' property: {shown(properties, MAX_QUOTED_CHARACTERS)}")
            name = OPERATION_ALIASES.get(word.upper(), word.upper())
            core_type = self._core_type(name, properties)
            if core_type is not None:
                doing = f"{name} of {core_type.long_name}"
                response = self._on_core(name, core_type, properties, request)
            else:
                status, body = self._on_agent(name, word, properties, request)
                response = Response(status=status, description=DESCRIPTIONS[status], body=body)
        except ManagementError as error:
            response = Response(status=error.status, description=error.description, body={})
        except ValidationError as error:
            response = Response(status=400, description=str(error), body={})
        except Exception as error:  # the router lives on, and the client learns nothing of its inside
            response = self.failed(error)
        if response.status >= 400:
            self._log("error", f"Error performing {doing}: {response.description}")
        if self._is_debug_enabled():
            body = response.body.names if isinstance(response.body, QueryRows) else response.body
            text = f"Agent response:\n  {response.status} {response.description} {shown(body, 500)}"
            self._log("debug", text)
        return response

    # Core-handled types

    def _core_type(self, operation: str, properties: Row) -> EntityType | None:
        if operation not in CRUD:
            return None
        named = properties.get("entityType")
        found = self.schema.find(properties.get("type") if named is None else named)
        if found is None or not found.is_core:
            return None
        if found.short_name == "router" and operation in ("READ", "UPDATE"):
            # The router has an entity in the agent's view as well, under a name of its own.
            selector = properties.get("identity", properties.get("name"))
            if isinstance(selector, str) and any(self._views.matches("identity", selector)):
                return None
        return found

    def _on_core(self, operation: str, entity_type: EntityType, properties: Row, request: Request) -> Response:
        try:
            status, body = self._core.perform(
                operation,
                entity_type,
                properties,
                request.body,
                requester=request.connection_id,
                is_admin_update_allowed=request.is_admin_update_allowed,
            )
        except (ManagementError, ValidationError) as error:
            known = error if isinstance(error, ManagementError) else ManagementError(400, str(error))
            return Response(
                status=known.status, description=known.description, body=self._core.error_body(operation, entity_type)
            )
        return Response(status=status, description=DESCRIPTIONS[status], body=body)

    # Agent-handled types

    def _on_agent(self, operation: str, word: str, properties: Row, request: Request) -> tuple[int, object]:
        if operation == "CREATE":
            return 201, self._create(properties, request.body)
        if (base := self._query_base(operation, properties)) is not None:
            return 200, self._query(base[0], properties, request.body)
        entity_type, row = self._target(properties)
        if operation not in entity_type.operations:
            raise ManagementError(
                501,
                f"Operation '{operation}' not implemented for '{entity_type.long_name}' {list(entity_type.operations)}",
            )
        if operation == "READ":
            self._check_exact_type(entity_type, properties)
            return 200, _set_attributes(row)
        if operation == "QUERY":
            return 200, self._query(self._type_filter(properties), properties, request.body)
        if operation == "CALLME":
            return 200, dict(properties)
        if operation in ("UPDATE", "DELETE"):
            entity = self.store.find(identity=str(row.get("identity")))
            if entity is not None:
                return self._change(operation, entity, request.body)
        elif entity_type.short_name == "management" and (perform := self._node.find(operation)) is not None:
            return 200, perform(properties, self._type_filter(properties))
        raise ManagementError(501, f"Operation '{word}' not implemented on {entity_type.long_name}")

    def _change(self, operation: str, entity: Entity, body: object) -> tuple[int, object]:
        if operation == "DELETE":
            self.store.delete(entity)
            return 204, {}
        if not isinstance(body, Mapping):
            raise ManagementError(400, "Body of request must be a map")
        return 200, _set_attributes(self._views.agent_row(self.store.update(entity, _text_keys(body))))

    def _create(self, properties: Row, body: object) -> object:
        if body is not None and not isinstance(body, Mapping):
            raise ManagementError(400, "Body of request must be a map")
        given = _text_keys(body)
        if properties.get("identity") is not None:
            given["identity"] = properties["identity"]
        for name in ("type", "name"):
            outside, inside = properties.get(name), given.get(name)
            if outside is None:
                continue
            is_same = inside is None or inside == outside
            if not is_same and not (name == "type" and self._is_same_type(inside, outside)):
                raise ManagementError(400, f"Conflicting values for '{name}'")
            given[name] = outside
        if given.get("type") is None:
            raise ManagementError(400, f"No 'type' attribute in {shown(given, MAX_QUOTED_CHARACTERS)}")
        entity_type = self.schema.type(given["type"])
        if entity_type.is_core:  # only its body named the type
            return self._core.perform(
                "CREATE", entity_type, given, given, requester=None, is_admin_update_allowed=False
            )[1]
        if "CREATE" not in entity_type.operations:
            raise ManagementError(
                501, f"Operation 'CREATE' not implemented for '{entity_type.long_name}' {list(entity_type.operations)}"
            )
        return _set_attributes(self._views.agent_row(self.store.create(entity_type, given)))

    def _is_same_type(self, one: object, other: object) -> bool:
        found = self.schema.find(one)
        return found is not None and found is self.schema.find(other)

    def _target(self, properties: Row) -> tuple[EntityType, Row]:
        """The one entity that name, identity and type select (§7.3)."""
        requested = self.schema.type(properties["type"]) if properties.get("type") is not None else None
        node_type = self.schema.types["management"]
        selectors = {key: properties[key] for key in ("name", "identity") if properties.get(key) is not None}
        if not selectors:
            if requested is None or self.schema.extends(node_type, requested):
                return node_type, self._views.node
            raise ManagementError(400, f"{requested.long_name}: No name or identity provided")
        texts = {key: _plain(value) for key, value in selectors.items()}
        asked = " ".join(f"{key}={value[:MAX_QUOTED_CHARACTERS]}" for key, value in texts.items())
        first = next(iter(texts))
        found = list(self._views.matches(first, texts[first]))
        if not found:
            raise ManagementError(404, f"No entity with {asked}")
        if len(found) > 1:
            raise ManagementError(500, f"Duplicate ({len(found)}) entities with {asked}")
        entity_type, row = found[0]
        if any(str(row.get(key)) != value for key, value in texts.items()):
            raise ManagementError(400, f"Conflicting {asked}")
        if requested is not None and not self.schema.extends(entity_type, requested):
            raise ManagementError(
                400,
                f"Entity type '{entity_type.long_name}' does not extend requested type '{requested.long_name}'",
            )
        return entity_type, row

    def _check_exact_type(self, entity_type: EntityType, properties: Row) -> None:
        requested = properties.get("type")
        if requested is not None and self.schema.find(requested) is not entity_type:
            is_node = entity_type.short_name == "management" and not {"name", "identity"} & properties.keys()
            if not is_node:
                raise ManagementError(
                    404,
                    f"Entity type '{entity_type.long_name}' does match requested type"
                    f" '{self.schema.type(requested).long_name}'",
                )

    # QUERY

    def _type_filter(self, properties: Row) -> EntityType | None:
        named = properties.get("entityType")
        return self.schema.type(named) if named is not None else None

    def _query_base(self, operation: str, properties: Row) -> tuple[EntityType | None] | None:
        """For a QUERY that names a type and no entity, that type; it need not be called entityType."""
        if operation != "QUERY" or any(properties.get(key) is not None for key in ("name", "identity", "entityType")):
            return None
        if properties.get("type") is None:
            return None
        requested = self.schema.type(properties["type"])
        is_node = self.schema.extends(self.schema.types["management"], requested)
        return None if is_node else (requested,)

    def _query(self, base: EntityType | None, properties: Row, body: object) -> object:
        names = requested_names(body)
        known = self._node.attribute_names(base)
        if unknown := [name for name in names if name not in known]:
            of_type = f" for type {base.long_name}" if base is not None else ""
            raise ManagementError(404, f"Unknown attributes {shown(unknown, MAX_QUOTED_CHARACTERS)}{of_type}.")
        names = names or list(known)
        offset, count = max(number(properties, "offset"), 0), number(properties, "count")
        rows = (row for _, row in self._views.agent_rows(base))
        return QueryRows(names, agent_results(rows, names, offset, count))

    def _log(self, level: LogLevel, text: str) -> None:
        log(self._emit, "AGENT", level, text)


def _text_keys(value: object) -> dict[str, object]:
    """The part of a map that has text for keys; empty for anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key): each for key, each in value.items() if isinstance(key, str)}


def _plain(value: object) -> str:
    return str(value) if isinstance(value, str) else shown(value, MAX_QUOTED_CHARACTERS)


def _set_attributes(row: Row) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}
