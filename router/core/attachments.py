"""The common state of the links of one connection."""

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from router.core.budget import Account, Budgets, Level
from router.core.in_links import OVER_BUDGET, InLink
from router.core.links import Link
from router.core.out_links import OutLink
from router.core.pacing import Pacing
from router.core.ports import Engine
from router.core.work import FULL_BUFFER_BYTES, Work

# The account may differ by this number of bytes for reply addresses.
_REPLIES_STEP_BYTES: Final = 16 * 1024
# What happens to a connection if a level is over its limit.
BudgetStep = Literal["held_back", "not_sent_to", "not_kept", "closed"]


def _say_nothing(_level: Level, _step: BudgetStep) -> None:
    """Reports no step: the default."""


class Attachment:
    """One connection, as the core uses it."""

    __slots__ = (
        *("can_drain", "capacity", "connection_id", "engine", "held_back_count", "in_links", "is_blocked", "is_edge"),
        *("is_neighbour", "is_trunk", "vouches"),
        *(
            "_has_full_buffer",
            "_reply_bytes",
            "_route_bytes",
            "_was_crowded",
            "_work",
            "account",
            "is_crowded",
            "is_route_container",
            "on_budget",
            "out_links",
            "pacing",
            "unsent_bytes",
        ),
    )

    def __init__(
        self,
        *,
        connection_id: int,
        engine: Engine,
        capacity: int,
        budgets: Budgets,
        work: Work,
        host: str = "",
        role: str = "normal",
    ) -> None:
        """Charges for the connection.

        host  the peer's address
        role  of the listener or connector
        """
        self.connection_id = connection_id
        self.engine = engine
        self.capacity = capacity
        self.is_route_container = role == "route-container"
        self.is_edge = role == "edge"
        self.is_trunk = role == "inter-router"
        self.is_neighbour = self.is_edge or self.is_trunk
        self.can_drain = True  # its links may be asked to give up their credit
        self.vouches = False  # the peer is a router that checks the reply-tos of its clients
        self.is_blocked = False  # the socket takes no more for now
        self.in_links: set[InLink] = set()
        self.out_links: set[OutLink] = set()
        self.pacing: Pacing | None = None  # limits what the connection may send in a second
        self.unsent_bytes: Callable[[], int] = lambda: 0  # bytes that wait for a blocked socket
        self.held_back_count = 0  # how often a rate made its senders wait
        levels = budgets.levels_for(f"C{connection_id}", host, is_neighbour=self.is_neighbour)
        self.account = Account(budgets, self, levels, is_neighbour=self.is_neighbour)
        self.is_crowded = False  # its receivers get nothing until they have read and settled some
        self.on_budget: Callable[[Level, BudgetStep], None] = _say_nothing
        self._has_full_buffer = False
        self._reply_bytes = self._route_bytes = 0
        self._was_crowded = False  # its receivers do not yet know that they may get more
        self._work = work
        self.account.charge_connection()

    def forget(self, link: Link) -> None:
        if isinstance(link, InLink):
            self.in_links.discard(link)
            if self.pacing is not None:
                self.pacing.forget(link)
        elif isinstance(link, OutLink):
            self.out_links.discard(link)

    def count_blocked(self, *, is_blocked: bool) -> None:
        """Charges for what the socket's buffer holds while it is full."""
        if is_blocked is not self._has_full_buffer:
            self._has_full_buffer = is_blocked
            self.account.wait(FULL_BUFFER_BYTES if is_blocked else -FULL_BUFFER_BYTES)

    def hold_routes(self, size: int) -> None:
        """Adds `size` bytes of link routes that the peer has made for itself. A negative `size` removes bytes."""
        self._route_bytes += size
        self.account.charge(size)

    def hold_replies(self, size: int) -> None:
        """Sets the bytes that the reply addresses of received messages take.

        They do not reduce its own budget or its user's, because other peers sent them.
        """
        more = size - self._reply_bytes
        if not size or not -_REPLIES_STEP_BYTES < more < _REPLIES_STEP_BYTES:
            self._reply_bytes = size
            self.account.keep(more)

    def close(self) -> None:
        """Removes all charges, because the connection is gone."""
        self.count_blocked(is_blocked=False)
        self.hold_routes(-self._route_bytes)
        self.hold_replies(0)
        self.on_budget = _say_nothing
        self.account.close()

    # Party of its account

    def hold_back(self, level: Level) -> None:
        for link in self.in_links:
            link.hold(OVER_BUDGET)
        self.on_budget(level, "held_back")

    def let_go(self) -> None:
        self._work.relieved[self] = None

    def crowd(self, *, is_crowded: bool) -> None:
        self.is_crowded = is_crowded
        if is_crowded:
            self._was_crowded = True
            for out in self.out_links:
                out.room = 0
            self.on_budget(self.account.own, "not_sent_to")
        else:
            self._work.relieved[self] = None

    def refuse_to_keep(self, level: Level) -> None:
        """Reports that a message from another router may not wait for its receivers."""
        self.on_budget(level, "not_kept")

    def exhaust(self, level: Level) -> None:
        self._work.closing.append(partial(self.on_budget, level, "closed"))

    def relieve(self, has_time: Callable[[], bool]) -> bool:
        if self._was_crowded and not self.is_crowded:
            self._was_crowded = False
            for out in list(self.out_links):
                out.refresh_room()
        for link in list(self.in_links):
            if self.account.behind:
                return True
            if link.holds & OVER_BUDGET:
                link.go_on(OVER_BUDGET)
                if not has_time():
                    return False
        return True
