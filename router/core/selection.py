"""Selects the receivers of a message. Hot: see docs/journeys.md before adding anything.

Sources: docs/spec/routing.md §7.
"""

from collections.abc import Callable, Iterable

from router.core.addresses import LiveAddress
from router.core.in_links import InLink
from router.core.links import Connection
from router.core.out_links import OutLink
from router.core.ports import IncomingWire
from router.core.work import Work
from router.values import Handle


class AnonymousInLink(InLink):
    """A sender's link without a target: each message names its own address.

    route  inspects a message and finds its address and new size; None after it refused or released the message
    """

    __slots__ = ("route",)

    def __init__(self, identity: int, wire: IncomingWire, attachment: Connection, work: Work) -> None:
        super().__init__(identity, wire, attachment, work)
        self.route: Callable[[Handle, int], tuple[LiveAddress, int] | None] = _nowhere


def _nowhere(_delivery: Handle, _size: int) -> None:
    raise AssertionError("a message came before the link had its route")


def hops(address: LiveAddress, link: InLink | None, size: int, *, is_streamed: bool) -> list[OutLink]:
    """Returns the links for one message to `address`, which is in the buffer. Empty if there is no receiver.

    link         the link that it arrived on; None: it is this router's own
    is_streamed  True if it has not arrived completely
    """
    if address.far is not None:
        return address.far.hops(address, link, size, is_streamed=is_streamed)
    if not address.out_links:
        return []
    if address.distribution == "multicast":
        return list(address.out_links)
    return [next_in_turn(address) if address.distribution == "closest" else least_loaded(address)]


def elsewhere(address: LiveAddress, link: InLink | None) -> Iterable[OutLink]:
    """Returns the local receivers, except those on the same edge or interior connection as the message."""
    if link is None or not link.attachment.is_edge:
        return address.out_links
    origin = link.attachment
    return [out for out in address.out_links if out.attachment is not origin]


def least_loaded_elsewhere(address: LiveAddress, link: InLink | None) -> OutLink | None:
    """Returns the receiver that least_loaded would choose among `elsewhere`, or None if there is none."""
    if link is None or not link.attachment.is_edge:
        return least_loaded(address)
    best: OutLink | None = None
    for out in address.out_links:
        if out.attachment is not link.attachment and (best is None or out.load < best.load):
            best = out
            if not out.load:
                break
    if best is not None:
        _move_back(address, best)
    return best


def next_in_turn_elsewhere(address: LiveAddress, link: InLink | None) -> OutLink | None:
    """Returns the receiver that next_in_turn would choose among `elsewhere`, or None if there is none."""
    if link is None or not link.attachment.is_edge:
        return next_in_turn(address)
    found: OutLink | None = None
    for out in address.out_links:
        if out.attachment is not link.attachment and (found is None or out.leg is None):
            found = out
            if out.leg is None:
                break
    if found is not None:
        _move_back(address, found)
    return found


def _move_back(address: LiveAddress, out: OutLink) -> None:
    address.out_links.remove(out)
    address.out_links.append(out)


def least_loaded(address: LiveAddress) -> OutLink:
    out_links = address.out_links
    best = out_links[0]
    least = best.load
    if least:
        for out in out_links:
            if out.load < least:
                best, least = out, out.load
                if not least:
                    break
    if not least and len(out_links) > 1:
        out_links.rotate(-1)
    return best


def next_in_turn(address: LiveAddress) -> OutLink:
    out_links = address.out_links
    out = out_links[0]
    out_links.rotate(-1)
    if out.leg is not None:
        # An unfinished message occupies the link: use another link if possible.
        for other in out_links:
            if other.leg is None:
                out_links.remove(other)
                out_links.append(other)
                return other
    return out
