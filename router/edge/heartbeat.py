"""The edge sends heartbeats, and the interior notices if they stop. Source: docs/spec/network.md §14.8."""

from dataclasses import dataclass
from typing import Final

from router.edge.effects import CloseConnection, Effect, SendMessage
from router.edge.limits import MAX_SHOWN_CHARACTERS
from router.edge.messages import heartbeat
from router.effects import Log

FIRST_AFTER_S: Final = 1.0
INTERVAL_S: Final = 2.0
SILENCE_S: Final = 8.0
# The maximum of an AMQP int.
_HIGHEST: Final = 2**31 - 1


class Heart:
    """The edge's side: sends a counter while it has credit."""

    __slots__ = ("_count", "_link", "credit", "due")

    def __init__(self) -> None:
        self._link: int | None = None
        self._count = 0
        self.credit = 0
        self.due: float | None = None  # the time of the next heartbeat

    def link_up(self, link: int, now: float) -> None:
        self._link = link
        self._count = 0
        self.due = now + FIRST_AFTER_S

    def lost(self) -> None:
        self._link = self.due = None
        self.credit = 0

    def tick(self, now: float) -> list[SendMessage]:
        if self.due is None or now < self.due or self._link is None:
            return []
        self.due = now + INTERVAL_S
        if not self.credit:
            return []
        self.credit -= 1
        count = self._count
        self._count = count + 1 if count < _HIGHEST else 0
        return [SendMessage(link=self._link, message=heartbeat(count))]


@dataclass(slots=True)
class _Listened:
    connection: int
    container: str
    endpoint: str
    heard_at: float


class Listening:
    """The interior's side: closes connections whose links have been silent for too long."""

    def __init__(self, links_per_connection: int) -> None:
        self._links_per_connection = links_per_connection
        self._links: dict[int, _Listened] = {}
        self._looked_at: float | None = None

    def may_attach(self, connection: int) -> bool:
        return sum(each.connection == connection for each in self._links.values()) < self._links_per_connection

    def attached(self, connection: int, link: int, container: str, endpoint: str, now: float) -> list[Effect]:
        """Adds a link.

        container, endpoint  the peer's own name, and the name of the link, for the log
        """
        container, endpoint = container[:MAX_SHOWN_CHARACTERS], endpoint[:MAX_SHOWN_CHARACTERS]
        self._links[link] = _Listened(connection, container, endpoint, now)
        return [_about(connection, f"Client attached to heartbeat server ({_names(container, endpoint)})")]

    def heard(self, link: int, now: float) -> None:
        listened = self._links.get(link)
        if listened is not None:
            listened.heard_at = now

    def detached(self, link: int) -> list[Effect]:
        listened = self._links.pop(link, None)
        if listened is None:
            return []
        names = _names(listened.container, listened.endpoint)
        return [_about(listened.connection, f"Client detached from heartbeat server ({names})")]

    def tick(self, now: float) -> list[Effect]:
        """Checks every 2 s, however often it is called."""
        if self._looked_at is not None and now - self._looked_at < INTERVAL_S:
            return []
        self._looked_at = now
        effects: list[Effect] = []
        closed = set()
        for listened in self._links.values():
            connection = listened.connection
            if now - listened.heard_at > SILENCE_S and connection not in closed:
                closed.add(connection)
                text = f"Lost heartbeat from container {listened.container}, closing connection"
                effects += [_about(connection, text), CloseConnection(connection=connection)]
        return effects


def _names(container: str, endpoint: str) -> str:
    return f"container={container}, endpoint={endpoint}"


def _about(connection: int, text: str) -> Log:
    return Log(module="ROUTER_CORE", level="info", text=f"[C{connection}] {text}")
