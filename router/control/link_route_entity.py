"""`linkRoute`: the configured link routes. Sources: docs/spec/routing.md §15.1, §15.2; docs/spec/management.md §6.5."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from policy.addressing.patterns import configured_tokens
from router.connection.link_routes import LinkRoute, LinkRoutes, key_of
from router.connection.peer import Peer
from router.connection.surroundings import Surroundings
from router.control.auto_link_entity import AutoLinkEntities, place_of
from router.control.connection_link_routes import ConnectionLinkRoutes
from router.core.core import Core
from router.management.owners import Owner
from router.management.query import Rows


def container_owners(surroundings: Surroundings, peer_of: Callable[[int], Peer | None]) -> tuple[Owner, ...]:
    """Returns the owners of link routes and auto links.

    peer_of  (connection id) → the connection's peer, None if it is gone
    """
    core = surroundings.core
    own = ConnectionLinkRoutes(surroundings.link_routes, core.next_identity, peer_of)
    link_routes = LinkRouteEntities(core, surroundings.link_routes)
    return link_routes.owner, AutoLinkEntities(core, surroundings.auto_links).owner, own.owner


class LinkRouteEntities:
    def __init__(self, core: Core, link_routes: LinkRoutes) -> None:
        self._core = core
        self._link_routes = link_routes
        self._by_identity: dict[str, LinkRoute] = {}

    @property
    def owner(self) -> Owner:
        return Owner(type="linkRoute", rows=Rows(self.rows), create=self.create, delete=self.delete)

    def create(self, attributes: Mapping[str, Any]) -> dict[str, object]:
        tokens = configured_tokens(attributes.get("prefix"), attributes.get("pattern"))
        identity = str(self._core.next_identity())
        is_in = attributes["direction"] == "in"
        route = LinkRoute(
            name=str(attributes.get("name") or identity),
            pattern="/".join(tokens),
            key=key_of(tokens, str(attributes.get("prefix") or attributes.get("pattern")), is_in=is_in),
            direction="send" if is_in else "receive",
            place=place_of(attributes),
            add=str(attributes.get("addExternalPrefix") or ""),
            remove=str(attributes.get("delExternalPrefix") or ""),
        )
        self._by_identity[identity] = route
        self._link_routes.add(route)
        return {"identity": identity}

    def delete(self, attributes: Mapping[str, Any]) -> None:
        self._link_routes.remove(self._by_identity.pop(str(attributes["identity"])))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        for identity, route in list(self._by_identity.items()):
            yield {
                "identity": identity,
                "operStatus": "active" if self._link_routes.is_active(route) else "inactive",
            }
