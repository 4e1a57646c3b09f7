"""Lets a router end: nobody sends more, and what is under way gets its outcome.

The router looks at all links from time to time, so that no message pays for it, and a link that comes meanwhile is met.
Management and the routing protocol go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from router.core.addresses import LiveAddress
from router.core.core import Core
from router.core.in_links import InLink
from router.core.trunk_links import ControlInLink

# A slice takes a fraction of a millisecond.
LINKS_AT_ONCE: Final = 250


@dataclass(slots=True)
class UnderWay:
    """waiting  deliveries that have no outcome, or have not left whole
    came     messages that have come since the links that are open were attached
    """

    waiting: int = 0
    came: int = 0


def look(core: Core, found: UnderWay) -> Iterator[None]:
    """End the credit of all senders, and count what is under way. Yields wherever others may have a turn."""
    for number, link in enumerate(list(core.links.values()), 1):
        if not isinstance(link, InLink):
            found.waiting += len(link.queue) + len(link.unsettled) + (link.leg is not None)
        elif not _is_for_router(link):
            found.came += link.delivery_count
            link.end_credit()
        if number % LINKS_AT_ONCE == 0:
            yield


def _is_for_router(link: InLink) -> bool:
    address = link.address
    return isinstance(link, ControlInLink) or (isinstance(address, LiveAddress) and bool(address.subscribers))
