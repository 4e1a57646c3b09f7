"""What the management node itself answers: the schema in parts and as a whole, the log, the other nodes.

Source: docs/spec/management.md §7.7, §7.8.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from router.management.query import QueryRows, Row, number
from router.management.schema import EntityType, Schema

# JSON indented by a million blanks a level would fill the memory.
MAX_INDENT = 16

Perform = Callable[[Row, EntityType | None], object]


class NodeOperations:
    def __init__(
        self,
        schema: Schema,
        management_nodes: Callable[[], Sequence[str]],
        log_entries: Callable[[int], Iterator[list[object]]],
    ) -> None:
        self._schema = schema
        self._management_nodes = management_nodes
        self._all_names: list[str] | None = None
        self._operations: Mapping[str, Perform] = {
            "GET-TYPES": self._types,
            "GET-ATTRIBUTES": self._attributes,
            "GET-OPERATIONS": self._operation_lists,
            "GET-ANNOTATIONS": lambda properties, only: {},
            "GET-MGMT-NODES": lambda properties, only: [str(each) for each in management_nodes()],
            "GET-SCHEMA": lambda properties, only: schema.dump(),
            "GET-JSON-SCHEMA": self._json_schema,
            "GET-LOG": lambda properties, only: QueryRows(None, log_entries(max(number(properties, "limit"), 0))),
        }

    def find(self, operation: str) -> Perform | None:
        """perform(application properties, the type named by entityType) gives the body of the reply.

        Errors  ValidationError, raised by perform.
        """
        return self._operations.get(operation)

    def attribute_names(self, base: EntityType | None) -> Sequence[str]:
        """What a QUERY may ask for: the attributes of the type, of all types for None."""
        if base is not None:
            return list(base.attributes)
        if self._all_names is None:
            every = (name for each in self._schema.types.values() for name in each.attributes)
            self._all_names = list(dict.fromkeys(every))
        return self._all_names

    def _types(self, _: Row, only: EntityType | None) -> object:
        chosen = self._schema.subtypes(only) if only is not None else self._schema.types.values()
        return {each.long_name: self._schema.long_bases(each) for each in chosen}

    def _attributes(self, _: Row, only: EntityType | None) -> object:
        return {each.long_name: list(each.attributes) for each in self._one_or_all(only)}

    def _operation_lists(self, _: Row, only: EntityType | None) -> object:
        return {each.long_name: list(each.operations) for each in self._one_or_all(only)}

    def _one_or_all(self, only: EntityType | None) -> Sequence[EntityType]:
        return [only] if only is not None else list(self._schema.types.values())

    def _json_schema(self, properties: Row, _: EntityType | None) -> object:
        indent = number(properties, "indent")
        is_indented = properties.get("indent") is not None and indent >= 0
        return json.dumps(self._schema.dump(), indent=min(indent, MAX_INDENT) if is_indented else None)
