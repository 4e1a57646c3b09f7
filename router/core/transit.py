"""Forwards messages from one incoming link to an address that has destinations on other routers.

`AddressTable.choose_forward` uses this for an address while it has remote destinations. Other addresses have no extra
cost. The functions take the same parameters as those of `router.core.forward`. Source: docs/spec/network.md §10.3,
§10.4, §20.1.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from router.core.addresses import Distribution, Forward, LiveAddress
from router.core.crossings import crossing_of
from router.core.forward import charge_for, deliver_in_process, give_copy, spread
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.remotes import DataOutLink, RemoteRouter, Trunk
from router.core.selection import elsewhere, least_loaded_elsewhere, next_in_turn_elsewhere
from router.core.streaming_links import LargeOutLink
from router.core.weights import LARGE_BYTES
from router.values import Handle

# The parts of the result of Look.front, as in router.amqp.layout.front.
PRIORITY_MASK, ASKS, AT_SHIFT = 15, 16, 5
# After this number of messages to a neighbour they are written during the pass. The neighbour can take them while this
# router continues.
_WRITTEN_TOGETHER: Final = 64


class Look(NamedTuple):
    """Functions that inspect the beginning of the message in the buffer. They take its number of bytes.

    front        (bytes) → the place for routers' annotations << AT_SHIFT; | ASKS, if it may have a reply-to; | its
                 priority. -1: this is not easily found
    priority_of  (bytes) → its priority
    """

    front: Callable[[int], int]
    priority_of: Callable[[int], int]


class Transit:
    """Chooses links for messages, with the distributions of the addresses.

    node     this router, `0/ID`
    routers  by node
    """

    def __init__(self, node: str, look: Look) -> None:
        self.node = node
        self.routers: dict[str, RemoteRouter] = {}
        self._front, self._priority_of = look
        self.forward: dict[Distribution, Forward] = {
            "balanced": self.forward_one,
            "closest": self.forward_one,
            "multicast": self.forward_multicast,
            "unavailable": self.forward_one,
        }

    # Choice

    def hops(self, address: LiveAddress, link: InLink | None, size: int, *, is_streamed: bool) -> list[OutLink]:
        """Returns the links for a message that streams, is copied by an exchange, or is this router's own."""
        if address.distribution == "multicast":
            found = [*_copied_to(address, link), *self._branches(address, link, size)]
        else:
            choose = self._closest if address.distribution == "closest" else self._balanced
            out = choose(address, link, self._priority(address, size))
            found = [out] if out is not None else []
        if is_streamed:
            found = [(out.bypass.take(link) or out) if out.bypass is not None else out for out in found]
        for out in found:
            address.transit += isinstance(out, DataOutLink)
            address.retired_egress += isinstance(out, LargeOutLink)  # such a link is bound to no address
        return found

    def _priority(self, address: LiveAddress, size: int, front: int | None = None) -> int:
        """Returns the priority of a message.

        front  the result of Look.front for the message; None: not yet called
        """
        if address.priority >= 0:
            return address.priority
        if front is None:
            front = self._front(size)
        return front & PRIORITY_MASK if front >= 0 else self._priority_of(size)

    def _origin(self, link: InLink | None) -> str | None:
        """Returns the node where the message entered the network; None: it is this router, or unknown."""
        taken = link.annotations if link is not None else None
        return taken.ingress if taken is not None and taken.ingress != self.node else None

    def _closest(self, address: LiveAddress, link: InLink | None, priority: int) -> OutLink | None:
        """Chooses a local receiver, else the router that is reached at the lowest cost. Equal choices take turns."""
        if address.out_links and (local := next_in_turn_elsewhere(address, link)) is not None:
            return local
        least: tuple[int, RemoteRouter, DataOutLink] | None = None
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

    def _balanced(self, address: LiveAddress, link: InLink | None, priority: int) -> OutLink | None:
        """Chooses the local receiver or the router with the lowest value.

        The value of a local receiver is its load. The value of a router is the cost of the way, plus the unsettled
        messages of this address on that way. A local receiver wins a tie. A full way is chosen only if there is no
        other.
        """
        best: OutLink | None = None
        full: OutLink | None = None
        least_full = 1 << 62
        least = 1 << 62
        if address.out_links and (best := least_loaded_elsewhere(address, link)) is not None:
            least = best.load
            if not least:
                return best
        origin = self._origin(link) if link is not None and link.annotations is not None else None
        if origin is not None and origin not in self.routers:
            origin = None
        ways = address.ways
        for router in address.remotes:
            trunk = router.trunk
            if trunk is None or (origin is not None and origin not in router.origins):
                continue
            way = ways.get(trunk.tag)
            outstanding = way.count if way is not None else 0
            value = router.cost + outstanding
            if value >= least:
                continue
            data = trunk.data
            out = (data[priority] if priority < len(data) else None) or trunk.link_for(priority)
            if out is None:
                continue
            if outstanding < trunk.attachment.capacity:
                best, least = out, value
            elif value < least_full:
                full, least_full = out, value
        return best or full

    def _branches(self, address: LiveAddress, link: InLink | None, size: int) -> list[OutLink]:
        """Returns one link for each connection that leads to a destination along the tree of the ingress router.

        Leaves out neighbours that have had the message. Returns nothing for an unknown ingress router, because it has
        no tree.
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
            if link is not None and link.attachment is trunk.attachment:
                continue  # for a neighbour that does not record in the trace that it had the message
            out = trunk.link_for(priority)
            if out is not None:
                found[trunk] = out
        return list(found.values())

    # Messages that have come whole

    def forward_one(self, link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
        """Forwards to one receiver or router, by the distribution. Hot: see docs/journeys.md before adding anything."""
        if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
            return
        front = self._front(size)
        router = address.sole
        out: OutLink | None = None
        if router is None or address.out_links or address.subscribers or link.annotations is not None or front < 0:
            out = self._choose(link, address, size, front)
        elif (trunk := router.trunk) is not None:
            # The usual case: there is only one destination.
            priority, data = front & PRIORITY_MASK if address.priority < 0 else address.priority, trunk.data
            out = (data[priority] if priority < len(data) else None) or trunk.link_for(priority)
        if not isinstance(out, DataOutLink):
            if out is None:
                deliver_in_process(link, address, delivery, size)
            else:
                self._give_here(link, out, delivery, size)
            return
        link.delivery_count += 1
        address.transit += 1
        if front < 0 or out.room <= 0 or out.sends_settled or out.on_sending is not None:
            self._give_copy(link, address, out, delivery, size)
            return
        # Nothing of the message is copied, except into the engine.
        section = link.heading if link.annotations is None and not front & ASKS else None
        if section is None:
            section = out.heading(link, size)
        out.room -= 1
        out.delivery_count += 1
        outgoing = out.send_with(size, front >> AT_SHIFT, section, len(section))
        work = link.work
        work.touched.add(out.engine)
        if not link.is_settled(delivery):
            crossing = link.crossing
            if crossing is None or crossing.way is not address.ways.get(out.trunk.tag):
                crossing = crossing_of(link, address.ways, out.trunk.tag)
            way = crossing.way
            count = way.count = way.count + 1
            if count > way.most:
                way.hold_back(link)
            out.load += 1
            out.unsettled[outgoing] = (crossing, delivery, work.now_s)
            if size > LARGE_BYTES:
                out.weigh(outgoing, size)
        else:
            link.presettled += 1
            link.settle(delivery)
            out.presettled += 1
            out.settle(outgoing)
            link.lender = out
            if not link.owed:
                work.refill.append(link)
                work.touched.add(link.engine)
            link.owed += 1
        if not out.delivery_count % _WRITTEN_TOGETHER:
            out.write_early()

    def _choose(self, link: InLink, address: LiveAddress, size: int, front: int) -> OutLink | None:
        """Returns the link to use, or None if an in-process consumer gets the message or there is no receiver."""
        if address.distribution == "closest":
            # In-process consumers come first, then local receivers in turn, then the nearest router.
            if address.subscribers:
                return None
            return self._closest(address, link, self._priority(address, size, front))
        # By load and cost. In-process consumers get the message only if there is no other receiver here.
        if address.subscribers and not address.out_links:
            return None
        return self._balanced(address, link, self._priority(address, size, front))

    @staticmethod
    def _give_copy(link: InLink, address: LiveAddress, out: DataOutLink, delivery: Handle, size: int) -> None:
        """Sends to another router a copy that may wait for its credit."""
        assert out.compose is not None
        payload, now_s = out.compose(link, size), link.work.now_s
        if link.is_settled(delivery):
            link.presettled += 1
            link.settle(delivery)
            give_copy(link, out, None, now_s, payload, is_settled=True)
        else:
            crossing = crossing_of(link, address.ways, out.trunk.tag)
            crossing.way.enter(link)
            charge = charge_for(link, out, len(payload))
            give_copy(crossing, out, delivery, now_s, payload, is_settled=False, charge=charge)
        if link.wire.credit < 0:
            link.owe(0)

    @staticmethod
    def _give_here(link: InLink, out: OutLink, delivery: Handle, size: int) -> None:
        """Sends to a receiver on this router."""
        link.delivery_count += 1
        payload = out.compose(link, size) if out.compose is not None else link.work.copy(size)
        now_s = link.work.now_s
        if link.is_settled(delivery):
            link.presettled += 1
            link.settle(delivery)
            give_copy(link, out, None, now_s, payload, is_settled=True)
        elif out.room > 0 and not out.sends_settled and out.on_sending is None:
            out.room -= 1
            out.delivery_count += 1
            out.load += 1
            outgoing = out.wire.send_bytes(payload)
            out.unsettled[outgoing] = (link, delivery, now_s)
            if size > LARGE_BYTES:
                out.weigh(outgoing, size)
            link.work.touched.add(out.engine)
            return
        else:
            give_copy(link, out, delivery, now_s, payload, is_settled=False)
        if link.wire.credit < 0:
            link.owe(0)

    def forward_multicast(self, link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
        """Sends one copy to every local receiver, and one on each connection that leads to a destination."""
        if link.inspect is not None and (size := link.inspect(delivery, size)) < 0:
            return
        branches = self._branches(address, link, size)
        address.transit += len(branches)
        spread(link, address, [*_copied_to(address, link), *branches], delivery, size)


def _copied_to(address: LiveAddress, link: InLink | None) -> list[OutLink]:
    """Returns the links that get a copy of a multicast message, except those to other interiors.

    link  as for Transit.hops
    """
    found = list(elsewhere(address, link))
    if address.beyond is not None:
        found += address.beyond.elsewhere(link)
    return found
