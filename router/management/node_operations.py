"""The operations of the management node itself: the schema in parts and as a whole, the log, the other nodes.

Source: docs/spec/management.md §7.7, §7.8.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from policy.configuration.schema import EntityType, Schema
from router.management.extensions import Extensions
from router.management.owners import Owner
from router.management.query import QueryRows, Row, Rows, number
from router.management.requests import ManagementError

# JSON with an indent of a million blanks for each level would fill the memory.
MAX_INDENT = 16

NODE_TYPE = "management"
# The base of the type, by its name in the management draft.
STANDARD_NODE_TYPE = "org.amqp.management"
# The only entity of the type.
NODE = {"name": "self", "identity": "self"}


def no_nodes() -> Sequence[str]:
    return []


def no_profile(_: Row) -> object:
    raise ManagementError(501, "Operation 'PROFILE' not implemented here")


def no_log_entries(_: int) -> Iterator[list[object]]:
    return iter(())


def node_owner(
    schema: Schema,
    extensions: Extensions | None = None,
    management_nodes: Callable[[], Sequence[str]] = no_nodes,
    log_entries: Callable[[int], Iterator[list[object]]] = no_log_entries,
    profile: Callable[[Row], object] = no_profile,
) -> Owner:
    """Returns the owner of the management node.

    extensions         the extensions in use; None: none
    management_nodes   GET-MGMT-NODES: returns the addresses of the management nodes of all routers in the network
    log_entries        GET-LOG: returns the last N entries, 0 for all (logrules.LogRing.entries)
    profile            PROFILE, with its application properties. Errors: ManagementError
    """
    extensions = extensions or Extensions(schema)
    node = _Node(schema, extensions)
    performs: Mapping[str, Callable[[Row, EntityType | None], object]] = {
        "GET-TYPES": node.types,
        "GET-ATTRIBUTES": node.attributes,
        "GET-OPERATIONS": node.operation_lists,
        "GET-ANNOTATIONS": lambda properties, only: {},
        "GET-MGMT-NODES": lambda properties, only: [str(each) for each in management_nodes()],
        "GET-SCHEMA": lambda properties, only: extensions.dump(),
        "GET-JSON-SCHEMA": node.json_schema,
        "GET-LOG": lambda properties, only: QueryRows(None, log_entries(max(number(properties, "limit"), 0))),
        "PROFILE": lambda properties, only: profile(properties),
    }

    def operation(name: str) -> Callable[[Row], object]:
        return lambda properties: performs[name](properties, type_filter(schema, properties))

    return Owner(type=NODE_TYPE, rows=Rows(lambda: [NODE]), operations={name: operation(name) for name in performs})


def type_filter(schema: Schema, properties: Row) -> EntityType | None:
    """Returns the type that `entityType` names; None for all. Errors: ValidationError."""
    named = properties.get("entityType")
    return schema.type(named) if named is not None else None


class _Node:
    """The operations about the schema. Each takes the application properties and the type that they name."""

    def __init__(self, schema: Schema, extensions: Extensions) -> None:
        self._schema = schema
        self._extensions = extensions

    def types(self, _: Row, only: EntityType | None) -> object:
        chosen = self._extensions.subtypes(only) if only is not None else self._extensions.types()
        return {each.long_name: self._schema.long_bases(each) for each in chosen}

    def attributes(self, _: Row, only: EntityType | None) -> object:
        return {each.long_name: self._extensions.attribute_names(each) for each in self._one_or_all(only)}

    def operation_lists(self, _: Row, only: EntityType | None) -> object:
        return {each.long_name: list(each.operations) for each in self._one_or_all(only)}

    def _one_or_all(self, only: EntityType | None) -> Sequence[EntityType]:
        return [only] if only is not None else self._extensions.types()

    def json_schema(self, properties: Row, _: EntityType | None) -> object:
        indent = number(properties, "indent")
        is_indented = properties.get("indent") is not None and indent >= 0
        return json.dumps(self._extensions.dump(), indent=min(indent, MAX_INDENT) if is_indented else None)
