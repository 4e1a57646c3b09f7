"""The project's schemas as data. Imports no other module of the project."""

import json
from functools import cache
from pkgutil import get_data
from typing import Any


@cache
def load(name: str) -> dict[str, Any]:
    """Parses `<name>.json` of this package. The result is shared, so do not change it.

    name    one of "management", "policy", "audit_event", "detect_thresholds".
    Errors  FileNotFoundError if there is no such schema.
    """
    # Not by a path: on a Spark cluster this package is in an archive.
    parsed: dict[str, Any] = json.loads(get_data(__name__, f"{name}.json") or b"")
    return parsed
