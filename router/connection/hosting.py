"""Links of other peers that go on over one connection: their session, and what ends with it.

Source: docs/spec/network.md §11; docs/spec/routing.md §15.3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from policy.addressing.address import Address
from router.admission.connection_gate import Direction
from router.amqp.engine import CannotBegin, Engine, Session
from router.connection.auto_links import Place
from router.connection.link_routes import Limiting, LinkRoute, Onward
from router.connection.peer_links import PeerLinks
from router.connection.route_patterns import may_route_links, may_serve
from router.core.attachments import Attachment

# Links that one peer has to answer. Attack: a container, a neighbour or an edge that takes attaches and answers none.
MAX_UNANSWERED: Final = 4096

_Waiting = tuple[Callable[[Session], None], Callable[[], None]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnRoute:
    """identity, name, pattern  as management shows them; the pattern as it was written"""

    identity: str
    name: str | None
    pattern: str
    container: str
    route: LinkRoute


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
        self._session: Session | None = None  # the one of all links that the router attaches for others
        self._is_begun = False
        self._waiting: list[_Waiting] = []  # for the answer to its Begin

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

    def takes(self, name: str, direction: Direction) -> bool:
        """May links to the address of that name go on to a peer that made a link route for itself?"""
        gate, space = self._peers.gate, self.space
        if not name.startswith(space) or not may_route_links(gate):
            return False
        address = self._peers.resolve(name.removeprefix(space))
        return isinstance(address, Address) and may_serve(gate, address, direction)

    def begin(self) -> bool:
        """Begin the session, so that an attach needs not wait for it. False: there can be none."""
        if self._session is None:
            engine: Engine = self._peers.engine
            try:
                self._session = engine.begin_session(self, incoming_capacity_bytes=self._peers.terms.session_bytes)
            except CannotBegin:
                return False
            self._session.on_answer = self._on_begun
        return True

    def with_session(self, call: Callable[[Session], None], failed: Callable[[], None]) -> None:
        """Call `call` with a session that is open, now or later; `failed` where there can be none."""
        if self._session is not None and self._is_begun and not self.is_gone:
            call(self._session)
        elif not self.is_gone and self.begin():
            self._waiting.append((call, failed))
        else:
            failed()

    def _on_begun(self) -> None:
        session, waiting = self._session, self._waiting
        assert session is not None
        self._is_begun, self._waiting = True, []
        self._peers.core.work.begin(self._going_on(session, waiting))

    def _going_on(self, session: Session | None, waiting: list[_Waiting]) -> Iterator[None]:
        """Those that have waited for the session go on, in turns: thousands of auto links may.

        session  None: there is none
        """
        for call, failed in waiting:
            if self.is_gone:
                return
            if session is not None and self._session is session:
                call(session)
            else:
                failed()
            yield

    def on_end(self, session: Session) -> None:
        """The peer has ended the session."""
        self._session, self._is_begun = None, False
        waiting, self._waiting = self._waiting, []
        self._peers.core.work.begin(self._going_on(None, waiting))
        self._peers.end(session)

    def losing(self) -> Iterator[None]:
        """The connection is gone: each of the others learns it."""
        for routed in list(self.routed):
            routed.lose()
            yield
