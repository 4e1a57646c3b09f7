"""HTTP responses: a status, headers, and a body that is complete or comes in pieces.

Pure. Source: docs/spec/routing.md §2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

SERVER: Final = "qpid-dispatch-router"

Headers = tuple[tuple[str, str], ...]

# Attack: a page that embeds ours and makes its visitor click in it; a script that an attacker has put among the files
# or into a name; a file that a browser treats as another type.
PROTECTION: Final[Headers] = (
    (
        "content-security-policy",
        "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
# Attack: an attacker on the network path answers the first, unencrypted request of a browser.
STRICT_TRANSPORT: Final = ("strict-transport-security", "max-age=31536000")

_REASONS: Final = {
    200: "OK",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    414: "URI Too Long",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Source(Protocol):
    """A body that comes in pieces."""

    def read(self, done: Callable[[bytes], None], /) -> None:
        """Calls `done` later with the next piece, or with b"" if there is none although more was announced."""
        ...

    def close(self) -> None:
        """Stops reading. May be called any number of times."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response.

    headers   in addition to those that every response has
    body      the whole body, if there is no source
    source    gives `size` bytes
    closes    True if the connection ends after it
    """

    status: int
    headers: Headers = ()
    body: bytes = b""
    source: Source | None = None
    size: int = 0
    closes: bool = False

    @property
    def reason(self) -> str:
        return _REASONS.get(self.status, "")

    @property
    def length(self) -> int:
        return self.size if self.source is not None else len(self.body)


Respond = Callable[[Answer], None]


def text_answer(status: int, text: str, *headers: tuple[str, str], closes: bool = False) -> Answer:
    """Returns a response with one line of text."""
    typed = ("content-type", "text/plain; charset=utf-8")
    return Answer(status=status, headers=(typed, *headers), body=f"{text}\n".encode(), closes=closes)
