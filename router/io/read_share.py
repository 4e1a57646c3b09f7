"""How much one read may bring, so that all busy sockets together have one buffer full in a pass of the loop.

Attack: sixteen peers keep their sockets full. With a whole buffer each, a peer that sends one message and waits for the
answer would wait behind sixteen buffers, each worth some hundred messages of work. uvloop reads a full socket up to 32
times in a pass: a peer alone would hold up all others for as many buffers. So a socket is read once in a pass.

A pass has a price of its own. Where a buffer full was little work, since its messages are large, the next read of that
socket may bring more, as long as it is the only busy one.
"""

from collections.abc import Callable
from typing import Final, Protocol

from router.amqp.buffers import MOST_READ_BYTES, READ_BYTES

# A read has a price whatever it brings; less than this would cost more than it serves anybody.
LEAST_BYTES: Final = 8 * 1024
# A read whose bytes took less work than this may bring more the next time, and one of twice as much brings less.
LITTLE_WORK_S: Final = 0.001


class Busy(Protocol):
    """A socket that had more to read than a read might bring, and is not read in this pass any more."""

    def read_again(self) -> None: ...


class ReadShare:
    """size  bytes to read at once, of any socket
    is_one  not more than one was busy in the last pass
    """

    __slots__ = ("_busy", "_call_soon", "is_one", "size")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """call_soon  the loop's: calls in its next pass, before it reads"""
        self._call_soon = call_soon
        self._busy: list[Busy] = []
        self.size = READ_BYTES
        self.is_one = True

    def is_full(self, end: Busy) -> None:
        """A read has brought all that it might: there is more where it came from. The next pass reads `end` again."""
        if not self._busy:
            self._call_soon(self._share)
        self._busy.append(end)

    def _share(self) -> None:
        """The pass is over: as many sockets as were busy in it share the next."""
        busy, self._busy = self._busy, []
        self.size = max(READ_BYTES // len(busy), LEAST_BYTES)
        self.is_one = len(busy) == 1
        for end in busy:
            end.read_again()


def next_read_bytes(size: int, work_s: float) -> int:
    """How much the next read of a socket may bring, if it is the only busy one.

    size    bytes that this one might bring, and did
    work_s  seconds that it took to work them off
    """
    if work_s > 2 * LITTLE_WORK_S:
        return max(size // 2, READ_BYTES)
    return min(2 * size, MOST_READ_BYTES) if 2 * work_s <= LITTLE_WORK_S else max(size, READ_BYTES)
