"""All entities as requests see them, with secrets hidden; and the entity that a request selects.

There are two views, as in docs/spec/management.md §5. The agent's view has all types except the core's live ones, with
identities like `listener/…`. The core's view has one type, with decimal identities.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from policy.configuration.kinds import kind_of
from policy.configuration.kinds.core_kind import CoreKind
from policy.configuration.schema import MAX_QUOTED_CHARACTERS, EntityType, Schema
from policy.configuration.value_texts import shown
from router.management.entities import Entity, EntityStore
from router.management.node_operations import NODE, NODE_TYPE, STANDARD_NODE_TYPE
from router.management.query import PagedRows, Provider, Row, made, skip
from router.management.requests import ManagementError


class Views:
    """Adds live values to configured entities, by name. A singleton has only one row of live values."""

    def __init__(self, schema: Schema, store: EntityStore) -> None:
        self.schema = schema
        self.store = store
        self.node_type: Final = schema.types[NODE_TYPE]

    # The agent's view

    def agent_rows(
        self, base: EntityType | None, is_shown: Callable[[EntityType], bool]
    ) -> Iterator[tuple[EntityType, Row]]:
        """Yields the shown entities of a type and its subtypes (None: of all types).

        Makes each row when it is asked for.
        """
        for entity_type in filter(is_shown, self.schema.subtypes(base or self.schema.types["entity"])):
            yield from ((entity_type, row) for row in self._of_type(entity_type))

    def agent_row(self, entity: Entity) -> Row:
        """Returns one configured entity with its live values."""
        return self._merge(entity, self._live_of(entity))

    def matches(self, attribute: str, value: str) -> Iterator[tuple[EntityType, Row]]:
        """Yields the entities of the agent's view whose `name` or `identity` is the value."""
        by_name = attribute == "name"
        entity = self.store.find(name=value) if by_name else self.store.find(identity=value)
        if entity is not None and entity.agent is not None and not kind_of(entity.type).is_hidden:
            yield entity.type, self.agent_row(entity)
        for owner in self.store.owners():
            entity_type = self.schema.types[owner.type]
            if self._is_live_only(entity_type) and kind_of(entity_type).may_have(attribute, value):
                found = self._found(entity_type, attribute, value)
                yield from ((entity_type, row) for row in found if row.get(attribute) == value)

    def _provider(self, entity_type: EntityType) -> Provider | None:
        return self.store.owner(entity_type).rows

    def _found(self, entity_type: EntityType, attribute: str, value: str) -> Iterator[Row]:
        """Returns live entities; the one whose `attribute` is the value is among them."""
        provider = self._provider(entity_type)
        if not isinstance(provider, PagedRows):
            return self._of_type(entity_type)
        row = provider.find(attribute, value)
        return iter([_shown(entity_type, row)] if row is not None else [])

    def _of_type(self, entity_type: EntityType) -> Iterator[Row]:
        provider = self._provider(entity_type)
        if kind_of(entity_type).is_hidden:
            return
        if provider is not None and self._is_live_only(entity_type):
            yield from (_shown(entity_type, row) for row in made(provider.make()))
            return
        live = None
        for entity in self.store.entities(entity_type.short_name):
            if entity.agent is not None:
                if live is None or isinstance(provider, PagedRows):
                    live = self._live_of(entity)
                yield self._merge(entity, live)

    def _is_live_only(self, entity_type: EntityType) -> bool:
        """Returns True if the agent shows the owner's rows unchanged."""
        is_operational = "operationalEntity" in entity_type.bases and not entity_type.is_core
        return is_operational and self._provider(entity_type) is not None

    def _live_of(self, entity: Entity) -> dict[str, Row]:
        """Returns live values that include those of `entity`; only these if the owner can look up one row."""
        provider = self._provider(entity.type)
        if not isinstance(provider, PagedRows) or entity.type.is_core:
            return self._live(entity.type)
        found = provider.find("name", str(entity.attributes["name"]))
        return {} if found is None else {str(entity.attributes["name"]): found}

    def _live(self, entity_type: EntityType) -> dict[str, Row]:
        """Returns the owner's rows by name; a singleton's row has the name ""."""
        provider = self._provider(entity_type)
        if provider is None or isinstance(kind_of(entity_type), CoreKind):
            return {}
        return {"" if entity_type.is_singleton else str(row.get("name")): row for row in made(provider.make())}

    def _merge(self, entity: Entity, live: Mapping[str, Row]) -> Row:
        entity_type = entity.type
        attributes = entity_type.redacted(entity.attributes)
        found = live.get("" if entity_type.is_singleton else str(attributes["name"]), {})
        hidden = entity_type.redacted(found)
        fixed = ("name", "identity", "type")
        attributes.update(
            (name, value) for name, value in hidden.items() if name in entity_type.attributes and name not in fixed
        )
        return kind_of(entity_type).agent_row(attributes, found)

    # Selecting in the agent's view

    def named_type(self, properties: Row) -> EntityType | None:
        """Returns the type that the request names if it has no subtypes: then its entity need not be looked up."""
        if all(properties.get(key) is None for key in ("name", "identity")) or properties.get("type") is None:
            return None
        named = self.schema.type(properties["type"])
        return named if sum(1 for _ in self.schema.subtypes(named)) == 1 else None

    def target(self, properties: Row) -> tuple[EntityType, Row]:
        """Returns the one entity that name, identity and type select (§7.3)."""
        requested = self.schema.type(properties["type"]) if properties.get("type") is not None else None
        selectors = {key: properties[key] for key in ("name", "identity") if properties.get(key) is not None}
        if not selectors:
            if requested is None or self.schema.extends(self.node_type, requested):
                return self.node_type, {**NODE, "type": self.node_type.long_name}
            raise ManagementError(400, f"{requested.long_name}: No name or identity provided")
        texts = {key: _plain(value) for key, value in selectors.items()}
        asked = " ".join(f"{key}={value[:MAX_QUOTED_CHARACTERS]}" for key, value in texts.items())
        first = next(iter(texts))
        found = list(self.matches(first, texts[first]))
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

    def check_exact_type(self, entity_type: EntityType, properties: Row) -> None:
        """Refuses a READ that names a base type of what it selects. Errors: ManagementError.

        The standard's name of the management node is allowed.
        """
        requested = properties.get("type")
        if not {"name", "identity"} & properties.keys():
            return  # a type that the management node extends selects the node
        named = self.schema.find(requested)
        if entity_type is self.node_type and named is self.schema.types[STANDARD_NODE_TYPE]:
            return
        if requested is not None and named is not entity_type:
            raise ManagementError(
                404,
                f"Entity type '{entity_type.long_name}' does match requested type"
                f" '{self.schema.type(requested).long_name}'",
            )

    # The core's view

    def core_rows(self, entity_type: EntityType, offset: int = 0) -> Iterator[Row | None]:
        """Returns rows of a core type from number `offset` on, made when they are asked for. None is a pause."""
        kind = kind_of(entity_type)
        if kind.is_in_both_views:
            return self._singleton_rows(entity_type) if offset == 0 else iter(())
        if isinstance(kind, CoreKind):
            live = self._live_by_identity(entity_type)
            entities = [each for each in self.store.entities(kind.name) if each.core is not None][offset:]
            return (_core_row(each, live) for each in entities)
        provider = self._provider(entity_type)
        return skip(provider, offset) if provider is not None else iter(())

    def core_find(self, entity_type: EntityType, column: str, wanted: str) -> Row | None:
        """Returns the first row of a core type whose `column` (identity or name) has the text `wanted`."""
        if isinstance(kind_of(entity_type), CoreKind):
            entity = self.store.find_core(entity_type, column, wanted)
            return self.core_row(entity) if entity is not None else None
        provider = self._provider(entity_type)
        if isinstance(provider, PagedRows):
            return provider.find(column, wanted)
        return next((row for row in made(self.core_rows(entity_type)) if str(row.get(column)) == wanted), None)

    def core_row(self, entity: Entity) -> Row:
        return _core_row(entity, self._live_by_identity(entity.type))

    def _live_by_identity(self, entity_type: EntityType) -> dict[str, Row]:
        provider = self._provider(entity_type)
        return {str(row.get("identity")): row for row in made(provider.make())} if provider is not None else {}

    def _singleton_rows(self, entity_type: EntityType) -> Iterator[Row | None]:
        kind, provider = kind_of(entity_type), self._provider(entity_type)
        configured = next(self.store.attributes(kind.name), {})
        for live in provider.make() if provider is not None else [{}]:
            yield None if live is None else kind.core_row(entity_type, configured, live)


def _core_row(entity: Entity, live: Mapping[str, Row]) -> Row:
    core = entity.core or {}
    return {**core, **live.get(str(core.get("identity")), {})}


def _shown(entity_type: EntityType, row: Row) -> Row:
    return {**entity_type.redacted(row), "type": entity_type.long_name}


def _plain(value: object) -> str:
    return str(value) if isinstance(value, str) else shown(value, MAX_QUOTED_CHARACTERS)
