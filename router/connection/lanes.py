"""Sessions that the router begins for links which carry users' messages to or from another router.

A session has one window. What a receiver does not take of a large message stays in it, and when that is full nothing
else comes on the session: so each link has a session of its own, as far as there may be.

Attack: a few large messages to a receiver of one's own that gives no credit. All large messages between two routers
waited for them, and between an edge and its interior everything did.
"""

from collections.abc import Callable
from typing import Final

from router.amqp.engine import Engine, Session

# Of one kind on a connection, each of which has a window and a channel.
MAX_LANES: Final = 128
# Channels that are left to others: the peer's own sessions, and those of another kind.
CHANNELS_LEFT: Final = 16
# Sessions in advance, for links that do not wait for one.
SPARE: Final = 4


class Lanes:
    """sessions  that links can be attached on, in the order of their answers"""

    def __init__(
        self, engine: Engine, begin: Callable[[], Session], on_ready: Callable[[], None], *, most: int = MAX_LANES
    ) -> None:
        """begin     begins one more session. Errors: CannotBegin
        on_ready  called when links can be attached on one more
        """
        self.sessions: dict[Session, None] = {}
        self._engine = engine
        self._begin = begin
        self._on_ready = on_ready
        self._most = most
        self._begun: set[Session] = set()  # and not answered

    @property
    def is_begun(self) -> bool:
        """Is there one, or one on its way?"""
        return bool(self.sessions or self._begun)

    def begin(self, count: int = 1) -> None:
        """Begin so many more, or as many as there may be. Errors: CannotBegin, where there is none at all"""
        for _ in range(min(count, self._most - len(self.sessions) - len(self._begun))):
            if self.is_begun and self._engine.channels_left <= CHANNELS_LEFT:
                return
            session = self._begin()
            session.on_answer = lambda session=session: self._on_answer(session)  # type: ignore[misc]
            self._begun.add(session)

    def _on_answer(self, session: Session) -> None:
        self._begun.discard(session)
        self.sessions[session] = None
        self._on_ready()

    @property
    def _least(self) -> Session | None:
        return min(self.sessions, key=lambda session: len(session.wires), default=None)

    def lease(self, wanted: int = 1) -> Session | None:
        """For one link: a session without links, or where there can be no more the one with the fewest.

        None: one is on its way, and `on_ready` says when it is there. Errors: CannotBegin

        wanted  links that wait for a session, this one too
        """
        least = self._least
        if least is not None and not least.wires:
            return least
        if not self._begun:
            self.begin(wanted)
        return None if self._begun else least

    def lease_now(self) -> Session | None:
        """The same for a link that does not wait, which shares one if it must; None: there is none yet.

        Others are begun for those that come next.
        """
        least = self._least
        if not self._begun and sum(not session.wires for session in self.sessions) < SPARE:
            self.begin(SPARE)
        return least

    def forget(self, session: Session) -> bool:
        """The peer has ended a session. Returns whether it was one of these."""
        is_own = session in self.sessions or session in self._begun
        self.sessions.pop(session, None)
        self._begun.discard(session)
        return is_own
