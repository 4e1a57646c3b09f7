"""Chooses the uplink of an edge router. Source: docs/spec/network.md §14.1.

The first connection that opens is active, and the others stand by. When the active one closes, the oldest of the others
replaces it at once. If the first one opens again, nothing changes.
"""

from router.effects import Log


class Uplinks:
    """The connections of an edge.

    active  the connection in use; None: there is none
    """

    __slots__ = ("_open", "active")

    def __init__(self) -> None:
        self._open: dict[int, None] = {}  # the oldest first
        self.active: int | None = None

    def opened(self, connection: int) -> list[Log]:
        if connection in self._open:
            return []
        self._open[connection] = None
        if self.active is not None:
            return []
        self.active = connection
        return [_told(f"Edge connection (id={connection}) to interior established")]

    def closed(self, connection: int) -> list[Log]:
        if connection not in self._open:
            return []
        del self._open[connection]
        if connection != self.active:
            return []
        self.active = next(iter(self._open), None)
        lost = f"Edge connection (id={connection}) to interior lost"
        if self.active is None:
            return [_told(f"{lost}, no alternate connection available")]
        return [_told(f"{lost}, activating alternate id={self.active}")]


def _told(text: str) -> Log:
    return Log(module="ROUTER_CORE", level="info", text=text)
