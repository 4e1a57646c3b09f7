"""Host names in rules: looked up off the loop, once per request. Source: docs/spec/policy-and-auth.md §2.3."""

import asyncio
import socket
from collections.abc import Sequence


def resolve_host(name: str) -> Sequence[str]:
    """The numeric addresses of a host name, each once. Errors: OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class NameWanted(BaseException):
    """A rule names a host whose addresses are not known yet: look it up off the loop, then perform the request again.

    Not an Exception: it is no failure, and nothing between the compiler and the management service may take it for one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class KnownNames:
    """Host names that have been looked up for the request that is being performed."""

    def __init__(self) -> None:
        self._found: dict[str, Sequence[str] | OSError | ValueError] = {}

    def __call__(self, name: str) -> Sequence[str]:
        """Errors: OSError or ValueError as the look-up had it; NameWanted."""
        found = self._found.get(name)
        if found is None:
            raise NameWanted(name)
        if isinstance(found, OSError | ValueError):
            raise found
        return found

    async def look_up(self, name: str) -> None:
        """May take as long as a name server does; meanwhile messages are routed."""
        try:
            self._found[name] = await asyncio.to_thread(resolve_host, name)
        except (OSError, ValueError) as error:  # ValueError: no host name at all
            self._found[name] = error

    def forget(self) -> None:
        """The request is done: the next one shall see the addresses of its time."""
        self._found.clear()
