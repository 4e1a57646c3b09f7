"""From one incoming link to the destinations of an address of which other routers are some.

Chosen for an address while it has remote destinations (`AddressTable.choose_forward`); all others pay nothing for it.
Functions take what those of `forward` take. Source: docs/spec/network.md §10.3, §10.4, §20.1.
"""

from collections.abc import Callable

from router.core.addresses import Distribution, Forward, LiveAddress
from router.core.budget import Charge
from router.core.forward import deliver_in_process, give_copy, spread
from router.core.in_links import InLink
from router.core.links import Origin
from router.core.out_links import OutLink
from router.core.remotes import DEFAULT_PRIORITY, DataOutLink, RemoteRouter, Trunk
from router.core.selection import elsewhere, least_loaded_elsewhere, next_in_turn_elsewhere
from router.values import Handle


class Transit:
    """node         this router, `0/ID`
    routers      by node
    priority_of  (bytes) → the priority in the header of the message in the buffer
    """

    def __init__(self, node: str, priority_of: Callable[[int], int]) -> None:
        self.node = node
        self.routers: dict[str, RemoteRouter] = {}
        self._priority_of = priority_of
        self.forward: dict[Distribution, Forward] = {
            "balanced": self.forward_balanced,
            "closest": self.forward_closest,
            "multicast": self.forward_multicast,
            "unavailable": self.forward_balanced,
        }

    # Choice

    def hops(self, address: LiveAddress, link: InLink | None, size: int) -> list[OutLink]:
        """The links for a message that streams, or is this router's own."""
        if address.distribution == "multicast":
            found = [*elsewhere(address, link), *self._branches(address, link, size)]
        else:
            out = (self._closest if address.distribution == "closest" else self._balanced)(address, link, size)
            found = [out] if out is not None else []
        if link is not None:
            found = [(out.trunk.streaming_link() or out) if isinstance(out, DataOutLink) else out for out in found]
        for out in found:
            address.transit += isinstance(out, DataOutLink)
        return found

    def _priority(self, address: LiveAddress, size: int) -> int:
        if address.priority >= 0:
            return address.priority
        return self._priority_of(size) if size else DEFAULT_PRIORITY

    def _origin(self, link: InLink | None) -> str | None:
        """The node where the message entered the network; None: here, or nobody says."""
        taken = link.annotations if link is not None else None
        return taken.ingress if taken is not None and taken.ingress != self.node else None

    def _closest(self, address: LiveAddress, link: InLink | None, size: int) -> OutLink | None:
        """A local receiver, in turn; else the router that is reached at the lowest cost, in turn."""
        if address.out_links and (local := next_in_turn_elsewhere(address, link)) is not None:
            return local
        least: tuple[int, RemoteRouter, DataOutLink] | None = None
        priority = self._priority(address, size)
        for router in address.remotes:
            if (
                router.trunk is not None
                and (least is None or router.cost < least[0])
                and (out := router.trunk.link_for(priority)) is not None
            ):
                least = router.cost, router, out
        if least is None:
            return None
        _, router, out = least
        del address.remotes[router]
        address.remotes[router] = None
        return out

    def _balanced(self, address: LiveAddress, link: InLink | None, size: int) -> OutLink | None:
        """The least of: a local receiver's load; what is unsettled of this address on the way to a router, and the cost
        of the way. A local receiver wins a tie.
        """
        best: OutLink | None = None
        least = 1 << 62
        if address.out_links and (best := least_loaded_elsewhere(address, link)) is not None:
            least = best.load
            if not least:
                return best
        origin = self._origin(link)
        if origin is not None and origin not in self.routers:
            origin = None
        priority = self._priority(address, size)
        for router in address.remotes:
            trunk = router.trunk
            if trunk is None or (origin is not None and origin not in router.origins):
                continue
            outstanding = address.outstanding.get(trunk.tag, 0)
            if router.cost + outstanding >= least or outstanding >= trunk.attachment.capacity:
                continue
            out = trunk.link_for(priority)
            if out is not None:
                best, least = out, router.cost + outstanding
        return best

    def _branches(self, address: LiveAddress, link: InLink | None, size: int) -> list[OutLink]:
        """One link for each connection that leads on to a destination along the tree of the ingress router.

        Not to a neighbour that has had the message, nor for an ingress that is not known: it has no tree.
        """
        origin = self._origin(link)
        if origin is not None and origin not in self.routers:
            return []
        taken = link.annotations if link is not None else None
        passed = taken.trace if taken is not None else ()
        priority = self._priority(address, size)
        found: dict[Trunk, OutLink] = {}
        for router in address.remotes:
            trunk = router.trunk
            if trunk is None or trunk in found or (origin is not None and origin not in router.origins):
                continue
            if trunk.neighbour is not None and f"0/{trunk.neighbour}" in passed:
                continue
            out = trunk.link_for(priority)
            if out is not None:
                found[trunk] = out
        return list(found.values())

    # Messages that have come whole

    def forward_closest(self, link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
        """In-process consumers, then local receivers in turn, then the nearest router."""
        if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
            return
        out = self._closest(address, link, size) if not address.subscribers else None
        self._give(link, address, out, delivery, size)

    def forward_balanced(self, link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
        """By load and cost; in-process consumers where there is nobody else here."""
        if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
            return
        out = None
        if address.out_links or not address.subscribers:
            out = self._balanced(address, link, size)
        self._give(link, address, out, delivery, size)

    def _give(self, link: InLink, address: LiveAddress, out: OutLink | None, delivery: Handle, size: int) -> None:
        if out is None:
            deliver_in_process(link, address, delivery, size)
            return
        link.delivery_count += 1
        payload = out.compose(link, size) if out.compose is not None else link.work.copy(size)
        now_s = link.work.now_s
        if link.is_settled(delivery):
            link.presettled += 1
            link.settle(delivery)
            address.transit += isinstance(out, DataOutLink)
            give_copy(link, out, None, now_s, payload, is_settled=True, charge=Charge(link, len(payload)))
        else:
            origin: Origin = link
            if isinstance(out, DataOutLink):
                address.transit += 1
                if address.distribution != "closest":
                    origin = Crossing(link, address.outstanding, out.trunk.tag)
            if out.room > 0 and not out.sends_settled and out.on_sending is None:
                out.room -= 1
                out.delivery_count += 1
                out.load += 1
                out.unsettled[out.wire.send_bytes(payload)] = (origin, delivery, now_s)
                link.work.touched.add(out.engine)
                return
            give_copy(origin, out, delivery, now_s, payload, is_settled=False, charge=Charge(link, len(payload)))
        if link.wire.credit < 0:
            link.owe(0)

    def forward_multicast(self, link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
        """One copy to every local receiver, and one on each connection that leads on."""
        if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
            return
        branches = self._branches(address, link, size)
        address.transit += len(branches)
        spread(link, address, [*elsewhere(address, link), *branches], delivery, size)


class Crossing:
    """The origin of a balanced message that left for another router: counted until it has its outcome."""

    __slots__ = ("_counts", "_link", "_tag")

    def __init__(self, link: InLink, counts: dict[int, int], tag: int) -> None:
        self._link = link
        self._counts = counts
        self._tag = tag
        counts[tag] = counts.get(tag, 0) + 1

    def _arrive(self) -> None:
        left = self._counts.get(self._tag, 0) - 1
        if left > 0:
            self._counts[self._tag] = left
        else:
            self._counts.pop(self._tag, None)

    @property
    def sender(self) -> InLink:
        return self._link

    def on_accepted(self, source: Handle, since_s: int) -> None:
        self._arrive()
        self._link.on_accepted(source, since_s)

    def on_outcome(self, source: Handle, since_s: int, state: int, outgoing: Handle) -> None:
        self._arrive()
        self._link.on_outcome(source, since_s, state, outgoing)

    def on_progress(self, source: Handle, state: int, outgoing: Handle, settle: Callable[[Handle], None]) -> None:
        self._link.on_progress(source, state, outgoing, settle)

    def on_lost(self, source: Handle, since_s: int, *, was_sent: bool) -> None:
        self._arrive()
        self._link.on_lost(source, since_s, was_sent=was_sent)

    def forgo(self, state: int, since_s: int) -> None:
        self._arrive()
        self._link.forgo(state, since_s)
