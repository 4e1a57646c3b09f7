"""Links of other peers that are routed over one connection: their sessions, and their end.

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

# Maximum number of links that one peer has not answered. Attack: a container, a neighbour or an edge takes attaches and
# answers none.
MAX_UNANSWERED: Final = 4096
# Seconds between two log lines about a peer that takes no more links. Attack: a client attaches again and again.
FULL_LOGGED_S: Final = 60

# Bytes of a link route that a peer makes for itself, without its texts; and the number of copies of the texts.
ROUTE_BYTES: Final = 4 * 1024
ROUTE_COPIES: Final = 4


class _Waiting(NamedTuple):
    """A link that waits for a session.

    owner  see Lanes.lease
    """

    owner: object
    call: Callable[[Session], None]
    failed: Callable[[Condition | None], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnRoute:
    """A link route that the peer made for the connection.

    identity, name, pattern  as management shows them; the pattern as it was written
    """

    identity: str
    name: str | None
    pattern: str
    container: str
    route: LinkRoute

    @property
    def size(self) -> int:
        """Its bytes in memory: its objects, and its texts in several tables."""
        return ROUTE_BYTES + ROUTE_COPIES * (len(self.pattern) + len(self.name or "") + len(self.route.remove))


class Hosting:
    """The other peers' links on one connection.

    places      names under which configured link routes find the connection; empty: none finds it
    routed      the links that are routed to this peer
    own         link routes that the peer made for the connection, by identity
    unanswered  number of routed links that the peer has not answered
    is_gone     the connection is gone: no link is routed to it any more
    overruns    given to its sessions
    """

    def __init__(self, links: PeerLinks) -> None:
        self.places: tuple[Place, ...] = ()
        self.routed: dict[Onward, None] = {}
        self.own: dict[str, OwnRoute] = {}
        self.unanswered = 0
        self.is_gone = self.overruns = False
        self._peers = links
        self._lanes: Lanes | None = None  # for links that the router attaches for other peers; None: none so far
        self._waiting: deque[_Waiting] = deque()  # wait for the answer to a Begin
        self._full_at: float | None = None  # time of the last log line about a peer that takes no more links

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
        """Maximum number of unread bytes on one session."""
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
        """The prefix of the addresses of the peer's tenant; "" if it has no tenant."""
        address = self._peers.resolve("x")
        return address.name.removesuffix(address.plain) if isinstance(address, Address) else ""

    def keep_own(self, own: OwnRoute) -> None:
        """Stores a link route that the peer made for the connection, and charges the connection for it."""
        self.own[own.identity] = own
        self.attachment.hold_routes(own.size)

    def drop_own(self, identity: str) -> OwnRoute | None:
        """Removes the link route. None if it is already gone."""
        own = self.own.pop(identity, None)
        if own is not None:
            self.attachment.hold_routes(-own.size)
        return own

    def takes(self, name: str, direction: Direction) -> bool:
        """Returns True if links to this address may be routed to a peer that made a link route for itself."""
        gate, space = self._peers.gate, self.space
        if not name.startswith(space) or not may_route_links(gate):
            return False
        address = self._peers.resolve(name.removeprefix(space))
        return isinstance(address, Address) and may_serve(gate, address, direction)

    def begin(self) -> bool:
        """Begins a session, so that an attach need not wait for it. Returns False if no session is possible."""
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
                most, left = MAX_BROKER_LANES, min(left, engine.channels // 4)  # some brokers permit only few sessions
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
        """Calls `call` with an open session, now or later; calls `failed` if no session is possible.

        owner   the user that the link belongs to
        failed  receives the reason; None if the connection closes or all sessions end
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
        """Gives sessions to waiting links in turns: there may be thousands of auto links."""
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
        """Sets the window of a session before its first link, so that all windows of the owner fit into its account.

        Attack: receivers of many auto links take nothing. The messages that the broker sends for them may fill every
        window.
        """
        theirs = (each for each, whose in self._all_lanes().sessions.items() if whose is owner)
        number = sum(any(isinstance(wire, IncomingWire) for wire in each.wires.values()) for each in theirs)
        session.tell_window(min(self.session_bytes, self.attachment.account.session_bytes(number + 1)))

    def full(self, why: str) -> Condition:
        """Returns the error for a link that the peer has no capacity for. Logs it at most once in FULL_LOGGED_S."""
        now, text = self._peers.core.clock(), f"the container '{self.container}' takes no more links: {why}"
        if self._full_at is None or now >= self._full_at + FULL_LOGGED_S:
            self._full_at = now
            self._peers.log_warning(text)
        return Condition(name="amqp:resource-limit-exceeded", description=text)

    def _fail_waiting(self) -> None:
        """Fails all waiting links, because there is no session for them."""
        waiting, self._waiting = self._waiting, deque()
        self._peers.core.work.begin(_failing(waiting))

    def on_end(self, session: Session) -> None:
        """Handles the peer's End. A session without a link may have been begun for waiting links: these fail."""
        lanes = self._all_lanes()
        was_used = lanes.sessions.get(session) is not None
        lanes.forget(session)
        if not was_used:
            self._fail_waiting()
        self._peers.end(session)

    def losing(self) -> Iterator[Iterator[None]]:
        """Returns the steps in which each routed link learns that the connection is gone."""
        self._lanes = None  # breaks a reference cycle
        return map(_losing, list(self.routed))


def _losing(routed: Onward) -> Iterator[None]:
    """Tells one link in a single step; an exception ends only this step."""
    routed.lose()
    yield from ()


def _failing(waiting: deque[_Waiting]) -> Iterator[None]:
    for each in waiting:
        each.failed(None)
        yield
