"""The connections of an edge router with interior routers: passes events to the machine and carries out its effects.

Source: docs/spec/network.md §14.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from router.connection.edge_messages import encode_service
from router.connection.edge_services import INVALID_FIELD
from router.connection.link_routes import Decide, Host, LinkRoutes
from router.core.addresses import LiveAddress
from router.core.core import Core
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
from router.edge.machine import EdgeMachine
from router.edge.proxies import LocalAddress
from router.effects import Emit, Log
from router.values import Condition


class UplinkConnection(Protocol):
    """A connection that the edge made (router.connection.uplink_links). Links have the machine's numbers."""

    @property
    def connection_id(self) -> int: ...
    @property
    def host(self) -> Host: ...
    def numbers(self) -> list[int]: ...
    def attach_own(self, effect: AttachLink, /) -> None: ...
    def detach_own(self, number: int, /) -> None: ...
    def use(self, number: int, /, *, is_used: bool) -> None: ...
    def send(self, number: int, payload: bytes, /, *, is_settled: bool) -> None: ...


class Uplinks:
    """Gives an edge router's machine its events, and carries out each effect on the connection that it names."""

    def __init__(
        self, core: Core, link_routes: LinkRoutes, emit: Emit, clock: Callable[[], float], *, started_at: int
    ) -> None:
        """clock    monotonic seconds
        started_at  a number that differs at each start
        """
        self.core = core
        self.machine = EdgeMachine(core.router_id, started_at=started_at)
        self.node = f"0/{core.router_id}"
        self.clock = clock
        self.emit = emit
        self._connections: dict[int, UplinkConnection] = {}
        self._links: dict[int, UplinkConnection] = {}  # by the machine's link number
        self._asked: dict[int, Decide] = {}  # open look-ups, by token
        self._last_token = 0
        core.on_changed = self._on_changed
        link_routes.on_served = self._on_served
        link_routes.look_up = self._look_up

    @property
    def active(self) -> int | None:
        """The number of the connection that is the uplink."""
        return self.machine.uplink

    def on_second(self, now: float) -> None:
        """Called once a second.

        now  monotonic seconds
        """
        self.carry_out(self.machine.tick(now))
        self.core.work.finish()

    def opened(self, links: UplinkConnection) -> None:
        self._connections[links.connection_id] = links
        self.carry_out(self.machine.connection_opened(links.connection_id))

    def closed(self, links: UplinkConnection) -> None:
        """Removes a closed connection: its links get no more messages."""
        if self._connections.pop(links.connection_id, None) is not None:
            for number in links.numbers():
                self._links.pop(number, None)
            self.carry_out(self.machine.connection_closed(links.connection_id))

    def _on_changed(self, address: LiveAddress) -> None:
        if address.key[0] != "M":
            return
        self._follow(address)
        if address.fallback is not None:
            self._follow(address.fallback)

    def _follow(self, address: LiveAddress) -> None:
        treatment = self.core.table.treatment_of(address.key[2:])
        self.carry_out(
            self.machine.address_changed(
                LocalAddress(
                    key=address.key,
                    has_receivers=address.exchange is not None or len(address.out_links) > sum(address.edges.values()),
                    has_senders=_has_senders(address),
                    ingress_phase=treatment.ingress_phase,
                    egress_phase=treatment.egress_phase,
                )
            )
        )

    # Link routes

    def _on_served(self, address: LiveAddress, is_served: bool) -> None:
        machine, now = self.machine, self.clock()
        follow = machine.link_route_activated if is_served else machine.link_route_deactivated
        self.carry_out(follow(address.key, now))

    def _look_up(self, address: str, decide: Decide, /, *, is_sender: bool) -> bool:
        self._last_token = token = self._last_token + 1
        effects = self.machine.look_up(token, address, self.clock(), is_sender=is_sender)
        if any(isinstance(effect, Decided) for effect in effects):
            return False  # decided at once, without a question to the interior
        self._asked[token] = decide
        self.carry_out(effects)
        return True

    def _decide(self, effect: Decided) -> None:
        decide = self._asked.pop(effect.token, None)
        if decide is None:
            return
        uplink = self._connections.get(self.active) if self.active is not None else None
        if effect.answer == "forward" and uplink is not None:
            decide("forward", uplink.host)
        else:
            decide("no_route" if effect.answer == "no_route" else "local", None)

    def carry_out(self, effects: Sequence[Effect]) -> Condition | None:
        """Carries out the effects. Returns the reason if the message that was just received is rejected, else None."""
        rejected = None
        for effect in effects:
            match effect:
                case Log():
                    self.emit(effect)
                case AttachLink(connection=connection, link=link):
                    links = self._connections.get(connection)
                    if links is not None:
                        self._links[link] = links
                        links.attach_own(effect)
                case DetachLink(link=link):
                    links = self._links.pop(link, None)
                    if links is not None:
                        links.detach_own(link)
                case UseSender(link=link, is_used=is_used):
                    links = self._links.get(link)
                    if links is not None:
                        links.use(link, is_used=is_used)
                case SendMessage(link=link, message=message):
                    links = self._links.get(link)
                    if links is not None:
                        links.send(link, encode_service(message, self.node), is_settled=message.is_settled)
                case Decided():
                    self._decide(effect)
                case RejectMessage(description=description):
                    rejected = Condition(name=INVALID_FIELD, description=description)
                case CloseConnection():
                    raise AssertionError("CloseConnection is of an interior router")
        return rejected


def _has_senders(address: LiveAddress) -> bool:
    """Returns True if a client here sends to the address, or to the address that it is the fallback of."""
    main = address.main
    senders = address.in_links if main is None else [link for link in main.in_links if not link.is_fallback]
    return not address.subscribers and any(not link.attachment.is_edge for link in senders)
