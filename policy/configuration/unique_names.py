"""Rules over entities of all types: which names and identities are in use, and how a violation is reported.

Pure. The configuration file and management requests go through the same functions.
Sources: docs/spec/management.md §1.4, §6.4.
"""

from collections.abc import Callable, Mapping
from functools import partial

from policy.configuration.schema import EntityType, ValidationError


class RuleError(ValidationError):
    """A value that the schema permits and the router does not.

    kind  the class with which the error text begins at startup (docs/spec/management.md §2.3)
    """

    def __init__(self, text: str, attribute: str | None = None, *, kind: str = "Python: ValidationError") -> None:
        super().__init__(text, attribute)
        self.kind = kind


class TakenError(RuleError):
    """A name or identity that another entity has.

    taken_by  short name of that entity's type
    guarded   the text without that entity, for a requester that may not read it
    """

    def __init__(self, text: str, attribute: str, *, taken_by: str, guarded: str) -> None:
        super().__init__(text, attribute)
        self.taken_by = taken_by
        self.guarded = guarded


def default_name(attributes: Mapping[str, object], identity: str) -> str:
    """Returns the name of an entity. If it has none, returns its identity."""
    return str(attributes["name"]) if attributes.get("name") else identity


def _management_node() -> str:
    return "the management node"


class UniqueNames:
    """The names and identities in use by all agent-handled entities of all types."""

    def __init__(self) -> None:
        # The text and type of the entity that uses it. The text is slow to make, and only an error shows it.
        self._taken: dict[tuple[str, str], tuple[Callable[[], str], str]] = {}
        for attribute in ("name", "identity"):
            self._taken[attribute, "self"] = (_management_node, "management")
        self._singletons: dict[str, Callable[[], str]] = {}

    def copy(self) -> "UniqueNames":
        made = UniqueNames()
        made._taken, made._singletons = dict(self._taken), dict(self._singletons)
        return made

    def claim(
        self, entity_type: EntityType, attributes: Mapping[str, object], title: str = "", place: str = ""
    ) -> None:
        """Takes the name and identity in `attributes`. Errors: ValidationError; then nothing is taken.

        title  the entity's name in errors; "": all its attributes
        place  text that errors about later entities add to it
        """
        text = partial(_called, entity_type, attributes, title)
        holding = partial(_called, entity_type, attributes, title, place)
        if entity_type.is_singleton and (other := self._singletons.get(entity_type.short_name)) is not None:
            raise ValidationError(f"Adding {entity_type.short_name} singleton {text()} when {other()} already exists")
        keys = [(attribute, str(attributes[attribute])) for attribute in ("name", "identity")]
        for key in keys:
            if (holder := self._taken.get(key)) is not None:
                existing, other_type = holder
                told = f"adding {text()} duplicates unique attribute '{key[0]}' from existing"
                raise TakenError(f"{told} {existing()}", key[0], taken_by=other_type, guarded=f"{told} {other_type}")
        self._taken.update((key, (holding, entity_type.short_name)) for key in keys)
        if entity_type.is_singleton:
            self._singletons[entity_type.short_name] = holding

    def release(self, attributes: Mapping[str, object]) -> None:
        for attribute in ("name", "identity"):
            self._taken.pop((attribute, str(attributes[attribute])), None)


def _called(entity_type: EntityType, attributes: Mapping[str, object], title: str, place: str = "") -> str:
    return f"{title}{place}" if title else entity_type.text(attributes)
