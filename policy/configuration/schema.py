"""The management schema as values: entity types, attributes, conversion, and the maps in management replies.

Pure, except that it reads schemas/management.json. Error texts are those of docs/spec/management.md §1.4, §6.2 and
§6.3.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import schemas
from policy.configuration import old_names
from policy.configuration.value_texts import HIDDEN, hide_secrets, shown

# On the wire, integers are at most an AMQP long.
LOWEST_INTEGER, HIGHEST_INTEGER = -(2**63), 2**63 - 1
# The part of a value that error texts quote; they are sent back and logged.
MAX_QUOTED_CHARACTERS = 200
# difflib compares in quadratic time, and longer names are not typing errors.
MAX_SUGGESTED_FOR_CHARACTERS = 64

# An input file, an output file (or stderr, stdout, syslog), a folder, a program; or a password, which may be given as
# `file:PATH` or `env:VARIABLE`.
HostThing = Literal["file", "output", "folder", "program", "password"]

_DECIMAL = re.compile(r"\s*[+-]?[0-9]{1,30}\s*", re.ASCII)
_TRUE = frozenset({"yes", "true", "on"})
_FALSE = frozenset({"no", "false", "off"})

Warn = Callable[[str, str], None]
"""Called with a log module and a warning."""


class ValidationError(ValueError):
    """A value does not fit the schema. `attribute` is the name at fault as given, if there is one."""

    def __init__(self, text: str, attribute: str | None = None) -> None:
        super().__init__(text)
        self.attribute = attribute


class ChoiceError(ValidationError):
    """A value is not one of those in an enumeration.

    value    as given; `allowed` are the right ones
    """

    def __init__(self, text: str, attribute: str | None, value: object, allowed: tuple[str, ...]) -> None:
        super().__init__(text, attribute)
        self.value, self.allowed = value, allowed


class UnknownNameError(ValidationError):
    """There is no type, or no attribute, of that name.

    name     as given
    advice   the right name if it is known: `did you mean 'listener'?`; else ""
    similar  the name that was probably meant; "" if there is none
    """

    def __init__(self, text: str, name: str, *, attribute: str | None = None, advice: str = "", similar: str = ""):
        super().__init__(f"{text}; {advice}" if advice else text, attribute)
        self.name, self.advice, self.similar = name, advice, similar


def _unknown(text: str, name: str, known: Iterable[str], old: str | None, *, attribute: str | None) -> UnknownNameError:
    """Returns the error for an unknown name.

    old  the replacement of a name of another version
    """
    if old is not None:
        return UnknownNameError(text, name, attribute=attribute, advice=old)
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= MAX_SUGGESTED_FOR_CHARACTERS else []
    advice = f"did you mean '{close[0]}'?" if close else ""
    return UnknownNameError(text, name, attribute=attribute, advice=advice, similar=close[0] if close else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute of a type.

    kind        string, path, entityId, integer, boolean, enumeration, map, dict, list or properties
    tags        the values of an enumeration, in the order of their integer form
    aliases     deprecated names; `synonyms` are further names that are not deprecated
    names       the kind of thing on this host that a value names; None: it names nothing on the host
    is_file_only  only the configuration file may give it, not create or update
    extension   the name of our extension to which it belongs; None: it is part of 1.20
    """

    name: str
    kind: str
    description: str
    tags: tuple[str, ...] = ()
    default: object = None
    aliases: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    is_required: bool = False
    is_unique: bool = False
    is_creatable: bool = False
    is_updatable: bool = False
    is_graph: bool = False
    is_secret: bool = False
    is_deprecated: bool = False
    names: HostThing | None = None
    is_file_only: bool = False
    extension: str | None = None

    @property
    def is_read_only(self) -> bool:
        """Returns whether no request and no configuration file may give it."""
        can_be_given = self.is_creatable or self.is_updatable or self.is_file_only
        return not can_be_given and self.name not in ("type", "identity")

    def convert(self, value: object, type_name: str) -> object:
        """Returns `value` in this attribute's type: plain str, int, bool, dict or list.

        Errors  ValidationError; its text begins with `type_name`, and quotes no secret.
        """
        try:
            return _CONVERSIONS[self.kind](self, value)
        except ChoiceError as error:
            raise ChoiceError(f"{type_name}: {error}", self.name, error.value, error.allowed) from None
        except ValidationError as error:
            raise ValidationError(f"{type_name}: {error}", self.name) from None

    def dump(self) -> dict[str, object]:
        """Returns this attribute as in GET-SCHEMA (§7.8), without members that have no information."""
        members = {
            "type": list(self.tags) if self.kind == "enumeration" else self.kind,
            "default": self.default,
            "required": self.is_required,
            "unique": self.is_unique,
            "deprecated": self.is_deprecated,
            "description": self.description,
            "graph": self.is_graph,
        }
        return {name: value for name, value in members.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityType:
    """One entity type.

    bases        short names, nearest first
    operations   in the order of GET-OPERATIONS
    attributes   own ones first, then name, identity and type
    columns      of core-handled types: column -> AMQP type, in reply order; may include names that are not attributes
    extension    as for an attribute
    more_operations  operations that 1.20 does not have; not listed
    """

    short_name: str
    long_name: str
    description: str
    bases: tuple[str, ...]
    operations: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    columns: Mapping[str, str]
    is_singleton: bool
    is_deprecated: bool
    is_core: bool
    canonical_names: Mapping[str, str]
    secrets: frozenset[str]
    extension: str | None = None
    more_operations: tuple[str, ...] = ()

    def has_operation(self, operation: str) -> bool:
        return operation in self.operations or operation in self.more_operations

    @property
    def class_word(self) -> str:
        """Returns the word for the type in log lines: `ListenerEntity`, `RouterLinkEntity`."""
        tail = self.short_name.removeprefix("org.amqp.")
        return "".join(part[:1].upper() + part[1:] for part in tail.split(".")) + "Entity"

    def text(self, attributes: Mapping[str, object]) -> str:
        """Returns `ListenerEntity(host=…, port=…)`: keys sorted, secrets hidden, limited in length."""
        # A name that the type does not have may be a misspelt secret attribute.
        unknown = (name for name in attributes if name not in self.canonical_names and name not in self.columns)
        redacted = hide_secrets(attributes, {*self.secrets, *unknown})
        visible = sorted((name, value) for name, value in redacted.items() if value is not None)
        pairs = ", ".join(
            f"{name}={value[:MAX_QUOTED_CHARACTERS] if isinstance(value, str) else shown(value, MAX_QUOTED_CHARACTERS)}"
            for name, value in visible
        )
        return f"{self.class_word}({pairs})"

    def redacted(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Returns a copy with the values of secret attributes hidden. Absent and null ones stay unchanged."""
        return hide_secrets(attributes, self.secrets)

    def canonical(self, name: str) -> str:
        """Returns the canonical name of the attribute `name`, which may be an alias.

        Errors  ValidationError with a suggestion if there is a similar name.
        """
        if (found := self.canonical_names.get(name)) is not None:
            return found
        text = f"{self.long_name}: Unknown attribute '{name[:MAX_QUOTED_CHARACTERS]}' for '{self.long_name}'"
        old = old_names.ATTRIBUTES.get((self.short_name, name))
        raise _unknown(text, name, self.attributes, old, attribute=name)

    def title(self, attributes: Mapping[str, object]) -> str:
        """Returns `listener 'clients'`. An entity without a name gets its id or place: `listener 0.0.0.0:5672`."""
        if attributes.get("name") not in (None, "", attributes.get("identity")):
            return f"{self.short_name} '{str(attributes['name'])[:MAX_QUOTED_CHARACTERS]}'"
        if attributes.get("id"):
            return f"{self.short_name} '{str(attributes['id'])[:MAX_QUOTED_CHARACTERS]}'"
        if "host" in attributes and "port" in attributes:
            return f"{self.short_name} {attributes['host']}:{attributes['port']}"[:MAX_QUOTED_CHARACTERS]
        return self.short_name

    def _canonical_attributes(
        self, given: Mapping[str, object], warn: Warn
    ) -> tuple[dict[str, object], list[ValidationError]]:
        """Returns `given` with canonical names and without nulls, not converted yet; and the errors in the names.

        Errors are unknown names, and aliases next to the canonical name.
        """
        found: dict[str, object] = {}
        named: dict[str, str] = {}
        errors: list[ValidationError] = []
        for name, value in given.items():
            try:
                canonical = self.canonical(name)
            except ValidationError as error:
                errors.append(error)
                continue
            if value is None:
                continue
            if canonical in found:
                alias = name if name != canonical else named[canonical]
                text = f"Both '{alias}' and '{canonical}' cannot be specified for entity '{self.short_name}'"
                errors.append(ValidationError(f"{self.long_name}: {text}", alias))
                continue
            found[canonical] = value
            named[canonical] = name
            attribute = self.attributes[canonical]
            if name in attribute.aliases:
                warn("AGENT", deprecation(self, name, canonical))
        return found, errors

    def validate(self, given: Mapping[str, object], warn: Warn) -> dict[str, object]:
        """Returns the attributes of an entity made from `given`: canonical names, with defaults, values converted.

        Absent attributes without a default stay absent, except `type`, which is always set.
        Errors  ValidationError, the first one.
        """
        result, errors = self.validated(given, warn)
        if errors:
            raise errors[0]
        return result

    def validated(self, given: Mapping[str, object], warn: Warn) -> tuple[dict[str, object], list[ValidationError]]:
        """Does the same as `validate`, but returns all errors. The attributes at fault then have no value."""
        canonical, errors = self._canonical_attributes(given, warn)
        canonical["type"] = self.long_name
        result: dict[str, object] = {}
        for name, attribute in self.attributes.items():
            if name in canonical:
                try:
                    result[name] = attribute.convert(canonical[name], self.long_name)
                except ValidationError as error:
                    errors.append(error)
            elif attribute.default is not None:
                result[name] = attribute.default
            elif attribute.is_required:
                errors.append(ValidationError(f"{self.long_name}: Missing required attribute '{name}'", name))
        return result, errors

    def dump(self, shows: "Shows") -> dict[str, object]:
        """Returns this type as in GET-SCHEMA (§7.8)."""
        shown = {name: each for name, each in self.attributes.items() if name != "type" and shows(each)}
        members: dict[str, object] = {
            "attributes": {name: each.dump() for name, each in shown.items()},
            "operations": list(self.operations),
            "description": self.description,
            "fullyQualifiedType": self.long_name,
            "deprecated": self.is_deprecated,
            "singleton": self.is_singleton,
        }
        return {name: value for name, value in members.items() if value}


Shows = Callable[[EntityType | Attribute], bool]
"""Is this part of the schema shown?"""


def is_no_extension(part: EntityType | Attribute) -> bool:
    return part.extension is None


def deprecation(entity_type: EntityType, name: str, canonical: str) -> str:
    """Returns the warning for a deprecated attribute name."""
    return f"Attribute '{name}' of entity '{entity_type.short_name}' has been deprecated. Use '{canonical}' instead"


class Schema:
    """All entity types. A type is found by its short name, its long name, and its long name without the prefix."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Parses the document.

        document  the parsed schemas/management.json.
        """
        self._document = document
        self.prefix: str = document["prefix"]
        entries: Mapping[str, Mapping[str, Any]] = document["entityTypes"]
        common = {name: _attribute(name, entry) for name, entry in entries["entity"]["attributes"].items()}
        self.types: Mapping[str, EntityType] = MappingProxyType(
            {name: _entity_type(name, entry, common) for name, entry in entries.items()}
        )
        self._by_name: dict[str, EntityType] = {}
        for each in self.types.values():
            for name in (each.short_name, each.long_name, each.long_name.removeprefix(f"{self.prefix}.")):
                self._by_name[name] = each
        every = (name for each in self.types.values() for name in each.attributes)
        self._all_names = dict.fromkeys(every).keys()

    def without(self, *short_names: str) -> "Schema":
        """Returns this schema without some types, for a router that has no such entities and does not mention them."""
        kept = {name: entry for name, entry in self._document["entityTypes"].items() if name not in short_names}
        return Schema({**self._document, "entityTypes": kept})

    def find(self, name: object) -> EntityType | None:
        return self._by_name.get(name) if isinstance(name, str) else None

    def type(self, name: object) -> EntityType:
        """Returns the type of that name. Errors: ValidationError `No such entity type '…'`."""
        found = self.find(name)
        if found is None:
            quoted = name[:MAX_QUOTED_CHARACTERS] if isinstance(name, str) else shown(name, MAX_QUOTED_CHARACTERS)
            raise ValidationError(f"No such entity type '{quoted}'")
        return found

    def unknown_section(self, name: str) -> UnknownNameError:
        """Returns the error about a section of a configuration with an unknown type."""
        text = f"No such entity type '{self.long_name(name)}'"
        return _unknown(text, name, self.types, old_names.SECTIONS.get(name), attribute=None)

    def long_name(self, name: str) -> str:
        """Returns the long form of any type name, known or not."""
        if (found := self.find(name)) is not None:
            return found.long_name
        return name if name.startswith(f"{self.prefix}.") else f"{self.prefix}.{name}"

    def long_bases(self, entity_type: EntityType) -> list[str]:
        return [self.types[base].long_name for base in entity_type.bases]

    def extends(self, entity_type: EntityType, base: EntityType) -> bool:
        """Returns whether a type is `base` or extends it."""
        return entity_type.short_name == base.short_name or base.short_name in entity_type.bases

    def subtypes(self, base: EntityType) -> Iterator[EntityType]:
        """Returns `base` and the types below it, in the order of the schema."""
        return (each for each in self.types.values() if self.extends(each, base))

    def attribute_names(self, base: EntityType | None) -> Collection[str]:
        """Returns the attributes of the type; of all types if it is None."""
        return self._all_names if base is None else base.attributes.keys()

    def dump(self, shows: Shows = is_no_extension) -> dict[str, object]:
        """Returns the schema as in GET-SCHEMA, limited to the parts that are shown: by default those of 1.20."""
        types = {name: each.dump(shows) for name, each in self.types.items() if shows(each)}
        return {"prefix": self.prefix, "entityTypes": types}


@cache
def load_schema() -> Schema:
    """Returns the schema of this router."""
    return Schema(schemas.load("management"))


def _attribute(name: str, entry: Mapping[str, Any]) -> Attribute:
    kind = entry["type"]
    is_enumeration = isinstance(kind, list)
    return Attribute(
        name=name,
        kind="enumeration" if is_enumeration else kind,
        tags=tuple(kind) if is_enumeration else (),
        description=entry["description"],
        default=entry.get("default"),
        aliases=tuple(entry.get("aliases", ())),
        synonyms=tuple(entry.get("synonyms", ())),
        is_required=entry.get("required", False),
        is_unique=entry.get("unique", False),
        is_creatable=entry.get("create", False),
        is_updatable=entry.get("update", False),
        is_graph=entry.get("graph", False),
        is_secret=entry.get("secret", False),
        is_deprecated=entry.get("deprecated", False),
        names=entry.get("names"),
        is_file_only=entry.get("file", False),
        extension=entry.get("extension"),
    )


def _entity_type(short_name: str, entry: Mapping[str, Any], common: Mapping[str, Attribute]) -> EntityType:
    own = {name: _attribute(name, each) for name, each in entry["attributes"].items() if name not in common}
    attributes = {**own, **common}
    canonical_names = {
        alias: name for name, each in attributes.items() for alias in (name, *each.aliases, *each.synonyms)
    }
    return EntityType(
        short_name=short_name,
        long_name=entry["fullyQualifiedType"],
        description=entry["description"],
        bases=tuple(entry["bases"]),
        operations=tuple(entry["operations"]),
        more_operations=tuple(entry.get("moreOperations", ())),
        attributes=MappingProxyType(attributes),
        columns=MappingProxyType(dict(entry.get("columns", {}))),
        is_singleton=entry.get("singleton", False),
        is_deprecated=entry.get("deprecated", False),
        is_core=entry.get("handledBy") == "core",
        canonical_names=MappingProxyType(canonical_names),
        secrets=frozenset(name for name, each in attributes.items() if each.is_secret),
        extension=entry.get("extension"),
    )


def _quoted(attribute: Attribute, value: object) -> str:
    if attribute.is_secret:
        return HIDDEN
    return value[:MAX_QUOTED_CHARACTERS] if isinstance(value, str) else shown(value, MAX_QUOTED_CHARACTERS)


def _to_text(attribute: Attribute, value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise ValidationError(f"Attribute '{attribute.name}' must be text") from None
    if isinstance(value, Mapping | list | tuple):
        # A mistake: the string form of a map in a programming language is never intended.
        raise ValidationError(f"Attribute '{attribute.name}' must be text, not a {_word_for(value)}")
    if isinstance(value, bool):
        raise ValidationError(f"Attribute '{attribute.name}' must be text, not {str(value).lower()}")
    return shown(value)


def _word_for(value: object) -> str:
    return "map" if isinstance(value, Mapping) else "list"


def _to_integer(attribute: Attribute, value: object) -> int:
    number: int | None = None
    if isinstance(value, int):
        number = int(value)
    elif isinstance(value, float):
        number = int(value) if abs(value) < 2.0**63 else None  # also refuses NaN
    elif isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = int(value)
    if number is None or not LOWEST_INTEGER <= number <= HIGHEST_INTEGER:
        raise ValidationError(
            f"invalid literal for int() with base 10: '{_quoted(attribute, value)}':"
            f" attribute '{attribute.name}' is a decimal number of at most 64 bits"
        )
    return number


def _to_boolean(attribute: Attribute, value: object) -> bool:
    if isinstance(value, int):
        return bool(value)
    if not isinstance(value, str):
        # An empty list would be false, which is the less strict value of a restricting switch.
        raise ValidationError(
            f"Invalid Boolean value '{_quoted(attribute, value)}': attribute '{attribute.name}' is yes or no"
        )
    if (word := value.lower()) in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValidationError(
        f"Invalid Boolean value ''{_quoted(attribute, value)}'': attribute '{attribute.name}' is yes or no"
    )


def _to_tag(attribute: Attribute, value: object) -> str:
    if isinstance(value, str) and value in attribute.tags:
        return str(value)
    number = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if _DECIMAL.fullmatch(number) and 0 <= int(number) < len(attribute.tags):
        return attribute.tags[int(number)]
    text = f"Invalid value for enum{list(attribute.tags)}: '{_quoted(attribute, value)}': attribute '{attribute.name}'"
    raise ChoiceError(text, attribute.name, value, attribute.tags)


def _to_map(attribute: Attribute, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValidationError(f"Attribute '{attribute.name}' must be a map with text keys")
    return {str(key): each for key, each in value.items()}


def _to_list(attribute: Attribute, value: object) -> list[object]:
    if not isinstance(value, list | tuple):
        raise ValidationError(f"Attribute '{attribute.name}' must be a list")
    return list(value)


def _to_properties(_: Attribute, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise ValidationError("Properties must be a map")
    if not all(isinstance(key, str) and key.isascii() for key in value):
        raise ValidationError("Property keys must be ASCII encoded")
    return {str(key): each for key, each in value.items()}


_CONVERSIONS: Mapping[str, Callable[[Attribute, object], object]] = {
    "string": _to_text,
    "path": _to_text,
    "entityId": _to_text,
    "integer": _to_integer,
    "boolean": _to_boolean,
    "enumeration": _to_tag,
    "map": _to_map,
    "dict": _to_map,
    "list": _to_list,
    "properties": _to_properties,
}
