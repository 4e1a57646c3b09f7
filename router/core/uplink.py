"""The uplink of an edge router: the way of messages that have no receiver here.

Messages that an edge forwards to its interior carry no ingress and no trace: they enter the network at the interior.
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
    """The uplink of an edge router, whether or not it is connected now."""

    def __init__(self, table: AddressTable, node: str, look: Look) -> None:
        """Allows messages to use the uplink.

        node, look  as for Transit
        """
        self._table = table
        self._transit = _EdgeTransit(node, look, self)
        table.reach_far(self._transit, self._transit.forward, is_edge=True)

    @staticmethod
    def checked(address: Address | Unclear) -> Address | Unclear:
        """Returns the address, unless it is the uplink's own.

        Attack: a receiver on the uplink's address would get the messages that other clients send into the network.
        """
        if isinstance(address, Address) and address.key == UPLINK_KEY:
            return Unclear(address.written, "it is this router's way to the interior: name what is reached by it")
        return address

    @property
    def link(self) -> OutLink | None:
        """The link for messages whose address has no link of its own on the uplink."""
        live = self._table.addresses.get(UPLINK_KEY)
        return live.out_links[0] if live is not None and live.out_links else None

    def way_of(self, link: InLink, address: LiveAddress | None) -> LiveAddress | None:
        """Returns the uplink's address if a message on an anonymous link must go only there, else None.

        address  the address that the message names
        """
        if link.attachment.is_edge or (address is not None and address.has_own_path):
            return None
        return self._table.addresses.get(UPLINK_KEY) if self.link is not None else None


class _EdgeTransit(Transit):
    """Chooses between local receivers and links on the uplink. There are no other routers to choose from."""

    def __init__(self, node: str, look: Look, uplink: Uplink) -> None:
        super().__init__(node, look)
        self._uplink = uplink

    def _branches(self, address: LiveAddress, link: InLink | None, size: int) -> list[OutLink]:
        """Sends a multicast message of an anonymous sender up once.

        Returns nothing if the address has its own link there.
        """
        is_sent_up = address.beyond is not None  # by its link to the interior
        if is_sent_up or not isinstance(link, AnonymousInLink) or link.attachment.is_edge or address.edges:
            return []
        up = self._uplink.link
        return [up] if up is not None else []
