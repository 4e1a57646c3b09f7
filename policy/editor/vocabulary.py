"""The sections and attributes that exist, with their descriptions in the schemas.

Pure. A vhost and its groups come from the schema of policy files, everything else from the management schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import schemas
from policy.lint.section_names import section_attributes

VHOST: Final = "vhost"
_GROUP_TYPE: Final = "vhostUserGroupSettings"
# Parts of other entities, and entities that exist only while the router runs.
_NOT_IN_FILES: Final = frozenset(
    {_GROUP_TYPE, "router.connection.linkRoute", "console", "dummy", "ban", "budget", "authenticatorStats"}
)
# Attribute -> the type of section to which it refers by name.
REFERENCES: Final = {
    "sslProfile": "sslProfile",
    "saslPlugin": "authServicePlugin",
    "policyVhost": VHOST,
    "defaultVhost": VHOST,
    "connection": "connector",
    "exchangeName": "exchange",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute as an editor shows it.

    expected  the form of its values, "" if the description says it
    default   as it is written in a file, "" for none
    values    all possible values, () if there are many
    is_text   whether it is a text, which JSON puts in quotes
    """

    name: str
    description: str
    expected: str = ""
    default: str = ""
    values: tuple[str, ...] = ()
    is_text: bool = True
    is_deprecated: bool = False


@cache
def section_types() -> Mapping[str, str]:
    """Returns the sections of a configuration -> their descriptions."""
    types: Mapping[str, Any] = schemas.load("management")["entityTypes"]
    return {
        name: str(type_["description"])
        for name, type_ in types.items()
        if "configurationEntity" in type_["bases"] and name not in _NOT_IN_FILES
    }


def attributes_at(section: str, path: tuple[str, ...]) -> Mapping[str, Attribute]:
    """Returns the attributes that the map at `path` of a section may have, by name.

    Empty if the map may have any name, or none.
    """
    if section == VHOST:
        if not path:
            return _vhost_attributes()
        return _group_attributes() if len(path) == 2 and path[0] == "groups" else {}
    return _section_attributes(section) if not path else {}


@cache
def _section_attributes(section: str) -> Mapping[str, Attribute]:
    if section not in section_types():
        return {}
    written = section_attributes(section) or {}
    found = {name: _of_management(name, each) for name, each in written.items() if each.get("create")}
    text = "Unique name. When none is given the identity stands in."
    return {**found, **({} if "name" in found else {"name": Attribute(name="name", description=text)})}


def _of_management(name: str, written: Mapping[str, Any]) -> Attribute:
    kind = written["type"]
    default = written.get("default")
    is_switch = kind == "boolean"
    return Attribute(
        name=name,
        description=str(written.get("description", "")),
        expected="yes or no" if is_switch else "a number" if kind == "integer" else "",
        default="" if default is None else ("yes" if default else "no") if is_switch else str(default),
        values=("yes", "no") if is_switch else tuple(map(str, kind)) if isinstance(kind, list) else (),
        is_text=kind not in ("boolean", "integer"),
    )


@cache
def _vhost_attributes() -> Mapping[str, Attribute]:
    return _of_policy("vhost", VHOST)


@cache
def _group_attributes() -> Mapping[str, Attribute]:
    return _of_policy("group", _GROUP_TYPE)


def _of_policy(definition: str, management_type: str) -> Mapping[str, Attribute]:
    definitions: Mapping[str, Any] = schemas.load("policy")["$defs"]
    managed = schemas.load("management")["entityTypes"][management_type]["attributes"]
    found = {}
    for name, written in definitions[definition]["properties"].items():
        form: Mapping[str, Any] = definitions[written["$ref"].rpartition("/")[2]] if "$ref" in written else written
        described = managed.get(name, {}).get("description", "")
        expected = str(form.get("description", "")) if form is not written else ""
        default = written.get("default")
        types = form.get("type", "string")
        is_switch = types == "boolean" or "boolean" in types
        found[name] = Attribute(
            name=name,
            description=str(written.get("description") or described or expected),
            expected=expected if written.get("description") or described else "",
            default="" if default is None else str(default).lower(),
            values=("true", "false") if is_switch else _examples(form),
            is_text=not is_switch and "number" not in types and types != "object",
            is_deprecated=bool(written.get("deprecated")),
        )
    return found


def _examples(form: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(each for each in form.get("examples", ()) if isinstance(each, str))


def described(attribute: Attribute) -> str:
    """Returns the description of an attribute in the schemas, in Markdown."""
    lines = [f"`{attribute.name}`" + (" (an old name)" if attribute.is_deprecated else ""), "", attribute.description]
    if attribute.expected:
        lines += ["", f"Expected: {attribute.expected}"]
    if attribute.values:
        lines += ["", f"One of: {', '.join(f'`{value}`' for value in attribute.values)}"]
    if attribute.default:
        lines += ["", f"Default: `{attribute.default}`"]
    return "\n".join(lines)
