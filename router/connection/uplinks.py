"""The connections of an edge router with interior ones: the machine's events, and its effects.

Source: docs/spec/network.md §14.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from router.connection.edge_messages import encode_service
from router.connection.edge_services import INVALID_FIELD
from router.core.addresses import LiveAddress
from router.core.core import Core
from router.edge.effects import AttachLink, DetachLink, Effect, RejectMessage, SendMessage, UseSender
from router.edge.machine import EdgeMachine
from router.edge.proxies import LocalAddress
from router.effects import Emit, Log
from router.values import Condition


class UplinkConnection(Protocol):
    """A connection that the edge made (router.connection.uplink_links). Links have the machine's numbers."""

    @property
    def connection_id(self) -> int: ...
    def numbers(self) -> list[int]: ...
    def attach_own(self, effect: AttachLink, /) -> None: ...
    def detach_own(self, number: int, /) -> None: ...
    def use(self, number: int, /, *, is_used: bool) -> None: ...
    def send(self, number: int, payload: bytes, /, *, is_settled: bool) -> None: ...


class Uplinks:
    """Of an edge router: gives the machine its events, and carries out its effects on the connection they name."""

    def __init__(self, core: Core, emit: Emit, clock: Callable[[], float], *, started_at: int) -> None:
        """clock    monotonic seconds
        started_at  another number at each start
        """
        self.core = core
        self.machine = EdgeMachine(core.router_id, started_at=started_at)
        self.node = f"0/{core.router_id}"
        self.clock = clock
        self.emit = emit
        self._connections: dict[int, UplinkConnection] = {}
        self._links: dict[int, UplinkConnection] = {}  # by the machine's numbers
        core.on_changed = self._on_changed

    @property
    def active(self) -> int | None:
        """The number of the connection that is the uplink."""
        return self.machine.uplink

    def on_second(self, now: float) -> None:
        """now  monotonic seconds"""
        self.carry_out(self.machine.tick(now))
        self.core.work.finish()

    def opened(self, links: UplinkConnection) -> None:
        self._connections[links.connection_id] = links
        self.carry_out(self.machine.connection_opened(links.connection_id))

    def closed(self, links: UplinkConnection) -> None:
        """Its links get no more messages."""
        if self._connections.pop(links.connection_id, None) is not None:
            for number in links.numbers():
                self._links.pop(number, None)
            self.carry_out(self.machine.connection_closed(links.connection_id))

    def _on_changed(self, address: LiveAddress) -> None:
        if address.key[0] != "M":
            return
        treatment = self.core.table.treatment_of(address.key[2:])
        self.carry_out(
            self.machine.address_changed(
                LocalAddress(
                    key=address.key,
                    has_receivers=len(address.out_links) > sum(address.edges.values()),
                    has_senders=not address.subscribers
                    and any(not link.attachment.is_edge for link in address.in_links),
                    ingress_phase=treatment.ingress_phase,
                    egress_phase=treatment.egress_phase,
                )
            )
        )

    def carry_out(self, effects: Sequence[Effect]) -> Condition | None:
        """Returns why the message that was just received is rejected; None: it is not."""
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
                case RejectMessage(description=description):
                    rejected = Condition(name=INVALID_FIELD, description=description)
        return rejected
