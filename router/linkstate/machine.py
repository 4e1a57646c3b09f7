"""The machine: events in, effects out. See the package for the modules that give the events and carry out the effects.

`now` is in monotonic seconds. Events return the effects in the order in which they must be carried out. While
`has_work` is true, the owner calls `work` repeatedly, between other things. Each call takes less than about a
millisecond.

Source: docs/spec/network.md §7.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from router.linkstate.effects import AddressesCharged, Effect, FloodControl
from router.linkstate.flooding import Floods
from router.linkstate.limits import Limits
from router.linkstate.mobile_exchange import MobileExchange
from router.linkstate.neighbours import Link, Neighbours
from router.linkstate.output import Output, shortened
from router.linkstate.router_exchange import JITTER_S, RouterExchange
from router.linkstate.settings import Settings
from router.linkstate.strangers import Strangers
from router.linkstate.topology import Topology

NO_LIMIT: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedControl:
    """A control message for this router, or for all routers.

    link        the tag of the connection that it arrived on
    key         the internal address: Lqdhello, Lqdrouter, Tqdrouter, Lqdrouter.ma or Tqdrouter.ma
    properties  the application-properties; None: there are none
    body        the value of the body
    trace       the router ids of the trace annotation, without the area
    """

    link: int
    key: str
    properties: Any
    body: Any
    trace: tuple[str, ...]


class Machine:
    """The routing protocol of one interior router.

    last_topology_change  its time, by the clock of the events; None: never
    """

    def __init__(
        self, settings: Settings, limits: Limits | None = None, room: Callable[[int], int] = lambda _link: NO_LIMIT
    ) -> None:
        """Starts without links.

        room  (link tag) → bytes that addresses announced by its neighbour may still take
        """
        self._settings = settings
        self._id = settings.router_id
        self._output = Output(limits or Limits())
        self._neighbours = Neighbours(self._id, settings.hello_max_age_s)
        self._topology = Topology(self._id, self._neighbours, self._output, room)
        self._strangers = Strangers(self._topology, self._output)
        self._mobile = MobileExchange(self._id, self._topology, self._output, self._strangers)
        self._routers = RouterExchange(settings, self._topology, self._output, self._strangers)
        self._floods = Floods(self._output.limits)
        self._is_in_flux = False
        self.last_topology_change: float | None = None

    # Links and addresses

    def link_up(self, link: int, cost: int, now: float, admitted_id: str | None = None) -> list[Effect]:
        """Handles that an outgoing control link is attached.

        cost         of the connection, as both ends agreed
        admitted_id  the only router id that may use the connection, because it was admitted under it
        """
        self.link_lost(link, now)
        self._neighbours.add(link, cost, admitted_id)
        return self._take()

    def link_lost(self, link: int, now: float) -> list[Effect]:
        router = self._neighbours.remove(link)
        if router is not None:
            self._output.log("ROUTER_LS", "info", f"Link to Neighbor Router Lost - link_tag={link}")
            self._topology.choose_link(self._topology.database.records[router], now)
        return self._take()

    def address_appeared(self, key: str, hint: int) -> list[Effect]:
        """Notes that this router now has a destination for an address.

        key   of class M, C, D, E, F or H
        hint  its distribution here: 0 flood, 1 multicast, 2 closest, 3 balanced, 4 linkBalanced
        """
        self._mobile.local.appear(key, hint)
        self._output.log("ROUTER_MA", "debug", f"Became Local Dest: {key}")
        return self._take()

    def address_gone(self, key: str) -> list[Effect]:
        self._mobile.local.go(key)
        self._output.log("ROUTER_MA", "debug", f"No Longer Local Dest: {key}")
        return self._take()

    # What management shows

    def peers(self) -> dict[str, int]:
        """Returns this router's neighbours and the costs of its links to them."""
        return dict(self._neighbours.peers)

    def all_links(self) -> tuple[int, ...]:
        return tuple(self._neighbours.links)

    # Time

    def tick(self, now: float) -> list[Effect]:
        """Runs the regular work. Must be called once a second."""
        self._output.tick()
        self._floods.tick()
        self._strangers.tick()
        self._routers.say_hello(now)
        if self._routers.is_advertisement_due(now, is_in_flux=self._is_in_flux):
            self._advertise(now)
        self._topology.expire(now, self._settings.remote_ls_max_age_s)
        is_changed = self._neighbours.is_changed
        if is_changed:
            self._neighbours.is_changed = False
            self._neighbours.ls_seq += 1
            self._output.log("ROUTER_LS", "trace", f"Local Link State: {self._neighbours.state()}")
        if is_changed or self._topology.is_outdated:
            self._enter_flux(now)
            self._topology.compute()
            self._topology.work()
        for record in self._topology.database.records.values():
            record.asking.tick()
            held = self._topology.addresses.of(record.id)
            self._topology.addresses.reconsider(held)
            held.asking.tick()
        self._ask()
        if is_changed:
            self._advertise(now)
        if self._mobile.tick():
            self._advertise(now)
        self._leave_flux(now)
        return self._take()

    @property
    def has_work(self) -> bool:
        return self._topology.has_work()

    def work(self) -> list[Effect]:
        """Continues the computation of paths."""
        self._topology.work()
        self._ask()
        return self._take()

    def _enter_flux(self, now: float) -> None:
        self.last_topology_change = now
        if not self._is_in_flux:
            self._is_in_flux = True
            self._output.log("ROUTER", "trace", "Entered Router Flux Mode")

    def _leave_flux(self, now: float) -> None:
        changed, length = self.last_topology_change, 2 * self._settings.ra_interval_flux_s
        if self._is_in_flux and changed is not None and now - changed > length - 1 + JITTER_S:
            self._is_in_flux = False
            self._output.log("ROUTER", "trace", "Exited Router Flux Mode")

    def _advertise(self, now: float) -> None:
        self._routers.advertise(now, self._mobile.local.mobile_seq)

    def _ask(self) -> None:
        """Sends the waiting requests to routers that can be reached."""
        for record in self._topology.database.records.values():
            self._routers.ask(record)
            self._mobile.ask(record.id)

    # Messages

    def receive(self, message: ReceivedControl, now: float) -> list[Effect]:
        """Handles a control message. Malformed or excessive messages have no effect."""
        link = self._neighbours.links.get(message.link)
        if link is not None and self._may_speak(link):
            properties = message.properties
            opcode = properties.get("opcode") if isinstance(properties, dict) else None
            if not isinstance(opcode, str):
                told = f"properties={shortened(properties)} body={shortened(message.body)}"
                name = "Exception in raw message processing"
                self._output.complain(link.tag, name, f"{name}: {told}")
            elif message.key.endswith(".ma"):
                update = self._mobile.receive(opcode, message.body, link)
                if update is not None:
                    self._forward(message, update.id, update)
            else:
                advertisement = self._routers.receive(opcode, message.body, link, now)
                if advertisement is not None:
                    self._forward(message, advertisement.id, advertisement)
        return self._take()

    def _take(self) -> list[Effect]:
        for payer, held in self._topology.addresses.take_charges():
            self._output.add(AddressesCharged(link=payer.tag, payer=payer.order, held=held))
        return self._output.take()

    def _may_speak(self, link: Link) -> bool:
        def tell() -> None:
            text = f"Control messages are dropped until the next second: more than {limit} on link_tag={link.tag}"
            self._output.log("ROUTER", "warning", text)

        limit = self._output.limits.messages_per_link_and_tick
        return self._output.may("messages", link.tag, limit, tell)

    def _forward(self, message: ReceivedControl, origin: str, content: Hashable) -> None:
        """Floods a message. Copies of one message have equal `content`."""
        if message.key.startswith("T") and self._id not in message.trace:
            links = self._topology.flood_links((*message.trace, origin))
            links = tuple(tag for tag in links if tag != message.link)
            if links := self._floods.take(origin, (origin, hash(content)), links):
                self._output.add(FloodControl(links=links))
