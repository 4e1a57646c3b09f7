"""The peer of a connection between routers. Only a listener or connector of role inter-router makes one of a peer.

Source: docs/spec/network.md §3, §4.
"""

from typing import ClassVar, Final

from router.amqp.engine import CannotBegin
from router.amqp.terminus import RemoteOpen
from router.connection.peer import Peer
from router.connection.peer_links import PeerLinks
from router.connection.peer_open import STREAMING, report_annotations
from router.connection.trunk_links import TrunkLinks
from router.effects import log
from router.values import int_

# Sessions whose backlog is looked at with each flush. A router has a dozen, and one for each sender of large messages;
# most have nothing, and no message is to pay for all. A backlog is seen when all have had their turn.
_WATCHED_PER_FLUSH: Final = 2


class NeighbourRouter(Peer):
    """What it sends it may send in the name of the network's users: it was admitted as a router."""

    links_kind: ClassVar[type[PeerLinks]] = TrunkLinks

    def _tenant(self) -> None:
        """Addresses that routers tell each other of have their tenants in them."""

    def on_open(self, remote: RemoteOpen) -> None:
        super().on_open(remote)
        if not self.is_open:
            return
        links = self.links
        assert isinstance(links, TrunkLinks)
        self.engine.watched_per_flush = _WATCHED_PER_FLUSH
        report_annotations(self, remote)
        cost = remote.properties.get("qd.inter-router-cost")
        theirs = int(cost) if isinstance(cost, int_) else 1
        links.open_trunk(cost=max(self.terms.cost, theirs, 1), container=remote.container_id)
        if links.trunk is not None:
            self.surroundings.link_routes.hosts_of_trunks[self.gate.connection_id] = self.hosting
            try:
                if self.is_outgoing:
                    links.begin_standing(self)
                if STREAMING in remote.offered_capabilities:
                    links.begin_streaming(self)
            except CannotBegin as error:
                text = f"[C{self.gate.connection_id}] no links with the router {remote.container_id}: {error}"
                log(self.surroundings.emit, "ROUTER_CORE", "error", text)
