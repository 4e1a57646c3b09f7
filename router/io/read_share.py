"""How much one read may bring, so that all busy sockets together have one buffer full in a pass of the loop.

Attack: sixteen peers keep their sockets full. With a whole buffer each, a peer that sends one message and waits for the
answer would wait behind sixteen buffers, each worth some hundred messages of work. uvloop reads a full socket up to 32
times in a pass: a peer alone would hold up all others for as many buffers. So a socket is read once in a pass.
"""

from collections.abc import Callable
from typing import Final, Protocol

from router.amqp.buffers import READ_BYTES

# A read has a price whatever it brings; less than this would cost more than it serves anybody.
LEAST_BYTES: Final = 8 * 1024


class Busy(Protocol):
    """A socket that had more to read than a read might bring, and is not read in this pass any more."""

    def read_again(self) -> None: ...


class ReadShare:
    """size  bytes to read at once, of any socket"""

    __slots__ = ("_busy", "_call_soon", "size")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """call_soon  the loop's: calls in its next pass, before it reads"""
        self._call_soon = call_soon
        self._busy: list[Busy] = []
        self.size = READ_BYTES

    def is_full(self, end: Busy) -> None:
        """A read has brought all that it might: there is more where it came from. The next pass reads `end` again."""
        if not self._busy:
            self._call_soon(self._share)
        self._busy.append(end)

    def _share(self) -> None:
        """The pass is over: as many sockets as were busy in it share the next."""
        busy, self._busy = self._busy, []
        self.size = max(READ_BYTES // len(busy), LEAST_BYTES)
        for end in busy:
            end.read_again()
