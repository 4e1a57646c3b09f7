"""Writes the reference of all entity types from the schema: `python -m router.management.docs [FILE]`.

Writes docs/management.md by default; a test fails if the file does not match the schema.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from policy.configuration.kinds import APPLY_ORDER
from policy.configuration.schema import Attribute, EntityType, Schema, load_schema

DEFAULT_FILE = Path("docs/management.md")

_NAMED = {
    "file": "Names a file.",
    "output": "Names an output.",
    "folder": "Names a folder.",
    "program": "Names a program.",
}

_HEADER = """# Management: entity types and attributes

This page is written by `python -m router.management.docs` from `schemas/management.json`; edit that file, not this one.

Type names have the prefix `{prefix}.`, which requests may leave out. Every entity also has `name`, `identity` and
`type`. *Set* says when an attribute can be given: in the configuration *file*, with *create*, with *update*; an empty
field means the router sets it. Values marked *secret* are never returned or logged: they read `*******`.

Who may do what is said by `management` of a vhost's group ([policy.md](policy.md#rights-of-management)). Values marked
*names a file* (an output, a folder, a program) come from the configuration file; a request may only give them with the
right `host`, below `router.managementDirs`. The same holds for passwords in the forms `file:` and `env:`. Every request
that would change something is recorded, with what was before and after ([audit.md](audit.md#changes-by-management)).

What is called an extension is not 1.20's. GET-TYPES, GET-ATTRIBUTES, GET-OPERATIONS, GET-SCHEMA, and a QUERY that names
no attributes show an extension once the router uses it: one of its attributes is given another value than its default,
or one of its entities is made. Asked for by name it is always there: `qdmanage query --type router handshakeCount`.

"""


def render(schema: Schema) -> str:
    """Returns the page as Markdown."""
    listed = [each for each in schema.types.values() if each.operations or each.short_name == "entity"]
    contents = "".join(f"- [{each.short_name}](#{_anchor(each.short_name)})\n" for each in listed)
    sections = "".join(_section(schema, each) for each in listed)
    return _HEADER.format(prefix=schema.prefix) + contents + sections


def _section(schema: Schema, entity_type: EntityType) -> str:
    own = [each for name, each in entity_type.attributes.items() if name not in schema.types["entity"].attributes]
    shown = own or (list(entity_type.attributes.values()) if entity_type.short_name == "entity" else [])
    bases = ", ".join(f"`{base}`" for base in entity_type.bases)
    facts = [
        f"- Type: `{entity_type.long_name}`",
        *([f"- Extends: {bases}"] if bases else []),
        *([f"- Operations: {_operations(entity_type)}"] if entity_type.operations else []),
        *(["- There is exactly one."] if entity_type.is_singleton and not entity_type.is_deprecated else []),
        *(["- Deprecated."] if entity_type.is_deprecated else []),
    ]
    table = "".join(_rows(entity_type, shown))
    return f"\n## {entity_type.short_name}\n\n{entity_type.description}\n\n" + "\n".join(facts) + "\n" + table


def _operations(entity_type: EntityType) -> str:
    further = [f"{each} (an extension)" for each in entity_type.more_operations]
    return ", ".join([*entity_type.operations, *further])


def _rows(entity_type: EntityType, attributes: list[Attribute]) -> Iterator[str]:
    if not attributes:
        return
    yield "\n| Attribute | Type | Default | Set | Meaning |\n|---|---|---|---|---|\n"
    for each in attributes:
        cells = (f"`{each.name}`", kind_text(each), default_text(each), _set(entity_type, each), meaning_text(each))
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def kind_text(attribute: Attribute) -> str:
    """Returns the values of an enumeration, else the type, in Markdown."""
    return ", ".join(f"`{tag}`" for tag in attribute.tags) or attribute.kind


def default_text(attribute: Attribute) -> str:
    """Returns `required`, the default, or "" if there is no default, in Markdown."""
    if attribute.is_required:
        return "required"
    if attribute.default is None:
        return ""
    words: Mapping[object, str] = {True: "yes", False: "no", "": "empty"}
    is_word = isinstance(attribute.default, bool) or attribute.default == ""
    return words[attribute.default] if is_word else f"`{attribute.default}`"


def _set(entity_type: EntityType, attribute: Attribute) -> str:
    ways = [
        *(["create"] if attribute.is_creatable and "CREATE" in entity_type.operations else []),
        *(["update"] if attribute.is_updatable else []),
    ]
    return ", ".join([*(["file"] if is_set_in_file(entity_type, attribute) else []), *ways])


def is_set_in_file(entity_type: EntityType, attribute: Attribute) -> bool:
    """Returns True if a configuration file may set the attribute."""
    is_given = attribute.is_creatable or attribute.is_file_only
    is_in_file = is_given or ("UPDATE" in entity_type.operations and not attribute.is_graph)
    return is_in_file and entity_type.short_name in APPLY_ORDER


def meaning_text(attribute: Attribute) -> str:
    """Returns the meaning of the attribute, in Markdown."""
    notes = [
        *(["An extension."] if attribute.extension and "xtension" not in attribute.description else []),
        *(["Deprecated."] if attribute.is_deprecated else []),
        *(["Secret."] if attribute.is_secret else []),
        *([_NAMED[attribute.names]] if attribute.names in _NAMED else []),
        *(["A statistic."] if attribute.is_graph else []),
        *([f"Formerly {', '.join(f'`{each}`' for each in attribute.aliases)}."] if attribute.aliases else []),
        *([f"Also {', '.join(f'`{each}`' for each in attribute.synonyms)}."] if attribute.synonyms else []),
    ]
    return " ".join([attribute.description, *notes])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(heading: str) -> str:
    return heading.lower().replace(".", "")


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else DEFAULT_FILE
    target.write_text(render(load_schema()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
