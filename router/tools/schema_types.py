"""The management schema for qdmanage: the attributes of a type and their types."""

from collections.abc import Mapping
from typing import Any

import schemas


def schema_attribute_types(long_type: str) -> Mapping[str, Any] | None:
    """Returns attribute name (all accepted names) -> schema type; None if the schema has no such entity type."""
    entity_types = schemas.load("management")["entityTypes"]
    found = next((entity for entity in entity_types.values() if entity["fullyQualifiedType"] == long_type), None)
    if found is None:
        return None
    types: dict[str, Any] = {}
    for entity in (found, *(entity_types[base] for base in found["bases"])):
        for name, attribute in entity["attributes"].items():
            names = (name, *attribute.get("aliases", ()), *attribute.get("synonyms", ()))
            types |= dict.fromkeys(names, attribute["type"])
    return types
