"""The values that management attributes take. Source: docs/spec/management.md §6.2, §11."""

from collections.abc import Sequence
from typing import Any

from policy.configuration.schema import Attribute, EntityType, Schema, ValidationError

__all__ = [
    "AttributeType",
    "BooleanType",
    "EntityType",
    "EnumType",
    "EnumValue",
    "Schema",
    "ValidationError",
]

AttributeType = Attribute


class BooleanType:
    """yes, true, on and no, false, off in any case; anything else that is no text by its truth."""

    def validate(self, value: Any) -> bool:
        """Errors: ValidationError."""
        return bool(Attribute(name="boolean", kind="boolean", description="").convert(value, "boolean"))

    def dump(self) -> str:
        return "boolean"


class EnumValue(str):
    """A tag that is also the number of its place."""

    value: int

    def __new__(cls, name: str, value: int) -> "EnumValue":
        made = super().__new__(cls, name)
        made.value = value
        return made

    def __int__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return self.value == other if isinstance(other, int) else str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class EnumType:
    """One of some tags, given as itself or as the number of its place."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = list(tags)

    def validate(self, value: Any) -> EnumValue:
        """Errors: ValidationError."""
        attribute = Attribute(name="enum", kind="enumeration", description="", tags=tuple(self.tags))
        given = int(value) if isinstance(value, EnumValue) else value
        found = str(attribute.convert(given, "enum"))
        return EnumValue(found, self.tags.index(found))

    def dump(self) -> list[str]:
        return self.tags
