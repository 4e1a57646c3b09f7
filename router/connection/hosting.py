"""Links of other peers that go on over one connection: their session, and what ends with it.

Source: docs/spec/network.md §11; docs/spec/routing.md §15.3.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from policy.addressing.address import Address
from router.admission.connection_gate import Direction
from router.amqp.engine import CannotBegin, Session
from router.connection.auto_links import Place
from router.connection.lanes import MAX_LANES, Lanes
from router.connection.link_routes import Limiting, LinkRoute, Onward
from router.connection.peer_links import PeerLinks
from router.connection.route_patterns import may_route_links, may_serve
from router.core.attachments import Attachment

# Links that one peer has to answer. Attack: a container, a neighbour or an edge that takes attaches and answers none.
MAX_UNANSWERED: Final = 4096

# What a link route that a peer makes for itself takes beside its texts, and how often these are there.
ROUTE_BYTES: Final = 4 * 1024
ROUTE_COPIES: Final = 4

_Waiting = tuple[Callable[[Session], None], Callable[[], None]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnRoute:
    """identity, name, pattern  as management shows them; the pattern as it was written"""

    identity: str
    name: str | None
    pattern: str
    container: str
    route: LinkRoute

    @property
    def size(self) -> int:
        """The bytes that it takes: its objects, and its texts in several tables."""
        return ROUTE_BYTES + ROUTE_COPIES * (len(self.pattern) + len(self.name or "") + len(self.route.remove))


class Hosting:
    """places      by which link routes mean the connection; none: by none of those that are configured
    routed      the links that go on here
    own         link routes that the peer made for the connection, by identity
    unanswered  how many of them the peer has to answer
    is_gone     the connection is gone: no link goes on here any more
    """

    def __init__(self, links: PeerLinks) -> None:
        self.places: tuple[Place, ...] = ()
        self.routed: dict[Onward, None] = {}
        self.own: dict[str, OwnRoute] = {}
        self.unanswered = 0
        self.is_gone = False
        self._peers = links
        self._lanes: Lanes | None = None  # for the links that the router attaches for others; None: there are none
        self._waiting: deque[_Waiting] = deque()  # for the answer to a Begin

    @property
    def links(self) -> Limiting:
        return self._peers

    @property
    def attachment(self) -> Attachment:
        return self._peers.attachment

    @property
    def container(self) -> str:
        return self._peers.container

    @property
    def is_full(self) -> bool:
        return self.unanswered >= MAX_UNANSWERED

    @property
    def space(self) -> str:
        """What the addresses of the peer's tenant begin with; "" where it has no tenant."""
        address = self._peers.resolve("x")
        return address.name.removesuffix(address.plain) if isinstance(address, Address) else ""

    def keep_own(self, own: OwnRoute) -> None:
        """The peer has made a link route for the connection. It is charged for it."""
        self.own[own.identity] = own
        self.attachment.hold_routes(own.size)

    def drop_own(self, identity: str) -> OwnRoute | None:
        """The link route is gone; None: it was."""
        own = self.own.pop(identity, None)
        if own is not None:
            self.attachment.hold_routes(-own.size)
        return own

    def takes(self, name: str, direction: Direction) -> bool:
        """May links to the address of that name go on to a peer that made a link route for itself?"""
        gate, space = self._peers.gate, self.space
        if not name.startswith(space) or not may_route_links(gate):
            return False
        address = self._peers.resolve(name.removeprefix(space))
        return isinstance(address, Address) and may_serve(gate, address, direction)

    def begin(self) -> bool:
        """Begin a session, so that an attach needs not wait for it. False: there can be none."""
        try:
            if not self._all_lanes().is_begun:
                self._all_lanes().begin()
        except CannotBegin:
            return False
        return True

    def _all_lanes(self) -> Lanes:
        if self._lanes is None:
            # A broker sees one session for all, as of 1.20.
            most = MAX_LANES if self.attachment.is_neighbour else 1
            self._lanes = Lanes(self._peers.engine, self._begin_own, self._go_on, most=most)
        return self._lanes

    def _begin_own(self) -> Session:
        if self.attachment.is_neighbour:
            return self._peers.begin_own(self)
        return self._peers.engine.begin_session(self, incoming_capacity_bytes=self._peers.terms.session_bytes)

    def with_session(self, call: Callable[[Session], None], failed: Callable[[], None]) -> None:
        """Call `call` with a session that is open, now or later; `failed` where there can be none."""
        if self.is_gone:
            failed()
            return
        self._waiting.append((call, failed))
        if len(self._waiting) == 1:
            for _ in self._going_on():
                pass

    def _go_on(self) -> None:
        self._peers.core.work.begin(self._going_on())

    def _going_on(self) -> Iterator[None]:
        """Those that have waited for a session go on, in turns: thousands of auto links may."""
        waiting = self._waiting
        while waiting and not self.is_gone:
            try:
                session = self._all_lanes().lease(len(waiting))
            except CannotBegin:
                self._fail_waiting()
                return
            if session is None:
                return
            call, _ = waiting.popleft()
            call(session)
            yield

    def _fail_waiting(self) -> None:
        """There is no session for them."""
        waiting, self._waiting = self._waiting, deque()
        self._peers.core.work.begin(_failing(waiting))

    def on_end(self, session: Session) -> None:
        """The peer has ended a session."""
        lanes = self._all_lanes()
        lanes.forget(session)
        if not lanes.is_begun:
            self._fail_waiting()
        self._peers.end(session)

    def losing(self) -> Iterator[Iterator[None]]:
        """The connection is gone: the steps in which each of the others learns it."""
        self._lanes = None  # lest it refers to what refers to it
        return map(_losing, list(self.routed))


def _losing(routed: Onward) -> Iterator[None]:
    """In one step: what it raises ends it alone."""
    routed.lose()
    yield from ()


def _failing(waiting: deque[_Waiting]) -> Iterator[None]:
    for _, failed in waiting:
        failed()
        yield
