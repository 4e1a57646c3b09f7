"""The extensions that a router uses, and the part of the schema that management shows.

Scripts compare the schemas of routers. Therefore a part of an extension is shown to a client that asks for it by name.
All other clients see it once it is used: an attribute has another value than its default, or the type has an entity.
From then on it is shown until the router ends. Rights do not depend on it.

Source: docs/spec/management.md §6.1.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policy.configuration.schema import Attribute, EntityType, Schema

# The attribute whose values are maps of the attributes of another type: the groups of a vhost.
_HOLDER: Final = ("vhost", "groups", "vhostUserGroupSettings")


class Extensions:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._used: set[str] = set()
        self._marked = {
            name: {key: each for key, each in entity_type.attributes.items() if each.extension is not None}
            for name, entity_type in schema.types.items()
        }
        self._dump: tuple[int, dict[str, object]] | None = None

    def note(self, entity_type: EntityType, attributes: Mapping[str, object]) -> None:
        """Notes that an entity with these attributes exists."""
        self._used.update(self._in(entity_type, attributes))

    def shows(self, part: EntityType | Attribute) -> bool:
        """Returns True if the part is shown to clients that do not ask for it by name."""
        return part.extension is None or part.extension in self._used

    def subtypes(self, base: EntityType) -> Iterator[EntityType]:
        """Returns a type that is asked for by name, and its shown subtypes."""
        return (each for each in self._schema.subtypes(base) if each is base or self.shows(each))

    def types(self) -> list[EntityType]:
        return [each for each in self._schema.types.values() if self.shows(each)]

    def attribute_names(self, base: EntityType | None) -> list[str]:
        """Returns the shown attributes of a type; of all shown types for None."""
        chosen = [base] if base is not None else self.types()
        shown = (name for kind in chosen for name, each in kind.attributes.items() if self.shows(each))
        return list(dict.fromkeys(shown))

    def columns(self, entity_type: EntityType) -> list[str]:
        """Returns the shown columns of a core type."""
        known = entity_type.attributes
        return [name for name in entity_type.columns if name not in known or self.shows(known[name])]

    def dump(self) -> dict[str, object]:
        """Returns the answer to GET-SCHEMA (§7.8). It is shared, so do not change it."""
        if self._dump is None or self._dump[0] != len(self._used):  # the set only grows
            self._dump = len(self._used), self._schema.dump(self.shows)
        return self._dump[1]

    def _in(self, entity_type: EntityType, attributes: Mapping[str, object]) -> Iterator[str]:
        if entity_type.extension is not None:
            yield entity_type.extension
        yield from _given(self._marked[entity_type.short_name], attributes)
        holder, held, settings = _HOLDER
        groups = attributes.get(held) if entity_type.short_name == holder else None
        for group in groups.values() if isinstance(groups, Mapping) else ():
            if isinstance(group, Mapping):
                yield from _given(self._marked[settings], group)


def _given(marked: Mapping[str, Attribute], attributes: Mapping[Any, object]) -> Iterator[str]:
    for name in marked.keys() & attributes.keys():
        each = marked[name]
        if each.extension is not None and attributes[name] not in (None, each.default):
            yield each.extension
