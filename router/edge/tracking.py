"""The interior's reports to edges: which of their links for addresses have a receiver elsewhere.

An edge's own receiver is no reason for it to send an address's messages here: they would come back. Source:
docs/spec/network.md §14.5.
"""

from collections import Counter
from dataclasses import dataclass, field

from router.edge.effects import SendMessage
from router.edge.limits import Limits
from router.edge.messages import tracking


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """The current destinations of an address: local receivers, and other routers.

    are_there  True if there are any
    sole       the connection of the edge, if all of them are that edge's; None: there are others
    """

    are_there: bool
    sole: int | None = None

    def other_than(self, connection: int) -> bool:
        return self.are_there and self.sole != connection


@dataclass(slots=True)
class _Edge:
    """One edge.

    pending  reports that wait for credit: the last state of each address, in their order
    """

    link: int | None = None
    credit: int = 0
    pending: dict[str, bool] = field(default_factory=dict)
    told: dict[str, bool] = field(default_factory=dict)
    senders: Counter[str] = field(default_factory=Counter)


class Tracking:
    def __init__(self, limits: Limits) -> None:
        self._limit = limits.tracked_addresses_per_edge
        self._edges: dict[int, _Edge] = {}
        self._trackers: dict[str, dict[int, None]] = {}  # key -> edges with a sender for it
        self._destinations: dict[str, Destinations] = {}  # of the tracked keys

    # Edges

    def connection_up(self, connection: int) -> None:
        self._edges[connection] = _Edge()

    def connection_lost(self, connection: int) -> None:
        edge = self._edges.pop(connection, None)
        for key in edge.senders if edge is not None else ():
            self._forget(connection, key)

    def link_up(self, connection: int, link: int) -> bool:
        """Sets the link on which the edge receives reports. Returns False if it already has one."""
        edge = self._edges[connection]
        if edge.link is not None:
            return False
        edge.link, edge.credit = link, 0
        return True

    def link_gone(self, connection: int, link: int) -> None:
        edge = self._edges.get(connection)
        if edge is not None and edge.link == link:
            edge.link, edge.credit = None, 0

    def set_credit(self, connection: int, credit: int) -> list[SendMessage]:
        edge = self._edges.get(connection)
        if edge is None or edge.link is None:
            return []
        edge.credit = credit
        return self._tell(edge)

    # Addresses

    def sender_attached(self, connection: int, key: str, destinations: Destinations) -> list[SendMessage]:
        """Handles that an edge has attached a sender's link for an address."""
        edge = self._edges.get(connection)
        if edge is None or (key not in edge.senders and len(edge.senders) >= self._limit):
            return []
        edge.senders[key] += 1
        self._trackers.setdefault(key, {})[connection] = None
        self._destinations[key] = destinations
        # A further link for the same address begins as unused, like the first one.
        if destinations.other_than(connection):
            edge.told.pop(key, None)
            self._want(edge, key, is_used=True)
        return self._tell(edge)

    def sender_gone(self, connection: int, key: str) -> None:
        edge = self._edges.get(connection)
        if edge is None or key not in edge.senders:
            return
        edge.senders[key] -= 1
        if not edge.senders[key]:
            del edge.senders[key]
            edge.told.pop(key, None)
            edge.pending.pop(key, None)
            self._forget(connection, key)

    def is_tracked(self, key: str) -> bool:
        return key in self._trackers

    def changed(self, key: str, destinations: Destinations) -> list[SendMessage]:
        """Handles that the destinations of an address have changed."""
        trackers = self._trackers.get(key)
        if trackers is None:
            return []
        before, self._destinations[key] = self._destinations[key], destinations
        if before == destinations:
            return []
        lost_all = before.are_there and not destinations.are_there
        messages: list[SendMessage] = []
        for connection in trackers:
            edge = self._edges[connection]
            is_used = destinations.other_than(connection)
            if lost_all or is_used is not edge.told.get(key, False):
                self._want(edge, key, is_used=is_used)
            else:
                edge.pending.pop(key, None)
            messages += self._tell(edge)
        return messages

    def _want(self, edge: _Edge, key: str, *, is_used: bool) -> None:
        edge.pending.pop(key, None)
        edge.pending[key] = is_used

    def _tell(self, edge: _Edge) -> list[SendMessage]:
        messages = []
        while edge.link is not None and edge.credit and edge.pending:
            key = next(iter(edge.pending))
            is_used = edge.told[key] = edge.pending.pop(key)
            edge.credit -= 1
            messages.append(SendMessage(link=edge.link, message=tracking(key, is_used=is_used)))
        return messages

    def _forget(self, connection: int, key: str) -> None:
        trackers = self._trackers.get(key)
        if trackers is not None:
            trackers.pop(connection, None)
            if not trackers:
                del self._trackers[key]
                self._destinations.pop(key, None)
