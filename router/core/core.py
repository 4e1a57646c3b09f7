"""The routing core: admits links that policy allows, binds them to addresses, and disposes of them when they end.

The core knows connections as `Attachment`s and links as the engine's wires. It never asks another part whether
something is permitted. Sources: docs/spec/routing.md §3-§9.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from policy.addressing.address import AREA, FALLBACK_PHASE, Address, Unclear, resolve
from router.core.addresses import AddressTable, Distribution, Forward, LiveAddress, Subscriber, Treatment
from router.core.attachments import Attachment
from router.core.budget import NO_LIMITS, Budgets
from router.core.forward import (
    forward_anonymous,
    forward_balanced,
    forward_closest,
    forward_multicast,
    give_copy,
)
from router.core.in_links import OVER_BUDGET, InLink
from router.core.links import Answer
from router.core.network import Network
from router.core.out_links import OutLink
from router.core.pacing import Pacing
from router.core.ports import IncomingWire, OutgoingWire
from router.core.rates import Rates
from router.core.receivers import Receivers
from router.core.remotes import DataOutLink
from router.core.selection import AnonymousInLink, hops
from router.core.streams import begin_anonymous_stream, begin_stream
from router.core.trunk_links import DataInLink
from router.core.updates import Updates
from router.core.uplink import Uplink
from router.core.work import SetTimer, Work
from router.values import Condition, Handle

_FORWARD: Final[dict[Distribution, Forward]] = {
    "balanced": forward_balanced,
    "closest": forward_closest,
    "multicast": forward_multicast,
    # A live address can be unavailable only through auto links, which make it balanced (routing §7.4).
    "unavailable": forward_balanced,
    "linkBalanced": forward_balanced,  # used for no message: addresses of link routes have other classes
}
CLOSEST: Final = Treatment(distribution="closest")
# The treatment of addresses that the router makes, independent of the configuration (routing §5.4).
_QUEUE: Final = Treatment()
_TOPIC: Final = Treatment(distribution="multicast")


# The errors for a link that cannot be bound (routing §5.6).
NO_ROUTE = Condition(name="qd:no-route-to-dest", description="No route to the destination node")
NOT_FOUND = Condition(name="amqp:not-found", description="Node not found")
NO_COORDINATOR = Condition(
    name="amqp:precondition-failed",
    description=(
        "The router can't coordinate transactions by itself, a linkRoute to a coordinator must be configured to use "
        "transactions."
    ),
)
UNAVAILABLE = Condition(name="amqp:not-found", description="Deliveries cannot be sent to an unavailable address")
NO_ADDRESS = Condition(name="amqp:precondition-failed", description="Routing failure: no address present")


@dataclass(slots=True)
class Totals:
    """Counts of links that are gone. `router` shows these plus the counts of the live links (`views.router_totals`)."""

    ingress: int = 0
    egress: int = 0
    transit: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    modified: int = 0
    presettled: int = 0
    dropped_presettled: int = 0
    delayed_1s: int = 0
    delayed_10s: int = 0
    ingress_route_container: int = 0
    egress_route_container: int = 0
    redirected: int = 0  # to fallback destinations

    def add(self, link: InLink | OutLink) -> None:
        if isinstance(link, InLink):
            self.redirected += link.redirected
        if isinstance(link, DataInLink):
            # Its messages entered the network at another router, but their outcomes pass here.
            self._add_outcomes(link)
            return
        if link.link_type != "endpoint":
            self.transit += link.delivery_count if isinstance(link, DataOutLink) else 0
            return
        self.dropped_presettled += link.dropped_presettled
        is_container = link.attachment.is_route_container
        if isinstance(link, OutLink):
            if link.attachment.is_trunk:
                self.transit += link.delivery_count
                return
            self.egress += link.delivery_count if not link.is_fallback else 0
            self.egress_route_container += link.delivery_count if is_container else 0
            return
        self.ingress_route_container += link.delivery_count if is_container else 0
        self.ingress += link.delivery_count
        self.presettled += link.presettled
        self._add_outcomes(link)

    def _add_outcomes(self, link: InLink) -> None:
        self.accepted += link.accepted
        self.rejected += link.rejected
        self.released += link.released
        self.modified += link.modified
        self.delayed_1s += link.delayed_1s
        self.delayed_10s += link.delayed_10s


class Core:
    """The addresses, links and messages in flight of one router."""

    def __init__(
        self,
        *,
        router_id: str,
        work: Work,
        treatment_of: Callable[[str], Treatment],
        random_name: Callable[[], str],
        clock: Callable[[], float],
        set_timer: SetTimer,
    ) -> None:
        """Sets up an empty table of addresses.

        clock  monotonic seconds
        set_timer  replaces the deadline at which the core is called; None: no deadline
        """
        self.router_id = router_id
        self.work = work
        self.table = AddressTable(treatment_of, _FORWARD)
        self.random_name = random_name  # 15 characters of A-Z a-z 0-9 + _
        self.clock = clock
        self.set_timer = set_timer
        self.budgets = Budgets(NO_LIMITS)
        self.receivers = Receivers(self)
        self.links: dict[int, InLink | OutLink] = {}
        self.retired = Totals()
        self.network: Network | None = None  # only on an interior router
        self.uplink: Uplink | None = None  # only on an edge router
        # Called when the senders or destinations of an address have changed.
        self.on_changed: Callable[[LiveAddress], None] = lambda _address: None
        self._last_identity = 0

    def next_identity(self) -> int:
        """Returns the next number of one counter for links, addresses, routes and auto links (management §6.4)."""
        self._last_identity += 1
        return self._last_identity

    # Links

    def resolve(self, text: str, *, tenant: str | None = None) -> Address | Unclear:
        """Returns the address that `text` means here.

        tenant  the address space of the peer's mobile addresses
        """
        address = resolve(text, router_id=self.router_id, tenant=tenant)
        return address if self.uplink is None else self.uplink.checked(address)

    def owner_of(self, address: Address, attachment: Attachment, *, is_ingress: bool) -> Literal["own", "other"] | None:
        """Returns whether a dynamic address belongs to this connection. None if it does not have the form of one.

        All spellings of the address count. A name whose link is gone belongs to no connection and is never used again:
        the result is "other" for every connection.
        """
        live = self.table.addresses.get(self.table.key(address, is_ingress=is_ingress))
        if live is not None and live.made_by is not None:
            return "own" if live.made_by.attachment is attachment else "other"
        return "other" if address.is_dynamic else None

    def check_target(self, address: Address | None, *, is_coordinator: bool = False) -> Condition | None:
        """Returns the error if a sender may not attach to this target, else None (routing §5.2)."""
        if is_coordinator:
            return NO_COORDINATOR
        return None if address is None else self._check_available(address)

    def check_source(self, address: Address | None) -> Condition | None:
        """Returns the error if a receiver may not attach to this source, else None."""
        if address is None or address.key[0] in "RAH":
            return NO_ROUTE
        return self._check_available(address)

    def _check_available(self, address: Address) -> Condition | None:
        treatment = self.table.treatment(address)
        if treatment.distribution == "unavailable" and self.table.find(address) is None:
            return NOT_FOUND
        return None

    def dynamic_address(self, *, is_source: bool) -> Address:
        """Returns a new address for a dynamic terminus (routing §5.4). `written` is the text for the peer."""
        name = f"temp.{self.random_name()}"
        own = f"_topo/{AREA}/{self.router_id}" if self.uplink is None else f"_edge/{self.router_id}"
        text = f"amqp:/{own}/{name}" if is_source else f"amqp:/_${name}"
        address = self.resolve(f"_local/{name}" if is_source else f"_${name}")
        assert isinstance(address, Address)
        return replace(address, written=text, full=text)

    def add_in_link(
        self,
        wire: IncomingWire,
        attachment: Attachment,
        address: Address | None,
        *,
        is_dynamic: bool = False,
        is_topic: bool = False,
        phase: int | None = None,
    ) -> InLink:
        """Binds an admitted sender to its target, or makes it anonymous if the target is None. Grants its credit.

        is_dynamic  True if the address was made for this link
        is_topic    True if every receiver of a dynamic address gets a copy, False if one of them gets the message
        phase       of the address, 0 to 9; None: the phase that is configured for senders, or for receivers.
                    FALLBACK_PHASE: messages go to the address itself, never to the fallback destination. For an edge
                    router it means that the edge has already chosen the fallback destination
        """
        link: InLink
        is_fallback = phase == FALLBACK_PHASE
        if is_fallback and not attachment.is_edge:
            phase = 0
        if address is None:
            link = AnonymousInLink(self.next_identity(), wire, attachment, self.work)
            link.on_updated = Updates(link, self.all_receivers).on_updated
            wire.admit(link, None, forward_anonymous, begin_anonymous_stream, link.on_updated)
        else:
            link = InLink(self.next_identity(), wire, attachment, self.work)
            link.is_fallback = is_fallback and address.is_mobile and not is_dynamic
            treatment = (_TOPIC if is_topic else _QUEUE) if is_dynamic else self.table.in_phase(address, phase)
            live = link.address = self.table.obtain(address, is_ingress=True, treatment=treatment)
            live.in_links[link] = None
            if is_dynamic:
                live.made_by = link
            link.on_updated = Updates(link, partial(self._receivers_of, live)).on_updated
            wire.admit(link, live, live.forward, begin_stream, link.on_updated)
        if attachment.account.behind:
            link.hold(OVER_BUDGET)
        attachment.in_links.add(link)
        self.links[link.identity] = link
        pacing = attachment.pacing
        link.grant_initial(attachment.capacity if pacing is None else pacing.attach(link))
        if link.address is not None:
            self.on_changed(live)
        return link

    def add_out_link(
        self,
        wire: OutgoingWire,
        attachment: Attachment,
        address: Address,
        *,
        is_dynamic: bool = False,
        is_topic: bool = False,
        phase: int | None = None,
    ) -> OutLink:
        """Binds an admitted receiver to its source.

        is_dynamic, is_topic, phase  as for a sender
        """
        link = OutLink(self.next_identity(), wire, attachment, self.work)
        link.is_fallback = phase == FALLBACK_PHASE and address.is_mobile and not is_dynamic
        wire.admit(link, on_delivery=link.on_delivery, on_accepted=link.on_receiver_accepted, on_credit=link.on_credit)
        treatment = (_TOPIC if is_topic else _QUEUE) if is_dynamic else self.table.in_phase(address, phase)
        live = link.address = self.table.obtain(address, is_ingress=False, treatment=treatment)
        if is_dynamic:
            live.made_by = link
        attachment.out_links.add(link)
        self.links[link.identity] = link
        self.receivers.add(live, link)
        return link

    def adopt(self, link: InLink | OutLink, attachment: Attachment) -> None:
        """Adds a link between routers, which is bound to no address."""
        if isinstance(link, InLink):
            if attachment.account.behind:
                link.hold(OVER_BUDGET)
            attachment.in_links.add(link)
        else:
            link.wire.admit(
                link, on_delivery=link.on_delivery, on_accepted=link.on_receiver_accepted, on_credit=link.on_credit
            )
            attachment.out_links.add(link)
        self.links[link.identity] = link

    def _receivers_of(self, address: LiveAddress) -> list[OutLink]:
        """Returns the links that may hold messages of the address."""
        is_plain = address.far is None and address.fallback is None and address.exchange is None
        return list(address.out_links) if is_plain else self.all_receivers()

    def all_receivers(self) -> list[OutLink]:
        return [link for link in self.links.values() if isinstance(link, OutLink)]

    def grant_all(self, address: LiveAddress) -> None:
        for link in address.in_links:
            link.grant_withheld()
        if address.main is not None:
            self.grant_all(address.main)

    def remove_link(self, link: InLink | OutLink) -> None:
        """Removes a link that is gone, with or without Detach.

        Disposes of every delivery on it (routing §9.3, §9.4).
        """
        if link.identity not in self.links:
            return
        left: list[LiveAddress] = []
        if isinstance(link, InLink):
            link.wire.read_out()
        else:
            left = self.receivers.take_out((link,))
            link.room = 0
        link.is_open = False
        del self.links[link.identity]
        if self.network is not None:
            self.network.forget(link)
        self.retired.add(link)
        link.attachment.forget(link)
        if isinstance(link, InLink):
            link.wire.abort_stream()  # the message stays incomplete
            if link.merging:
                self.work.begin(link.letting_go())
            address = self.table.bound(link)
            if address is not None:
                address.retired_ingress += link.delivery_count
                del address.in_links[link]
                if address.made_by is link:
                    address.made_by = None
                self.table.discard_unused(address)
                self.on_changed(address)
        else:
            link.lose_everything()
            for address in left:
                self.on_changed(address)
        link.wire.release_core()
        link.release()

    def cut_off(self, links: Collection[OutLink]) -> None:
        """Stops sending messages to any of these links. `remove_link` does the rest, perhaps much later.

        This is one quick step: each address is looked at once, even if many of its links are in `links`.
        """
        for link in links:
            if self.table.bound(link) is not None:
                link.is_open = False
                link.room = 0
        for address in self.receivers.take_out(links):
            self.on_changed(address)

    def set_rates(self, attachment: Attachment, rates: Rates) -> None:
        """Sets the rates of the connection from now on, also for its open links."""
        pacing = attachment.pacing
        if rates == Rates():
            attachment.pacing = None
            if pacing is not None:
                pacing.end()
        elif pacing is not None:
            pacing.follow(rates)
        else:
            pacing = attachment.pacing = Pacing(attachment, rates, clock=self.clock, set_timer=self.set_timer)
            for link in attachment.in_links:
                pacing.adopt(link)

    def set_blocked(self, attachment: Attachment, *, is_blocked: bool) -> None:
        """Notes that the socket's buffer is full, or has room again."""
        attachment.is_blocked = is_blocked
        for link in list(attachment.out_links):
            link.refresh_room()
            if link.leg is not None and not is_blocked:
                self.work.resumable.add(link.leg.stream)

    # Anonymous links

    def route(self, link: InLink, delivery: Handle, to: Address, phase: int = 0) -> LiveAddress | None:
        """Returns the address of a message on an anonymous link, or None after the message was released or refused.

        phase  the phase that the message names; 0: the phase that is configured for senders
        """
        treatment = self.table.treatment(to)
        address = self.table.find(to, phase or treatment.ingress_phase)
        if self.uplink is not None and (up := self.uplink.way_of(link, address)) is not None:
            return up
        if address is not None:
            return address
        if treatment.distribution == "unavailable":
            link.refuse(delivery, UNAVAILABLE)
        else:
            link.release_undeliverable(delivery)
        return None

    # In-process

    def subscribe(self, text: str, subscriber: Subscriber, *, treatment: Treatment = CLOSEST) -> None:
        """Adds an in-process consumer on an address, such as `$management` or `_local/$management`."""
        address = self.resolve(text)
        assert isinstance(address, Address)
        live = self.table.obtain(address, is_ingress=True, treatment=treatment)
        live.subscribers.append(subscriber)
        self.grant_all(live)
        self.on_changed(live)

    def is_in_process(self, address: Address) -> bool:
        """Returns True if a link to or from `address` leads to an in-process consumer."""
        treatment = self.table.treatment(address)
        phases = {0, treatment.ingress_phase, treatment.egress_phase}
        found = (self.table.find(address, phase) for phase in phases)
        return any(live is not None and live.subscribers for live in found)

    def send(self, to: Address, payload: bytes, *, asker: InLink | None = None) -> bool:
        """Sends a presettled message that the router itself made. Returns False if there is no receiver.

        asker  the link of the request that this answers. It pays for the waiting message, and gets one credit back when
               the message has left or cannot leave. Otherwise a client that asks faster than it reads would lose
               answers
        """
        address = self.table.find(to)
        out_links = hops(address, None, 0, is_streamed=False) if address is not None else []
        if address is not None and out_links:
            address.sent_from_process += 1
        _send(out_links, payload, asker, self.network)
        return bool(out_links)


def _send(out_links: list[OutLink], payload: bytes, asker: InLink | None, network: Network | None) -> None:
    """Sends to each link, as for Core.send. The asker gets one credit, whatever the number of copies."""
    for out in out_links:
        if network is not None and isinstance(out, DataOutLink):
            own = network.stamped(payload)
        else:
            own = Answer(payload) if asker is not None else payload
        give_copy(asker, out, None, out.work.now_s, own, is_settled=True)
        asker = None
    if asker is not None:
        asker.owe()
