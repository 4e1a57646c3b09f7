"""Looks up the sections of a configuration and their attributes in the management schema."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import schemas

_SECTION_ALIASES = {
    name: f"router.config.{name}" for name in ("address", "linkRoute", "autoLink", "exchange", "binding")
}


@cache
def old_attribute_names(section_type: str) -> Mapping[str, str]:
    """Returns the attributes of a section that routers still accept under an old name: old name -> current name."""
    attributes = section_attributes(section_type) or {}
    return {old: new for new, attribute in attributes.items() for old in attribute.get("aliases", ())}


@cache
def section_attributes(section_type: str) -> Mapping[str, Mapping[str, Any]] | None:
    """Returns the attributes of a section in the management schema. None if there is no such section."""
    types: Mapping[str, Any] = schemas.load("management")["entityTypes"]
    found = types.get(section_type) or types.get(_SECTION_ALIASES.get(section_type, ""))
    return None if found is None else found["attributes"]
