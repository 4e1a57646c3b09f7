"""A request to one router: wanted, sent, answered or repeated.

A request or its answer is lost if a router on the way does not know the path yet. The next advertisement repeats it
(network §7.5, §9.3), which may be half a minute later. So this router repeats it a few times itself.
"""

from typing import Final

# The ticks after which a request without an answer is repeated.
REPEATED_AFTER_TICKS: Final = (1, 2, 4, 8)


class Asking:
    """The state of one request.

    is_wanted  True if it must be sent as soon as the router can be reached
    """

    __slots__ = ("_ticks", "_times", "is_wanted")

    def __init__(self, *, is_wanted: bool = False) -> None:
        self.is_wanted = is_wanted
        self._ticks = 0  # until the next repetition; 0: never
        self._times = 0

    def want(self) -> None:
        self.is_wanted = True
        self._times = 0

    def sent(self) -> None:
        self.is_wanted = False
        self._ticks = REPEATED_AFTER_TICKS[self._times] if self._times < len(REPEATED_AFTER_TICKS) else 0
        self._times += 1

    @property
    def is_outstanding(self) -> bool:
        """True if it was sent, and has no answer."""
        return self._times > 0

    def answered(self) -> None:
        self._ticks = self._times = 0

    def tick(self) -> None:
        if self._ticks:
            self._ticks -= 1
            if not self._ticks:
                self.is_wanted = True
