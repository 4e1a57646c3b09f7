"""Reads one HTTP/1.1 request. The header section is read strictly, so that no proxy reads it differently.

h11 parses. Input that h11 would tolerate is refused before h11 gets it. Pure. Source: RFC 9112; docs/spec/routing.md
§2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import h11

from router.web.limits import MAX_HEAD_BYTES, MAX_HEADERS

END_OF_HEAD: Final = b"\r\n\r\n"
_MOST_TARGET_BYTES: Final = 2048
# Headers that may appear only once: if there are two, two readers may each use another one.
_SINGLE: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "origin", "authorization", "upgrade"}
    | {"sec-websocket-key", "sec-websocket-version"}
)


class BadRequest(Exception):
    """The request cannot be answered, and the connection ends.

    status  of the response
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request.

    target   the path as it was sent, percent-encoded, without the query
    headers  by lower-case name. The values of a repeated header are joined by commas
    is_1_1   True for HTTP/1.1, False for 1.0
    """

    method: str
    target: str
    headers: Mapping[str, str]
    is_1_1: bool

    def listed(self, name: str) -> tuple[str, ...]:
        """Returns the elements of a header that is a list."""
        return tuple(filter(None, (each.strip(" \t") for each in self.headers.get(name, "").split(","))))

    @property
    def wants_upgrade(self) -> bool:
        return "upgrade" in self.headers or "sec-websocket-key" in self.headers


def check_head(head: bytes) -> None:
    """Refuses input that h11 would tolerate. Errors: BadRequest.

    head  including the empty line at its end
    """
    lines = head.count(b"\r\n")
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise BadRequest(400, "a line that does not end with CR LF, or a NUL")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise BadRequest(400, "a header that is folded over two lines")
    if lines - 2 > MAX_HEADERS:
        raise BadRequest(431, f"more than {MAX_HEADERS} headers")
    if head.find(b"\r\n") > _MOST_TARGET_BYTES:
        raise BadRequest(414, f"a request line of more than {_MOST_TARGET_BYTES} bytes")


def new_reader() -> h11.Connection:
    """Returns the HTTP state of a new connection."""
    return h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)


def read_request(reader: h11.Connection, head: bytes) -> Request:
    """Reads one request from its whole header section. No request here may have a body. Errors: BadRequest."""
    check_head(head)
    try:
        reader.receive_data(head)
        event = reader.next_event()
        if not isinstance(event, h11.Request):
            raise BadRequest(400, "no request")
        request = _request_of(event)
        _refuse_body(request)
        reader.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(400, str(error)) from None
    return request


def _request_of(event: h11.Request) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name in headers and name in _SINGLE:
            raise BadRequest(400, f"more than one {name} header")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    target = event.target.decode("ascii")
    if event.http_version not in (b"1.0", b"1.1"):
        raise BadRequest(400, "HTTP/1.1 is spoken here")
    if not target.startswith("/"):
        raise BadRequest(400, "a target that is no path")
    return Request(
        method=event.method.decode("ascii"),
        target=target.partition("?")[0],
        headers=headers,
        is_1_1=event.http_version == b"1.1",
    )


def _refuse_body(request: Request) -> None:
    """Refuses a request with a body.

    Attack: a second request in the body of the first, past a proxy that uses another header for its length.
    """
    if "transfer-encoding" in request.headers:
        raise BadRequest(400, "a Transfer-Encoding: no request has a body here")
    if request.headers.get("content-length", "0").strip("0"):
        raise BadRequest(413, "a body: no request has one here")
