"""The work that one pass over the wire leaves: engines to flush, links to give credit, streams that may go on.

A pass is: read a socket, drain its engine, forward, then finish. Everything here is emptied at its end.
"""

from collections.abc import Callable
from typing import Protocol

from router.core.ports import Engine


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


class Work:
    """now_s    monotonic seconds, whole; the daemon moves it on
    touched     engines with something to write
    refill      incoming links that are owed credit
    resumable   streams of whose receivers one has taken some, or gone
    busy        engines flushed since the daemon last looked (it does every second)
    stuck_before_s  deliveries older than this were looked at when stuck ones were last counted
    closing     called after the last flush: connections that end
    copy        the first N bytes of the message being routed
    begin_turn  called by a connection whose work may be long; the result says whether its turn has time left. What
                does not fit, it keeps: it says so (`Stack.has_more`), is not read meanwhile, and has another turn
    """

    __slots__ = ("begin_turn", "busy", "closing", "copy", "now_s", "refill", "resumable", "stuck_before_s", "touched")

    def __init__(
        self, copy: Callable[[int], bytes], begin_turn: Callable[[], Callable[[], bool]] = lambda: lambda: True
    ) -> None:
        self.now_s = 0
        self.stuck_before_s = -1
        self.touched: set[Engine] = set()
        self.refill: list[Creditor] = []
        self.resumable: set[Resumable] = set()
        self.busy: set[Engine] = set()
        self.closing: list[Callable[[], None]] = []
        self.copy = copy
        self.begin_turn = begin_turn

    def finish(self) -> None:
        """Grant the owed credit and flush every touched engine, until none is left. Then close connections that end.

        An exception in one connection's part ends that connection and reaches nobody else.
        """
        touched, resumable = self.touched, self.resumable
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
            if not self.closing:
                return
            closing, self.closing = self.closing, []
            for close in closing:
                close()
