"""What one pass over the wire leaves to do: whom to flush, whom to give credit, what is stalled.

A pass is: read a socket, drain its engine, forward, then finish. Everything here is emptied at its end.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from router.core.links import InLink
    from router.core.streams import Stream


class Work:
    """now_s    monotonic seconds, whole; the daemon moves it on
    touched     engines with something to write
    refill      incoming links that are owed credit
    stalled     streams that wait for a receiver to take more
    busy        engines flushed since the daemon last looked (it does every second)
    closing     called after the last flush: connections that end
    copy        the first N bytes of the message being routed
    """

    __slots__ = ("busy", "closing", "copy", "now_s", "refill", "stalled", "touched")

    def __init__(self, copy: Callable[[int], bytes]) -> None:
        self.now_s = 0
        self.touched: set[Any] = set()
        self.refill: list[InLink] = []
        self.stalled: set[Stream] = set()
        self.busy: set[Any] = set()
        self.closing: list[Callable[[], None]] = []
        self.copy = copy

    def finish(self) -> None:
        """Grant the owed credit and flush every touched engine, until nothing is left. Then close who must close."""
        touched = self.touched
        while True:
            if self.refill:
                refill, self.refill = self.refill, []
                for link in refill:
                    link.grant_owed()
            self.busy |= touched
            while touched:
                engine = touched.pop()
                try:
                    engine.flush()
                except Exception as error:  # one peer's fault must not reach another's connection
                    engine.owner.crash(error)
            if self.stalled:
                for stream in list(self.stalled):
                    stream.resume()
            if self.refill or touched:
                continue
            if not self.closing:
                return
            closing, self.closing = self.closing, []
            for close in closing:
                close()
