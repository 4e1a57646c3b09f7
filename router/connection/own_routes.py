"""Link routes that a peer makes for its own connection: it takes the links of a pattern.

A peer that takes other clients' links gets their messages, or gives them messages. With policy on, a peer therefore
takes links only for addresses that it may receive from, or send to, itself. Each attach is judged (Hosting.takes). The
pattern is judged here, so that no peer keeps other clients from addresses that are not its own. Source:
docs/spec/routing.md §16.
"""

from typing import Final

from policy.addressing.patterns import configured_tokens, split_tokens
from router.admission.connection_gate import Direction
from router.connection.auto_links import Place
from router.connection.hosting import OwnRoute
from router.connection.link_routes import LinkRoute, LinkRoutes, key_of
from router.connection.peer import Peer
from router.connection.route_patterns import may_route

# Limits for one connection. Attack: a client makes patterns without end, or with endless words: each costs memory, and
# every attach takes longer.
MAX_ROUTES: Final = 256
MAX_TOKENS: Final = 2048
# An edge has the link routes of its containers.
MAX_EDGE_ROUTES: Final = 4096
MAX_EDGE_TOKENS: Final = 16_384
MAX_TEXT_CHARACTERS: Final = 512


class CannotServe(ValueError):
    """A connection cannot have this link route.

    is_denied  policy denies it
    """

    def __init__(self, text: str, *, is_denied: bool = False) -> None:
        super().__init__(text)
        self.is_denied = is_denied


class OwnRoutes:
    """The link routes of all connections, by the peers that made them."""

    def __init__(self, link_routes: LinkRoutes) -> None:
        self._link_routes = link_routes

    def add(self, peer: Peer, *, identity: str, name: str | None, pattern: str, direction: Direction) -> OwnRoute:
        """pattern    uses only the peer's own words, without the tenant's prefix
        direction  of the links that it takes
        Errors     CannotServe
        """
        hosting = peer.hosting
        if hosting.is_gone:
            raise CannotServe("creation failed: the connection is gone")
        if len(pattern) > MAX_TEXT_CHARACTERS or len(name or "") > MAX_TEXT_CHARACTERS:
            raise CannotServe(f"creation failed: a name or pattern has at most {MAX_TEXT_CHARACTERS} characters")
        if not may_route(peer.gate, peer.names.resolve, pattern, direction):
            may = "receive from" if direction == "send" else "send to"
            raise CannotServe(f"Forbidden: it takes addresses that this user may not {may} itself", is_denied=True)
        space = hosting.space
        tokens = configured_tokens(None, space + pattern)
        most, most_tokens = (MAX_EDGE_ROUTES, MAX_EDGE_TOKENS) if peer.attachment.is_edge else (MAX_ROUTES, MAX_TOKENS)
        held = sum(len(split_tokens(own.route.pattern)) for own in hosting.own.values())
        if len(hosting.own) >= most or held + len(tokens) > most_tokens:
            raise CannotServe(f"creation failed: a connection has at most {most} link routes of {most_tokens} words")
        if name is not None and any(own.name == name for own in hosting.own.values()):
            raise CannotServe("creation failed: the connection has a link route of this name")
        container = hosting.container
        route = LinkRoute(
            name=name or identity,
            pattern="/".join(tokens),
            key=key_of(tokens, space + pattern, is_in=direction == "send"),
            direction=direction,
            place=Place(kind="container", text=container),
            remove=space,
        )
        if not self._link_routes.add_own(route, hosting):
            raise CannotServe("creation failed: the connection has a link route of this pattern and direction")
        own = OwnRoute(identity=identity, name=name, pattern=pattern, container=container, route=route)
        hosting.keep_own(own)
        return own

    def remove(self, peer: Peer, identity: str) -> None:
        own = peer.hosting.drop_own(identity)
        assert own is not None
        self._link_routes.remove_own(own.route, peer.hosting)
