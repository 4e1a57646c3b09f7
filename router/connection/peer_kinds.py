"""The kinds of peer: the one place where a role chooses how a peer is served."""

from collections.abc import Mapping
from typing import Final

from router.connection.peer import Peer
from router.connection.peer_auth import AskingRouter
from router.connection.peer_router import NeighbourRouter

# Of every listener of an authentication service; no entity has it.
AUTH_SERVICE: Final = "auth-service"

# By the role of a listener or connector. Edge routers are served as clients until there is a kind for them.
KINDS: Final[Mapping[str, type[Peer]]] = {
    **dict.fromkeys(("normal", "route-container", "edge"), Peer),
    "inter-router": NeighbourRouter,
    AUTH_SERVICE: AskingRouter,
}
