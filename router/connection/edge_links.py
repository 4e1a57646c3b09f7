"""The interior's side of a connection with an edge router: its links, including those to services for edges.

All of them pass the gate: vhost policy governs edges as it governs clients (network §3.4). Source: docs/spec/network.md
§14, §15.
"""

from collections.abc import Callable
from typing import Final, Literal

from policy.addressing.address import Address
from router.amqp.engine import IncomingWire, OutgoingWire, Session
from router.amqp.terminus import Condition, Terminus
from router.connection.edge_messages import Unreadable, decode_service, encode_service
from router.connection.edge_services import INVALID_FIELD, EdgeServices
from router.connection.edge_streaming import EdgeStreaming, Owner
from router.connection.inspection import condition_of
from router.connection.peer_links import FORBIDDEN, PeerLinks, Wire, request_of
from router.core.core import NO_ROUTE
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.service_links import DownOutLink, ServiceInLink, ServiceOutLink
from router.core.trunk_links import begin_control, take_control
from router.edge.limits import HEARTBEAT_CREDIT, LOOKUP_CREDIT, MAX_MESSAGE_BYTES
from router.edge.messages import DOWNLINK, HEARTBEAT_ADDRESS, LOOKUP_ADDRESS
from router.effects import Log
from router.values import Handle

# Prefix of the names of links that an edge makes for itself, not for a client.
OWN_LINKS: Final = "qdlink."


class EdgeLinks(PeerLinks):
    services: EdgeServices | None = None  # None before the Opens, and if this router is not an interior router
    _downlink: OutLink | None = None
    _streaming: EdgeStreaming | None = None

    @property
    def connection_id(self) -> int:
        return self.attachment.connection_id

    def open_edge(self, services: EdgeServices, owner: Owner, *, takes_streams: bool) -> None:
        """Prepares the services and the streaming links after the Opens are exchanged.

        owner  is informed when links end
        takes_streams  the edge accepts links for large messages
        """
        self.services = services
        self._streaming = EdgeStreaming(self, owner, self.messages.choose_composition) if takes_streams else None
        self._tracked: dict[int, str] = {}  # link identity → key of its address
        services.connected(self)

    def drop_socket(self) -> None:
        self._shut()

    # Attach

    def attach(self, wire: Wire) -> None:
        super().attach(wire)
        link = wire.core
        if (
            self._streaming is not None
            and isinstance(link, OutLink)
            and link.owning_key
            and link.owning_key[:2] == "M0"
        ):
            link.bypass = self._streaming.streaming
        if self.services is None or not isinstance(link, InLink) or isinstance(link, ServiceInLink):
            return
        live = self.core.table.bound(link)
        if live is not None and live.key[0] == "M" and not live.subscribers:
            self._tracked[link.identity] = live.key
            destinations = self.services.destinations(live)
            tracking = self.services.machine.tracking
            self.services.carry_out([*tracking.sender_attached(self.connection_id, live.key, destinations)])

    def attach_here(self, wire: Wire) -> None:
        """Binds a link to an address here, because no link route matches.

        Refuses a link that the edge has forwarded for a client under that client's name: the last container has gone
        since the edge asked. Bound to an address of the same name, the link would be open and its client would wait in
        vain.
        """
        named = wire.named
        may_be_routed = named is not None and named.is_mobile and not (named.is_management or named.is_dynamic)
        if self.services is not None and may_be_routed and not wire.name.startswith(OWN_LINKS):
            wire.refuse(NO_ROUTE)
            self.drop(wire, "Link detached")
        else:
            super().attach_here(wire)

    def attach_router(self, wire: Wire, terminus: Terminus) -> None:
        """Accepts the edge's downlink, for its own id and only once. It carries the messages for this edge."""
        is_down = self.services is not None and isinstance(wire, OutgoingWire) and terminus.capabilities == (DOWNLINK,)
        if not is_down:
            super().attach_router(wire, terminus)
            return
        assert isinstance(wire, OutgoingWire)
        address = self._resolve(f"_edge/{self.container}/downlink")
        if (
            terminus.address != self.container
            or self._downlink is not None
            or not isinstance(address, Address)
            or address.key != f"H{self.container}"
            or self._is_anothers(address)
        ):
            self._record_claim(terminus.address or "")
            wire.refuse(FORBIDDEN)
            return
        # The gate judges the name in the Attach: the edge's id.
        named = self._resolve(self.container)
        refusal = self._over_budget("attach", "AMQP Attach") or self.gate.attach(request_of(wire, terminus, named))
        if refusal is not None:
            wire.refuse(condition_of(refusal))
            return
        wire.named = named if isinstance(named, Address) else None
        wire.is_counted = True
        wire.accept()
        core = self.core
        link = self._downlink = DownOutLink(core.next_identity(), wire, self.attachment, core.work)
        core.adopt(link, self.attachment)
        core.receivers.bind(link, core.table.obtain(address, is_ingress=False))
        self.limit_out(link)
        self.messages.choose_composition(link)
        self.log_attached(wire)
        if self._streaming is not None:
            link.bypass = self._streaming.streaming
            self._streaming.begin()

    def end(self, session: Session) -> None:
        super().end(session)
        if self._streaming is not None:
            self._streaming.forget(session)

    def _is_anothers(self, address: Address) -> bool:
        """Returns True if an edge with another login has this id now.

        Attack: an edge takes another edge's id and gets a share of its messages.
        """
        live = self.core.table.find(address)
        services = self.services
        if live is None or services is None:
            return False
        holders = (services.edge(connection) for connection in live.edges)
        return any(holder is not None and holder.gate.identity.user != self.gate.identity.user for holder in holders)

    def _record_claim(self, claimed: str) -> None:
        text = (
            f"[C{self.connection_id}] Edge downlink of '{claimed[:128]}' forbidden to the edge router "
            f"'{self.container[:128]}': an edge has one, for its own id, which no edge of another user has"
        )
        self.record_forbidden("Edge downlink forbidden", (Log(module="ROUTER_CORE", level="warning", text=text),))

    # Services

    def attach_service(self, wire: Wire, address: Address) -> None:
        services = self.services
        if services is None:
            super().attach_service(wire, address)
            return
        is_sender = isinstance(wire, IncomingWire)
        terminus = wire.target if is_sender else wire.source
        if not services.machine.admits(self.connection_id, address.name, is_sender=is_sender):
            super().attach_service(wire, address)
            return
        refusal = self._over_budget("attach", "AMQP Attach") or self.gate.attach(request_of(wire, terminus, address))
        if refusal is not None:
            wire.refuse(condition_of(refusal))
            return
        if not self._serve(services, wire, address):
            self.gate.detach("send" if is_sender else "receive")
            super().attach_service(wire, address)
            return
        wire.named = address
        wire.is_counted = True
        self.log_attached(wire)

    def _serve(self, services: EdgeServices, wire: Wire, address: Address) -> bool:
        core, attachment, connection = self.core, self.attachment, self.connection_id
        if isinstance(wire, OutgoingWire):
            return self._serve_tracking(services, wire)
        judge: Callable[[int, bytes], Condition | Literal[True] | None]
        if address.name == LOOKUP_ADDRESS:
            judge, credit = self._look_up, LOOKUP_CREDIT
        else:
            judge, credit = self._hear, HEARTBEAT_CREDIT
        wire.accept()
        identity = core.next_identity()
        link = ServiceInLink(
            identity, wire, attachment, core.work, lambda payload: judge(identity, payload), MAX_MESSAGE_BYTES
        )
        wire.admit(link, None, take_control, begin_control, _ignore)
        core.adopt(link, attachment)
        self.limit_in(link)
        link.grant_initial(credit)
        if address.name == HEARTBEAT_ADDRESS:
            beats = services.machine.heartbeats
            services.carry_out(beats.attached(connection, identity, self.container, wire.name, services.clock()))
        return True

    def _serve_tracking(self, services: EdgeServices, wire: OutgoingWire) -> bool:
        core, connection = self.core, self.connection_id
        tracking = services.machine.tracking

        def on_room(credit: int) -> None:
            services.carry_out([*tracking.set_credit(connection, credit)])

        link = ServiceOutLink(core.next_identity(), wire, self.attachment, core.work, on_room)
        if not services.add_tracking(link, connection):
            return False
        wire.accept()
        core.adopt(link, self.attachment)
        self.limit_out(link)
        return True

    def _look_up(self, link: int, payload: bytes) -> Condition | Literal[True] | None:
        services = self.services
        if services is None:
            return None
        try:
            message = decode_service(payload)
        except Unreadable as error:
            return Condition(name=INVALID_FIELD, description=str(error))
        answered = services.machine.look_up(self.connection_id, message)
        if isinstance(answered, list):
            return services.carry_out(answered)
        request, reply = answered
        to = self._resolve(request.reply_to)
        # Attack: a request whose answer goes to another peer.
        if not isinstance(to, Address) or self.core.owner_of(to, self.attachment, is_ingress=False) != "own":
            return None
        asker = self.core.links[link]
        assert isinstance(asker, InLink)
        self.core.send(to, encode_service(reply, services.node), asker=asker)
        return True

    def _hear(self, link: int, _payload: bytes) -> Condition | None:
        if self.services is not None:
            self.services.machine.heartbeats.heard(link, self.services.clock())
        return None

    # Detach

    def _remove(self, link: InLink | OutLink, why: str) -> None:
        self._forget(link)
        super()._remove(link, why)

    def lose(self, link: InLink | OutLink) -> None:
        self._forget(link)
        super().lose(link)

    def _forget(self, link: InLink | OutLink) -> None:
        if self.services is None:
            return
        if link is self._downlink:
            self._downlink = None
        key = self._tracked.pop(link.identity, None)
        if key is not None:
            self.services.machine.tracking.sender_gone(self.connection_id, key)
        self.services.forget(link, self.connection_id)

    def cut_off(self) -> list[InLink | OutLink]:
        if self.services is not None:
            self.services.left(self.connection_id)
        if self._streaming is not None:
            self._streaming.end()
            self._streaming = None
        return super().cut_off()


def _ignore(_delivery: Handle) -> None:
    """Does nothing: messages to services are settled when they come."""
