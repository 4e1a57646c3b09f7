"""Links of other peers that go on over one connection: their session, and what ends with it.

Source: docs/spec/network.md §11; docs/spec/routing.md §15.3.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from policy.addressing.address import Address
from router.admission.connection_gate import Direction
from router.amqp.engine import CannotBegin, IncomingWire, Session
from router.amqp.terminus import Condition
from router.connection.auto_links import Place
from router.connection.lanes import CHANNELS_LEFT, MAX_BROKER_LANES, MAX_LANES, Lanes
from router.connection.link_routes import Limiting, LinkRoute, Onward
from router.connection.peer_links import PeerLinks
from router.connection.route_patterns import may_route_links, may_serve
from router.connection.terms import DEFAULT_SESSION_BYTES
from router.core.attachments import Attachment

# Links that one peer has to answer. Attack: a container, a neighbour or an edge that takes attaches and answers none.
MAX_UNANSWERED: Final = 4096
# It is logged so often that a peer takes no more links. Attack: a client that attaches and attaches.
FULL_LOGGED_S: Final = 60

# What a link route that a peer makes for itself takes beside its texts, and how often these are there.
ROUTE_BYTES: Final = 4 * 1024
ROUTE_COPIES: Final = 4


class _Waiting(NamedTuple):
    """A link that waits for a session. owner  as of Lanes.lease"""

    owner: object
    call: Callable[[Session], None]
    failed: Callable[[Condition | None], None]


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
    overruns    as of its sessions
    """

    def __init__(self, links: PeerLinks) -> None:
        self.places: tuple[Place, ...] = ()
        self.routed: dict[Onward, None] = {}
        self.own: dict[str, OwnRoute] = {}
        self.unanswered = 0
        self.is_gone = self.overruns = False
        self._peers = links
        self._lanes: Lanes | None = None  # for the links that the router attaches for others; None: there are none
        self._waiting: deque[_Waiting] = deque()  # for the answer to a Begin
        self._full_at: float | None = None  # when it was logged last that the peer takes no more links

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
    def session_bytes(self) -> int:
        """What may come on one session before it is read."""
        terms, account = self._peers.terms, self.attachment.account
        number = len(self._peers.engine.sessions)
        return (
            min(terms.session_bytes, account.session_bytes(number))
            if self.attachment.is_neighbour
            else terms.session_bytes
        )

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
            engine, most, left = self._peers.engine, MAX_LANES, CHANNELS_LEFT
            if not self.attachment.is_neighbour:
                most, left = MAX_BROKER_LANES, min(left, engine.channels // 4)  # some brokers permit few
            self._lanes = Lanes(engine, self._begin_own, self._go_on, most=most, channels_left=left)
        return self._lanes

    def _begin_own(self) -> Session:
        if self.attachment.is_neighbour:
            return self._peers.begin_own(self)
        size = self._peers.terms.session_bytes
        session = self._peers.engine.begin_session(self, incoming_capacity_bytes=size)
        session.grows = size == DEFAULT_SESSION_BYTES
        session.overruns = self.overruns
        return session

    def with_session(
        self, owner: object, call: Callable[[Session], None], failed: Callable[[Condition | None], None]
    ) -> None:
        """Call `call` with a session that is open, now or later; `failed` where there can be none.

        owner   whose link it is
        failed  gets the reason, where it is not that the connection goes or ends all sessions
        """
        if self.is_gone:
            failed(None)
            return
        self._waiting.append(_Waiting(owner, call, failed))
        if len(self._waiting) == 1:
            for _ in self._going_on():
                pass

    def _go_on(self) -> None:
        self._peers.core.work.begin(self._going_on())

    def _going_on(self) -> Iterator[None]:
        """Those that have waited for a session go on, in turns: thousands of auto links may."""
        waiting = self._waiting
        while waiting and not self.is_gone:
            first = waiting[0]
            try:
                session = self._all_lanes().lease(first.owner, wanted=len(waiting))
            except CannotBegin as error:
                waiting.popleft()
                first.failed(self.full(str(error)))
            else:
                if session is None:
                    return
                waiting.popleft()
                first.call(session)
            yield

    def tell_window(self, session: Session, owner: object) -> None:
        """The session is to get its first link, which this connection pays for: the owner's windows fit its account.

        Attack: receivers of many auto links take nothing. What the broker sends for them may fill every window.
        """
        theirs = (each for each, whose in self._all_lanes().sessions.items() if whose is owner)
        number = sum(any(isinstance(wire, IncomingWire) for wire in each.wires.values()) for each in theirs)
        session.tell_window(min(self.session_bytes, self.attachment.account.session_bytes(number + 1)))

    def full(self, why: str) -> Condition:
        """The error for a link that the peer has no place for, which is logged now and then."""
        now, text = self._peers.core.clock(), f"the container '{self.container}' takes no more links: {why}"
        if self._full_at is None or now >= self._full_at + FULL_LOGGED_S:
            self._full_at = now
            self._peers.log_warning(text)
        return Condition(name="amqp:resource-limit-exceeded", description=text)

    def _fail_waiting(self) -> None:
        """There is no session for them."""
        waiting, self._waiting = self._waiting, deque()
        self._peers.core.work.begin(_failing(waiting))

    def on_end(self, session: Session) -> None:
        """The peer has ended a session. Where that had no link yet, it may have been begun for those that wait."""
        lanes = self._all_lanes()
        was_used = lanes.sessions.get(session) is not None
        lanes.forget(session)
        if not was_used:
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
    for each in waiting:
        each.failed(None)
        yield
