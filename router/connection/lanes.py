"""Sessions that the router begins for links with users' messages, to or from another router or a broker.

A session has one window. What a receiver does not take of a large message stays in the window. When the window is full,
no other message passes on the session. Therefore each link gets its own session while there are enough of them. After
that, the links of one user share sessions.

Attacks: a few large messages to an own receiver that gives no credit. All large messages between two routers waited for
them, and between an edge and its interior all messages did. A client of a link route, or of an auto link's address,
takes nothing: then no client received anything from the broker any more. A client attaches to an address for which the
broker ends the session.
"""

from collections.abc import Callable, Iterable
from typing import Final

from router.amqp.engine import CannotBegin, Engine, Session

# Maximum number of sessions of one kind on a connection. Each has a window and a channel.
MAX_LANES: Final = 128
# The same maximum for a broker, where each client has its own session.
MAX_BROKER_LANES: Final = 512
# Channels that are reserved for the peer's own sessions, and for sessions of another kind.
CHANNELS_LEFT: Final = 16
# Number of sessions begun in advance, for links that do not wait.
SPARE: Final = 4


class Lanes:
    """The sessions of one kind on a connection.

    sessions  sessions for links, in the order of their answers -> the owner whose links they have, or had
    """

    def __init__(
        self,
        engine: Engine,
        begin: Callable[[], Session],
        on_ready: Callable[[], None],
        *,
        most: int = MAX_LANES,
        channels_left: int = CHANNELS_LEFT,
    ) -> None:
        """begin     begins one more session. Errors: CannotBegin
        on_ready  called when one more session is ready for links
        """
        self.sessions: dict[Session, object] = {}
        self._engine = engine
        self._begin = begin
        self._on_ready = on_ready
        self._most = most
        self._channels_left = channels_left
        self._begun: set[Session] = set()  # begun and not answered

    @property
    def is_begun(self) -> bool:
        """Returns True if there is a session, or if one has been begun."""
        return bool(self.sessions or self._begun)

    @property
    def _may_begin(self) -> int:
        """How many more sessions may begin. The first session may always begin."""
        if not self.is_begun:
            return 1
        channels = self._engine.channels_left - self._channels_left
        return max(min(self._most - len(self.sessions) - len(self._begun), channels), 0)

    def begin(self, count: int = 1) -> None:
        """Begins `count` more sessions, or as many as possible. Errors: CannotBegin if there is no session at all"""
        for _ in range(count):
            if not self._may_begin:
                return
            session = self._begin()
            session.on_answer = lambda session=session: self._on_answer(session)  # type: ignore[misc]
            self._begun.add(session)

    def _on_answer(self, session: Session) -> None:
        self._begun.discard(session)
        self.sessions[session] = None
        self._on_ready()

    def lease(self, owner: object, *, wanted: int = 1) -> Session | None:
        """Returns a session without links for one link. None: a session has been begun, and `on_ready` is called later.

        The link shares a session if no more sessions are possible, or if this owner has as many as remain for all
        others. It shares one of its owner's sessions, or another owner's if it has none. So no owner takes all
        sessions.

        wanted  number of links that wait for a session, this one included
        Errors  CannotBegin: no session has a handle left
        """
        self._end_spent()
        own = [session for session, whose in self.sessions.items() if whose is owner and session.wires]
        empty = [session for session in self.sessions if not session.wires and session.has_handles]
        left = len(empty) + len(self._begun) + self._may_begin
        found = _least(own) if len(own) >= left else None
        if found is None:
            if empty:
                found = empty[0]
            elif left:
                if not self._begun:
                    self.begin(max(min(wanted, (left - len(own) + 1) // 2), 1))
                return None
            elif (found := _least(own) or _least(self.sessions)) is None:
                raise CannotBegin("no handle is left in any session that the peer permits")
        if not found.wires:
            self.sessions[found] = owner
            if len(empty) == 1 and not self._begun:
                self.begin()  # for the next link, which then need not wait
        return found

    def _end_spent(self) -> None:
        """Ends sessions without links whose window still holds data of links that are gone."""
        for session in [each for each in self.sessions if not each.wires and not each.is_clear]:
            del self.sessions[session]
            session.close()

    def lease_now(self) -> Session | None:
        """Returns a session, perhaps a shared one, for a link that does not wait; None if there is none yet.

        Begins more sessions for the next links.
        """
        if not self._begun and sum(not session.wires for session in self.sessions) < SPARE:
            self.begin(SPARE)
        return _least(self.sessions)

    def forget(self, session: Session) -> bool:
        """Forgets a session that the peer has ended. Returns True if it was one of these sessions."""
        is_own = session in self.sessions or session in self._begun
        self.sessions.pop(session, None)
        self._begun.discard(session)
        return is_own


def _least(sessions: Iterable[Session]) -> Session | None:
    """Returns the session with the fewest links, among those with room for one more."""
    found: Session | None = None
    for session in sessions:
        if (found is None or len(session.wires) < len(found.wires)) and session.has_handles:
            found = session
    return found
