"""Management values as JSON text for people and scripts. Pure."""

import json
import math
import uuid
from typing import Any

from router.values import Array, Described


def dump(value: Any, indent: int | None) -> str:
    """Returns JSON text, with keys in their order. indent None gives one line."""
    return json.dumps(_jsonable(value), indent=indent, separators=(", ", ": "))


def _jsonable(value: Any) -> Any:
    """Converts AMQP values that JSON lacks.

    Binary becomes text (invalid bytes as \\xNN), uuids and non-finite numbers become their text, and arrays become
    lists.
    """
    match value:
        case dict():
            return {_key(key): _jsonable(element) for key, element in value.items()}
        case list() | tuple() | Array():
            return [_jsonable(element) for element in value]
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case uuid.UUID():
            return str(value)
        case float() if not math.isfinite(value):
            return str(float(value))
        case Described():
            return _jsonable(value.value)
        case _:
            return value


def _key(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
