"""What the large messages on their way to one receiver hold, until it has settled them.

The engine keeps the bytes of a delivery's buffer, on the side it came from and on the side it left by, sent or not,
until the delivery is settled. Small messages are covered by the record that is charged for each.

Attack: a receiver that reads and never settles, with senders whose messages are large: their number is bounded by
credit, their bytes were not.
"""

from collections.abc import Callable
from typing import Final

from router.values import Handle

LARGE_BYTES: Final = 1024
# A large message's buffers, and a streamed one's.
COPIES: Final = 2
STREAMED_BYTES: Final = 128 * 1024


class Weights:
    """wait  charges the receiver's account for so many bytes more"""

    __slots__ = ("_charged", "_held", "_sizes", "_wait")

    def __init__(self, wait: Callable[[int], None]) -> None:
        self._wait = wait
        self._sizes: dict[Handle, int] = {}
        self._held = 0
        self._charged = 0

    def add(self, outgoing: Handle, size: int) -> None:
        """A message of `size` bytes is on its way."""
        self._sizes[outgoing] = size
        held = self._held = self._held + COPIES * size
        if held > self._charged:
            self._charge(held + held // 4)  # and for some of the next, lest each cost a change of every level

    def drop(self, outgoing: Handle) -> None:
        """It is settled; nothing happens where it was small."""
        size = self._sizes.pop(outgoing, 0)
        held = self._held = self._held - COPIES * size
        if size and held * 2 <= self._charged:
            self._charge(held + held // 4)

    def clear(self) -> None:
        """The link is gone."""
        self._sizes.clear()
        self._held = 0
        self._charge(0)

    def _charge(self, size: int) -> None:
        more, self._charged = size - self._charged, size
        self._wait(more)
