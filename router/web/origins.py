"""Decides which web pages may open a WebSocket here. Pure. Source: RFC 6455 §10.2; docs/http.md.

Attack: a page of an attacker opens a connection to the router from inside the visitor's network, with the visitor's
client certificate.
"""

import re
from typing import Final

_PORTS: Final = {"http": 80, "https": 443}
_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::([0-9]{1,5}))?/?", re.IGNORECASE)


def read_origins(text: str) -> frozenset[str]:
    """Returns the origins of a `httpOrigins` text, in one form. Commas or blanks separate them. Errors: ValueError."""
    return frozenset(_written(each) for each in text.replace(",", " ").split())


def _written(text: str) -> str:
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text[:200]}' is no origin: expected https://HOST or https://HOST:PORT")
    scheme, host, port = found[1].lower(), found[2].lower(), int(found[3] or _PORTS[found[1].lower()])
    return f"{scheme}://{host}:{port}"


def is_permitted(origin: str | None, host: str | None, permitted: frozenset[str], *, is_secure: bool) -> bool:
    """Returns True if a page of this origin may open a WebSocket.

    origin     of the request; None: the client is no browser
    host       of the request, with its port
    permitted  in addition to pages of the same host and port
    is_secure  True if the request came through TLS
    """
    if origin is None:
        return True
    try:
        found = _written(origin)
        own = _written(f"{'https' if is_secure else 'http'}://{host}") if host else None
    except ValueError:
        return False
    return found == own or found in permitted
