"""All entities as requests see them: the store's, the providers' and the management node, secrets hidden.

Two views, as in docs/spec/management.md §5: the agent's, over all types but the core's live ones, with identities like
`listener/…`; and the core's, over one type, with decimal identities.
"""

from collections.abc import Callable, Iterator, Mapping

from router.management.entities import Entity, EntityStore
from router.management.query import PagedProvider, Provider, Row, made, skip
from router.management.rules import CORE_CONFIG_TYPES
from router.management.schema import EntityType, Schema

# Agent view of the router: totals of entities that the agent's view does not hold (§6.5).
_AGENT_ROUTER_ZEROS = ("addrCount", "linkCount", "nodeCount")

# Live entities whose name is not their identity (§6.4).
_NAMED_FREELY = ("logStats",)


class Views:
    """providers  by short type name. One for `router`, `policy` or another configured type adds live values to the
    configured entity: of the same name, or the only one of a singleton.
    """

    def __init__(self, schema: Schema, store: EntityStore, providers: Mapping[str, Provider]) -> None:
        self.schema = schema
        self.store = store
        self.providers = providers
        node_type = schema.types["management"]
        self.node: Row = {"name": "self", "identity": "self", "type": node_type.long_name}

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
        if self.node[attribute] == value:
            yield self.schema.types["management"], self.node
        by_name = attribute == "name"
        entity = self.store.find(name=value) if by_name else self.store.find(identity=value)
        if entity is not None and entity.agent is not None and entity.type.short_name != "console":
            yield entity.type, self.agent_row(entity)
        for short_name in self.providers:
            entity_type = self.schema.types[short_name]
            # Rows are made only where the one that is looked for may be.
            may_be = value.startswith(f"{short_name}/") or (by_name and short_name in _NAMED_FREELY)
            if may_be and self._is_live_only(entity_type):
                found = self._found(entity_type, attribute, value)
                yield from ((entity_type, row) for row in found if row.get(attribute) == value)

    def _found(self, entity_type: EntityType, attribute: str, value: str) -> Iterator[Row]:
        """The live entities among which is the one whose `attribute` is the value."""
        provider = self.providers[entity_type.short_name]
        if not isinstance(provider, PagedProvider):
            return self._of_type(entity_type)
        row = provider.find(attribute, value)
        return iter([_shown(entity_type, row)] if row is not None else [])

    def _of_type(self, entity_type: EntityType) -> Iterator[Row]:
        if entity_type.short_name == "management":
            yield self.node
        elif entity_type.short_name == "console":
            return
        elif self._is_live_only(entity_type):
            yield from (_shown(entity_type, row) for row in made(self.providers[entity_type.short_name].rows()))
        else:
            is_paged = isinstance(self.providers.get(entity_type.short_name), PagedProvider)
            live = None
            for entity in self.store.entities(entity_type.short_name):
                if entity.agent is not None:
                    if live is None or is_paged:
                        live = self._live_of(entity)
                    yield self._merge(entity, live)

    def _is_live_only(self, entity_type: EntityType) -> bool:
        """Whether the agent shows the provider's rows as they are."""
        is_operational = "operationalEntity" in entity_type.bases and not entity_type.is_core
        return is_operational and entity_type.short_name in self.providers

    def _live_of(self, entity: Entity) -> dict[str, Row]:
        """Live values with those of `entity` among them; no others where they can be asked for one by one."""
        provider = self.providers.get(entity.type.short_name)
        if not isinstance(provider, PagedProvider) or entity.type.is_core:
            return self._live(entity.type)
        found = provider.find("name", str(entity.attributes["name"]))
        return {} if found is None else {str(entity.attributes["name"]): found}

    def _live(self, entity_type: EntityType) -> dict[str, Row]:
        """The provider's rows by name; under "" that of a singleton."""
        provider = self.providers.get(entity_type.short_name)
        if provider is None or entity_type.short_name in CORE_CONFIG_TYPES:
            return {}
        return {"" if entity_type.is_singleton else str(row.get("name")): row for row in made(provider.rows())}

    def _merge(self, entity: Entity, live: Mapping[str, Row]) -> Row:
        entity_type = entity.type
        attributes = entity_type.redacted(entity.attributes)
        found = live.get("" if entity_type.is_singleton else str(attributes["name"]), {})
        hidden = entity_type.redacted(found)
        fixed = ("name", "identity", "type")
        attributes.update(
            (name, value) for name, value in hidden.items() if name in entity_type.attributes and name not in fixed
        )
        if entity_type.short_name == "router":
            attributes.update(dict.fromkeys(_AGENT_ROUTER_ZEROS, 0))
            attributes["blockedLinkCount"] = found.get("linksBlocked", 0)
        return attributes

    # The core's view

    def core_rows(self, entity_type: EntityType, offset: int = 0) -> Iterator[Row | None]:
        """Rows of a core type from number `offset` on, by column name; made as they are asked for. None: a pause."""
        short_name = entity_type.short_name
        if short_name == "router":
            return self._router_rows() if offset == 0 else iter(())
        if short_name in CORE_CONFIG_TYPES:
            live = self._live_by_identity(short_name)
            entities = [each for each in self.store.entities(short_name) if each.core is not None][offset:]
            return (self._core_row(each, live) for each in entities)
        provider = self.providers.get(short_name)
        return skip(provider, offset) if provider is not None else iter(())

    def core_find(self, entity_type: EntityType, column: str, wanted: str) -> Row | None:
        """The first row of a core type whose `column` (identity or name) reads as `wanted`."""
        short_name = entity_type.short_name
        if short_name in CORE_CONFIG_TYPES:
            entity = self.store.find_core(entity_type, column, wanted)
            return self.core_row(entity) if entity is not None else None
        provider = self.providers.get(short_name)
        if isinstance(provider, PagedProvider):
            return provider.find(column, wanted)
        return next((row for row in made(self.core_rows(entity_type)) if str(row.get(column)) == wanted), None)

    def core_row(self, entity: Entity) -> Row:
        return self._core_row(entity, self._live_by_identity(entity.type.short_name))

    def _core_row(self, entity: Entity, live: Mapping[str, Row]) -> Row:
        core = entity.core or {}
        return {**core, **live.get(str(core.get("identity")), {})}

    def _live_by_identity(self, short_name: str) -> dict[str, Row]:
        provider = self.providers.get(short_name)
        return {str(row.get("identity")): row for row in made(provider.rows())} if provider is not None else {}

    def _router_rows(self) -> Iterator[Row | None]:
        configured = next(self.store.attributes("router"), {})
        type_name = self.schema.types["router"].long_name
        provider = self.providers.get("router")
        for live in provider.rows() if provider is not None else [{}]:
            if live is None:
                yield None
            else:
                row = {**configured, **live}
                yield {**row, "name": row.get("id"), "identity": "1", "type": type_name}


def _shown(entity_type: EntityType, row: Row) -> Row:
    return {**entity_type.redacted(row), "type": entity_type.long_name}
