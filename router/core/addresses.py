"""Live addresses: the table they are found in by key, and how deliveries to them are treated.

The meaning of a text is `policy.addressing`'s business. Sources: docs/spec/routing.md §3, §4.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from policy.addressing.address import FALLBACK_PHASE, Address
from router.core.in_links import InLink
from router.core.links import Link
from router.core.out_links import OutLink
from router.core.remotes import RemoteRouter
from router.core.ways import Way
from router.values import Handle

Distribution = Literal["flood", "multicast", "closest", "balanced", "unavailable", "linkBalanced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How deliveries to an address are handled: one `address` entity, or the router's default."""

    distribution: Distribution = "balanced"
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int = -1
    has_fallback: bool = False  # it has a companion that gets what has nobody else


# Of the addresses of link routes, which no message has: classes C and D of prefixes, E and F of patterns.
LINK_ROUTES: Final = "CDEF"
LINK_BALANCED: Final = Treatment(distribution="linkBalanced")

# Of the uplink of an edge router (network §2.2). No text names it.
UPLINK_KEY: Final = "L_edge"
DOWN_CLASS: Final = "H"  # of what an interior has for its edges
EVERY_CLASS: Final = "T"  # of what every router has
_FALLBACK_KEY: Final = f"M{chr(48 + FALLBACK_PHASE)}"
_FOREIGN: Final = "RAH"  # the classes of what is another router's

_PLAIN: Final = Treatment()  # of addresses that are no mobile ones
_FALLBACK: Final = Treatment(ingress_phase=FALLBACK_PHASE, egress_phase=FALLBACK_PHASE)
_OF_ROUTER: Final = Treatment(distribution="closest")  # of what is another router's, whatever its name there
_OF_ALL: Final = Treatment(distribution="multicast")  # of what every router has


class Subscriber(Protocol):
    """An in-process consumer. Called with the whole encoded message; it is accepted by then.

    Returns True where the sender gets its credit back with the answer (`Core.send`), and not now.
    """

    def __call__(self, payload: bytes, link: InLink) -> bool | None: ...


# Gives a message in the buffer, of so many bytes, to receivers of an address.
Forward = Callable[[InLink, "LiveAddress", Handle, int], None]


class Far(Protocol):
    """Chooses among local receivers and other routers (router.core.transit)."""

    def hops(self, address: "LiveAddress", link: InLink | None, size: int, /, *, is_streamed: bool) -> list[OutLink]:
        """The links for one message, which is in the buffer; link  that it came on, None: this router's own."""
        ...


class Distributor(Protocol):
    """The exchange of an address (router.core.exchanges).

    base  forwards as without it
    """

    base: Forward

    @property
    def forward(self) -> Forward: ...
    def copies(self, link: InLink, size: int, /, *, is_streamed: bool) -> list[tuple[OutLink, bytes]] | None:
        """Who gets the message in the buffer, and what each gets of it. None: it goes as without the exchange."""
        ...


class LiveAddress:
    """A live address: its senders and its destinations. Exists while anything refers to it.

    remotes      routers that are destinations
    sole         the only one of them; None: there is none, or there are more
    far          chooses among all; None while there are no remotes, so that nobody asks
    ways         to other routers, by the tag of the connection
    edges        receivers on connections between an edge and an interior, by connection
    exchange     copies its messages to other addresses; None: there is none
    fallback     its companion, which gets what has nobody here; None: it has none
    main         of a companion: the address that it is for
    beyond       of an address of every router: where the others are; None: it is none
    redirected   messages that went to the companion
    containers   connections that serve a link route here
    """

    __slots__ = (
        "containers",
        "delivered_in_process",
        "distribution",
        "edges",
        "exchange",
        "fallback",
        "far",
        "forward",
        "holders",
        "in_links",
        "key",
        "made_by",
        "main",
        "out_links",
        "priority",
        "redirected",
        "remotes",
        "retired_egress",
        "retired_ingress",
        "sent_from_process",
        "sole",
        "subscribers",
        "transit",
        "ways",
    )
    is_control = False  # of the routing protocol: what a client sends there is released (router.core.control_addresses)
    beyond: "Beyond | None" = None

    def __init__(self, key: str, treatment: Treatment, forward: Forward) -> None:
        self.key = key
        self.distribution: Distribution = treatment.distribution
        self.priority = treatment.priority
        # The link that the router made it up for, while that is there: the address belongs to its connection.
        self.made_by: InLink | OutLink | None = None
        self.in_links: dict[InLink, None] = {}  # in their order
        self.out_links: deque[OutLink] = deque()
        self.subscribers: deque[Subscriber] = deque()
        self.forward = forward
        self.remotes: dict[RemoteRouter, None] = {}
        self.sole: RemoteRouter | None = None
        self.far: Far | None = None
        self.ways: dict[int, Way] = {}
        self.transit = 0  # messages sent to other routers
        self.edges: dict[int, int] = {}
        self.exchange: Distributor | None = None
        self.fallback: LiveAddress | None = None
        self.main: LiveAddress | None = None
        self.redirected = 0
        self.holders = 0  # auto links, link routes, exchanges: it is there with them, even without containers
        self.containers = 0
        # Deliveries of links that are gone, and of anonymous links; the rest is summed from the live ones.
        self.retired_ingress = 0
        self.retired_egress = 0
        self.delivered_in_process = 0
        self.sent_from_process = 0

    @property
    def has_own_path(self) -> bool:
        """Somebody could be given a delivery who is not its fallback destination."""
        return bool(self.out_links or self.subscribers or self.remotes or self.exchange)

    @property
    def has_path(self) -> bool:
        """Somebody could be given a delivery."""
        return self.has_own_path or (self.fallback is not None and self.fallback.has_own_path)

    @property
    def is_unused(self) -> bool:
        return not (self.in_links or self.has_own_path or self.holders)

    @property
    def partner(self) -> "LiveAddress | None":
        """Of an address and its fallback destination the other: both are there as long as one is used."""
        return self.fallback if self.fallback is not None else self.main

    def drain_containers(self) -> None:
        """The last receiver may have gone: containers are to send nothing more that nobody wants.

        Clients are not drained: those that send then learn that nobody receives.
        """
        if not self.has_path:
            for link in self.in_links:
                if link.attachment.is_route_container:
                    link.drain()
        if self.main is not None:
            self.main.drain_containers()

    def add_remote(self, router: RemoteRouter) -> None:
        self.remotes[router] = None
        self.sole = router if len(self.remotes) == 1 else None

    def remove_remote(self, router: RemoteRouter) -> None:
        self.remotes.pop(router, None)
        self.sole = next(iter(self.remotes)) if len(self.remotes) == 1 else None

    @property
    def outstanding(self) -> dict[int, int]:
        """Balanced messages without an outcome, by the tag of the connection they left on. None of another address."""
        ways = self.ways if self.distribution == "balanced" else {}
        return {tag: way.count for tag, way in ways.items() if way.count}

    @property
    def receiver_count(self) -> int:
        """The links here that its messages leave by."""
        return len(self.out_links)

    @property
    def ingress_count(self) -> int:
        return self.retired_ingress + sum(link.delivery_count for link in self.in_links)

    @property
    def egress_count(self) -> int:
        return self.retired_egress + sum(link.delivery_count for link in self.out_links)


class Beyond:
    """The other routers, as the addresses that every router has see them: any may have receivers, and none says so.

    remotes  other interiors, of an interior
    links    of an interior those to its edges; of an edge the one to its interior
    on_first  called when there is another router, and was none
    """

    __slots__ = ("links", "on_first", "remotes")

    def __init__(self) -> None:
        self.remotes: dict[RemoteRouter, None] = {}
        self.links: dict[OutLink, None] = {}
        self.on_first: Callable[[], None] = lambda: None

    def add_router(self, router: RemoteRouter) -> None:
        self.remotes[router] = None
        if len(self.remotes) + len(self.links) == 1:
            self.on_first()

    def add_link(self, link: OutLink) -> None:
        self.links[link] = None
        if len(self.remotes) + len(self.links) == 1:
            self.on_first()

    def __bool__(self) -> bool:
        return bool(self.remotes or self.links)

    def elsewhere(self, link: InLink | None) -> list[OutLink]:
        """The links for a message, but for those on the connection that it came by. link  as for Far.hops"""
        return [out for out in self.links if link is None or out.attachment is not link.attachment]


class EveryRouters(LiveAddress):
    """An address of the class T, `_topo/0/all/NAME`."""

    __slots__ = ("beyond",)
    beyond: Beyond

    def __init__(self, key: str, treatment: Treatment, forward: Forward, beyond: Beyond) -> None:
        super().__init__(key, treatment, forward)
        self.beyond = beyond
        self.remotes = beyond.remotes

    @property
    def has_own_path(self) -> bool:
        return bool(self.out_links or self.beyond)

    @property
    def is_unused(self) -> bool:
        return not (self.in_links or self.out_links)


class AddressTable:
    """Key → LiveAddress.

    beyond       the other routers
    every        the addresses that every router has, as far as they are in use here
    """

    def __init__(self, treatment_of: Callable[[str], Treatment], forward: Mapping[Distribution, Forward]) -> None:
        """treatment_of  (name) → its treatment, by the configured prefixes and patterns"""
        self.treatment_of = treatment_of
        self._forward = forward
        self._far: tuple[Far, Mapping[Distribution, Forward]] | None = None
        self._is_edge = False
        self.addresses: dict[str, LiveAddress] = {}
        self.beyond = Beyond()
        self.every: dict[str, EveryRouters] = {}
        # Stands for those of them that nobody uses here: other routers may.
        self._passing = self._every_routers(EVERY_CLASS)

    def find(self, address: Address, phase: int = 0) -> LiveAddress | None:
        live = self.addresses.get(self._key_in(address, phase))
        if live is None and address.key[0] == EVERY_CLASS and self.beyond:
            return self._passing
        return live

    def _every_routers(self, key: str) -> EveryRouters:
        return EveryRouters(key, _OF_ALL, self._forward[_OF_ALL.distribution], self.beyond)

    def _key_in(self, address: Address, phase: int) -> str:
        """On an edge router all that is another router's is reached by the uplink. Policy judges what it is."""
        return UPLINK_KEY if self._is_edge and address.key[0] in _FOREIGN else address.key_in(phase)

    def treatment(self, address: Address) -> Treatment:
        if address.is_mobile:
            return self.treatment_of(address.name)
        if address.key[0] == EVERY_CLASS:
            return _OF_ALL
        return _OF_ROUTER if address.key[0] == "R" else _PLAIN

    def in_phase(self, address: Address, phase: int | None) -> Treatment | None:
        """The treatment that binds to this phase; None where none is asked for."""
        if phase is None:
            return None
        if phase == FALLBACK_PHASE:
            return _FALLBACK
        return replace(self.treatment(address), ingress_phase=phase, egress_phase=phase)

    def hold(self, address: Address, phase: int) -> LiveAddress:
        """An auto link or an exchange serves the address in this phase: it is there, and available, until `let_go`."""
        treatment = self.in_phase(address, phase)
        assert treatment is not None
        if treatment.distribution == "unavailable":
            treatment = replace(treatment, distribution="balanced")
        live = self.obtain(address, is_ingress=True, treatment=treatment)
        live.holders += 1
        return live

    def let_go(self, address: Address, phase: int) -> None:
        live = self.find(address, phase)
        if live is not None and live.holders:
            live.holders -= 1
            self.discard_unused(live)

    def key(self, address: Address, *, is_ingress: bool, treatment: Treatment | None = None) -> str:
        """The key that a link to the address is bound to: of a sender, or of a receiver.

        treatment  as for obtain
        """
        treatment = treatment or self.treatment(address)
        return self._key_in(address, treatment.ingress_phase if is_ingress else treatment.egress_phase)

    def obtain(self, address: Address, *, is_ingress: bool, treatment: Treatment | None = None) -> LiveAddress:
        """The live address, created when there is none.

        treatment  the one to use; None for the configured one
        """
        key = self.key(address, is_ingress=is_ingress, treatment=treatment)
        live = self.addresses.get(key)
        if live is None:
            live = self.make(key, treatment or self.treatment(address))
        return live

    def make(self, key: str, treatment: Treatment) -> LiveAddress:
        """An address that there is not yet."""
        if key[0] == EVERY_CLASS:
            every = self.addresses[key] = self.every[key] = self._every_routers(key)
            self.choose_forward(every)
            return every
        live = self.addresses[key] = LiveAddress(key, treatment, self._forward[treatment.distribution])
        if self._is_edge and live.distribution == "multicast":
            self.choose_forward(live)
        if key[0] == "M":
            self._pair(live, treatment)
        return live

    def _pair(self, live: LiveAddress, treatment: Treatment) -> None:
        """An address that has a fallback destination and the destination are made together, whichever is first."""
        kind, name = live.key[:2], live.key[2:]
        if kind == "M0" and treatment.has_fallback:
            live.fallback = self.addresses.get(f"{_FALLBACK_KEY}{name}") or self.make(
                f"{_FALLBACK_KEY}{name}", _FALLBACK
            )
            live.fallback.main = live
        elif kind == _FALLBACK_KEY and f"M0{name}" not in self.addresses:
            configured = self.treatment_of(name)
            if configured.has_fallback:
                self.make(f"M0{name}", configured)

    def reach_far(self, far: Far, forward: Mapping[Distribution, Forward], *, is_edge: bool = False) -> None:
        """From now on addresses may have remote destinations; their senders' messages go by `forward`.

        is_edge  this router is an edge: messages may go to its uplink, whoever receives them here
        """
        self._far = far, forward
        self._is_edge = is_edge
        self.choose_forward(self._passing)

    def choose_forward(self, address: LiveAddress) -> None:
        """The address has its first remote destination, or its first receiver on a connection between an edge and an
        interior, or none of them any more; or an exchange, or none: its senders' links follow.
        """
        if address.is_control:
            return
        forward = self._forward
        address.far = None
        is_copied_on = address.beyond is not None or (self._is_edge and address.distribution == "multicast")
        if self._far is not None and (address.remotes or address.edges or is_copied_on):
            address.far, forward = self._far
        address.forward = forward[address.distribution]
        if address.exchange is not None:
            address.exchange.base, address.forward = address.forward, address.exchange.forward
        for link in address.in_links:
            link.wire.forward_by(address.forward)

    def bound(self, link: Link) -> LiveAddress | None:
        """The live address that an open link is bound to; None for an anonymous one."""
        return self.addresses.get(link.address.key) if link.address is not None else None

    def discard_unused(self, address: LiveAddress) -> None:
        partner = address.partner
        if address.is_unused and (partner is None or partner.is_unused):
            self.addresses.pop(address.key, None)
            self.every.pop(address.key, None)
            if partner is not None:
                self.addresses.pop(partner.key, None)
