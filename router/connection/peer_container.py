"""The peer of a connection of the role route-container: a client to which the router attaches links."""

from collections.abc import Callable
from typing import Final

from policy.addressing.address import Address
from router.amqp.engine import IncomingWire, OutgoingWire, Session
from router.amqp.terminus import Condition, RemoteOpen
from router.connection.auto_links import Place
from router.connection.peer import Peer
from router.connection.peer_links import PeerLinks
from router.core.in_links import InLink
from router.core.out_links import OutLink

# Prefixes of the made-up names of listeners and connectors without a name: no auto link matches them.
_MADE_UP_NAMES: Final = ("listener/", "connector/")


class ContainerLinks(PeerLinks):
    """The links of such a connection: those that the peer attaches, and those that the router attaches."""

    def bind(self, wire: IncomingWire | OutgoingWire, address: Address, phase: int) -> InLink | OutLink:
        """Binds a link that the container has accepted, so that messages can pass."""
        wire.named = address
        link: InLink | OutLink
        if isinstance(wire, IncomingWire):
            link = self.core.add_in_link(wire, self.attachment, address, phase=phase)
            self.limit_in(link)
            self.messages.choose_inspection(link)
        else:
            link = self.core.add_out_link(wire, self.attachment, address, phase=phase)
            self.limit_out(link)
            self.messages.choose_composition(link)
        self.log_attached(wire)
        self.core.work.touched.add(self.engine)
        return link

    def end_own(self, wire: IncomingWire | OutgoingWire) -> None:
        """Ends a link that the router attached, without an error."""
        if isinstance(wire, IncomingWire):
            wire.take_no_more()
        self.drop(wire, "Link detached")
        wire.close(is_peers_doing=False)
        self.core.work.touched.add(self.engine)


class ContainerPeer(Peer):
    """A broker, or any other container that auto links are for."""

    links: ContainerLinks
    links_kind = ContainerLinks
    own_sessions = 1
    places: tuple[Place, ...] = ()

    def on_open(self, remote: RemoteOpen) -> None:
        super().on_open(remote)
        if not self.is_open:
            return
        # RabbitMQ 3 ends the session of a drained link: its classic queues do not know the answer.
        said = remote.properties
        is_rabbitmq_3 = said.get("product") == "RabbitMQ" and str(said.get("version", "")).startswith("3.")
        self.attachment.can_drain = not is_rabbitmq_3
        self.hosting.overruns = str(said.get("product", "")).startswith("Apache Qpid Broker-J")
        places = [Place(kind="container", text=remote.container_id)]
        if self.terms.name and not self.terms.name.startswith(_MADE_UP_NAMES):
            places.append(Place(kind="connection", text=self.terms.name))
        self.places = self.hosting.places = tuple(places)
        self.surroundings.link_routes.opened(self.hosting)
        self.surroundings.auto_links.opened(self)

    def retire(self) -> None:
        if self.places:
            self.surroundings.auto_links.lost(self)
            self.places = ()
        super().retire()

    # Links that the router attaches

    def with_session(self, call: Callable[[Session], None], failed: Callable[[Condition | None], None]) -> None:
        """Gives an auto link a session, its own one while there are enough.

        Calls neither function if the connection is gone: the auto link may not know that yet.
        """

        def attach(session: Session) -> None:
            if not session.wires:
                self.hosting.tell_window(session, self)
            call(session)

        if not self.hosting.is_gone:
            self.hosting.with_session(self, attach, failed)

    def bind(self, wire: IncomingWire | OutgoingWire, address: Address, phase: int) -> InLink | OutLink:
        return self.links.bind(wire, address, phase)

    def drop(self, wire: IncomingWire | OutgoingWire) -> None:
        self.links.drop(wire, "Link detached")

    def end_link(self, wire: IncomingWire | OutgoingWire) -> None:
        self.links.end_own(wire)
