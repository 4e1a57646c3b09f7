"""Decides the answers of an HTTP listener, by path. Pure. Source: docs/spec/routing.md §2; docs/http.md."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from router.web.answers import Answer, Respond, text_answer
from router.web.origins import is_permitted
from router.web.paths import INDEX, names_of
from router.web.requests import Request
from router.web.websocket import PROTOCOLS, VERSION, accept_key

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NOT_FOUND: Final = text_answer(404, "not found")
_PAGE: Final = b"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Palisade Router</title></head>
<body>
<h1>Palisade Router</h1>
<p>The web console was not built when this router was installed. It is made by npm (Debian: <code>apt-get install
nodejs npm</code>), once, in a checkout of the sources:</p>
<pre>make console</pre>
<p>Then start the router from that checkout, or build and install its wheel. Everything else works without the console.
AMQP is spoken here over WebSocket, at any path, with the sub-protocol <code>amqp</code>. The listener's
<code>httpRootDir</code> serves files of your own in this place.</p>
</body>
</html>
"""
_INDEX_PAGE: Final = Answer(status=200, headers=(("content-type", "text/html; charset=utf-8"),), body=_PAGE)


class Files(Protocol):
    """The files below one folder."""

    def answer(self, names: tuple[str, ...], request: Request, respond: Respond, /) -> None: ...


class Pulse(Protocol):
    """The router, as /healthz and /metrics use it.

    is_well        returns True if the core does its work
    with_metrics   calls `done`, at once or later, with the text of all metrics
    """

    def is_well(self) -> bool: ...
    def with_metrics(self, done: Callable[[bytes], None], /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The settings of one HTTP listener, and what it serves.

    files    of httpRootDir or of the console; None: there is neither
    origins  of web pages that may open a WebSocket, in addition to those of the same host and port
    """

    pulse: Pulse
    files: Files | None = None
    has_websockets: bool = True
    has_healthz: bool = True
    has_metrics: bool = True
    is_metrics_guarded: bool = False  # a login is needed to read them
    origins: frozenset[str] = frozenset()

    def is_guarded(self, request: Request) -> bool:
        """Returns True if a login is needed before `answer`."""
        return self.has_metrics and self.is_metrics_guarded and request.target == "/metrics"

    def answer(self, request: Request, respond: Respond) -> None:
        """Answers a request that wants no upgrade."""
        target = request.target
        if target == "/healthz" and self.has_healthz:
            respond(self._health())
        elif target == "/metrics" and self.has_metrics:
            headers = (("content-type", METRICS_TYPE), ("cache-control", "no-store"))
            self.pulse.with_metrics(lambda text: respond(Answer(status=200, headers=headers, body=text, closes=True)))
        elif (names := names_of(target)) is None:
            respond(_NOT_FOUND)
        elif self.files is not None:
            self.files.answer(names, request, respond)
        else:
            respond(_INDEX_PAGE if names == (INDEX,) else _NOT_FOUND)

    def _health(self) -> Answer:
        if not self.pulse.is_well():
            return text_answer(503, "the routing core does not respond", ("cache-control", "no-store"))
        headers = (("content-type", "text/plain"), ("cache-control", "no-store"))
        return Answer(status=200, headers=headers, body=b"OK\n")

    def may_upgrade(self, request: Request, *, is_secure: bool) -> "Upgrade | Answer":
        """Returns the answer to a request for a WebSocket.

        is_secure  True if the request came through TLS
        """
        headers = request.headers
        is_asked = "websocket" in (each.lower() for each in request.listed("upgrade"))
        is_hop = "upgrade" in (each.lower() for each in request.listed("connection"))
        if not (is_asked and is_hop and request.method == "GET" and request.is_1_1):
            return text_answer(400, "an upgrade is a GET of HTTP/1.1 to websocket", closes=True)
        if headers.get("sec-websocket-version") != VERSION:
            return text_answer(426, "WebSocket version 13", ("sec-websocket-version", VERSION), closes=True)
        key = accept_key(headers.get("sec-websocket-key", ""))
        if key is None:
            return text_answer(400, "a Sec-WebSocket-Key of 16 bytes is wanted", closes=True)
        if not is_permitted(headers.get("origin"), headers.get("host"), self.origins, is_secure=is_secure):
            return text_answer(403, "pages of this origin may not connect here (httpOrigins)", closes=True)
        offered = request.listed("sec-websocket-protocol")
        protocol = next((each for each in PROTOCOLS if each in offered), None)
        if protocol is None:
            return text_answer(400, "the sub-protocol is amqp", closes=True)
        return Upgrade(protocol=protocol, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The acceptance of a request for a WebSocket.

    protocol  the sub-protocol, one that the client offers
    key       of the answer
    """

    protocol: str
    key: str
