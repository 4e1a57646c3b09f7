"""The project's schemas as data. Imports nothing of ours."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def load(name: str) -> dict[str, Any]:
    """Parse `<name>.json` of this package; the result is shared, so do not change it.

    name    one of "management", "policy", "audit_event".
    Errors  FileNotFoundError when there is no such schema.
    """
    parsed: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8"))
    return parsed
