"""How the router understands the text of an address. Pure. Source: docs/spec/routing.md §3.1, §5.4."""

import re
from typing import Final

# The end of every address that the router makes up: 90 bits of chance, so that no name comes again.
RANDOM_NAME: Final = r"[A-Za-z0-9+_]{15}"
_DYNAMIC: Final = re.compile(rf"(?:_topo/[^/]*/[^/]*/|_edge/[^/]*/|_local/|_\$)temp\.{RANDOM_NAME}")


# What the addresses of routers begin with, as far as a separator follows.
_ROUTERS: Final = ("_local", "_topo", "_edge")
_ROUTERS_SIGNS: Final = ("$", "_$")
_DYNAMIC_NAME: Final = re.compile(rf"temp\.{RANDOM_NAME}")


def without_authority(text: str) -> str:
    """The address without scheme, authority and one leading separator."""
    if not text.startswith("/"):
        scheme_end = text.find(":/")
        if scheme_end >= 0:
            text = text[scheme_end + 1 :]
    if text.startswith("//"):
        return text[2:].partition("/")[2]
    return text[1:] if text.startswith("/") else text


def normalise(text: str) -> str:
    """The address without scheme, authority and one leading or trailing separator."""
    text = without_authority(text)
    return text[:-1] if text.endswith(("/", ".")) else text


def is_reserved(name: str) -> bool:
    """Would an address that is a user's name, or begins with it, mean something to the router?

    Attack: a user called `$management`, where everybody has the addresses `${user}` and `${user}/#`.
    """
    return any(_is_routers(text) for text in (name, normalise(name)))


def _is_routers(text: str) -> bool:
    if text.startswith(_ROUTERS_SIGNS) or _DYNAMIC_NAME.fullmatch(text) is not None:
        return True
    return bool(text) and any(text.startswith(f"{each}/") or f"{each}/".startswith(text) for each in _ROUTERS)


def may_stand_for_user(head: str, name: str) -> bool:
    """May a user's name be put behind `head` in an item of a list? The addresses of routers are written out there."""
    if is_reserved(name):
        return False
    if head.startswith((*_ROUTERS_SIGNS, *(f"{each}/" for each in _ROUTERS))):
        return "/" not in name
    return not head or not _is_routers(head + name)


def is_dynamic(address: str) -> bool:
    """Has a normalised address the form of those that the router makes up for dynamic termini, here or elsewhere?"""
    return _DYNAMIC.fullmatch(address) is not None
