"""Other routers as destinations: the connection to a neighbour, and each router that can be reached by one.

Source: docs/spec/network.md §4, §10.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from router.core.links import Connection, Growing
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
    patience = 2  # the router nearer to whom it waits for is to act first

    def __init__(self, identity: int, wire: OutgoingWire, trunk: "Trunk", work: Work, slot: int | None) -> None:
        super().__init__(identity, wire, trunk.attachment, work)
        self.trunk = trunk
        self.slot = slot

    def vacate(self) -> None:
        super().vacate()
        self._become_idle()

    def withdraw(self, leg: Growing) -> None:
        super().withdraw(leg)
        self._become_idle()

    def _become_idle(self) -> None:
        """A streaming link waits for the next message that needs one."""
        if self.slot is None and self.is_open:
            self.trunk.idle[self] = None

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
    admitted    the only router id that may speak on it; None: any
    idle        streaming links that no message occupies, the oldest first
    attach_streaming  attaches one more; None: it cannot be, now
    close       closes a link of ours
    """

    tag: int
    cost: int
    attachment: Connection
    container: str
    control: ControlOutLink | None = None
    data: list[DataOutLink | None] = field(default_factory=list)
    neighbour: str | None = None
    admitted: str | None = None
    idle: dict[DataOutLink, None] = field(default_factory=dict)
    attach_streaming: Callable[[], DataOutLink | None] = lambda: None
    close: Callable[[DataOutLink], None] = lambda _link: None

    def streaming_link(self) -> DataOutLink | None:
        """A link for a message that has not come whole, lest it holds up the others. None: there is none."""
        return self.idle.popitem()[0] if self.idle else self.attach_streaming()

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
