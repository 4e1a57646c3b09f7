"""The receivers of addresses: adds and removes local links, and updates everything that depends on them."""

from collections.abc import Callable, Collection
from typing import Protocol

from router.core.addresses import DOWN_CLASS, UPLINK_KEY, AddressTable, LiveAddress
from router.core.network import Network
from router.core.out_links import OutLink


class Home(Protocol):
    """The core (router.core.core)."""

    @property
    def table(self) -> AddressTable: ...
    @property
    def network(self) -> Network | None: ...
    @property
    def on_changed(self) -> Callable[[LiveAddress], None]: ...
    def grant_all(self, address: LiveAddress, /) -> None: ...


class Receivers:
    def __init__(self, core: Home) -> None:
        self._core = core
        core.table.beyond.on_first = self._grant_every

    def _grant_every(self) -> None:
        """Grants credit to the addresses that every router has: the first other router may have receivers for them."""
        for address in self._core.table.every.values():
            self._core.grant_all(address)

    def add(self, address: LiveAddress, link: OutLink) -> None:
        """Makes a link a receiver of the address. The link already stores its address."""
        core, had_path = self._core, address.has_own_path
        address.out_links.append(link)
        if link.attachment.is_edge:
            connection = link.attachment.connection_id
            address.edges[connection] = address.edges.get(connection, 0) + 1
            if len(address.edges) == 1:
                core.table.choose_forward(address)
        if core.network is not None and len(address.out_links) == 1 and address.exchange is None:
            core.network.local_appeared(address)
        if not had_path:
            core.grant_all(address)
        if address.key[0] == DOWN_CLASS or address.key == UPLINK_KEY:
            core.table.beyond.add_link(link)  # messages for every router also leave by it
        core.on_changed(address)

    def bind(self, link: OutLink, address: LiveAddress) -> None:
        """Makes a link that the core adopted a receiver."""
        link.address = address
        address.retired_egress -= link.delivery_count
        self.add(address, link)

    def unbind(self, link: OutLink) -> None:
        """Ends the receiving of a link that stays open. Releases the messages that wait for its credit."""
        left = self.take_out((link,))
        link.give_up_queue()
        for address in left:
            self._core.on_changed(address)

    def take_out(self, links: Collection[OutLink]) -> list[LiveAddress]:
        """Removes links from their addresses, with one look at each address. Returns these addresses.

        The caller reports that they changed, preferably when the outcomes of the links' messages are known.
        """
        core = self._core
        leaving: dict[LiveAddress, list[OutLink]] = {}
        for link in links:
            address = core.table.bound(link)
            if address is not None:
                leaving.setdefault(address, []).append(link)
        for address, of_it in leaving.items():
            for link in of_it:
                link.address = None
                core.table.beyond.links.pop(link, None)
                address.retired_egress += link.delivery_count
                self._count_edge(address, link)
                if address.made_by is link:
                    address.made_by = None
            if len(of_it) == 1:
                address.out_links.remove(of_it[0])
            else:
                gone = set(of_it)
                staying = [link for link in address.out_links if link not in gone]
                address.out_links.clear()
                address.out_links.extend(staying)
            if core.network is not None and not address.out_links and address.exchange is None:
                core.network.local_gone(address)
            address.drain_containers()
            core.table.discard_unused(address)
        return list(leaving)

    def _count_edge(self, address: LiveAddress, link: OutLink) -> None:
        if link.attachment.is_edge:
            connection = link.attachment.connection_id
            address.edges[connection] -= 1
            if not address.edges[connection]:
                del address.edges[connection]
                if not address.edges:
                    self._core.table.choose_forward(address)
