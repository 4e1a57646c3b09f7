"""All entities as requests see them: the store's and the owners' rows, secrets hidden; and which one a request selects.

Two views, as in docs/spec/management.md §5: the agent's, over all types but the core's live ones, with identities like
`listener/…`; and the core's, over one type, with decimal identities.
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
    """An owner's rows add live values to the configured entity of the same name, or to the only one of a singleton."""

    def __init__(self, schema: Schema, store: EntityStore) -> None:
        self.schema = schema
        self.store = store
        self.node_type: Final = schema.types[NODE_TYPE]

    # The agent's view

    def agent_rows(
        self, base: EntityType | None, is_shown: Callable[[EntityType], bool]
    ) -> Iterator[tuple[EntityType, Row]]:
        """Entities of a type and its subtypes, of all types for None, as far as they are shown; made as they are asked
        for.
        """
        for entity_type in filter(is_shown, self.schema.subtypes(base or self.schema.types["entity"])):
            yield from ((entity_type, row) for row in self._of_type(entity_type))

    def agent_row(self, entity: Entity) -> Row:
        """One configured entity with its live values."""
        return self._merge(entity, self._live_of(entity))

    def matches(self, attribute: str, value: str) -> Iterator[tuple[EntityType, Row]]:
        """Entities of the agent's view whose `name` or `identity` is the value."""
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
        """The live entities among which is the one whose `attribute` is the value."""
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
        """Does the agent show the owner's rows as they are?"""
        is_operational = "operationalEntity" in entity_type.bases and not entity_type.is_core
        return is_operational and self._provider(entity_type) is not None

    def _live_of(self, entity: Entity) -> dict[str, Row]:
        """Live values with those of `entity` among them; no others where they can be asked for one by one."""
        provider = self._provider(entity.type)
        if not isinstance(provider, PagedRows) or entity.type.is_core:
            return self._live(entity.type)
        found = provider.find("name", str(entity.attributes["name"]))
        return {} if found is None else {str(entity.attributes["name"]): found}

    def _live(self, entity_type: EntityType) -> dict[str, Row]:
        """The owner's rows by name; under "" that of a singleton."""
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
        """The type that the request names, where that is the type of what it selects; so it need not be looked for."""
        if all(properties.get(key) is None for key in ("name", "identity")) or properties.get("type") is None:
            return None
        named = self.schema.type(properties["type"])
        return named if sum(1 for _ in self.schema.subtypes(named)) == 1 else None

    def target(self, properties: Row) -> tuple[EntityType, Row]:
        """The one entity that name, identity and type select (§7.3)."""
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
        """A READ may name the type of what it selects, and no base of it but the standard's name of the management
        node. Errors: ManagementError.
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
        """Rows of a core type from number `offset` on, by column name; made as they are asked for. None: a pause."""
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
        """The first row of a core type whose `column` (identity or name) reads as `wanted`."""
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
