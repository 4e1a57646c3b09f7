"""The management agent: takes a request and returns a response.

Operations, types and attributes of a request are looked up only in the schema and in explicit tables. No request
raises: an unexpected one is answered 500 and logged. The agent first understands a request (a Plan), then checks the
rights of its requester, in one place, and only then performs it. Sources: docs/spec/management.md §5, §7, §8.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from policy.configuration.kinds import kind_of
from policy.configuration.schema import MAX_QUOTED_CHARACTERS, EntityType, Schema, ValidationError
from policy.configuration.value_texts import hide_secrets, shown
from policy.decision import Reason
from policy.facts import ManagementFacts
from policy.rights import ALL, CREATE, DELETE, NAMING, READ, UPDATE, decide_management, exists, lacking
from router.effects import Emit, Log, LogLevel, log
from router.faults import fault_text
from router.management.core_operations import CRUD, CoreOperations
from router.management.entities import Entity, EntityStore, NameTakenError
from router.management.host_values import HostValues
from router.management.journal import Journal, denial_reason, emit_refused
from router.management.node_operations import type_filter
from router.management.query import QueryRows, Row, agent_results, number, requested_names
from router.management.requests import CHANGES, ManagementError, NotAllowedError, Plan, Request, Requester, Response
from router.management.views import Views

__all__ = ["Agent", "QueryRows", "Request", "Requester", "Response"]

DESCRIPTIONS: Mapping[int, str] = {200: "OK", 201: "Created", 204: "No Content"}
# Older names of operations; GET-OPERATIONS does not list them.
OPERATION_ALIASES: Mapping[str, str] = {
    "GET-SCHEMA-JSON": "GET-JSON-SCHEMA",
    "DISCOVER-MGMT-NODES": "GET-MGMT-NODES",
}
# An operation's name goes to the log twice before anything is known about it.
MAX_OPERATION_CHARACTERS = 64
# Operations on the wire → rights of a group. For the rights, an operation that is neither in this table nor for reading
# is a change.
RIGHTS: Final[Mapping[str, str]] = {"READ": READ, "QUERY": READ, "CREATE": CREATE, "UPDATE": UPDATE, "DELETE": DELETE}
READING_PREFIX: Final = "GET-"
# GET-LOG shows the log. It needs the right to read `log`, although that type has no such operation.
LOG_OPERATION, LOG_TYPE = "GET-LOG", "log"
NO_RIGHTS: Final = "no rights of management"
NOT_RECORDED: Final = "the change is not made, because the audit log can take no record of it"


class Agent:
    """Answers management requests. Calls the owners in the store after the request is allowed.

    is_debug_enabled   returns True if the debug lines of AGENT are enabled; making them takes time
    host_values        judges values that name files and the like
    may_record         returns True if the audit log can take the record of a change. If not, nothing is changed
    """

    def __init__(
        self,
        schema: Schema,
        store: EntityStore,
        emit: Emit,
        *,
        is_debug_enabled: Callable[[], bool] = lambda: True,
        host_values: HostValues | None = None,
        may_record: Callable[[], bool] = lambda: True,
    ) -> None:
        self.schema = schema
        self.store = store
        self._emit = emit
        self._is_debug_enabled = is_debug_enabled
        self._views = Views(schema, store)
        self._core = CoreOperations(self._views)
        self._host_values = host_values or HostValues()
        self._may_record = may_record
        self._journal = Journal(emit)

    def handle(self, request: Request) -> Response:
        """Answers one request. Never raises."""
        response = self.begin(request)
        if isinstance(response.body, QueryRows):
            try:
                body, count = response.body.collected()
                return Response(status=200, description="OK", body=body, count=count)
            except Exception as error:
                return self.failed(error)
        return response

    def failed(self, error: Exception) -> Response:
        """Returns the answer to a request that our own fault has prevented."""
        self._log("error", f"Unexpected {fault_text(error)}")
        return Response(status=500, description="InternalError: the request could not be carried out", body={})

    def begin(self, request: Request) -> Response:
        """Answers one request; never raises. The body may be QueryRows, whose iteration may raise anything."""
        properties = _text_keys(request.properties)
        operation = properties.get("operation")
        word = operation[:MAX_OPERATION_CHARACTERS] if isinstance(operation, str) else ""
        if self._is_debug_enabled():
            what = shown({"properties": properties, "body": request.body})
            self._log("debug", f"Agent request {word} {what}")
        name = OPERATION_ALIASES.get(word.upper(), word.upper())
        plan: Plan | None = None
        before: Row | None = None
        reason: Reason | None = None
        doing = word
        try:
            if not word:
                raise ManagementError(400, f"No 'operation' property: {shown(properties, MAX_QUOTED_CHARACTERS)}")
            plan = self._understood(name, word, properties, request)
            if plan.is_core and plan.entity_type is not None:
                doing = f"{name} of {plan.entity_type.long_name}"
            before = self._allowed(plan, request.requester)
            status, body = plan.perform()
            response = Response(status=status, description=DESCRIPTIONS[status], body=body)
        except (ManagementError, ValidationError) as error:
            known = error if isinstance(error, ManagementError) else ManagementError(400, str(error))
            if isinstance(known, NameTakenError) and not request.requester.rights.may(READ, known.error.taken_by):
                known = ManagementError(known.status, known.error.guarded)
            reason = error.reason if isinstance(error, NotAllowedError) else denial_reason(known.status)
            error_body = plan.error_body if plan is not None else {}
            response = Response(status=known.status, description=known.description, body=error_body)
        except Exception as error:  # the router continues, and the client learns nothing about its inside
            response = self.failed(error)
        lines: tuple[Log, ...] = ()
        if response.status >= 400:
            text = f"Error performing {doing}: {response.description}"
            lines = (Log(module="AGENT", level="error", text=text),)
        if name in CHANGES or (plan is not None and plan.is_change):
            self._journal.record(request, plan, name, response, before=before, reason=reason, lines=lines)
        elif lines:
            emit_refused(self._emit, request.requester, lines)
        if plan is not None and plan.operation == "UPDATE":
            response = _without_unreadable(plan, request.requester, response)
        if self._is_debug_enabled():
            body = response.body.names if isinstance(response.body, QueryRows) else response.body
            text = f"Agent response:\n  {response.status} {response.description} {shown(body, 500)}"
            self._log("debug", text)
        return response

    # Understanding

    def _understood(self, name: str, word: str, properties: Row, request: Request) -> Plan:
        """Returns the plan of a request; does nothing else. Errors: ManagementError, ValidationError."""
        if name == "UPDATE":
            properties = _with_selectors(properties, request.body)
        core_type = self._core_type(name, properties)
        if core_type is not None:
            return self._core_plan(name, core_type, properties, request)
        if name == "CREATE":
            return self._create_plan(properties, request)
        if (base := self._query_base(name, properties)) is not None:
            return self._query_plan(base[0], properties, request)
        entity_type = self._views.named_type(properties)
        if entity_type is None:
            if request.requester.rights.is_nothing:
                raise NotAllowedError(NO_RIGHTS)  # nor does the requester learn what exists
            entity_type, _ = self._views.target(properties)
        if name == "QUERY" and name in entity_type.operations:
            self._views.target(properties)
            return self._query_plan(type_filter(self.schema, properties), properties, request)
        given = _text_keys(request.body) if name == "UPDATE" else {}
        plan = Plan(
            facts=_facts(name, entity_type, given),
            operation=name,
            entity_type=entity_type,
            perform=lambda: self._on_agent(name, word, properties, request, plan),
            given=given,
            find=lambda: self._selected(properties) if name in CHANGES else None,
        )
        return plan

    def _core_plan(self, name: str, core_type: EntityType, properties: Row, request: Request) -> Plan:
        given = _text_keys(request.body) if name in ("CREATE", "UPDATE") else {}
        return Plan(
            facts=_facts(name, core_type, given),
            operation=name,
            entity_type=core_type,
            perform=lambda: self._core.perform(name, core_type, properties, request.body, requester=request.requester),
            given=given,
            find=lambda: (
                self._core.find(core_type, properties, request.requester) if name in ("UPDATE", "DELETE") else None
            ),
            error_body=self._core.error_body(name, core_type),
            is_core=True,
        )

    def _create_plan(self, properties: Row, request: Request) -> Plan:
        given = self._given(properties, request.body)
        entity_type = self.schema.type(given["type"])
        plan = Plan(
            facts=_facts("CREATE", entity_type, given),
            operation="CREATE",
            entity_type=entity_type,
            perform=lambda: (201, self._create(entity_type, plan.given, request.requester)),
            given=given,
        )
        return plan

    def _query_plan(self, base: EntityType | None, properties: Row, request: Request) -> Plan:
        """Returns the plan of a QUERY. A QUERY of several types shows the types that the requester may read."""
        rights = request.requester.rights
        kinds = list(self.store.extensions.subtypes(base or self.schema.types["entity"]))
        readable = {kind.short_name for kind in kinds if rights.may(READ, kind.short_name)}
        wanted = ManagementFacts(operation=READ, entity_type=kinds[0].short_name if len(kinds) == 1 else ALL)
        return Plan(
            facts=None if readable and len(kinds) > 1 else wanted,
            operation="QUERY",
            entity_type=base,
            perform=lambda: (200, self._query(base, properties, request.body, readable)),
        )

    # Rights

    def _allowed(self, plan: Plan, requester: Requester) -> Row | None:
        """Checks a request against the rights of its requester. This is the only place that does so.

        Returns the present entity if the request would change one. Errors: NotAllowedError, ManagementError.
        """
        rights, facts = requester.rights, plan.facts
        if rights.is_nothing:
            raise NotAllowedError(NO_RIGHTS)
        decision = decide_management(rights, facts, requester.rule) if facts is not None else None
        if facts is not None and decision is not None and not decision.is_allowed:
            missing = lacking(rights, facts) if decision.reason is Reason.MANAGEMENT_NOT_ALLOWED else str(facts)
            raise NotAllowedError(f"it takes the right '{missing}'", decision.reason)
        if not plan.is_change:
            return None
        if not self._may_record():
            raise ManagementError(500, f"InternalError: {NOT_RECORDED}")
        before = plan.find()
        if plan.entity_type is not None:
            plan.given = self._host_values.judged(plan.entity_type, plan.given, before, rights)
        return before

    # Core-handled types

    def _core_type(self, operation: str, properties: Row) -> EntityType | None:
        if operation not in CRUD:
            return None
        named = properties.get("entityType")
        found = self.schema.find(properties.get("type") if named is None else named)
        if found is None or not found.is_core:
            return None
        if kind_of(found).is_in_both_views and operation in ("READ", "UPDATE"):
            # In the agent's view the entity has its own name.
            selector = properties.get("identity", properties.get("name"))
            if isinstance(selector, str) and any(self._views.matches("identity", selector)):
                return None
        return found

    # Agent-handled types

    def _on_agent(self, operation: str, word: str, properties: Row, request: Request, plan: Plan) -> tuple[int, object]:
        entity_type, row = self._views.target(properties)
        if not entity_type.has_operation(operation):
            raise ManagementError(
                501,
                f"Operation '{operation}' not implemented for '{entity_type.long_name}' {list(entity_type.operations)}",
            )
        if operation == "READ":
            self._views.check_exact_type(entity_type, properties)
            return 200, _set_attributes(row)
        if operation in ("UPDATE", "DELETE"):
            entity = self.store.find(identity=str(row.get("identity")))
            if entity is not None:
                return self._change(operation, entity, request.body, plan)
        elif (perform := self.store.owner(entity_type).operations.get(operation)) is not None and (
            plan.is_change or operation.startswith(READING_PREFIX)
        ):  # other operations needed only the right to read, and would leave no record
            return 200, perform(properties)
        raise ManagementError(501, f"Operation '{word}' not implemented on {entity_type.long_name}")

    def _change(self, operation: str, entity: Entity, body: object, plan: Plan) -> tuple[int, object]:
        if operation == "DELETE":
            self.store.delete(entity)
            return 204, {}
        if not isinstance(body, Mapping):
            raise ManagementError(400, "Body of request must be a map")
        return 200, _set_attributes(self._views.agent_row(self.store.update(entity, plan.given)))

    def _given(self, properties: Row, body: object) -> dict[str, object]:
        """Returns the attributes that a CREATE sets, from the properties and the body, with the type."""
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
            # An attribute that no type has may be the misspelt name of a secret.
            hidden = hide_secrets(given, given.keys() - self.schema.attribute_names(None))
            raise ManagementError(400, f"No 'type' attribute in {shown(hidden, MAX_QUOTED_CHARACTERS)}")
        return given

    def _create(self, entity_type: EntityType, given: dict[str, object], requester: Requester) -> object:
        if entity_type.is_core:  # only the body named the type
            return self._core.perform("CREATE", entity_type, given, given, requester=requester)[1]
        if "CREATE" not in entity_type.operations:
            raise ManagementError(
                501, f"Operation 'CREATE' not implemented for '{entity_type.long_name}' {list(entity_type.operations)}"
            )
        return _set_attributes(self._views.agent_row(self.store.create(entity_type, given)))

    def _is_same_type(self, one: object, other: object) -> bool:
        found = self.schema.find(one)
        return found is not None and found is self.schema.find(other)

    def _selected(self, properties: Row) -> Row | None:
        try:
            return self._views.target(properties)[1]
        except (ManagementError, ValidationError):
            return None

    # QUERY

    def _query_base(self, operation: str, properties: Row) -> tuple[EntityType | None] | None:
        """Returns the type of a QUERY that names a type but no entity, in a tuple. The property may be `type`, too."""
        if operation != "QUERY" or any(properties.get(key) is not None for key in ("name", "identity", "entityType")):
            return None
        if properties.get("type") is None:
            return None
        requested = self.schema.type(properties["type"])
        is_node = self.schema.extends(self._views.node_type, requested)
        return None if is_node else (requested,)

    def _query(self, base: EntityType | None, properties: Row, body: object, readable: Collection[str]) -> object:
        names = requested_names(body)
        known = self.schema.attribute_names(base)
        if unknown := [name for name in names if name not in known]:
            of_type = f" for type {base.long_name}" if base is not None else ""
            raise ManagementError(404, f"Unknown attributes {shown(unknown, MAX_QUOTED_CHARACTERS)}{of_type}.")
        names = names or self.store.extensions.attribute_names(base)
        offset, count = max(number(properties, "offset"), 0), number(properties, "count")
        rows = (row for _, row in self._views.agent_rows(base, lambda kind: kind.short_name in readable))
        return QueryRows(names, agent_results(rows, names, offset, count))

    def _log(self, level: LogLevel, text: str) -> None:
        log(self._emit, "AGENT", level, text)


def _text_keys(value: object) -> dict[str, object]:
    """Returns the entries of a map whose keys are text; {} for anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key): each for key, each in value.items() if isinstance(key, str)}


def _with_selectors(properties: Row, body: object) -> Row:
    """Returns the properties of an UPDATE. If they do not select an entity, the body does (§7.5)."""
    if any(properties.get(key) is not None for key in ("name", "identity")):
        return properties
    inside = _text_keys(body)
    return {**properties, **{key: inside[key] for key in ("name", "identity") if inside.get(key) is not None}}


def _facts(operation: str, entity_type: EntityType, given: Mapping[str, object]) -> ManagementFacts:
    """Returns the facts for the decision about an operation.

    An operation that the type does not know counts as reading.
    """
    kind = LOG_TYPE if operation == LOG_OPERATION else entity_type.short_name
    wanted = READ if operation.startswith(READING_PREFIX) else RIGHTS.get(operation, UPDATE)
    is_known = operation in RIGHTS or entity_type.has_operation(operation)
    if not is_known or not exists(wanted, kind):
        return ManagementFacts(operation=READ, entity_type=kind)
    attributes = tuple(entity_type.canonical_names.get(name, name) for name in given)
    return ManagementFacts(operation=wanted, entity_type=kind, attributes=attributes)


def _without_unreadable(plan: Plan, requester: Requester, response: Response) -> Response:
    """Limits the answer to an UPDATE if the requester may not read the entity: only its names and the set values stay.

    Attack: an UPDATE that changes nothing, in order to read what the rights do not show.
    """
    kind, body = plan.entity_type, response.body
    if kind is None or not isinstance(body, Mapping) or requester.rights.may(READ, kind.short_name):
        return response
    told = {kind.canonical_names.get(name, name) for name in plan.given} | NAMING
    return replace(response, body={name: value for name, value in body.items() if name in told})


def _set_attributes(row: Row) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}
