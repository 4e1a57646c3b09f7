"""The services of an interior router for its edges: passes events to the machine and carries out its effects.

Source: docs/spec/network.md §14.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from policy.addressing.address import Address
from router.admission.connection_gate import ConnectionGate
from router.connection.edge_messages import encode_service
from router.connection.link_routes import LinkRoutes
from router.core.addresses import LiveAddress
from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.service_links import ServiceOutLink
from router.edge.effects import (
    AttachLink,
    CloseConnection,
    Decided,
    DetachLink,
    Effect,
    RejectMessage,
    SendMessage,
    UseSender,
)
from router.edge.interior import InteriorMachine
from router.edge.messages import LookupReply
from router.edge.tracking import Destinations
from router.effects import Emit, Log
from router.values import Condition

INVALID_FIELD: Final = "amqp:invalid-field"


class EdgeConnection(Protocol):
    """A connection with an edge router (router.connection.edge_links)."""

    gate: ConnectionGate

    @property
    def connection_id(self) -> int: ...
    def drop_socket(self) -> None: ...


class EdgeServices:
    """The services of an interior router for its edges: gives the machine its events, and carries out its effects."""

    def __init__(self, core: Core, link_routes: LinkRoutes, emit: Emit, clock: Callable[[], float]) -> None:
        """clock  monotonic seconds"""
        self.machine = InteriorMachine(self._find)
        self._link_routes = link_routes
        self.core = core
        self.node = f"0/{core.router_id}"
        self.clock = clock
        self._emit = emit
        self._edges: dict[int, EdgeConnection] = {}  # by connection id
        self._senders: dict[int, ServiceOutLink] = {}  # by link identity
        core.on_changed = self._on_changed

    def on_second(self, now: float) -> None:
        """Called once a second.

        now  monotonic seconds
        """
        self.carry_out(self.machine.tick(now))
        self.core.work.finish()

    def carry_out(self, effects: Sequence[Effect]) -> Condition | None:
        """Carries out the effects. Returns the reason if the message that was just received is rejected, else None."""
        rejected = None
        for effect in effects:
            match effect:
                case Log():
                    self._emit(effect)
                case SendMessage(link=link, message=message):
                    sender = self._senders.get(link)
                    if sender is not None and sender.is_open:
                        sender.give(encode_service(message, self.node), is_settled=message.is_settled)
                case CloseConnection(connection=connection):
                    edge = self._edges.get(connection)
                    if edge is not None:
                        edge.drop_socket()
                case RejectMessage(description=description):
                    rejected = Condition(name=INVALID_FIELD, description=description)
                case AttachLink() | DetachLink() | UseSender() | Decided():
                    raise AssertionError(f"{type(effect).__name__} is of an edge router")
        return rejected

    # Connections

    def connected(self, edge: EdgeConnection) -> None:
        self._edges[edge.connection_id] = edge
        self.machine.tracking.connection_up(edge.connection_id)

    def left(self, connection: int) -> None:
        self._edges.pop(connection, None)
        self.machine.tracking.connection_lost(connection)

    def edge(self, connection: int) -> EdgeConnection | None:
        return self._edges.get(connection)

    # Links

    def add_tracking(self, link: ServiceOutLink, connection: int) -> bool:
        """Adds a tracking link. Returns False if the edge already has one."""
        if not self.machine.tracking.link_up(connection, link.identity):
            return False
        self._senders[link.identity] = link
        return True

    def forget(self, link: InLink | OutLink, connection: int) -> None:
        if self._senders.pop(link.identity, None) is not None:
            self.machine.tracking.link_gone(connection, link.identity)
        self.carry_out(self.machine.heartbeats.detached(link.identity))

    # Addresses

    def _find(self, text: str, is_sender: bool) -> LookupReply:
        """Returns the answer to a look-up of an edge."""
        address = self.core.resolve(text)
        routed = None
        if isinstance(address, Address) and address.is_mobile and not address.is_management:
            routed = self._link_routes.find(address.name, "send" if is_sender else "receive")
        has_destinations = routed is not None and self._link_routes.has_destination(routed)
        return LookupReply(
            is_found=routed is not None, is_link_route=routed is not None, has_destinations=has_destinations
        )

    def _on_changed(self, address: LiveAddress) -> None:
        if self.machine.tracking.is_tracked(address.key):
            self.carry_out(self.machine.tracking.changed(address.key, self.destinations(address)))

    @staticmethod
    def destinations(address: LiveAddress) -> Destinations:
        edges, sole = address.edges, None
        if len(edges) == 1 and not address.remotes and address.exchange is None:
            connection, count = next(iter(edges.items()))
            sole = connection if count == len(address.out_links) else None
        return Destinations(are_there=bool(address.out_links or address.remotes or address.exchange), sole=sole)
