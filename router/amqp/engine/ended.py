"""Keeps the sessions that have ended until nothing of their links is under way.

proton lets go of a session with the last thing that refers to it. Where that is a link that was never detached, because
an event of it came last, proton frees the link with the session, and looks at it once more. Attack: a peer ends a
session in the midst of a message that it receives; the router read memory, and freed it again, that was another's.
"""

from collections import deque
from typing import Final

from router.amqp.engine.library import lib
from router.amqp.engine.links import GONE, Session

# Looked at in a flush: many sessions that end must not cost every pass.
_AT_ONCE: Final = 64


class EndedSessions(deque[Session]):
    """Sessions that the router has freed, each with one reference that is ours. They are paid for until they go."""

    __slots__ = ()

    def free(self, session: Session) -> None:
        """Free it as soon as nothing refers to it."""
        lib.pn_incref(session.pointer)
        self.append(session)
        lib.pn_session_free(session.pointer)

    def look(self) -> None:
        """Let go of those to which nothing refers but us."""
        for _ in range(min(len(self), _AT_ONCE)):
            pointer = self[0].pointer
            lib.pn_incref(pointer)
            if lib.pn_decref(pointer) > 1:
                self.rotate(-1)
            else:
                self.let_go()

    def let_go(self) -> None:
        """Let go of the oldest, whatever refers to it: nothing does, or the transport is unbound and keeps no link."""
        session = self.popleft()
        pointer, session.pointer = session.pointer, GONE
        lib.pn_decref(pointer)
        session.free_charges()
