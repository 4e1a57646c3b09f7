"""The routing protocol's own addresses. Their messages use control links, and never this table.

The table contains them for clients: a client's message to one is released, and management lists them. Source:
docs/spec/network.md §2.3.
"""

from collections.abc import Callable
from typing import Final

from router.core.addresses import EVERY_CLASS, AddressTable, Distribution, LiveAddress, Treatment
from router.core.in_links import InLink
from router.values import Handle

HELLO_KEY: Final = "Lqdhello"
_DISTRIBUTIONS: Final[dict[str, Distribution]] = {
    HELLO_KEY: "flood",
    "Lqdrouter": "flood",
    "Tqdrouter": "flood",
    "Lqdrouter.ma": "multicast",
    "Tqdrouter.ma": "multicast",
}
CONTROL_KEYS: Final = frozenset(_DISTRIBUTIONS)


class ControlAddress(LiveAddress):
    """An address of the routing protocol.

    carriers  returns the number of control links that its messages leave by
    """

    __slots__ = ("carriers",)
    is_control = True

    def __init__(self, key: str, carriers: Callable[[], int]) -> None:
        super().__init__(key, Treatment(distribution=_DISTRIBUTIONS[key]), _release)
        self.carriers = carriers
        # A consumer inside the router gives senders credit.
        self.subscribers.append(_take_nothing)

    @property
    def receiver_count(self) -> int:
        return super().receiver_count + self.carriers()


def add_control_addresses(table: AddressTable, hello_links: Callable[[], int]) -> None:
    """Adds these addresses to the table.

    hello_links  returns the number of links that HELLO leaves by
    """
    for key in _DISTRIBUTIONS:
        address = ControlAddress(key, hello_links if key == HELLO_KEY else lambda: 0)
        if key[0] == EVERY_CLASS:
            address.remotes = table.beyond.remotes  # every router has it
        table.addresses[key] = address


def _release(link: InLink, _address: LiveAddress, delivery: Handle, size: int) -> None:
    if link.inspect is None or link.inspect(delivery, size) >= 0:
        link.release_undeliverable(delivery)


def _take_nothing(payload: bytes, link: InLink) -> None:
    raise AssertionError("a message came to a control address without a control link")
