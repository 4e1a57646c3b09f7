"""What of one address is on its way to other routers by one connection, and has no outcome.

It is bounded for each address: past the limit those who send to it are held back, as if its receiver were slow and on
this router. Neighbours are not: they hold back their own clients.

Attack: a receiver on another router that takes nothing, or settles nothing. What was sent to it filled the budget of
the connection between the routers, and everybody's messages waited.
"""

from typing import Final, Protocol

from router.core.budget import RECORD_BYTES

WAY_FULL: Final = 8  # why nothing is taken from a link (router.core.in_links)
_NO_LIMIT: Final = 1 << 62


class Peer(Protocol):
    @property
    def is_neighbour(self) -> bool: ...


class Sender(Protocol):
    """A link whose messages go that way (router.core.in_links)."""

    is_open: bool

    @property
    def attachment(self) -> Peer: ...
    def hold(self, why: int, /) -> None: ...
    def ease(self, why: int, /) -> None: ...


class Way:
    """count  messages
    bytes  of the large ones, as they are charged
    most   so many messages may be on it, each of which takes a record
    """

    __slots__ = ("_held_back", "_limit", "bytes", "count", "is_full", "most")

    def __init__(self, limit: int) -> None:
        """limit  bytes, with a record for each message; 0: none"""
        self.count = self.bytes = 0
        self.is_full = False  # somebody waits
        self.most = limit // RECORD_BYTES if limit else _NO_LIMIT
        self._limit = limit or _NO_LIMIT
        self._held_back: dict[Sender, None] = {}

    def enter(self, sender: Sender) -> None:
        """A message of this sender is on it."""
        self.count += 1
        if self.count > self.most:
            self.hold_back(sender)

    def add(self, size: int, sender: Sender) -> None:
        """So are `size` bytes of it."""
        held = self.bytes = self.bytes + size
        if held + self.count * RECORD_BYTES > self._limit:
            self.hold_back(sender)

    def drop(self, size: int) -> None:
        self.bytes -= size
        if self.is_full:
            self.ease()

    def hold_back(self, sender: Sender) -> None:
        """The way is full: the sender waits."""
        if sender.is_open and not sender.attachment.is_neighbour:
            self.is_full = True
            self._held_back[sender] = None
            sender.hold(WAY_FULL)

    def leave(self) -> None:
        """A message has its outcome."""
        self.count -= 1
        if self.is_full:
            self.ease()

    def ease(self) -> None:
        """Those who wait go on when there is room again."""
        if self.bytes + self.count * RECORD_BYTES <= self._limit - self._limit // 8:
            self.is_full = False
            held_back, self._held_back = self._held_back, {}
            for sender in held_back:
                sender.ease(WAY_FULL)
