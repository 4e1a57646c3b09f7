"""`Node`: one router's management node, as scripts for the router we replace use it.

Errors  qpid_dispatch.management.error; ConnectionException, Timeout and LinkDetached of router.management.client.
Source: docs/spec/management.md §11.
"""

import itertools
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from qpid_dispatch.management.entity import EntityBase, clean_dict
from qpid_dispatch.management.error import CREATED, NO_CONTENT, OK
from qpid_dispatch.management.url import Url
from router.management.client import (
    MANAGEMENT_TYPE,
    ConnectionException,
    LinkDetached,
    ManagementClient,
    Timeout,
)
from router.tools.connection_options import connection_options, router_address
from router.tools.transport import SocketTransport
from router.values import int_

__all__ = [
    "ConnectionException",
    "Entity",
    "LinkDetached",
    "Message",
    "Node",
    "QueryResponse",
    "SSLDomain",
    "Sasl",
    "Timeout",
    "Url",
]


class SSLDomain:
    """Our certificate and the trusted authorities. Stands in for proton's class, which does not show what it was given.

    The router's certificate is always verified against these authorities.
    """

    MODE_CLIENT: ClassVar = 1
    VERIFY_PEER: ClassVar = 2
    ANONYMOUS_PEER: ClassVar = 3
    VERIFY_PEER_NAME: ClassVar = 4

    def __init__(self, mode: int = MODE_CLIENT) -> None:
        if mode != self.MODE_CLIENT:
            raise ValueError("a management client is a client: SSLDomain.MODE_CLIENT")
        self.certificate_file: str | None = None
        self.key_file: str | None = None
        self.key_password: str | None = None
        self.trust_file: str | None = None
        self.checks_peer_name = True

    def set_credentials(self, cert_file: str, key_file: str | None = None, password: str | None = None) -> None:
        self.certificate_file, self.key_file, self.key_password = cert_file, key_file, password

    def set_trusted_ca_db(self, certificate_db: str) -> None:
        self.trust_file = certificate_db

    def set_peer_authentication(self, verify_mode: int, trusted_CAs: str | None = None) -> None:
        if verify_mode not in (self.VERIFY_PEER, self.VERIFY_PEER_NAME):
            raise ValueError("the router's certificate is always verified: VERIFY_PEER_NAME or VERIFY_PEER")
        self.checks_peer_name = verify_mode == self.VERIFY_PEER_NAME
        self.trust_file = trusted_CAs or self.trust_file


class Sasl:
    """mechs  mechanisms to choose from, separated by blanks."""

    def __init__(
        self,
        mechs: str | None = None,
        user: str | None = None,
        password: str | None = None,
        sasl_password_file: str | None = None,
    ) -> None:
        self.mechs, self.user = mechs, user
        self.password = Path(sasl_password_file).read_text("utf-8").strip() if sasl_password_file else password

    def __repr__(self) -> str:
        return f"Sasl(mechs={self.mechs!r}, user={self.user!r})"


@dataclass(slots=True, kw_only=True)
class Message:
    """A request or a response: `properties` are its application-properties."""

    properties: dict[str, Any]
    body: Any = None
    address: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None


class Entity(EntityBase):
    """An entity of a node; `read`, `update` and `delete` go to the router."""

    node: "Node"

    def __init__(self, node: "Node", attributes: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__(attributes, **more)
        self.__dict__["node"] = node

    def _selector(self) -> dict[str, Any]:
        return {name: self.attributes.get(name) for name in ("type", "identity")}

    def call(self, operation: str, expect: int = OK, **arguments: Any) -> Any:
        """Any operation on this entity; returns the body of the response."""
        return self.node.call(self.node.request(operation=operation, **self._selector(), **arguments), expect).body

    def read(self) -> Self:
        """Fetch the attributes as they are now."""
        self.attributes = self.node.read(**self._selector()).attributes
        return self

    def update(self) -> Self:
        """Send the attributes as they have been set here."""
        self.attributes = self.node.update(self.attributes, **self._selector()).attributes
        return self

    def delete(self) -> None:
        self.node.delete(**self._selector())


@dataclass(frozen=True, slots=True)
class QueryResponse:
    """results  rows, their values in the order of attribute_names."""

    node: "Node" = field(repr=False)
    attribute_names: list[str]
    results: list[list[Any]]

    def iter_dicts(self, clean: bool = False) -> Iterator[dict[str, Any]]:
        """clean  leave out attributes that are None."""
        for row in self.results:
            found = dict(zip(self.attribute_names, row, strict=False))
            yield clean_dict(found) if clean else found

    def iter_entities(self, clean: bool = False) -> Iterator[Entity]:
        return (Entity(self.node, attributes) for attributes in self.iter_dicts(clean))

    def get_dicts(self, clean: bool = False) -> list[dict[str, Any]]:
        return list(self.iter_dicts(clean))

    def get_entities(self, clean: bool = False) -> list[Entity]:
        return list(self.iter_entities(clean))


class Node:
    """The management node of one router.

    client    the ManagementClient requests go through
    reply_to  where responses come to
    """

    def __init__(self, transport: SocketTransport, address: str, url: Url) -> None:
        self._transport = transport
        self._correlation_ids = map(str, itertools.count(1))
        self.url = url
        self.reply_to = transport.reply_to
        self.client = ManagementClient(transport, address)

    @classmethod
    def connect(
        cls,
        url: Url | str | None = None,
        router: str | None = None,
        timeout: float = 10,
        ssl_domain: SSLDomain | None = None,
        sasl: Any = None,
        edge_router: str | None = None,
    ) -> "Node":
        """Connect to a router; a path in the URL wins over `router` and `edge_router`.

        timeout  seconds, for the connection and for each answer
        sasl     `Sasl`, or anything with mechs, user and password
        Errors   ConnectionException, Timeout, LinkDetached; ValueError for a URL that is none.
        """
        if ssl_domain is not None and not isinstance(ssl_domain, SSLDomain):
            given = type(ssl_domain)
            raise TypeError(
                f"ssl_domain is a {given.__module__}.{given.__name__}, which does not tell what it was given: "
                "import SSLDomain from qpid_dispatch.management.client instead, it has the same methods"
            )
        domain = ssl_domain or SSLDomain()
        where = Url(url)
        options = connection_options(
            Namespace(
                bus=str(where),
                timeout=float(timeout),
                ssl_certificate=domain.certificate_file,
                ssl_key=domain.key_file,
                ssl_trustfile=domain.trust_file,
                ssl_password=domain.key_password,
                ssl_password_file=None,
                ssl_disable_peer_name_verify=not domain.checks_peer_name,
                sasl_mechanisms=getattr(sasl, "mechs", None),
                sasl_username=getattr(sasl, "user", None),
                sasl_password=getattr(sasl, "password", None),
                sasl_password_file=None,
            ),
            lambda path: Path(path).read_text("utf-8"),
        )
        address = options.address or router_address(router, edge_router)
        return cls(SocketTransport(options), address, where)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_client(self, path: str) -> None:
        """Ask another management node over the same connection, `_topo/0/R2/$management`."""
        self.client = self.client.at(path)

    # Any operation

    def request(self, body: Any = None, **properties: Any) -> Message:
        """A request for `call`; properties that are None are left out."""
        return Message(
            properties=clean_dict(properties),
            body={} if body is None else body,
            address=self.client.address,
            reply_to=self.reply_to,
            correlation_id=next(self._correlation_ids),
        )

    def node_request(self, body: Any = None, **properties: Any) -> Message:
        """A request to the node itself."""
        return self.request(body, name="self", type=MANAGEMENT_TYPE, **properties)

    def call(self, request: Message, expect: int = OK) -> Message:
        """Errors: ManagementError, its subclass for the status, unless that is `expect`."""
        reply = self.client.exchange(request.properties, request.body, expect=expect)
        return Message(
            properties=dict(reply.application_properties), body=reply.body, correlation_id=request.correlation_id
        )

    # Entities

    def query(
        self,
        type: str | None = None,
        attribute_names: Sequence[str] | None = None,
        offset: int | None = None,
        count: int | None = None,
    ) -> QueryResponse:
        """Entities of a type, or of all types the router lists. No count, or 0: all."""
        found = self.client.query(type, attribute_names or (), offset or 0, max(count or 0, 0))
        return QueryResponse(self, list(found.attribute_names), [list(row) for row in found.rows])

    def create(
        self, attributes: Mapping[str, Any] | None = None, type: str | None = None, name: str | None = None
    ) -> Entity:
        given = dict(attributes or {})
        request = self.request(
            given, operation="CREATE", type=type or given.get("type"), name=name or given.get("name")
        )
        return Entity(self, self.call(request, CREATED).body)

    def read(self, type: str | None = None, name: str | None = None, identity: str | None = None) -> Entity:
        _refuse_none(name, identity)
        return Entity(self, self.call(self.request(operation="READ", type=type, name=name, identity=identity)).body)

    def update(
        self,
        attributes: Mapping[str, Any],
        type: str | None = None,
        name: str | None = None,
        identity: str | None = None,
    ) -> Entity:
        _refuse_none(name, identity)
        request = self.request(dict(attributes), operation="UPDATE", type=type, name=name, identity=identity)
        return Entity(self, self.call(request).body)

    def delete(self, type: str | None = None, name: str | None = None, identity: str | None = None) -> None:
        _refuse_none(name, identity)
        self.call(self.request(operation="DELETE", type=type, name=name, identity=identity), NO_CONTENT)

    # Operations of the node

    def _ask(self, operation: str, **properties: Any) -> Any:
        return self.call(self.node_request(operation=operation, **properties)).body

    def get_types(self, type: str | None = None) -> dict[str, list[str]]:
        return dict(self._ask("GET-TYPES", entityType=type))

    def get_annotations(self, type: str | None = None) -> dict[str, Any]:
        return dict(self._ask("GET-ANNOTATIONS", entityType=type))

    def get_attributes(self, type: str | None = None) -> dict[str, list[str]]:
        return dict(self._ask("GET-ATTRIBUTES", entityType=type))

    def get_operations(self, type: str | None = None) -> dict[str, list[str]]:
        return dict(self._ask("GET-OPERATIONS", entityType=type))

    def get_mgmt_nodes(self, type: str | None = None) -> list[str]:
        return list(self._ask("GET-MGMT-NODES", entityType=type))

    def get_log(self, limit: int | None = None, type: str | None = None) -> list[list[Any]]:
        """The last `limit` entries: module, level, text, file, line, time."""
        return list(self._ask("GET-LOG", limit=None if limit is None else int_(limit), entityType=type))

    def get_schema(self, type: str | None = None) -> dict[str, Any]:
        return dict(self._ask("GET-SCHEMA", entityType=type))


def _refuse_none(name: str | None, identity: str | None) -> None:
    if not name and not identity:
        raise ValueError("name or identity must be given")
