"""How much one read may bring, so that all busy sockets together have one buffer full in a pass of the loop.

Attack: sixteen peers keep their sockets full. With a whole buffer each, a peer that sends one message and waits for the
answer would wait behind sixteen buffers, each worth some hundred messages of work.
"""

from collections.abc import Callable
from typing import Final

from router.amqp.buffers import READ_BYTES

# A read has a price whatever it brings; less than this would cost more than it serves anybody.
LEAST_BYTES: Final = 8 * 1024


class ReadShare:
    """size  bytes to read at once, of any socket"""

    __slots__ = ("_call_soon", "_full", "size")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """call_soon  the loop's: calls in its next pass"""
        self._call_soon = call_soon
        self._full = 0
        self.size = READ_BYTES

    def is_full(self) -> None:
        """A read has brought all that it might: there is more where it came from."""
        if not self._full:
            self._call_soon(self._share)
        self._full += 1

    def _share(self) -> None:
        """The pass is over: as many sockets as were busy in it share the next."""
        self.size = max(READ_BYTES // self._full, LEAST_BYTES)
        self._full = 0
