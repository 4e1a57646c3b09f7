"""Keeps the sessions that have ended until nothing of their links is under way.

proton frees a session with the last object that refers to it. That may be a link that was never detached, if an event
of it came last. proton then frees the link with the session, and uses it once more. Attack: a peer ends a session
during a message that it receives. The router read memory that belonged to something else, and freed it a second time.
"""

from collections import deque
from typing import Final

from router.amqp.engine.library import lib
from router.amqp.engine.links import GONE, Session

# The number checked in a flush: many sessions that end must not slow down every pass.
_AT_ONCE: Final = 64


class EndedSessions(deque[Session]):
    """Sessions that the router has freed, each with one reference of our own.

    The accounts pay for them until they are gone.
    """

    __slots__ = ()

    def free(self, session: Session) -> None:
        """Frees the session as soon as nothing else refers to it."""
        lib.pn_incref(session.pointer)
        self.append(session)
        lib.pn_session_free(session.pointer)

    def look(self) -> None:
        """Releases the sessions to which only our reference is left."""
        for _ in range(min(len(self), _AT_ONCE)):
            pointer = self[0].pointer
            lib.pn_incref(pointer)
            if lib.pn_decref(pointer) > 1:
                self.rotate(-1)
            else:
                self.let_go()

    def let_go(self) -> None:
        """Releases the oldest session.

        Either nothing else refers to it, or the transport is unbound and keeps no link.
        """
        session = self.popleft()
        pointer, session.pointer = session.pointer, GONE
        lib.pn_decref(pointer)
        session.free_charges()
