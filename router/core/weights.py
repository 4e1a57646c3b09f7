"""The bytes that large messages hold on their way to one receiver, until it has settled them.

The engine keeps the buffer of a delivery until the delivery is settled, sent or not. It does that on the side where the
message arrived and on the side where it leaves. For small messages the charge of a record covers this.

Attack: a receiver that reads and never settles, with senders of large messages. Credit limited their number, but
nothing limited their bytes.
"""

from collections.abc import Callable, Iterator
from typing import Final

from router.values import Handle

LARGE_BYTES: Final = 1024
# The buffers of a large message, and the bytes of a streamed message.
COPIES: Final = 2
STREAMED_BYTES: Final = 128 * 1024


class Held:
    """Bytes that are charged in steps, so that not every message changes every level.

    held     bytes
    charged  bytes that are charged: at least `held`, and at most a quarter more after a step
    """

    __slots__ = ("_wait", "charged", "held")

    def __init__(self, wait: Callable[[int], None]) -> None:
        """Sets up the steps.

        wait  charges an account for this number of additional bytes
        """
        self._wait = wait
        self.held = self.charged = 0

    def charge(self) -> None:
        """Adjusts the charge, because more is held than is charged, or less than half of it."""
        size = self.held + self.held // 4
        more, self.charged = size - self.charged, size
        self._wait(more)


class Weights(Held):
    """The bytes of each large message on its way by one link."""

    __slots__ = ("_sizes",)

    def __init__(self, wait: Callable[[int], None]) -> None:
        super().__init__(wait)
        self._sizes: dict[Handle, int] = {}

    def add(self, outgoing: Handle, size: int) -> None:
        """Adds a message of `size` bytes that is on its way."""
        self._sizes[outgoing] = size
        held = self.held = self.held + COPIES * size
        if held > self.charged:
            self.charge()

    def drop(self, outgoing: Handle) -> None:
        """Removes a settled message. Does nothing for a small message."""
        size = self._sizes.pop(outgoing, 0)
        held = self.held = self.held - COPIES * size
        if size and held * 2 <= self.charged:
            self.charge()

    def clearing(self) -> Iterator[None]:
        """Returns all charges of a link that is gone, in one step."""
        self._sizes.clear()
        self.held = 0
        self.charge()
        yield


class Details(Weights):
    """The states that a link's receiver gave for deliveries without settling. The engine keeps them on both sides.

    Attack: outcomes with errors or annotations of the maximum length, without settlement.
    """

    __slots__ = ()

    def give(self, outgoing: Handle, size: int) -> None:
        """Replaces the previous state of a delivery by one that takes `size` bytes in all."""
        self.drop(outgoing)
        self.add(outgoing, size // COPIES)
