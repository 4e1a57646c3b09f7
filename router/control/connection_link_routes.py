"""`router.connection.linkRoute`: the link routes that a peer made for its own connection.

Sources: docs/spec/routing.md §16; docs/spec/management.md §8.9.
"""

from collections.abc import Callable, Iterator

from policy.addressing.patterns import configured_tokens
from router.connection.hosting import OwnRoute
from router.connection.link_routes import LinkRoutes
from router.connection.own_routes import CannotServe, OwnRoutes
from router.connection.peer import Peer
from router.connection.route_patterns import may_route_links
from router.management.owners import Attributes, Owner
from router.management.query import Row
from router.management.requests import ManagementError

_TYPE = "router.connection.linkRoute"
_LONG_TYPE = f"org.apache.qpid.dispatch.{_TYPE}"


class ConnectionLinkRoutes:
    def __init__(
        self, link_routes: LinkRoutes, next_identity: Callable[[], int], peer_of: Callable[[int], Peer | None]
    ) -> None:
        """peer_of  (connection id) → the connection's peer, None if it is gone"""
        self._routes = OwnRoutes(link_routes)
        self._next_identity = next_identity
        self._peer_of = peer_of

    @property
    def owner(self) -> Owner:
        return Owner(type=_TYPE, scoped=self)

    def _peer(self, connection_id: int | None) -> Peer | None:
        peer = self._peer_of(connection_id) if connection_id is not None else None
        return peer if peer is not None and peer.is_open and not peer.hosting.is_gone else None

    def rows(self, connection_id: int | None) -> Iterator[Row]:
        peer = self._peer(connection_id)
        return (_row(own) for own in (list(peer.hosting.own.values()) if peer is not None else ()))

    def create(self, connection_id: int | None, name: str | None, attributes: Attributes) -> Row:
        if connection_id is None:
            raise ManagementError(403, "Forbidden: a link route of a connection is made by the peer of that connection")
        peer = self._peer(connection_id)
        if peer is None:
            raise ManagementError(400, "Parent connection no longer exists")
        if not may_route_links(peer.gate):
            raise ManagementError(403, "Forbidden")
        pattern, direction = _validated(attributes)
        identity = str(self._next_identity())
        try:
            return _row(
                self._routes.add(
                    peer,
                    identity=identity,
                    name=name,
                    pattern=pattern,
                    direction="send" if direction == "in" else "receive",
                )
            )
        except CannotServe as error:
            raise ManagementError(403 if error.is_denied else 400, str(error)) from None

    def delete(self, connection_id: int | None, identity: str) -> None:
        peer = self._peer(connection_id)
        if peer is not None:
            self._routes.remove(peer, identity)


def _validated(attributes: Attributes) -> tuple[str, str]:
    """Returns pattern and direction. Errors: ManagementError"""
    pattern, direction = attributes.get("pattern"), attributes.get("direction")
    if pattern is None:
        raise ManagementError(400, "Pattern field is required")
    if not isinstance(pattern, str) or not pattern:
        raise ManagementError(400, "Pattern must be a non-empty string type")
    try:
        configured_tokens(None, pattern)
    except ValueError as error:
        raise ManagementError(400, f"Pattern invalid - {error}") from None
    if direction is None:
        raise ManagementError(400, "Missing value for 'direction'")
    if direction not in ("in", "out"):
        raise ManagementError(400, "Invalid value for 'direction'")
    return str(pattern), str(direction)


def _row(own: OwnRoute) -> Row:
    return {
        "name": own.name,
        "identity": own.identity,
        "type": _LONG_TYPE,
        "pattern": own.pattern,
        "direction": "in" if own.route.direction == "send" else "out",
        "containerId": own.container,
    }
