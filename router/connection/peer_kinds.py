"""The kinds of peer: the only place where a role chooses how a peer is served."""

from collections.abc import Callable, Mapping
from typing import Final

from router.connection.peer import Peer
from router.connection.peer_auth import AskingRouter
from router.connection.peer_container import ContainerPeer
from router.connection.peer_edge import edge_peer
from router.connection.peer_router import NeighbourRouter

# The role of every listener of an authentication service; no entity has it.
AUTH_SERVICE: Final = "auth-service"

# By the role of a listener or connector.
KINDS: Final[Mapping[str, Callable[..., Peer]]] = {
    "normal": Peer,
    "edge": edge_peer,
    "inter-router": NeighbourRouter,
    "route-container": ContainerPeer,
    AUTH_SERVICE: AskingRouter,
}
