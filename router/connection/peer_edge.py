"""The two ends of a connection between an edge router and an interior router.

Source: docs/spec/network.md §14.
"""

from collections.abc import Callable
from typing import Any

from router.amqp.terminus import RemoteOpen
from router.connection.edge_links import EdgeLinks
from router.connection.peer import Peer
from router.connection.peer_open import STREAMING, report_annotations
from router.connection.uplink_links import UplinkLinks


class EdgeRouter(Peer):
    """An edge router that connected to this interior router."""

    links_kind = EdgeLinks

    def on_open(self, remote: RemoteOpen) -> None:
        super().on_open(remote)
        services = self.surroundings.edges
        if self.is_open and services is not None:
            report_annotations(self, remote)
            assert isinstance(self.links, EdgeLinks)
            self.links.open_edge(services, self, takes_streams=STREAMING in remote.offered_capabilities)


class InteriorRouter(Peer):
    """An interior router that this edge connected to."""

    links_kind = UplinkLinks

    def on_open(self, remote: RemoteOpen) -> None:
        super().on_open(remote)
        uplinks = self.surroundings.uplinks
        if self.is_open and uplinks is not None:
            report_annotations(self, remote)
            assert isinstance(self.links, UplinkLinks)
            takes_streams = STREAMING in remote.offered_capabilities
            self.links.open_uplink(uplinks, self, self.hosting, takes_streams=takes_streams)

    @property
    def is_active(self) -> bool:
        uplinks = self.surroundings.uplinks
        return uplinks is not None and uplinks.active == self.gate.connection_id


def edge_peer(**members: Any) -> Peer:
    """Makes the peer of a listener or connector of role edge: edges connect, interior routers listen."""
    kind: Callable[..., Peer] = InteriorRouter if members["opening"].is_outgoing else EdgeRouter
    return kind(**members)
