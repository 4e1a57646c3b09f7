"""The work that one pass leaves: engines to flush, links to give credit, streams that may continue.

A pass is: read a socket, drain its engine, forward, then finish. At its end all these collections are empty.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

from router.core.ports import Engine

# A socket counts as full if this number of written bytes waits for the peer. The connection's links then get nothing
# more, and messages wait in their queues or with their senders.
FULL_BUFFER_BYTES: Final = 512 * 1024


# The number of deliveries of a link that is gone which are handled at once. The others take turns. Attack: a peer that
# leaves a hundred thousand unsettled deliveries delays all other peers.
_AT_ONCE: Final = 64


class Timed(Protocol):
    """Waits for a deadline in monotonic seconds. It is called at the deadline, and returns the next one or None."""

    def on_timer(self, now: float) -> float | None: ...


# Replaces a deadline; None removes it.
SetTimer = Callable[[Timed, float | None], None]


class Creditor(Protocol):
    """An incoming link that is owed credit."""

    @property
    def engine(self) -> Engine: ...
    def grant_owed(self) -> None: ...


class Resumable(Protocol):
    """A message that may continue."""

    @property
    def engine(self) -> Engine: ...
    def resume(self) -> None: ...


class Relieved(Protocol):
    """A connection or link that was held back by a byte budget."""

    @property
    def engine(self) -> Engine: ...
    def relieve(self, has_time: Callable[[], bool], /) -> bool:
        """Continues as long as there is time. Returns True if nothing is left to do."""
        ...


def _at_once(steps: Iterator[object]) -> None:
    for _ in steps:
        pass


class Work:
    """The collections of work, and the callbacks of the daemon.

    now_s    monotonic seconds, whole. The daemon updates it
    touched     engines with something to write
    refill      incoming links that are owed credit
    resumable   streams whose receivers took bytes or are gone
    busy        engines flushed since the last check, which the daemon makes every second
    stuck_before_s  the latest count of stuck deliveries looked at deliveries older than this
    relieved    connections and links whose budget has room again
    again       called if work is left for a further pass
    closing     called after the last flush: connections that end
    copy        returns the first N bytes of the message being routed
    begin_turn  called by a connection whose work may be long. Its result tells whether the turn has time left. The
                connection keeps the rest of its work, reports that (`Stack.has_more`), is not read meanwhile, and gets
                another turn
    later       runs steps soon, between messages, when nothing depends on the time. By default it runs them at once
    """

    __slots__ = (
        *("again", "begin_turn", "busy", "closing", "copy", "later", "now_s", "refill", "relieved", "resumable"),
        *("stuck_before_s", "touched"),
    )

    def __init__(
        self,
        copy: Callable[[int], bytes],
        begin_turn: Callable[[], Callable[[], bool]] = lambda: lambda: True,
        again: Callable[[], object] = lambda: None,
        later: Callable[[Iterator[object]], None] = _at_once,
    ) -> None:
        self.now_s = 0
        self.stuck_before_s = -1
        self.touched: set[Engine] = set()
        self.refill: list[Creditor] = []
        self.resumable: set[Resumable] = set()
        self.busy: set[Engine] = set()
        self.relieved: dict[Relieved, None] = {}
        self.again = again
        self.closing: list[Callable[[], None]] = []
        self.copy = copy
        self.begin_turn = begin_turn
        self.later = later

    def begin(self, steps: Iterator[object]) -> None:
        """Does some steps at once, and the others later."""
        if len(list(islice(steps, _AT_ONCE))) == _AT_ONCE:
            self.later(steps)

    def looking_back(self) -> Iterator[None]:
        """Does the regular work of about once a second for the engines that were busy, in steps."""
        busy, self.busy = self.busy, set()
        for engine in busy:
            if not engine.is_freed:
                engine.owner.note_deliveries()
            yield
            if not engine.is_freed:
                yield from engine.release_settled()

    def finish(self) -> None:
        """Grants owed credit and flushes touched engines until none is left. Then closes connections that end.

        An exception in one connection's part ends that connection, and has no effect on others.
        """
        touched, resumable, has_relieved = self.touched, self.resumable, False
        while True:
            if self.refill:
                refill, self.refill = self.refill, []
                for link in refill:
                    try:
                        link.grant_owed()
                    except Exception as error:
                        link.engine.owner.crash(error)
            self.busy |= touched
            while touched:
                engine = touched.pop()
                try:
                    engine.flush()
                except Exception as error:
                    engine.owner.crash(error)
            while resumable:
                stream = resumable.pop()
                try:
                    stream.resume()
                except Exception as error:
                    stream.engine.owner.crash(error)
            if self.refill or touched:
                continue
            if self.relieved and not has_relieved:
                has_relieved = True
                self._relieve()
                continue
            if not self.closing:
                return
            closing, self.closing = self.closing, []
            for close in closing:
                close()

    def _relieve(self) -> None:
        """Lets connections and links with room in their budget continue, for one turn. Others wait for a later pass.

        The first of them continues even if the turn has no time left. Otherwise endless reads would starve it.
        """
        has_time = self.begin_turn()
        relieved, self.relieved = self.relieved, {}
        for number, each in enumerate(relieved):
            try:
                is_done = (not number or has_time()) and each.relieve(has_time)
            except Exception as error:
                each.engine.owner.crash(error)
                continue
            if not is_done:
                self.relieved[each] = None
        if self.relieved:
            self.again()
