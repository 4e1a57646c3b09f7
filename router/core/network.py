"""The network as the core uses it: connections to neighbours, reachable routers, and their addresses.

router.network decides which routers exist and which way leads to each. This module looks that up for each message.
Source: docs/spec/network.md §4, §7.4, §9, §10.
"""

from collections.abc import Callable
from typing import Final, Protocol, get_args

from policy.addressing.address import AREA, FALLBACK_PHASE, phase_in
from router.core.addresses import LINK_BALANCED, LINK_ROUTES, AddressTable, Distribution, LiveAddress, Treatment
from router.core.attachments import Attachment
from router.core.budget import Account, Charge
from router.core.control_addresses import add_control_addresses
from router.core.forward import give_copy
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.ports import IncomingWire, OutgoingWire
from router.core.remotes import PRIORITIES, ControlOutLink, DataOutLink, RemoteRouter, Trunk
from router.core.transit import Look, Transit
from router.core.trunk_links import (
    ControlInLink,
    DataInLink,
    Passage,
    begin_control,
    begin_data,
    take_control,
)
from router.core.updates import Updates
from router.core.work import Work
from router.values import Handle

# The protocol's limit for connections to other routers (network §1).
MAX_TRUNKS: Final = 128

_MOBILE: Final = "MCDEFH"  # classes of addresses that routers announce to each other
_HINTS: Final[dict[Distribution, int]] = {
    "flood": 0, "multicast": 1, "closest": 2, "balanced": 3, "linkBalanced": 4, "unavailable": 5,
}  # fmt: skip
# The distribution for each hint. flood is for control messages, which take another way. Link routes are balanced over
# routers.
_BY_HINT: Final[dict[int, Distribution]] = {0: "multicast", 1: "multicast", 2: "closest", 3: "balanced", 4: "balanced"}
assert set(_HINTS) == set(get_args(Distribution))


class Home(Protocol):
    """The core (router.core.core)."""

    @property
    def router_id(self) -> str: ...
    @property
    def table(self) -> AddressTable: ...
    @property
    def work(self) -> Work: ...
    @property
    def on_changed(self) -> Callable[[LiveAddress], None]: ...
    def next_identity(self) -> int: ...
    def adopt(self, link: InLink | OutLink, attachment: Attachment, /) -> None: ...
    def grant_all(self, address: LiveAddress, /) -> None: ...
    def all_receivers(self) -> list[OutLink]: ...


class Protocolist(Protocol):
    """Runs the routing protocol (router.network.host)."""

    def link_up(self, trunk: Trunk, /) -> None:
        """Notes that control messages may be sent on a connection."""
        ...

    def link_lost(self, tag: int, /) -> None: ...
    def disconnected(self, tag: int, /) -> None:
        """Ignores from now on everything that arrived on a connection."""
        ...

    def on_control(self, tag: int, payload: bytes, /) -> None: ...
    def address_appeared(self, key: str, hint: int, /) -> None: ...
    def address_gone(self, key: str, /) -> None: ...


class FarRoutes(Protocol):
    """The link routes (router.connection.link_routes)."""

    on_served: Callable[[LiveAddress, bool], None]

    def mapped(self, router: RemoteRouter, key: str, /) -> None:
        """Notes that another router serves a link route."""
        ...

    def unmapped(self, router: RemoteRouter, key: str, /) -> None: ...


class Network:
    """The connections to neighbours, and the routers that can be reached.

    trunks   by tag
    routers  by id
    radius   the number of hops to the most distant router
    control_message_bytes  a longer control message is not read
    """

    def __init__(
        self,
        core: Home,
        *,
        look: Look,
        stamped: Callable[[bytes], bytes],
        configured: Callable[[str], Treatment | None],
    ) -> None:
        """Allows the addresses of the core's table to have remote destinations.

        look        inspects the beginning of the message in the buffer
        stamped      (message) → the message as this router's own, with the annotations that routers write
        configured   (name) → the treatment that is configured for an address; None: none is configured
        """
        self.core = core
        self.host: Protocolist | None = None
        self.far_routes: FarRoutes | None = None
        self.control_message_bytes = 0
        self.node = f"{AREA}/{core.router_id}"
        self.transit = Transit(self.node, look)
        self.stamped = stamped
        self.trunks: dict[int, Trunk] = {}
        self.routers: dict[str, RemoteRouter] = {}
        self.radius = 0
        self._configured = configured
        core.table.reach_far(self.transit, self.transit.forward)
        add_control_addresses(core.table, lambda: sum(trunk.control is not None for trunk in self.trunks.values()))

    def serve(self, routes: FarRoutes) -> None:
        """Announces the link routes of this router, and passes on those of other routers."""
        self.far_routes = routes
        routes.on_served = lambda live, is_served: (self.local_appeared if is_served else self.local_gone)(live)

    # Connections

    def connect(
        self, attachment: Attachment, *, cost: int, container: str, admitted: str | None = None
    ) -> Trunk | None:
        """Adds a connection, with parameters as in Trunk. Returns None if there are MAX_TRUNKS already."""
        tag = next((tag for tag in range(MAX_TRUNKS) if tag not in self.trunks), None)
        if tag is None:
            return None
        trunk = self.trunks[tag] = Trunk(
            tag=tag,
            cost=cost,
            attachment=attachment,
            container=container,
            admitted=admitted,
            data=[None] * PRIORITIES,
        )
        return trunk

    def disconnect(self, trunk: Trunk) -> None:
        """Stops giving messages to a connection that is closing. Its links are removed like all others."""
        if self.trunks.get(trunk.tag) is not trunk:
            return
        del self.trunks[trunk.tag]
        leaving: list[DataOutLink | ControlOutLink | None] = [*trunk.data, trunk.control]
        trunk.data.clear()
        trunk.streaming.clear()
        for out in leaving:
            if out is not None:
                out.is_open = False
                out.room = 0
        for router in self.routers.values():
            if router.trunk is trunk:
                router.trunk = None
        self._lose_control(trunk)
        if self.host is not None:
            self.host.disconnected(trunk.tag)

    def _lose_control(self, trunk: Trunk) -> None:
        had_control, trunk.control = trunk.control is not None, None
        if had_control and self.host is not None:
            self.host.link_lost(trunk.tag)

    def cut_off(self, link: OutLink) -> None:
        """Stops giving messages to the link. The link is removed later."""
        link.is_open = False
        link.room = 0
        self.forget(link)

    def forget(self, link: InLink | OutLink) -> None:
        """Removes a link that is gone while its connection continues."""
        if isinstance(link, InLink):
            for each in self.trunks.values():
                each.streaming.sender_gone(link)
        elif isinstance(link, DataOutLink):
            data = link.trunk.data
            link.trunk.streaming.forget(link)
            if link.slot is not None and link.slot < len(data) and data[link.slot] is link:
                data[link.slot] = None
        elif isinstance(link, ControlOutLink):
            trunk = next((trunk for trunk in self.trunks.values() if trunk.control is link), None)
            if trunk is not None:
                self._lose_control(trunk)

    # Links

    def add_control_in(self, wire: IncomingWire, trunk: Trunk, attachment: Attachment) -> InLink:
        def take(payload: bytes) -> None:
            if self.host is not None and self.trunks.get(trunk.tag) is trunk:
                self.host.on_control(trunk.tag, payload)

        core = self.core
        link = ControlInLink(core.next_identity(), wire, attachment, core.work, take, self.control_message_bytes)
        wire.admit(link, None, take_control, begin_control, _settled_when_it_came)
        core.adopt(link, attachment)
        link.grant_initial(attachment.capacity)
        return link

    def add_control_out(self, wire: OutgoingWire, trunk: Trunk, attachment: Attachment) -> OutLink:
        core = self.core
        link = ControlOutLink(core.next_identity(), wire, attachment, core.work)
        core.adopt(link, attachment)
        if trunk.control is None and self.trunks.get(trunk.tag) is trunk:
            trunk.control = link
            if self.host is not None:
                self.host.link_up(trunk)
        return link

    def add_data_in(
        self,
        wire: IncomingWire,
        attachment: Attachment,
        slot: int | None,
        passage_for: Callable[[DataInLink], Passage],
    ) -> InLink:
        """Adds a link for messages from a router. `slot` is the priority; None: a streaming link."""
        core = self.core
        link = DataInLink(core.next_identity(), wire, attachment, core.work, slot)
        link.on_updated = Updates(link, core.all_receivers).on_updated
        forward, link.route = passage_for(link)
        wire.admit(link, None, forward, begin_data, link.on_updated)
        core.adopt(link, attachment)
        link.grant_initial(attachment.capacity)
        return link

    def add_data_out(
        self,
        wire: OutgoingWire,
        trunk: Trunk,
        attachment: Attachment,
        slot: int | None,
        compose: Callable[[InLink | None, int], bytes],
        heading: Callable[[InLink | None, int], bytes],
    ) -> DataOutLink:
        """Adds a link on which messages leave to another router.

        slot  the priority; None: a streaming link
        compose, heading  as attributes of the link
        """
        core = self.core
        link = DataOutLink(core.next_identity(), wire, trunk, core.work, slot)
        link.compose = compose
        link.heading = heading
        core.adopt(link, attachment)
        if slot is not None and self.trunks.get(trunk.tag) is trunk:
            trunk.data[slot] = link
        return link

    def trim(self, spare: int, at_once: int) -> None:
        """Closes idle streaming links above `spare` on each connection, at most `at_once` of them."""
        for trunk in list(self.trunks.values()):
            for link in trunk.streaming.surplus(spare, at_once):
                trunk.streaming.close(link)

    # Control messages

    def send_control(self, tag: int, payload: bytes, payer: Account | None = None) -> None:
        """Sends one presettled control message. `payer` pays while it waits; None: the connection pays."""
        trunk = self.trunks.get(tag)
        if trunk is not None and trunk.control is not None:
            charge = Charge(payer, len(payload)) if payer is not None else None
            give_copy(None, trunk.control, None, self.core.work.now_s, payload, is_settled=True, charge=charge)

    # Routers

    def set_router(
        self, identifier: str, *, tag: int | None, link: int | None, cost: int, origins: tuple[str, ...]
    ) -> None:
        """Adds a router, or notes that it is reached by another way.

        tag      the connection that messages to the router take; None: it cannot be reached
        link     the router's own connection, if it is a neighbour
        origins  ids of routers whose messages to it may pass here
        """
        router = self.routers.get(identifier)
        if router is None:
            router = self.routers[identifier] = RemoteRouter(id=identifier, node=f"{AREA}/{identifier}")
            self.transit.routers[router.node] = router
            self._add_destination(router, f"R{identifier}", None)
            self.core.table.beyond.add_router(router)
        router.trunk = self.trunks.get(tag) if tag is not None else None
        router.cost = cost
        router.origins = frozenset(f"{AREA}/{origin}" for origin in origins)
        for trunk in self.trunks.values():
            if trunk.tag == link:
                trunk.neighbour = identifier
            elif trunk.neighbour == identifier:
                trunk.neighbour = None

    def drop_router(self, identifier: str) -> None:
        """Removes a router that is no longer known."""
        router = self.routers.pop(identifier, None)
        if router is None:
            return
        self.transit.routers.pop(router.node, None)
        self.core.table.beyond.remotes.pop(router, None)
        for key in list(router.keys):
            self._remove_destination(router, key)

    def map(self, identifier: str, key: str, hint: int | None) -> None:
        """Makes a router a destination. `hint` is the distribution of a new, not configured address (network §9.2)."""
        router = self.routers.get(identifier)
        if router is not None and key[0] in _MOBILE:
            self._add_destination(router, key, hint)

    def unmap(self, identifier: str, key: str) -> None:
        router = self.routers.get(identifier)
        if router is not None:
            self._remove_destination(router, key)

    def _add_destination(self, router: RemoteRouter, key: str, hint: int | None) -> None:
        table = self.core.table
        live = table.addresses.get(key)
        if live is None:
            live = table.make(key, self._treatment(key, hint))
        elif live.subscribers or router in live.remotes:
            # Attack: a neighbour that claims the management agent, or another service of this router.
            return
        had_path = live.has_own_path
        live.add_remote(router)
        router.keys[key] = None
        if key[0] in LINK_ROUTES:
            if self.far_routes is not None:
                self.far_routes.mapped(router, key)
            return
        if len(live.remotes) == 1:
            table.choose_forward(live)
        if not had_path:
            self.core.grant_all(live)
        self.core.on_changed(live)

    def _remove_destination(self, router: RemoteRouter, key: str) -> None:
        if key not in router.keys:
            return
        del router.keys[key]
        table = self.core.table
        live = table.addresses.get(key)
        if live is None:
            return
        live.remove_remote(router)
        if key[0] in LINK_ROUTES:
            if self.far_routes is not None:
                self.far_routes.unmapped(router, key)
            table.discard_unused(live)
            return
        if not live.remotes:
            table.choose_forward(live)
            live.drain_containers()
            table.discard_unused(live)
        self.core.on_changed(live)

    def _treatment(self, key: str, hint: int | None) -> Treatment:
        if key[0] == "R":
            return Treatment(distribution="closest")
        if key[0] in LINK_ROUTES:
            return LINK_BALANCED
        if key[0] != "M" or phase_in(key) == FALLBACK_PHASE:
            return Treatment()
        configured = self._configured(key[2:])
        if configured is not None:
            return configured
        if hint in _BY_HINT:
            return Treatment(distribution=_BY_HINT[hint])
        treatment = self.core.table.treatment_of(key[2:])
        return treatment if treatment.distribution != "unavailable" else Treatment()

    # This router's own addresses

    def local_appeared(self, address: LiveAddress) -> None:
        """Announces an address that has its first receiver or its first container here."""
        if self.host is not None and address.key[0] in _MOBILE:
            self.host.address_appeared(address.key, _HINTS[address.distribution])

    def local_gone(self, address: LiveAddress) -> None:
        if self.host is not None and address.key[0] in _MOBILE:
            self.host.address_gone(address.key)


def _settled_when_it_came(_delivery: Handle) -> None:
    """Does nothing: a control message is settled when it arrives."""
