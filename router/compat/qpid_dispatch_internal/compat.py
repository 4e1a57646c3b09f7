"""Python 2 and 3 alike; only 3 is left."""

from collections.abc import Mapping
from typing import Any


def UNICODE(text: str | bytes) -> str:
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)


def BINARY(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8")


def dictify(value: Any) -> Any:
    """Plain dicts in the place of other mappings, also inside lists and mappings."""
    if isinstance(value, Mapping):
        return {key: dictify(each) for key, each in value.items()}
    return [dictify(each) for each in value] if isinstance(value, list | tuple) else value
