"""The common state of the links of one connection."""

from router.core.in_links import InLink
from router.core.links import Link
from router.core.out_links import OutLink
from router.core.pacing import Pacing
from router.core.ports import Engine


class Attachment:
    """One connection, as the core sees it."""

    __slots__ = (
        *("capacity", "connection_id", "engine", "held_back_count", "in_links", "is_blocked", "is_route_container"),
        *("out_links", "pacing"),
    )

    def __init__(self, *, connection_id: int, engine: Engine, capacity: int, is_route_container: bool = False) -> None:
        self.connection_id = connection_id
        self.engine = engine
        self.capacity = capacity
        self.is_route_container = is_route_container
        self.is_blocked = False  # the socket takes no more for now
        self.in_links: set[InLink] = set()
        self.out_links: set[OutLink] = set()
        self.pacing: Pacing | None = None  # what the connection may send in a second, if that is limited
        self.held_back_count = 0  # how often its senders had to wait for that

    def forget(self, link: Link) -> None:
        if isinstance(link, InLink):
            self.in_links.discard(link)
            if self.pacing is not None:
                self.pacing.forget(link)
        elif isinstance(link, OutLink):
            self.out_links.discard(link)
