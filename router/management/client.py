"""A synchronous client of the AMQP management protocol, over any Transport.

Source: docs/spec/management.md sections 7 and 10.3. The class names of the errors are part of the interface: the tools
print them and scripts look for them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from policy.configuration.value_texts import shown
from router.values import int_

MANAGEMENT_TYPE = "org.amqp.management"
LOCAL_ADDRESS = "$management"

# One reply should fit into a few frames. The tools of the router that we replace also ask for 500 rows.
PAGE_ROWS = 500
# Limits. They stop a router that answers every page with a full one, forever, or with rows that fill the memory.
MAX_QUERY_ROWS = 1_000_000
MAX_QUERY_VALUES = 20_000_000
MAX_QUERY_BYTES = 512 * 1024 * 1024


class ManagementError(Exception):
    """The router answered with a status that is not success. The text is the statusDescription."""

    status = 0

    @property
    def description(self) -> str:
        return str(self)

    @staticmethod
    def create(status: int, description: str) -> "ManagementError":
        """Returns the error for a status, of the status's own class if there is one."""
        made = STATUS_ERRORS.get(status, ManagementError)(description)
        made.status = status
        return made


class BadRequestStatus(ManagementError):
    status = 400


class UnauthorizedStatus(ManagementError):
    status = 401


class ForbiddenStatus(ManagementError):
    status = 403


class NotFoundStatus(ManagementError):
    status = 404


class InternalServerErrorStatus(ManagementError):
    status = 500


class NotImplementedStatus(ManagementError):
    status = 501


STATUS_ERRORS: Mapping[int, type[ManagementError]] = {
    error.status: error
    for error in (
        BadRequestStatus,
        UnauthorizedStatus,
        ForbiddenStatus,
        NotFoundStatus,
        InternalServerErrorStatus,
        NotImplementedStatus,
    )
}
STATUS_TEXTS: Mapping[int, str] = {
    200: "OK",
    201: "Created",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    500: "Internal Server Error",
    501: "Not Implemented",
}


class ConnectionException(Exception):
    """There is no connection, or no longer: refused, TLS, SASL, or closed by the router."""


class Timeout(Exception):
    """The router did not connect or answer in time."""


class LinkDetached(Exception):
    """The router refused a link or a request to the management address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply.

    value_count, size_bytes  of the message, if the transport counts them
    """

    application_properties: Mapping[str, Any]
    body: Any
    value_count: int = 0
    size_bytes: int = 0


class Transport(Protocol):
    """Carries one request at a time. router.tools.transport has the implementation over a socket."""

    def request(self, address: str, application_properties: Mapping[str, Any], body: Any) -> Reply:
        """Sends a request and returns the reply. Errors: ConnectionException, Timeout, LinkDetached."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows have their values in the order of attribute_names."""

    attribute_names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def entities(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            yield dict(zip(self.attribute_names, row, strict=False))


class ManagementClient:
    """Sends requests to one management address; `at` makes clients of other addresses on the same connection.

    All methods raise ManagementError (its subclass for the status), ConnectionException, Timeout and LinkDetached, and
    ValueError when the router's answer makes no sense.
    """

    def __init__(self, transport: Transport, address: str = LOCAL_ADDRESS) -> None:
        self._transport = transport
        self.address = address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def at(self, address: str) -> "ManagementClient":
        return ManagementClient(self._transport, address)

    def query(
        self,
        type: str | None = None,
        attribute_names: Sequence[str] = (),
        offset: int = 0,
        count: int = 0,
    ) -> QueryResult:
        """Returns entities of `type` (and its subtypes), or of all types that the router lists.

        attribute_names  empty means all
        count            maximum number of rows; 0 means all. Fetched in pages of 500.
        """
        names: tuple[str, ...] = ()
        rows: list[tuple[Any, ...]] = []
        value_count = size_bytes = 0
        while True:
            wanted = min(PAGE_ROWS, count - len(rows)) if count else PAGE_ROWS
            properties = {"entityType": type, "offset": int_(offset + len(rows)), "count": int_(wanted)}
            properties |= {"type": MANAGEMENT_TYPE, "name": "self", "operation": "QUERY"}
            reply = self.exchange(properties, {"attributeNames": list(attribute_names)})
            names, page = _query_page(reply.body)
            rows += page
            value_count += reply.value_count
            size_bytes += reply.size_bytes
            if len(page) != wanted or (count and len(rows) >= count):
                break
            if len(rows) > MAX_QUERY_ROWS:
                raise ValueError(f"the router gave more than {MAX_QUERY_ROWS} rows")
            if value_count > MAX_QUERY_VALUES or size_bytes > MAX_QUERY_BYTES:
                raise ValueError(
                    f"the router's rows hold more than {MAX_QUERY_VALUES} values or {MAX_QUERY_BYTES >> 20} MiB"
                )
        return QueryResult(attribute_names=names, rows=tuple(rows))

    def create(
        self, attributes: Mapping[str, Any], *, type: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Creates an entity and returns it. `type` and `name` may be among the attributes instead."""
        type = type or attributes.get("type")
        name = name or attributes.get("name")
        return _entity(self.call("CREATE", type=type, name=name, body=dict(attributes), expect=201))

    def read(self, *, type: str | None = None, name: str | None = None, identity: str | None = None) -> dict[str, Any]:
        return _entity(self.call("READ", type=type, name=name, identity=identity))

    def update(
        self,
        attributes: Mapping[str, Any],
        *,
        type: str | None = None,
        name: str | None = None,
        identity: str | None = None,
    ) -> dict[str, Any]:
        """Changes an entity. Returns the entity after the change."""
        return _entity(self.call("UPDATE", type=type, name=name, identity=identity, body=dict(attributes)))

    def delete(self, *, type: str | None = None, name: str | None = None, identity: str | None = None) -> None:
        self.call("DELETE", type=type, name=name, identity=identity, expect=204)

    def node(self, operation: str, *, body: Any = None, **properties: Any) -> Any:
        """Calls an operation of the management node itself, such as GET-TYPES.

        Properties that are None are left out.
        """
        return self.call(operation, type=MANAGEMENT_TYPE, name="self", properties=properties, body=body)

    def management_nodes(self) -> list[str]:
        """Returns the management addresses of all routers that the queried router knows, itself included. [] if it is
        alone.
        """
        found = self.node("GET-MGMT-NODES")
        if not isinstance(found, list):
            raise ValueError("the router's answer to GET-MGMT-NODES is no list")
        return [str(address) for address in found]

    def call(
        self,
        operation: str,
        *,
        type: str | None = None,
        name: str | None = None,
        identity: str | None = None,
        properties: Mapping[str, Any] | None = None,
        body: Any = None,
        expect: int = 200,
    ) -> Any:
        """Calls any operation; returns the body of the reply. If name and identity are given, the identity counts."""
        selectors = {"type": type, "name": None if identity else name, "identity": identity}
        given = {**(properties or {}), **selectors, "operation": operation}
        return self.exchange(given, body, expect=expect).body

    def exchange(self, application_properties: Mapping[str, Any], body: Any = None, *, expect: int = 200) -> Reply:
        """Sends a request, without properties that are None; returns the whole reply."""
        request = {key: value for key, value in application_properties.items() if value is not None}
        reply = self._transport.request(self.address, request, {} if body is None else body)
        status = reply.application_properties.get("statusCode")
        description = reply.application_properties.get("statusDescription")
        if not isinstance(status, int):
            raise ValueError("the answer has no statusCode; is this the address of a management node?")
        if status == expect:
            return reply
        if 200 <= status < 300:
            raise ValueError(
                f"Response was {status}({STATUS_TEXTS.get(status, '')}) "
                f"but expected {expect}({STATUS_TEXTS.get(expect, '')}): {description}"
            )
        raise ManagementError.create(int(status), str(description or status))


def _query_page(body: Any) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    names = body.get("attributeNames") if isinstance(body, dict) else None
    rows = body.get("results") if isinstance(body, dict) else None
    if not isinstance(names, list) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError("the router's answer to QUERY has no attributeNames and results")
    return tuple(map(str, names)), [tuple(row) for row in rows]


def _entity(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ValueError(f"the router's answer is no entity but {shown(body)}")
    return body
