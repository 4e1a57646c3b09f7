"""The addresses to which a connection may reply: the reply-tos of messages it received, in bounded memory. Pure.

Keys and askers are opaque here. A key stays in memory for some time after it has expired, so that a denial can say that
the reply comes too late. Source: docs/policy.md, Request and reply.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Final

# Attack: messages with ever different reply-tos fill the router's memory through the connections that receive them. The
# two limits apply to each connection: 16384 askers at a time, and 8 MiB including Python's overhead per entry.
MAX_REPLIES: Final = 16_384
MAX_REPLY_BYTES: Final = 8 * 1024 * 1024
ENTRY_BYTES: Final = 480  # measured: an entry without its key, for an asker with only this one
# Attack: few reply-tos, but huge ones. No reply queue has an address of this length.
MAX_KEY_CHARACTERS: Final = 1024


@dataclass(slots=True)
class _Entry:
    received_at: float
    asker: Hashable
    size: int


class ReplyMemory:
    """The addresses to which one connection was asked to reply.

    keep_s  how long a reply-to may be used, in seconds; it is remembered for twice as long
    """

    __slots__ = ("_askers", "_bytes", "_entries", "_most", "_ranks", "keep_s")

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s
        self._entries: dict[str, _Entry] = {}  # the oldest first
        self._askers: dict[Hashable, dict[str, None]] = {}  # the same for each asker
        self._ranks: dict[int, dict[Hashable, None]] = {}  # number of keys -> the askers with that many
        self._most = 0  # the highest of those numbers
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def remember(self, key: str, asker: Hashable, now: float) -> bool:
        """Stores the reply-to `key` of a received message. Returns False if it is too long to be stored.

        asker  the sender of the message. If there is no room, the asker with the most reply-tos loses its oldest one: a
               flood of reply-tos harms only its sender.
        """
        if len(key) > MAX_KEY_CHARACTERS:
            return False
        known = self._entries.pop(key, None)
        if known is not None:
            known.received_at = now
            self._entries[key] = known
            keys = self._askers[known.asker]
            del keys[key]
            keys[key] = None
            return True
        size = ENTRY_BYTES + len(key.encode("utf-8", "replace"))
        while self._entries and (len(self._entries) >= MAX_REPLIES or self._bytes + size > MAX_REPLY_BYTES):
            self._forget(self._least_needed(now))
        self._drop_old(now)
        self._entries[key] = _Entry(now, asker, size)
        self._bytes += size
        keys = self._askers.setdefault(asker, {})
        keys[key] = None
        self._rank(asker, len(keys) - 1, len(keys))
        return True

    def age(self, key: str, now: float) -> float | None:
        """Returns seconds since the last message with this reply-to was received. None if none is remembered."""
        entry = self._entries.get(key)
        return now - entry.received_at if entry is not None else None

    def _drop_old(self, now: float) -> None:
        # Two for each new message: no single message pays for a thousand, and the memory still shrinks.
        for key in tuple(islice(self._entries, 2)):
            if now - self._entries[key].received_at >= 2 * self.keep_s:
                self._forget(key)

    def _least_needed(self, now: float) -> str:
        key, entry = next(iter(self._entries.items()))
        if now - entry.received_at >= self.keep_s:
            return key
        return next(iter(self._askers[next(iter(self._ranks[self._most]))]))

    def _forget(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._bytes -= entry.size
        keys = self._askers[entry.asker]
        del keys[key]
        self._rank(entry.asker, len(keys) + 1, len(keys))
        if not keys:
            del self._askers[entry.asker]

    def _rank(self, asker: Hashable, before: int, after: int) -> None:
        if before:
            others = self._ranks[before]
            del others[asker]
            if not others:
                del self._ranks[before]
        if after:
            self._ranks.setdefault(after, {})[asker] = None
        # One key more or less changes the highest number by one at most.
        if after > self._most or self._most not in self._ranks:
            self._most = after
