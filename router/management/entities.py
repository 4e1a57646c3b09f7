"""The configured entities: one owner and one set of rules for the configuration file and for management.

The store itself only calls the owners. If an owner raises, everything stays as it was. Sources: docs/spec/management.md
§6.3, §6.4, §7.5, §7.6, §8.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from policy.configuration.kinds import KINDS, kind_of
from policy.configuration.kinds.core_kind import CoreKind, Existing
from policy.configuration.schema import (
    MAX_QUOTED_CHARACTERS,
    Attribute,
    EntityType,
    Schema,
    ValidationError,
    deprecation,
)
from policy.configuration.unique_names import RuleError, TakenError, UniqueNames, default_name
from policy.configuration.value_texts import hide_secrets, shown
from router.effects import Emit, LogLevel, log
from router.management.config import ConfiguredEntity
from router.management.extensions import Extensions
from router.management.owners import Owner
from router.management.requests import ManagementError

Attributes = Mapping[str, object]


class NameTakenError(ManagementError):
    """Another entity has this name or identity.

    error  names that entity, and has the text for a requester that may not read it
    """

    def __init__(self, error: TakenError) -> None:
        super().__init__(400, str(error))
        self.error = error


def failure(error: ValidationError) -> ManagementError:
    """Returns the answer to an unsuitable value: 400; or 500 if its fault is found only when it is applied."""
    if isinstance(error, TakenError):
        return NameTakenError(error)
    kind = error.kind if isinstance(error, RuleError) else "Python: ValidationError"
    if kind == "Python: ValidationError":
        return ManagementError(400, str(error))
    if kind.startswith("Python: "):
        return ManagementError(500, f"{kind.removeprefix('Python: ')}: {error}")
    return ManagementError(500, f"CError: {kind}: {error}")


@dataclass(slots=True, kw_only=True, eq=False)
class Entity:
    """One configured entity.

    agent  the attributes that agent-handled requests see; None for core entities made over management
    core   the columns that core-handled requests see; None for agent-handled types

    Both contain secrets as they were given: redact them before showing.
    """

    type: EntityType
    agent: dict[str, object] | None = field(repr=False)
    core: dict[str, object] | None = field(default=None, repr=False)

    @property
    def attributes(self) -> dict[str, object]:
        found = self.agent if self.agent is not None else self.core
        assert found is not None
        return found


class EntityStore:
    """Configured entities by type, in the order they came.

    emit           takes the log lines
    next_identity  returns the next number of the counter that links, addresses and routes share (§6.4)
    is_debug_enabled  returns True if the debug lines of AGENT are enabled; making them takes time
    """

    def __init__(
        self,
        schema: Schema,
        emit: Emit,
        next_identity: Callable[[], int] | None = None,
        is_debug_enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        self.schema = schema
        self.extensions = Extensions(schema)
        self._is_debug_enabled = is_debug_enabled
        self._emit = emit
        self._next_identity = next_identity or count(1).__next__
        # The inner dicts are ordered sets: thousands of bans end one by one.
        self._entities: dict[str, dict[Entity, None]] = {name: {} for name in schema.types}
        self._existing = {kind.name: Existing() for kind in KINDS if isinstance(kind, CoreKind)}
        self._by_name: dict[str, Entity] = {}
        self._by_identity: dict[str, Entity] = {}
        self._by_core: dict[tuple[str, str, str], Entity] = {}  # (type, "identity" or "name", its value)
        self._names = UniqueNames()
        self._numbers: dict[str, int] = {}
        self._owners: dict[str, Owner] = {}

    # Owners

    def own(self, *owners: Owner) -> None:
        """Sets the owners of their types. Errors: KeyError for a type that the schema lacks."""
        self._owners.update((self.schema.types[owner.type].short_name, owner) for owner in owners)

    def owner(self, entity_type: EntityType) -> Owner:
        """Returns the owner of a type; without one, an owner that has no operation."""
        return self._owners.get(entity_type.short_name) or Owner(type=entity_type.short_name)

    def owners(self) -> Iterator[Owner]:
        return iter(self._owners.values())

    # Reading

    def entities(self, short_name: str) -> Iterator[Entity]:
        """Returns the entities of exactly this type. The caller may change the store while iterating."""
        return iter(list(self._entities[short_name]))

    def attributes(self, short_name: str) -> Iterator[Attributes]:
        return (each.attributes for each in self.entities(short_name))

    def find(self, *, name: str | None = None, identity: str | None = None) -> Entity | None:
        """Returns an entity by its agent-side name, else by its agent-side identity."""
        return self._by_name.get(name) if name is not None else self._by_identity.get(identity or "")

    def find_core(self, entity_type: EntityType, column: str, value: str) -> Entity | None:
        """Returns a core entity by its core-side `identity` or `name`."""
        return self._by_core.get((entity_type.short_name, column, value))

    # Changing

    def load(self, configured: Iterable[ConfiguredEntity]) -> list[str]:
        """Creates the entities of a configuration file, in order.

        A failing address, link route, auto link, exchange or binding is logged and left out (§1.4).
        Returns  a text for each entity that was left out
        Errors   ManagementError for any other entity
        """
        left_out: list[str] = []
        for each in configured:
            entity_type = self.schema.types[each.type]
            kind = kind_of(entity_type)
            if not isinstance(kind, CoreKind):
                self._add(entity_type, dict(each.attributes), is_from_file=True)
                continue
            try:
                self._add_core(entity_type, str(each.attributes["name"]), each.attributes, dict(each.attributes))
            except ManagementError as error:
                left_out.append(f"Error performing CREATE of {entity_type.long_name}: {error}")
                self._log("AGENT", "error", left_out[-1])
                if kind.logged_as is not None:
                    self._log("ROUTER_CORE", "error", f"Error configuring {kind.logged_as}: {error}")
        return left_out

    def create(self, entity_type: EntityType, given: Attributes) -> Entity:
        """Creates an entity of an agent-handled type. Errors: ManagementError; nothing has changed then."""
        self._refuse_identity(given)
        try:
            for name, value in given.items():
                if value is not None and not entity_type.attributes[entity_type.canonical(name)].is_creatable:
                    raise ManagementError(400, f"Cannot set attribute '{name}' in CREATE")
            kind = kind_of(entity_type)
            attributes = entity_type.validate(given, self._warn)
            identity = kind.identity(entity_type, attributes, self._numbers.get(kind.name, 0))
            attributes |= {"name": default_name(attributes, identity), "identity": identity}
            self._check(entity_type, attributes)
        except ValidationError as error:
            raise failure(error) from None
        return self._add(entity_type, attributes, is_from_file=False)

    def create_core(self, entity_type: EntityType, name: str | None, body: object) -> Entity:
        """Creates an entity of a core-handled type. Errors: ManagementError; nothing has changed then."""
        return self._add_core(entity_type, name, body, None)

    def update(self, entity: Entity, given: Attributes) -> Entity:
        """Merges `given` over the present attributes (§7.5). Errors: ManagementError; nothing has changed then."""
        entity_type = entity.type
        before = entity.attributes
        try:
            after = self._merged(entity_type, before, given)
            self._check(entity_type, after)
        except ValidationError as error:
            raise failure(error) from None
        update = self.owner(entity_type).update
        if update is None:
            raise _not_implemented("UPDATE", entity_type)
        after |= update(dict(before), dict(after)) or {}
        entity.agent = after
        self.extensions.note(entity_type, after)
        return entity

    def delete(self, entity: Entity) -> None:
        """Deletes an entity and its parts. Errors: ManagementError; nothing has changed then."""
        delete = self.owner(entity.type).delete
        if delete is None:
            raise _not_implemented("DELETE", entity.type)
        delete(dict(entity.core if entity.core is not None else entity.attributes))
        self._take_out(entity)
        kind = kind_of(entity.type)
        if isinstance(kind, CoreKind) and kind.parts is not None:
            part, column = kind.parts
            for each in self.entities(part):
                if each.core is not None and each.core[column] == entity.attributes["name"]:
                    self.delete(each)

    def exchange(self, identities: Iterable[str], configured: Iterable[ConfiguredEntity]) -> None:
        """Replaces entities by those of a file, all at once. Calls no owners: the caller carries the change out.

        identities  agent-side, of entities that have owners; the configured entities are of agent-handled types
        Errors      ManagementError when names clash; nothing has changed then.
        """
        going = [entity for identity in identities if (entity := self._by_identity.get(identity)) is not None]
        coming = [(self.schema.types[each.type], dict(each.attributes)) for each in configured]
        names = self._names.copy()
        for entity in going:
            names.release(entity.attributes)
        try:
            for entity_type, attributes in coming:
                names.claim(entity_type, attributes)
        except ValidationError as error:
            raise failure(error) from None
        for entity in going:
            self._take_out(entity)
        self._names = names
        for entity_type, attributes in coming:
            self._insert(Entity(type=entity_type, agent=attributes))

    # Inside

    def _take_out(self, entity: Entity) -> None:
        del self._entities[entity.type.short_name][entity]
        if entity.core is not None:
            self._existing[entity.type.short_name].remove(entity.core)
            for key in _core_keys(entity):
                del self._by_core[key]
        if entity.agent is not None:
            self._names.release(entity.agent)
            del self._by_name[str(entity.agent["name"])], self._by_identity[str(entity.agent["identity"])]
        identity = str(entity.attributes["identity"])[:MAX_QUOTED_CHARACTERS]
        self._log("AGENT", "debug", f"Remove {entity.type.short_name} entity: {identity}")

    def _add(self, entity_type: EntityType, attributes: dict[str, object], *, is_from_file: bool) -> Entity:
        create = self.owner(entity_type).create
        is_passive = is_from_file and kind_of(entity_type).is_passive_in_file
        if create is None and not is_passive:
            raise _not_implemented("CREATE", entity_type)
        entity = Entity(type=entity_type, agent=attributes)
        self._claim(entity_type, attributes)
        try:
            attributes |= (create(dict(attributes)) or {}) if create and not is_passive else {}
        except BaseException:
            self._names.release(attributes)
            raise
        self._insert(entity)
        return entity

    def _add_core(
        self, entity_type: EntityType, name: str | None, body: object, agent: dict[str, object] | None
    ) -> Entity:
        kind = kind_of(entity_type)
        assert isinstance(kind, CoreKind)
        try:
            normalized = kind.normalized(entity_type, name, body, self._existing, self._warn)
        except ValidationError as error:
            raise ManagementError(400, str(error)) from None
        create = self.owner(entity_type).create
        if create is None:
            raise _not_implemented("CREATE", entity_type)
        if agent is not None:
            self._claim(entity_type, agent)
        try:
            made = create({**normalized, "name": name}) or {}
            identity = str(made["identity"]) if "identity" in made else str(self._next_identity())
        except BaseException:
            if agent is not None:
                self._names.release(agent)
            raise
        core = {**kind.columns(entity_type, normalized, name, identity), **made, "identity": identity}
        entity = Entity(type=entity_type, agent=agent, core=core)
        self._insert(entity)
        return entity

    def _insert(self, entity: Entity) -> None:
        kind = entity.type.short_name
        self._entities[kind][entity] = None
        self.extensions.note(entity.type, entity.attributes)
        if entity.core is not None:
            self._existing[kind].add(entity.core)
            self._by_core.update(dict.fromkeys(_core_keys(entity), entity))
        if entity.agent is not None:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            self._by_name[str(entity.agent["name"])] = entity
            self._by_identity[str(entity.agent["identity"])] = entity
        if self._is_debug_enabled():
            self._log("AGENT", "debug", f"Add entity: {entity.type.text(entity.attributes)}")

    def _claim(self, entity_type: EntityType, attributes: Attributes) -> None:
        try:
            self._names.claim(entity_type, attributes)
        except ValidationError as error:
            raise failure(error) from None

    def _check(self, entity_type: EntityType, attributes: Attributes) -> None:
        kind = kind_of(entity_type)
        kind.check(entity_type, attributes)
        router = next(self.attributes("router"), None)
        mode = str(router["mode"]) if router else "standalone"
        problem = kind.role_problem(entity_type.text(attributes), attributes, mode)
        if problem is not None:
            raise ValidationError(problem)

    def _merged(self, entity_type: EntityType, before: Attributes, given: Attributes) -> dict[str, object]:
        merged = dict(before)
        for name, value in given.items():
            attribute = entity_type.attributes[entity_type.canonical(name)]
            if not attribute.is_updatable:
                if not self._is_unchanged(entity_type, attribute, name, value, before):
                    raise ManagementError(400, f"Cannot update attribute '{name}' in UPDATE")
            elif value is None:
                merged.pop(attribute.name, None)
            else:
                if name in attribute.aliases:
                    self._warn("AGENT", deprecation(entity_type, name, attribute.name))
                merged[attribute.name] = value
        return kind_of(entity_type).completed(entity_type.validate(merged, self._warn))

    def _is_unchanged(
        self, entity_type: EntityType, attribute: Attribute, name: str, value: object, before: Attributes
    ) -> bool:
        """Returns True if a client only sends back the value that it has read."""
        if attribute.name != name:
            return False
        if value is None or name not in before:
            return value is None and name not in before
        if name == "type":
            return self.schema.find(value) is entity_type
        return attribute.convert(value, entity_type.long_name) == before[name]

    def _refuse_identity(self, given: Attributes) -> None:
        if given.get("identity") is not None:
            hidden = hide_secrets(given, given.keys() - self.schema.attribute_names(None))
            text = shown(hidden, MAX_QUOTED_CHARACTERS)
            raise ManagementError(400, f"'identity' attribute cannot be specified {text}")

    def _warn(self, module: str, text: str) -> None:
        self._log(module, "warning", text)

    def _log(self, module: str, level: LogLevel, text: str) -> None:
        log(self._emit, module, level, text)


def _core_keys(entity: Entity) -> list[tuple[str, str, str]]:
    """Returns the keys of a core entity in the index. Names are unique within a type, and may be missing."""
    core = entity.core or {}
    columns = ((column, core.get(column)) for column in ("identity", "name"))
    return [(entity.type.short_name, column, str(value)) for column, value in columns if value is not None]


def _not_implemented(operation: str, entity_type: EntityType) -> ManagementError:
    return ManagementError(501, f"Operation '{operation}' not implemented on {entity_type.long_name}")
