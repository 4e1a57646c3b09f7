"""Other routers as destinations: the connections to neighbours, and the routers that are reached by them.

Source: docs/spec/network.md §4, §10.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from router.core.crossings import Crossing
from router.core.in_links import InLink
from router.core.links import Connection, Growing, Lender, Lent
from router.core.out_links import OutLink
from router.core.ports import OutgoingWire
from router.core.streaming_links import StreamingLinks
from router.core.work import Work
from router.values import Handle

# The priorities of messages. Each has a pair of data links (network §1, §4.3).
PRIORITIES: Final = 10
DEFAULT_PRIORITY: Final = 4


def _no_heading(_link: InLink | None, _size: int) -> bytes:
    raise AssertionError("a message left before the link had its heading")


class ControlOutLink(OutLink):
    """Carries the control messages for one neighbour."""

    __slots__ = ()
    link_type = "router-control"
    waits_for_others = False  # see ControlInLink.hold

    @property
    def owning_key(self) -> str:
        return "Lqdhello"

    @property
    def priority(self) -> int:
        return PRIORITIES - 1


class DataOutLink(OutLink):
    """Carries users' messages to one neighbour.

    slot       its priority; None for a streaming link
    heading    (link that the message in the buffer arrived on, bytes) → the annotations for other routers, encoded
    send_with  (bytes of the message in the buffer, at, inserted, inserted's length): sends it with `inserted` put
               before byte `at`
    """

    __slots__ = ("heading", "lent_to", "send_with", "slot", "trunk")
    link_type = "inter-router"
    patience = 2  # the router nearer to the slow client must act first

    def __init__(self, identity: int, wire: OutgoingWire, trunk: "Trunk", work: Work, slot: int | None) -> None:
        super().__init__(identity, wire, trunk.attachment, work)
        self.trunk = trunk
        self.slot = slot
        self.heading: Callable[[InLink | None, int], bytes] = _no_heading
        self.send_with = wire.inserting()
        self.bypass = trunk.streaming
        self.lent_to: dict[Lent, None] = {}  # links that wait for this link's credit

    def write_early(self) -> None:
        """Writes the messages so far: the neighbour works on them while the pass continues here."""
        try:
            self.engine.write_early()
        except Exception as error:
            self.engine.owner.crash(error)

    def on_receiver_accepted(self, outgoing: Handle) -> None:
        """Does the same as OutLink's, without a call for the count of crossing messages. Hot."""
        record = self.unsettled.pop(outgoing, None)
        if record is not None:
            origin, source, since_s = record
            self.load -= 1
            if self.stuck:
                self.count_unstuck(since_s)
            self.accepted += 1
            if type(origin) is Crossing:
                way = origin.way
                way.count -= 1
                if way.is_full:
                    way.ease()
                origin.link.on_accepted(source, since_s)
            else:
                origin.on_accepted(source, since_s)
        elif self.leg is not None and self.leg.ends_early(outgoing):
            return
        self.settle(outgoing)

    # Presettled messages: their sender gets no more credit than this link has. Otherwise a fast sender would fill the
    # queue with its whole window, because a neighbour returns credit later than a message is written.

    def share(self, link: Lent, owed: int) -> int:
        """Withholds credit if more messages would arrive than can leave.

        Each waiting message is copied and accounted for.
        """
        link.lender = None  # its next presettled message may leave by another link
        if not self.is_open:
            return owed
        free = self.wire.credit - len(self.queue)
        lent = min(link.wire.credit + owed - free, owed)
        if lent <= 0:
            return owed
        link.lent += lent
        self.lent_to[link] = None
        return owed - lent

    def on_credit(self) -> None:
        super().on_credit()
        self._give_back(self)

    def lose_everything(self) -> None:
        super().lose_everything()
        self._give_back(None)

    def _give_back(self, lender: Lender | None) -> None:
        if self.lent_to:
            lent_to, self.lent_to = self.lent_to, {}
            for link in lent_to:
                link.lender = lender
                lent, link.lent = link.lent, 0
                if lent:
                    link.owe(lent)

    def vacate(self) -> None:
        super().vacate()
        self._become_idle()

    def withdraw(self, leg: Growing) -> None:
        super().withdraw(leg)
        self._become_idle()

    def _become_idle(self) -> None:
        """Makes a streaming link available for the next message that needs one."""
        if self.slot is None:
            self.trunk.streaming.rest(self)

    def abort(self, outgoing: Handle) -> None:
        """Closes a streaming link, for the reason given in LargeOutLink.abort."""
        if self.slot is None:
            self.trunk.streaming.close(self)
        else:
            super().abort(outgoing)

    @property
    def priority(self) -> int:
        return self.slot if self.slot is not None else DEFAULT_PRIORITY


@dataclass(slots=True, eq=False, kw_only=True)
class Trunk:
    """One connection to another router.

    tag         0..127, unique among this router's connections to routers
    cost        as both ends agreed
    container   the container-id of the peer's Open, for people
    control     the link for control messages; None while it does not exist
    data        by priority; the slot of a link that is gone stays empty
    neighbour   the router id that uses the connection, if it is known
    admitted    the only router id that may use it; None: any
    streaming   links for messages that have not arrived completely
    """

    tag: int
    cost: int
    attachment: Connection
    container: str
    control: ControlOutLink | None = None
    data: list[DataOutLink | None] = field(default_factory=list)
    neighbour: str | None = None
    admitted: str | None = None
    streaming: StreamingLinks[DataOutLink] = field(default_factory=StreamingLinks)

    def link_for(self, priority: int) -> DataOutLink | None:
        """Returns the data link of this priority, or of the next lower priority that has one."""
        data = self.data
        for slot in range(min(priority, len(data) - 1), -1, -1):
            if (link := data[slot]) is not None:
                return link
        return None


@dataclass(slots=True, eq=False, kw_only=True)
class RemoteRouter:
    """Another router of the network.

    node     `0/ID`, as annotations contain it
    trunk    the connection that messages to it take; None: it cannot be reached now
    origins  nodes of other routers whose messages to it may pass here
    keys     of the addresses that it is a destination of
    """

    id: str
    node: str
    trunk: Trunk | None = None
    cost: int = 0
    origins: frozenset[str] = frozenset()
    keys: dict[str, None] = field(default_factory=dict)
