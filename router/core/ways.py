"""Bounds the messages of one address that are in flight to other routers over one connection.

The limit is for each address. Past it the senders to that address are held back, as if its receiver were slow and on
this router. Neighbours are not held back: they hold back their own clients.

Attack: a receiver on another router that takes nothing, or settles nothing. Messages to it filled the budget of the
connection between the routers, and the messages of all others waited.
"""

from typing import Final, Protocol

from router.core.budget import RECORD_BYTES

WAY_FULL: Final = 8  # a reason to take nothing from a link (router.core.in_links)
_NO_LIMIT: Final = 1 << 62


class Peer(Protocol):
    @property
    def is_neighbour(self) -> bool: ...


class Sender(Protocol):
    """A link whose messages use the way (router.core.in_links)."""

    is_open: bool

    @property
    def attachment(self) -> Peer: ...
    def hold(self, why: int, /) -> None: ...
    def ease(self, why: int, /) -> None: ...


class Way:
    """The messages of one address on one connection.

    count  messages
    bytes  of the large messages, as they are charged
    most   the limit of messages, each of which takes a record
    """

    __slots__ = ("_held_back", "_limit", "bytes", "count", "is_full", "most")

    def __init__(self, limit: int) -> None:
        """Sets the limit.

        limit  bytes, including a record for each message; 0: no limit
        """
        self.count = self.bytes = 0
        self.is_full = False  # at least one sender waits
        self.most = limit // RECORD_BYTES if limit else _NO_LIMIT
        self._limit = limit or _NO_LIMIT
        self._held_back: dict[Sender, None] = {}

    def enter(self, sender: Sender) -> None:
        """Counts a message of this sender."""
        self.count += 1
        if self.count > self.most:
            self.hold_back(sender)

    def add(self, size: int, sender: Sender) -> None:
        """Adds `size` bytes of a message of this sender."""
        held = self.bytes = self.bytes + size
        if held + self.count * RECORD_BYTES > self._limit:
            self.hold_back(sender)

    def drop(self, size: int) -> None:
        self.bytes -= size
        if self.is_full:
            self.ease()

    def hold_back(self, sender: Sender) -> None:
        """Holds back the sender, because the way is full."""
        if sender.is_open and not sender.attachment.is_neighbour:
            self.is_full = True
            self._held_back[sender] = None
            sender.hold(WAY_FULL)

    def leave(self) -> None:
        """Removes a message that has its outcome."""
        self.count -= 1
        if self.is_full:
            self.ease()

    def ease(self) -> None:
        """Lets the waiting senders continue if there is room again."""
        if self.bytes + self.count * RECORD_BYTES <= self._limit - self._limit // 8:
            self.is_full = False
            held_back, self._held_back = self._held_back, {}
            for sender in held_back:
                sender.ease(WAY_FULL)
