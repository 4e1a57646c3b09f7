"""Parses the text of an address as the router understands it. Pure. Source: docs/spec/routing.md §3.1, §5.4."""

import re
from typing import Final

# The end of every address that the router generates: 90 random bits, so that no name is repeated.
RANDOM_NAME: Final = r"[A-Za-z0-9+_]{15}"
_DYNAMIC: Final = re.compile(rf"(?:_topo/[^/]*/[^/]*/|_edge/[^/]*/|_local/|_\$)temp\.{RANDOM_NAME}")


def without_authority(text: str) -> str:
    """Returns the address without scheme, authority and one leading separator."""
    if not text.startswith("/"):
        scheme_end = text.find(":/")
        if scheme_end >= 0:
            text = text[scheme_end + 1 :]
    if text.startswith("//"):
        return text[2:].partition("/")[2]
    return text[1:] if text.startswith("/") else text


def normalise(text: str) -> str:
    """Returns the address without scheme, authority and one leading or trailing separator."""
    text = without_authority(text)
    return text[:-1] if text.endswith(("/", ".")) else text


def is_dynamic(address: str) -> bool:
    """Returns whether a normalised address has the form that routers generate for dynamic termini."""
    return _DYNAMIC.fullmatch(address) is not None
