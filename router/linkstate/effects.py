"""The effects that the machine requests. `router.network` carries them out in their order.

A link is identified by its tag, 0..127. It is one outgoing control link, and with it one connection to another router.
"""

from dataclasses import dataclass
from typing import Any

from router.effects import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class SendControl:
    """Send a presettled message of this router once on each of `links`, which may be empty.

    to      the properties' address
    opcode  the only application property
    body    the map of the body: values of router.values
    Ingress and trace are this router's node id.
    """

    links: tuple[int, ...]
    to: str
    opcode: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodControl:
    """Forward the message that was just received on each of `links`, with this router's node id added to its trace."""

    links: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterRow:
    """All information about one remote router: how to reach it, and what management shows of it (network §16.1).

    index          1..127, the lowest free number
    path           the link that messages to it take; None: it cannot be reached now
    link           its own link, if it is a neighbour
    next_hop       the router id of the first hop; None for a neighbour that is reached directly. If there is no path,
                   this, the cost and the valid origins keep their last values
    cost           None before the first computation
    valid_origins  other routers whose messages to it pass through this one; None before the first computation
    """

    id: str
    index: int
    version: int
    instance: int | None
    link_state: tuple[str, ...]
    path: int | None
    link: int | None
    next_hop: str | None
    cost: int | None
    valid_origins: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterChanged:
    """A router is new, or its row has changed."""

    row: RouterRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGone:
    """A router is no longer known. Its addresses were unmapped before."""

    id: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RadiusChanged:
    """The largest number of hops to any router that can be reached."""

    radius: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressesChanged:
    """A router became a destination of the mapped addresses, and is no longer one of the unmapped addresses.

    mapped    key and hint: the distribution of an address that is new here and not configured (network §9.2); None: no
              hint, or an invalid one
    """

    router: str
    mapped: tuple[tuple[str, int | None], ...]
    unmapped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressesCharged:
    """The addresses announced on one link now hold this number of bytes.

    link   the tag that it has, or had
    payer  identifies the link even when it is gone: a later link with the same tag is another payer
    """

    link: int
    payer: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NameOfAnother:
    """Messages in the name of a router came on a link that does not lead to it. They are now ignored.

    link       its tag
    neighbour  the router that uses the link; None: none yet
    """

    link: int
    router: str
    neighbour: str | None


Effect = (
    NameOfAnother
    | SendControl
    | FloodControl
    | RouterChanged
    | RouterGone
    | RadiusChanged
    | AddressesChanged
    | AddressesCharged
    | Log
)
