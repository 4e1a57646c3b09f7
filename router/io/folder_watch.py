"""A folder of files watched by looking at it: works on every file system, and needs nothing of the system.

A change counts when two looks in a row have seen the same: a file that is being written, or a set of files that is
being copied, is waited for. Sources: docs/spec/policy-and-auth.md §1.1.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

# Name, inode, size, time of the last change of content and of anything (ns) of every file that counts; None: the folder
# cannot be read.
Scan = tuple[tuple[str, int, int, int, int], ...] | None

# File systems take their times from a clock that ticks up to this much later than the one we read.
TICK_NS: Final = 50_000_000
# Looks until what could not be read for a reason that may pass is read again. Each attempt is a process, a line in the
# log and an audit event.
RETRY_LOOKS: Final = 30


def scan(folder: str, counts: Callable[[str], bool]) -> Scan:
    """counts  does a file of this name count? Blocks as long as the file system does."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if counts(entry.name):
                    status = entry.stat()  # of what a link points to: configuration is often mounted as links
                    found.append((entry.name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    except OSError:
        return None
    return tuple(sorted(found))


class FolderWatch:
    """Calls when the files of a folder are other ones than those that were read last."""

    def __init__(
        self, folder: str, counts: Callable[[str], bool], changed: Callable[[], Awaitable[bool]], *, read_at_ns: int
    ) -> None:
        """counts      as for `scan`
        changed     reads the folder; called once for every state of it, whether it can be used or not. False when it
                    could not be read at all, for a reason that may pass: called again after RETRY_LOOKS
        read_at_ns  when reading the folder for the first time began, ns since 1970 UTC
        """
        self._folder = folder
        self._counts = counts
        self._changed = changed
        self._read_at_ns = read_at_ns
        self._seen: Scan = None  # at the last look
        self._taken: Scan = None  # as it was when it was read
        self._retry_in = 0  # looks; 0: not
        self._is_first = True
        self._is_unread = False  # there may be something that was not read, whatever it looks like

    async def look(self) -> None:
        """Look once; call when the contents seen the last time have stayed and have not been read."""
        now = await asyncio.to_thread(scan, self._folder, self._counts)
        is_settled, self._seen = now == self._seen and not self._is_first, now
        if self._is_first:
            self._is_first, self._taken = False, now
            # A file written after reading began may not have been read.
            self._is_unread = any(max(mtime, ctime) >= self._read_at_ns - TICK_NS for *_, mtime, ctime in now or ())
        if is_settled and (self._is_unread or now != self._taken):
            self._taken, self._is_unread = now, False
            self._retry_in = 0 if await self._changed() else RETRY_LOOKS
        elif self._retry_in:
            self._retry_in -= 1
            self._is_unread = not self._retry_in

    async def take(self) -> None:
        """Treat the current contents as already read: the folder is about to be read for another reason."""
        self._taken = self._seen = await asyncio.to_thread(scan, self._folder, self._counts)
        self._is_first = self._is_unread = False
        self._retry_in = 0

    async def run(self, every_s: float, failed: Callable[[Exception], None]) -> None:
        """Look again and again, until cancelled.

        failed  gets a fault of ours, after which it looks on
        """
        while True:
            try:
                await self.look()
            except Exception as error:
                failed(error)
            await asyncio.sleep(every_s)
