"""Limits the bytes of one read, so that all busy sockets together read one buffer in a pass of the loop.

Attack: sixteen peers keep their sockets full. If each read a whole buffer, a peer with one message would wait for
sixteen buffers, each with about a hundred messages of work. uvloop reads a full socket up to 32 times in a pass: one
peer alone would delay all others by as many buffers. So a socket is read once in a pass.

Each pass also has a cost. If a full buffer was little work, because its messages are large, the next read of that
socket may take more bytes. This applies only while it is the only busy socket.
"""

from collections.abc import Callable
from typing import Final, Protocol

from router.amqp.buffers import MOST_READ_BYTES, READ_BYTES

# Each read has a fixed cost. Smaller reads would cost more than they help.
LEAST_BYTES: Final = 8 * 1024
# The work of one read, for large messages. If it took at most half of this, the next read may take twice the bytes. If
# it took more than twice this, the next read takes half.
LITTLE_WORK_S: Final = 0.001


class Busy(Protocol):
    """A socket that had more bytes than a read might take, and is not read again in this pass."""

    def read_again(self) -> None: ...


class ReadShare:
    """The share of each socket.

    size    bytes to read at once, of any socket
    is_one  True if at most one socket was busy in the last pass
    """

    __slots__ = ("_busy", "_call_soon", "is_one", "size")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Starts with whole buffers.

        call_soon  the loop's: calls in its next pass, before it reads
        """
        self._call_soon = call_soon
        self._busy: list[Busy] = []
        self.size = READ_BYTES
        self.is_one = True

    def is_full(self, end: Busy) -> None:
        """Notes that a read has taken all that it might, so there is probably more. The next pass reads `end` again."""
        if not self._busy:
            self._call_soon(self._share)
        self._busy.append(end)

    def _share(self) -> None:
        """Ends the pass: the sockets that were busy in it share the next one."""
        busy, self._busy = self._busy, []
        self.size = max(READ_BYTES // len(busy), LEAST_BYTES)
        self.is_one = len(busy) == 1
        for end in busy:
            end.read_again()


def next_read_bytes(size: int, work_s: float) -> int:
    """Returns the number of bytes for the next read of a socket if it is the only busy one.

    size    the limit of this read, which it has reached
    work_s  the seconds that its work took
    """
    if work_s > 2 * LITTLE_WORK_S:
        return max(size // 2, READ_BYTES)
    return min(2 * size, MOST_READ_BYTES) if 2 * work_s <= LITTLE_WORK_S else max(size, READ_BYTES)
