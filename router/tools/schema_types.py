"""What qdmanage knows of the management schema: the attributes of a type and their types."""

from collections.abc import Mapping
from typing import Any

import schemas
from router.tools.attributes import TYPE_PREFIX


def schema_attribute_types(long_type: str) -> Mapping[str, Any] | None:
    """Attribute name (deprecated ones too) -> schema type; None when the schema has no such entity type."""
    entity_types = schemas.load("management")["entityTypes"]
    short = long_type.removeprefix(TYPE_PREFIX)
    found = entity_types.get(short) or entity_types.get(short.removeprefix("router.config."))
    if found is None:
        return None
    types: dict[str, Any] = {"name": "string", "identity": "string", "type": "string"}
    for name, attribute in found["attributes"].items():
        types[name] = attribute["type"]
        if "deprecatedName" in attribute:
            types[attribute["deprecatedName"]] = attribute["type"]
    return types
