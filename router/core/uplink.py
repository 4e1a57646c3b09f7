"""The uplink of an edge router: where messages go that have nobody here.

What an edge forwards to its interior carries no ingress and no trace: the interior is where it enters the network.
Source: docs/spec/network.md §2.2, §14.3.
"""

from typing import Final

from policy.addressing.address import Address, Unclear
from router.core.addresses import UPLINK_KEY, AddressTable, LiveAddress
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.selection import AnonymousInLink
from router.core.transit import Look, Transit

UPLINK: Final = Address(
    written=UPLINK_KEY,
    plain=UPLINK_KEY,
    full=UPLINK_KEY,
    name=UPLINK_KEY,
    key=UPLINK_KEY,
    names=(UPLINK_KEY,),
    is_management=False,
)


class Uplink:
    """Of an edge router, whether or not it has one now."""

    def __init__(self, table: AddressTable, node: str, look: Look) -> None:
        """node, look  as for Transit"""
        self._table = table
        self._transit = _EdgeTransit(node, look, self)
        table.reach_far(self._transit, self._transit.forward, is_edge=True)

    @staticmethod
    def checked(address: Address | Unclear) -> Address | Unclear:
        """The address, where it is not the uplink's.

        Attack: a receiver there would get what other clients send into the network.
        """
        if isinstance(address, Address) and address.key == UPLINK_KEY:
            return Unclear(address.written, "it is this router's way to the interior: name what is reached by it")
        return address

    @property
    def link(self) -> OutLink | None:
        """The link for messages whose address no link of the uplink has."""
        live = self._table.addresses.get(UPLINK_KEY)
        return live.out_links[0] if live is not None and live.out_links else None

    def way_of(self, link: InLink, address: LiveAddress | None) -> LiveAddress | None:
        """The uplink's address, where a message on an anonymous link is to go there and nowhere else.

        address  that it names
        """
        if link.attachment.is_edge or (address is not None and address.has_own_path):
            return None
        return self._table.addresses.get(UPLINK_KEY) if self.link is not None else None


class _EdgeTransit(Transit):
    """Between local receivers and links on the uplink. There are no other routers to choose from."""

    def __init__(self, node: str, look: Look, uplink: Uplink) -> None:
        super().__init__(node, look)
        self._uplink = uplink

    def _branches(self, address: LiveAddress, link: InLink | None, size: int) -> list[OutLink]:
        """A multicast message of an anonymous sender goes up as well, once: perhaps the address has its own link."""
        is_sent_up = address.beyond is not None  # by way of that
        if is_sent_up or not isinstance(link, AnonymousInLink) or link.attachment.is_edge or address.edges:
            return []
        up = self._uplink.link
        return [up] if up is not None else []
