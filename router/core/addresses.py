"""Address strings, address keys, configured treatments and the live address table.

Sources: docs/spec/routing.md §3, §4.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from policy.address_text import RANDOM_NAME, normalise

if TYPE_CHECKING:
    from router.core.in_links import InLink
    from router.core.out_links import OutLink

_DYNAMIC_KEY: Final = re.compile(rf"(?:L|M[0-9]_\$)temp\.{RANDOM_NAME}")

Distribution = Literal["multicast", "closest", "balanced", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How deliveries to an address are handled: one `address` entity, or the router's default."""

    distribution: Distribution = "balanced"
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int = -1


class Subscriber(Protocol):
    """An in-process consumer. Called with the whole encoded message; it is accepted by then."""

    def __call__(self, payload: bytes, link: "InLink") -> None: ...


def key_of(address: str, *, router_id: str, phase: int = 0, area: str = "0") -> str:
    """The table key of a normalised address: class letter, phase for mobile ones, rest (routing §3.2)."""
    if address.startswith("_local/"):
        return "L" + address[7:]
    if address.startswith("_topo/"):
        return _topological_key(address, router_id, area)
    if address.startswith("_edge/"):
        router, _, rest = address[6:].partition("/")
        return "L" + rest if router == router_id else "H" + router
    return f"M{phase}{address}"


def _topological_key(address: str, router_id: str, area: str) -> str:
    parts = address.split("/", 3)
    if len(parts) < 4:
        return "L" + address
    _, named_area, router, rest = parts
    if named_area not in (area, "all"):
        return "A" + named_area
    if router == "all":
        return "T" + rest
    return "L" + rest if router == router_id else "R" + router


def is_dynamic_key(key: str) -> bool:
    """Has the key the form of those that the router makes up for dynamic termini? No such name ever comes again."""
    return _DYNAMIC_KEY.fullmatch(key) is not None


class Address:
    """A live address: who sends to it, who receives from it. Exists while anything refers to it."""

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

    def __init__(self, key: str, treatment: Treatment) -> None:
        self.key = key
        self.distribution: Distribution = treatment.distribution
        self.priority = treatment.priority
        # The link that the router made it up for, while that is there: the address belongs to its connection.
        self.made_by: InLink | OutLink | None = None
        self.in_links: list[InLink] = []
        self.out_links: deque[OutLink] = deque()
        self.subscribers: deque[Subscriber] = deque()
        self.forward: Callable[..., None] | None = None
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
    """Key → Address. `treatment_of(address)` answers from the configured prefixes and patterns."""

    def __init__(self, router_id: str, treatment_of: Callable[[str], Treatment]) -> None:
        self.router_id = router_id
        self.treatment_of = treatment_of
        self.addresses: dict[str, Address] = {}

    def find(self, text: str, phase: int = 0) -> Address | None:
        """The live address that `text` (as written by a client) names, if any."""
        return self.addresses.get(key_of(normalise(text), router_id=self.router_id, phase=phase))

    def treatment(self, text: str) -> Treatment:
        address = normalise(text)
        if key_of(address, router_id=self.router_id)[0] == "M":
            return self.treatment_of(address)
        return Treatment()

    def key(self, text: str, *, is_ingress: bool) -> str:
        """The key that a link to `text` is bound to: of a sender, or of a receiver."""
        return self._key(text, self.treatment(text), is_ingress=is_ingress)

    def _key(self, text: str, treatment: Treatment, *, is_ingress: bool) -> str:
        phase = treatment.ingress_phase if is_ingress else treatment.egress_phase
        return key_of(normalise(text), router_id=self.router_id, phase=phase)

    def obtain(self, text: str, *, is_ingress: bool, treatment: Treatment | None = None) -> Address:
        """The address that `text` names, created when it is not live.

        treatment  the one to use; None for the configured one
        """
        treatment = treatment or self.treatment(text)
        key = self._key(text, treatment, is_ingress=is_ingress)
        address = self.addresses.get(key)
        if address is None:
            address = self.addresses[key] = Address(key, treatment)
        return address

    def discard_unused(self, address: Address) -> None:
        if address.is_unused:
            self.addresses.pop(address.key, None)
