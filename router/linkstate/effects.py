"""What the machine asks for. `router.core` carries them out in their order; `router.control` writes the log lines.

A link is named by its tag, 0..127: one outgoing control link, and with it one connection to another router.
"""

from dataclasses import dataclass
from typing import Any

from router.effects import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class SendControl:
    """Send a message of this router's, presettled, once on each of `links`; to nobody if there is none.

    to      the properties' address
    opcode  the one application property
    body    the map of the body: values of router.values
    Ingress and trace are this router's node id.
    """

    links: tuple[int, ...]
    to: str
    opcode: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodControl:
    """Forward the message that was just received on each of `links`, this router's node id added to its trace."""

    links: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterRow:
    """All that is known of one remote router: how to reach it, and what management shows of it (network §16.1).

    index          1..127, the lowest that was free
    path           the link that messages to it take; None: it cannot be reached now
    link           of a neighbour, its own link
    next_hop       the router id of the first hop; None for a neighbour that is reached directly. This, the cost and
                   the valid origins are the last that were known where there is no path
    cost           None before the first computation
    valid_origins  routers whose messages to it pass through this one, this one not named; None before the first
                   computation
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
    """A router is new, or its row is another."""

    row: RouterRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGone:
    """A router is known no longer. Its addresses were unmapped before."""

    id: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RadiusChanged:
    """The largest number of hops to any router that can be reached."""

    radius: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressesChanged:
    """A router became a destination of the mapped addresses, and is none of the unmapped ones any longer.

    mapped    key and hint: the distribution of an address that is new here and not configured (network §9.2);
              None: no hint, or one that is no distribution
    """

    router: str
    mapped: tuple[tuple[str, int | None], ...]
    unmapped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressesCharged:
    """The addresses that were told of on one link hold so many bytes now.

    link   the tag that it has, or had
    payer  the link, also when it is gone: another with its tag is another payer
    """

    link: int
    payer: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NameOfAnother:
    """By a link came messages in the name of a router to which the link does not lead; they count no longer.

    link       its tag
    neighbour  the router that speaks on it; None: none has
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
