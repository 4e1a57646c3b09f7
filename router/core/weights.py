"""What the large messages on their way to one receiver hold, until it has settled them.

The engine keeps the bytes of a delivery's buffer, on the side it came from and on the side it left by, sent or not,
until the delivery is settled. Small messages are covered by the record that is charged for each.

Attack: a receiver that reads and never settles, with senders whose messages are large: their number is bounded by
credit, their bytes were not.
"""

from collections.abc import Callable, Iterator
from typing import Final

from router.values import Handle

LARGE_BYTES: Final = 1024
# A large message's buffers, and a streamed one's.
COPIES: Final = 2
STREAMED_BYTES: Final = 128 * 1024


class Held:
    """Bytes that somebody is charged for by steps, lest each message costs a change of every level.

    held     bytes
    charged  of them or for some of the next, at most a quarter more
    """

    __slots__ = ("_wait", "charged", "held")

    def __init__(self, wait: Callable[[int], None]) -> None:
        """wait  charges an account for so many bytes more"""
        self._wait = wait
        self.held = self.charged = 0

    def charge(self) -> None:
        """More is held than is charged, or less than half of it."""
        size = self.held + self.held // 4
        more, self.charged = size - self.charged, size
        self._wait(more)


class Weights(Held):
    """Of each large message on its way by one link."""

    __slots__ = ("_sizes",)

    def __init__(self, wait: Callable[[int], None]) -> None:
        super().__init__(wait)
        self._sizes: dict[Handle, int] = {}

    def add(self, outgoing: Handle, size: int) -> None:
        """A message of `size` bytes is on its way."""
        self._sizes[outgoing] = size
        held = self.held = self.held + COPIES * size
        if held > self.charged:
            self.charge()

    def drop(self, outgoing: Handle) -> None:
        """It is settled; nothing happens where it was small."""
        size = self._sizes.pop(outgoing, 0)
        held = self.held = self.held - COPIES * size
        if size and held * 2 <= self.charged:
            self.charge()

    def clearing(self) -> Iterator[None]:
        """The link is gone: give back what its messages hold, in one step."""
        self._sizes.clear()
        self.held = 0
        self.charge()
        yield


class Details(Weights):
    """What a link's receiver has said of deliveries and not settled, which the engine keeps on both sides.

    Attack: outcomes with errors or annotations as long as may be, without settlement.
    """

    __slots__ = ()

    def give(self, outgoing: Handle, size: int) -> None:
        """A state that takes `size` bytes in all, in the place of the one before."""
        self.drop(outgoing)
        self.add(outgoing, size // COPIES)
