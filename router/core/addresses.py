"""Live addresses: the table they are found in by key, and how deliveries to them are treated.

The meaning of a text is `policy.addressing`'s business. Sources: docs/spec/routing.md §3, §4.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from policy.addressing.address import Address
from router.core.in_links import InLink
from router.core.links import Link
from router.core.out_links import OutLink
from router.values import Handle

Distribution = Literal["multicast", "closest", "balanced", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How deliveries to an address are handled: one `address` entity, or the router's default."""

    distribution: Distribution = "balanced"
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int = -1


_PLAIN: Final = Treatment()  # of addresses that are no mobile ones


class Subscriber(Protocol):
    """An in-process consumer. Called with the whole encoded message; it is accepted by then."""

    def __call__(self, payload: bytes, link: InLink) -> None: ...


# Gives a message in the buffer, of so many bytes, to receivers of an address.
Forward = Callable[[InLink, "LiveAddress", Handle, int], None]


class LiveAddress:
    """A live address: its senders and its receivers. Exists while anything refers to it."""

    __slots__ = (
        "delivered_in_process",
        "distribution",
        "forward",
        "in_links",
        "key",
        "made_by",
        "out_links",
        "priority",
        "retired_egress",
        "retired_ingress",
        "sent_from_process",
        "subscribers",
    )

    def __init__(self, key: str, treatment: Treatment, forward: Forward) -> None:
        self.key = key
        self.distribution: Distribution = treatment.distribution
        self.priority = treatment.priority
        # The link that the router made it up for, while that is there: the address belongs to its connection.
        self.made_by: InLink | OutLink | None = None
        self.in_links: dict[InLink, None] = {}  # in their order
        self.out_links: deque[OutLink] = deque()
        self.subscribers: deque[Subscriber] = deque()
        self.forward = forward
        # Deliveries of links that are gone, and of anonymous links; the rest is summed from the live ones.
        self.retired_ingress = 0
        self.retired_egress = 0
        self.delivered_in_process = 0
        self.sent_from_process = 0

    @property
    def has_path(self) -> bool:
        """Somebody could be given a delivery."""
        return bool(self.out_links or self.subscribers)

    @property
    def is_unused(self) -> bool:
        return not (self.in_links or self.out_links or self.subscribers)

    @property
    def ingress_count(self) -> int:
        return self.retired_ingress + sum(link.delivery_count for link in self.in_links)

    @property
    def egress_count(self) -> int:
        return self.retired_egress + sum(link.delivery_count for link in self.out_links)


class AddressTable:
    """Key → LiveAddress."""

    def __init__(self, treatment_of: Callable[[str], Treatment], forward: Mapping[Distribution, Forward]) -> None:
        """treatment_of  (name) → its treatment, by the configured prefixes and patterns"""
        self.treatment_of = treatment_of
        self._forward = forward
        self.addresses: dict[str, LiveAddress] = {}

    def find(self, address: Address, phase: int = 0) -> LiveAddress | None:
        return self.addresses.get(address.key_in(phase))

    def treatment(self, address: Address) -> Treatment:
        return self.treatment_of(address.name) if address.is_mobile else _PLAIN

    def key(self, address: Address, *, is_ingress: bool, treatment: Treatment | None = None) -> str:
        """The key that a link to the address is bound to: of a sender, or of a receiver.

        treatment  as for obtain
        """
        treatment = treatment or self.treatment(address)
        return address.key_in(treatment.ingress_phase if is_ingress else treatment.egress_phase)

    def obtain(self, address: Address, *, is_ingress: bool, treatment: Treatment | None = None) -> LiveAddress:
        """The live address, created when there is none.

        treatment  the one to use; None for the configured one
        """
        key = self.key(address, is_ingress=is_ingress, treatment=treatment)
        live = self.addresses.get(key)
        if live is None:
            treatment = treatment or self.treatment(address)
            live = self.addresses[key] = LiveAddress(key, treatment, self._forward[treatment.distribution])
        return live

    def bound(self, link: Link) -> LiveAddress | None:
        """The live address that an open link is bound to; None for an anonymous one."""
        return self.addresses.get(link.address.key) if link.address is not None else None

    def discard_unused(self, address: LiveAddress) -> None:
        if address.is_unused:
            self.addresses.pop(address.key, None)
