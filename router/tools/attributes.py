"""Parses entity types and attributes of qdmanage's command line. Pure.

Source: docs/spec/management.md sections 10.1 and 10.2.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import schemas

TYPE_PREFIX = "org.apache.qpid.dispatch."
# Complete names: `org.amqp.management` is the standard's, and needs no other prefix.
STANDARD_PREFIX = "org."

# Long type name -> attribute name (including deprecated ones) -> type in the schema; None for an unknown entity type.
AttributeTypes = Callable[[str], Mapping[str, Any] | None]

# The characters of a name that are compared with known names.
_MAX_COMPARED = 64

_BOOLEANS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


class ValidationError(ValueError):
    """The schema has no such entity type or attribute."""


def expand_type(name: str) -> str:
    """Returns the long name. `listener` is org.apache.qpid.dispatch.listener, `link` and `router.link` are
    ...router.link.

    Any other name with a dot stays unchanged: it is complete, or unknown.
    """
    if name.startswith(STANDARD_PREFIX):
        return name
    known = schemas.load("management")["entityTypes"]
    if (found := known.get(name) or known.get(f"router.{name}")) is not None:
        return str(found["fullyQualifiedType"])
    complete = TYPE_PREFIX + name
    is_known = any(each["fullyQualifiedType"] == complete for each in known.values())
    return complete if is_known or "." not in name else name


def parse_attributes(
    arguments: Sequence[str], entity_type: str | None, attribute_types: AttributeTypes, *, is_update: bool
) -> dict[str, Any]:
    """Returns `port=5672 http=true` as attributes. An argument without `=` means null.

    entity_type  long name from --type: then the schema checks names and converts integers
    is_update    True: yes, on, no and off are booleans too
    Errors       ValidationError for a type or attribute that the schema does not have, ValueError for a bad integer.
    """
    known = attribute_types(entity_type) if entity_type else {}
    if known is None:
        names = [name for name in schemas.load("management")["entityTypes"] if not name.startswith(STANDARD_PREFIX)]
        written = str(entity_type).removeprefix(TYPE_PREFIX)
        similar = get_close_matches(written[:_MAX_COMPARED], names, n=1)
        advice = f"; did you mean '{similar[0]}'?" if similar else ""
        raise ValidationError(f"No such entity type '{entity_type}'{advice}")
    found: dict[str, Any] = {}
    for argument in arguments:
        name, has_value, text = argument.partition("=")
        if entity_type and name not in known:
            # An argument without `=` may be the value of the previous one: `saslPassword secret`.
            quoted = f"'{name}'" if has_value else "'…', which has no '=',"
            raise ValidationError(f"Unknown attribute {quoted} for '{entity_type}'")
        if not has_value:
            found[name] = None
        elif name == "type":
            found[name] = expand_type(text)
        elif known.get(name) == "integer":
            found[name] = int(text)
        elif text in ("true", "false") or (is_update and text.lower() in _BOOLEANS):
            found[name] = _BOOLEANS[text.lower()]
        else:
            found[name] = text
    return found


class _Repeated(Exception):
    """A key appears twice in one map."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Repeated(f"key '{key}' stands twice in one map: keep one of them")
        found[key] = value
    return found


def _loads(text: str) -> Any:
    """Parses JSON. Errors: json.JSONDecodeError, RecursionError, _Repeated."""
    return json.loads(text, object_pairs_hook=_object)


def parse_json_option(text: str, *, is_text_allowed: bool = False) -> Any:
    """Returns the value of --body or --properties.

    is_text_allowed  True: text that does not look like JSON is used unchanged
    Errors           ValueError, which says what is wrong.
    """
    try:
        return _loads(text)
    except _Repeated as error:
        raise ValueError(f"Invalid JSON: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        if is_text_allowed and not set(text) & set('"{}[]'):
            return text
        # The text itself is not shown, because it may contain a password.
        raise ValueError(f"Invalid JSON '…': {error}") from None


def parse_entities(text: str) -> dict[str, Any] | list[dict[str, Any]]:
    """Returns the entity or the list of entities on standard input, with long types.

    Errors  ValueError. It does not repeat the text, which may contain passwords.
    """
    try:
        found = _loads(text)
    except _Repeated as error:
        raise ValueError(f"Invalid JSON on standard input: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"Invalid JSON on standard input: {error}") from None
    if isinstance(found, dict):
        return _with_expanded_type(found)
    if isinstance(found, list) and all(isinstance(entity, dict) for entity in found):
        return [_with_expanded_type(entity) for entity in found]
    raise ValueError("stdin is not a JSON map or list")


def _with_expanded_type(entity: dict[str, Any]) -> dict[str, Any]:
    return {**entity, "type": expand_type(entity["type"])} if isinstance(entity.get("type"), str) else entity
