"""Sessions that the router begins for links which carry users' messages to or from another router, or a broker.

A session has one window. What a receiver does not take of a large message stays in it, and when that is full nothing
else comes on the session: so each link has a session of its own, as far as there may be. Where there are no more, the
links of one user share.

Attacks: a few large messages to a receiver of one's own that gives no credit. All large messages between two routers
waited for them, and between an edge and its interior everything did. A client of a link route, or of an auto link's
address, that takes nothing: nobody received anything from the broker any more. One that attaches to what the broker
ends the session for.
"""

from collections.abc import Callable, Iterable
from typing import Final

from router.amqp.engine import CannotBegin, Engine, Session

# Of one kind on a connection, each of which has a window and a channel.
MAX_LANES: Final = 128
# The same to a broker, where each client has its own.
MAX_BROKER_LANES: Final = 512
# Channels that are left to others: the peer's own sessions, and those of another kind.
CHANNELS_LEFT: Final = 16
# Sessions in advance, for links that do not wait for one.
SPARE: Final = 4


class Lanes:
    """sessions  that links can be attached on, in the order of their answers -> whose links they have, or had"""

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
        on_ready  called when links can be attached on one more
        """
        self.sessions: dict[Session, object] = {}
        self._engine = engine
        self._begin = begin
        self._on_ready = on_ready
        self._most = most
        self._channels_left = channels_left
        self._begun: set[Session] = set()  # and not answered

    @property
    def is_begun(self) -> bool:
        """Is there one, or one on its way?"""
        return bool(self.sessions or self._begun)

    @property
    def _may_begin(self) -> int:
        """How many more there may be. The first may always."""
        if not self.is_begun:
            return 1
        channels = self._engine.channels_left - self._channels_left
        return max(min(self._most - len(self.sessions) - len(self._begun), channels), 0)

    def begin(self, count: int = 1) -> None:
        """Begin so many more, or as many as there may be. Errors: CannotBegin, where there is none at all"""
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
        """For one link: a session without links. None: one is on its way, and `on_ready` says when it is there.

        Where there can be no more, or this owner has as many as are left for all others, it shares one: of its own, or
        of another's where it has none. So nobody takes all that there are.

        wanted  links that wait for a session, this one too
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
                self.begin()  # for the next one, which then does not wait
        return found

    def _end_spent(self) -> None:
        """End those that have no link, and something left of links that are gone: it would stay in their windows."""
        for session in [each for each in self.sessions if not each.wires and not each.is_clear]:
            del self.sessions[session]
            session.close()

    def lease_now(self) -> Session | None:
        """A session for a link that does not wait, which shares one if it must; None: there is none yet.

        Others are begun for those that come next.
        """
        if not self._begun and sum(not session.wires for session in self.sessions) < SPARE:
            self.begin(SPARE)
        return _least(self.sessions)

    def forget(self, session: Session) -> bool:
        """The peer has ended a session. Returns whether it was one of these."""
        is_own = session in self.sessions or session in self._begun
        self.sessions.pop(session, None)
        self._begun.discard(session)
        return is_own


def _least(sessions: Iterable[Session]) -> Session | None:
    """The one with the fewest links, of those that have room for one more."""
    found: Session | None = None
    for session in sessions:
        if (found is None or len(session.wires) < len(found.wires)) and session.has_handles:
            found = session
    return found
