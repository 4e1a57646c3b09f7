"""The work that one pass over the wire leaves: engines to flush, links to give credit, streams that may go on.

A pass is: read a socket, drain its engine, forward, then finish. Everything here is emptied at its end.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

from router.core.ports import Engine

# Of what is written to a socket so much waits for the peer before the socket counts as full. Above it the connection's
# links get no more: it waits in their queues or with their senders.
FULL_BUFFER_BYTES: Final = 512 * 1024


# Deliveries of a link that is gone which are dealt with at once; the others are in turns. Stops a peer that leaves a
# hundred thousand unsettled from holding up everybody else.
_AT_ONCE: Final = 64


class Timed(Protocol):
    """Waits for a deadline, monotonic seconds: called when it has come, it returns the next one, or None."""

    def on_timer(self, now: float) -> float | None: ...


# Replaces somebody's deadline; None: there is none any more.
SetTimer = Callable[[Timed, float | None], None]


class Creditor(Protocol):
    """An incoming link that is owed credit."""

    @property
    def engine(self) -> Engine: ...
    def grant_owed(self) -> None: ...


class Resumable(Protocol):
    """A message that may go on."""

    @property
    def engine(self) -> Engine: ...
    def resume(self) -> None: ...


class Relieved(Protocol):
    """A connection or link that was held back for bytes."""

    @property
    def engine(self) -> Engine: ...
    def relieve(self, has_time: Callable[[], bool], /) -> bool:
        """Go on, as long as there is time. Returns whether that is done."""
        ...


def _at_once(steps: Iterator[object]) -> None:
    for _ in steps:
        pass


class Work:
    """now_s    monotonic seconds, whole; the daemon moves it on
    touched     engines with something to write
    refill      incoming links that are owed credit
    resumable   streams of whose receivers one has taken some, or gone
    busy        engines flushed since the daemon last looked (it does every second)
    stuck_before_s  deliveries older than this were looked at when stuck ones were last counted
    relieved    connections and links whose budget has room again
    again       called when work is left for a further pass
    closing     called after the last flush: connections that end
    copy        the first N bytes of the message being routed
    begin_turn  called by a connection whose work may be long; the result says whether its turn has time left. What
                does not fit, it keeps: it says so (`Stack.has_more`), is not read meanwhile, and has another turn
    later       does steps soon, with messages in between: nothing depends on when. Where nobody is to wait, at once
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
        """Do some steps at once, and the others later."""
        if len(list(islice(steps, _AT_ONCE))) == _AT_ONCE:
            self.later(steps)

    def looking_back(self) -> Iterator[None]:
        """What is done about once a second for the engines that were busy, in steps."""
        busy, self.busy = self.busy, set()
        for engine in busy:
            if not engine.is_freed:
                engine.owner.note_deliveries()
            yield
            if not engine.is_freed:
                yield from engine.release_settled()

    def finish(self) -> None:
        """Grant the owed credit and flush every touched engine, until none is left. Then close connections that end.

        An exception in one connection's part ends that connection and reaches nobody else.
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
        """Those whose budget has room go on, one turn long; the others have theirs in a further pass.

        The first does something even where others have used up the turn: else reads without a pause would starve them.
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
