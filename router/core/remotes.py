"""Other routers as destinations: the connection to a neighbour, and each router that can be reached by one.

Source: docs/spec/network.md §4, §10.
"""

from dataclasses import dataclass, field
from typing import Final

from router.core.links import Connection
from router.core.out_links import OutLink
from router.core.ports import OutgoingWire
from router.core.work import Work

# Priorities of messages, each with a pair of data links (network §1, §4.3).
PRIORITIES: Final = 10
DEFAULT_PRIORITY: Final = 4


class ControlOutLink(OutLink):
    """Carries the control messages for one neighbour."""

    __slots__ = ()
    link_type = "router-control"

    @property
    def priority(self) -> int:
        return PRIORITIES - 1


class DataOutLink(OutLink):
    """Carries users' messages to one neighbour.

    slot  of the priorities; streaming links have none
    """

    __slots__ = ("slot", "trunk")
    link_type = "inter-router"

    def __init__(self, identity: int, wire: OutgoingWire, trunk: "Trunk", work: Work, slot: int | None) -> None:
        super().__init__(identity, wire, trunk.attachment, work)
        self.trunk = trunk
        self.slot = slot

    @property
    def priority(self) -> int:
        return self.slot if self.slot is not None else DEFAULT_PRIORITY


@dataclass(slots=True, eq=False, kw_only=True)
class Trunk:
    """One connection to another router.

    tag         0..127, of the connections between routers that this router has
    cost        as both ends agreed
    container   the container-id of the peer's Open; for people
    control     control messages leave by it; None while it does not stand
    data        by priority; a slot whose link is gone stays empty
    neighbour   the router id that speaks on it and uses it, where that is known
    """

    tag: int
    cost: int
    attachment: Connection
    container: str
    control: ControlOutLink | None = None
    data: list[DataOutLink | None] = field(default_factory=list)
    neighbour: str | None = None

    def link_for(self, priority: int) -> DataOutLink | None:
        """The data link of this priority, or of the next lower one that there is."""
        data = self.data
        for slot in range(min(priority, len(data) - 1), -1, -1):
            if (link := data[slot]) is not None:
                return link
        return None


@dataclass(slots=True, eq=False, kw_only=True)
class RemoteRouter:
    """Another router of the network.

    node     `0/ID`, as annotations write it
    trunk    that messages to it take; None: it cannot be reached now
    origins  nodes of routers whose messages to it may pass here, this one not named
    keys     of the addresses that it is a destination of
    """

    id: str
    node: str
    trunk: Trunk | None = None
    cost: int = 0
    origins: frozenset[str] = frozenset()
    keys: dict[str, None] = field(default_factory=dict)
