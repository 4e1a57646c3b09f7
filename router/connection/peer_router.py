"""The peer of a connection between routers. Only listeners and connectors of role inter-router make such a peer.

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

# Number of sessions whose backlog is checked at each flush. A router has a dozen sessions, and one for each sender of
# large messages. Most have no backlog, and no message is to pay for all of them. A backlog is seen when all sessions
# have had their turn.
_WATCHED_PER_FLUSH: Final = 2


class NeighbourRouter(Peer):
    """A neighbour router. It was admitted as a router, so it may send messages for the network's users."""

    links_kind: ClassVar[type[PeerLinks]] = TrunkLinks

    def _tenant(self) -> None:
        """Returns None: the addresses in messages between routers already contain their tenants."""

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
