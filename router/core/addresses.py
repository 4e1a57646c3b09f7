"""Live addresses: a table that finds them by key, and the treatment of deliveries to them.

`policy.addressing` decides what a text means. Sources: docs/spec/routing.md §3, §4.
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
    """The handling of deliveries to an address: one `address` entity, or the router's default."""

    distribution: Distribution = "balanced"
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int = -1
    has_fallback: bool = False  # it has a companion that gets messages without another receiver


# Classes of addresses of link routes, which no message has: C and D for prefixes, E and F for patterns.
LINK_ROUTES: Final = "CDEF"
LINK_BALANCED: Final = Treatment(distribution="linkBalanced")

# The key of the uplink of an edge router (network §2.2). No text means it.
UPLINK_KEY: Final = "L_edge"
DOWN_CLASS: Final = "H"  # the class of addresses that an interior has for its edges
EVERY_CLASS: Final = "T"  # the class of addresses that every router has
_FALLBACK_KEY: Final = f"M{chr(48 + FALLBACK_PHASE)}"
_FOREIGN: Final = "RAH"  # the classes of addresses that belong to another router

_PLAIN: Final = Treatment()  # for addresses that are not mobile
_FALLBACK: Final = Treatment(ingress_phase=FALLBACK_PHASE, egress_phase=FALLBACK_PHASE)
_OF_ROUTER: Final = Treatment(distribution="closest")  # for addresses of another router, whatever the name there
_OF_ALL: Final = Treatment(distribution="multicast")  # for addresses that every router has


class Subscriber(Protocol):
    """An in-process consumer. It gets the whole encoded message, which is already accepted.

    Returns True if the sender gets its credit back with the answer (`Core.send`), and not now.
    """

    def __call__(self, payload: bytes, link: InLink) -> bool | None: ...


# Gives a message in the buffer, with its size in bytes, to receivers of an address.
Forward = Callable[[InLink, "LiveAddress", Handle, int], None]


class Far(Protocol):
    """Chooses among local receivers and other routers (router.core.transit)."""

    def hops(self, address: "LiveAddress", link: InLink | None, size: int, /, *, is_streamed: bool) -> list[OutLink]:
        """Returns the links for one message, which is in the buffer.

        link  the link that the message arrived on; None: it is this router's own
        """
        ...


class Distributor(Protocol):
    """The exchange of an address (router.core.exchanges).

    base  forwards as if there were no exchange
    """

    base: Forward

    @property
    def forward(self) -> Forward: ...
    def copies(self, link: InLink, size: int, /, *, is_streamed: bool) -> list[tuple[OutLink, bytes]] | None:
        """Returns the receivers of the message in the buffer, each with its payload.

        None: forward as without the exchange.
        """
        ...


class LiveAddress:
    """A live address: its senders and its destinations. It exists while anything refers to it.

    remotes      routers that are destinations
    sole         the only one of these routers; None: there is none, or there are several
    far          chooses among all destinations; None while there are no remotes
    ways         to other routers, by the tag of the connection
    edges        receivers on connections between an edge and an interior, by connection
    exchange     copies its messages to other addresses; None: there is no exchange
    fallback     its companion, which gets messages that have no other receiver here; None: it has none
    main         for a companion: the address that it belongs to
    beyond       for an address that every router has: the other routers; None: it is no such address
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
    # For addresses of the routing protocol: clients' messages to them are released (core.control_addresses).
    is_control = False
    beyond: "Beyond | None" = None

    def __init__(self, key: str, treatment: Treatment, forward: Forward) -> None:
        self.key = key
        self.distribution: Distribution = treatment.distribution
        self.priority = treatment.priority
        # The link that the router made the address for, while it exists: the address belongs to its connection.
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
        self.holders = 0  # auto links, link routes and exchanges: they keep the address, even without containers
        self.containers = 0
        # Deliveries of links that are gone, and of anonymous links. The others are the sums over the live links.
        self.retired_ingress = 0
        self.retired_egress = 0
        self.delivered_in_process = 0
        self.sent_from_process = 0

    @property
    def has_own_path(self) -> bool:
        """True if there is a receiver other than the fallback destination."""
        return bool(self.out_links or self.subscribers or self.remotes or self.exchange)

    @property
    def has_path(self) -> bool:
        """True if there is a receiver, or a fallback destination with a receiver."""
        return self.has_own_path or (self.fallback is not None and self.fallback.has_own_path)

    @property
    def is_unused(self) -> bool:
        return not (self.in_links or self.has_own_path or self.holders)

    @property
    def partner(self) -> "LiveAddress | None":
        """The fallback destination of an address, or the address of a fallback destination.

        Both exist while one is used.
        """
        return self.fallback if self.fallback is not None else self.main

    def drain_containers(self) -> None:
        """Drains containers if the last receiver may be gone: they must send nothing more that has no receiver.

        Clients are not drained: if they send, they learn that there is no receiver.
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
        """Balanced messages without an outcome, by the tag of the connection that they left on.

        Empty for other addresses.
        """
        ways = self.ways if self.distribution == "balanced" else {}
        return {tag: way.count for tag, way in ways.items() if way.count}

    @property
    def receiver_count(self) -> int:
        """The number of links here that its messages leave by."""
        return len(self.out_links)

    @property
    def ingress_count(self) -> int:
        return self.retired_ingress + sum(link.delivery_count for link in self.in_links)

    @property
    def egress_count(self) -> int:
        return self.retired_egress + sum(link.delivery_count for link in self.out_links)


class Beyond:
    """The other routers, as destinations of addresses that every router has. They do not announce their receivers.

    remotes  the other interiors, on an interior router
    links    on an interior the links to its edges; on an edge the link to its interior
    on_first  called when the first other router is added
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
        """Returns the links for a message, except those on the connection that it arrived on.

        link  as for Far.hops
        """
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
    """The table of live addresses, by key.

    beyond       the other routers
    every        the addresses that every router has, if they are in use here
    """

    def __init__(self, treatment_of: Callable[[str], Treatment], forward: Mapping[Distribution, Forward]) -> None:
        """Makes an empty table.

        treatment_of  (name) → its treatment, by the configured prefixes and patterns
        """
        self.treatment_of = treatment_of
        self._forward = forward
        self._far: tuple[Far, Mapping[Distribution, Forward]] | None = None
        self._is_edge = False
        self.addresses: dict[str, LiveAddress] = {}
        self.beyond = Beyond()
        self.every: dict[str, EveryRouters] = {}
        # A placeholder for addresses that no link on this router uses. Other routers may use them, so messages to them
        # are still forwarded.
        self._passing = self._every_routers(EVERY_CLASS)

    def find(self, address: Address, phase: int = 0) -> LiveAddress | None:
        live = self.addresses.get(self._key_in(address, phase))
        if live is None and address.key[0] == EVERY_CLASS and self.beyond:
            return self._passing
        return live

    def _every_routers(self, key: str) -> EveryRouters:
        return EveryRouters(key, _OF_ALL, self._forward[_OF_ALL.distribution], self.beyond)

    def _key_in(self, address: Address, phase: int) -> str:
        """Returns the key of the address. On an edge router the uplink leads to all addresses of other routers.

        Policy checks the address itself.
        """
        return UPLINK_KEY if self._is_edge and address.key[0] in _FOREIGN else address.key_in(phase)

    def treatment(self, address: Address) -> Treatment:
        if address.is_mobile:
            return self.treatment_of(address.name)
        if address.key[0] == EVERY_CLASS:
            return _OF_ALL
        return _OF_ROUTER if address.key[0] == "R" else _PLAIN

    def in_phase(self, address: Address, phase: int | None) -> Treatment | None:
        """Returns the treatment that binds to this phase, or None if no phase is given."""
        if phase is None:
            return None
        if phase == FALLBACK_PHASE:
            return _FALLBACK
        return replace(self.treatment(address), ingress_phase=phase, egress_phase=phase)

    def hold(self, address: Address, phase: int) -> LiveAddress:
        """Keeps the address available in this phase until `let_go`, because an auto link or an exchange serves it."""
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
        """Returns the key that a link to the address is bound to: as a sender (is_ingress) or as a receiver.

        treatment  as for obtain
        """
        treatment = treatment or self.treatment(address)
        return self._key_in(address, treatment.ingress_phase if is_ingress else treatment.egress_phase)

    def obtain(self, address: Address, *, is_ingress: bool, treatment: Treatment | None = None) -> LiveAddress:
        """Returns the live address. Creates it if there is none.

        treatment  the one to use; None for the configured one
        """
        key = self.key(address, is_ingress=is_ingress, treatment=treatment)
        live = self.addresses.get(key)
        if live is None:
            live = self.make(key, treatment or self.treatment(address))
        return live

    def make(self, key: str, treatment: Treatment) -> LiveAddress:
        """Makes an address that does not exist yet."""
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
        """Connects an address and its fallback destination. Both are made together, whichever is needed first."""
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
        """Allows addresses to have remote destinations. The messages of their senders are then forwarded by `forward`.

        is_edge  True if this router is an edge: messages may go to its uplink in addition to receivers here
        """
        self._far = far, forward
        self._is_edge = is_edge
        self.choose_forward(self._passing)

    def choose_forward(self, address: LiveAddress) -> None:
        """Chooses `forward` again, and gives it to the links of the senders.

        Called when the address gets its first remote destination or exchange, or loses its last. Also called for the
        first and last receiver on a connection between an edge and an interior.
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
        """Returns the live address that an open link is bound to, or None for an anonymous link."""
        return self.addresses.get(link.address.key) if link.address is not None else None

    def discard_unused(self, address: LiveAddress) -> None:
        partner = address.partner
        if address.is_unused and (partner is None or partner.is_unused):
            self.addresses.pop(address.key, None)
            self.every.pop(address.key, None)
            if partner is not None:
                self.addresses.pop(partner.key, None)
