"""The project's schemas as data. Imports nothing of ours."""

import json
from functools import cache
from pkgutil import get_data
from typing import Any


@cache
def load(name: str) -> dict[str, Any]:
    """Parse `<name>.json` of this package; the result is shared, so do not change it.

    name    one of "management", "policy", "audit_event".
    Errors  FileNotFoundError when there is no such schema.
    """
    # Not by a path: a Spark cluster has this package in an archive.
    parsed: dict[str, Any] = json.loads(get_data(__name__, f"{name}.json") or b"")
    return parsed
