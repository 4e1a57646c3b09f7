"""A folder of files watched by looking at it: works on every file system, and needs nothing of the system.

A change counts when two looks in a row have seen the same: a file that is being written, or a set of files that is
being copied, is waited for. Sources: docs/spec/policy-and-auth.md §1.1.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Final

from policy.files.regular import folder_entries, is_too_many
from router.io.aside import Aside

# Name, inode, size, time of the last change of content and of anything (ns) of every file that counts; None: the folder
# cannot be read.
Scan = tuple[tuple[str, int, int, int, int], ...] | None
# Of a folder with more files than are read. Stops one of a million files from taking up the router every second.
TOO_MANY: Final[Scan] = (("", 0, 0, 0, 0),)

# File systems take their times from a clock that ticks up to this much later than the one we read.
TICK_NS: Final = 50_000_000
# In place of the times of what is no file: later than any, so that it counts as not read yet.
_NO_TIME: Final = 1 << 63
# Looks until what could not be read for a reason that may pass is read again. Each attempt is a process, a line in the
# log and an audit event.
RETRY_LOOKS: Final = 30
# Reads under way: one, and one that waits until that ends or is ended.
MAX_READS: Final = 2


def scan(folder: str, counts: Callable[[str], bool]) -> Scan:
    """counts  does a file of this name count? Blocks as long as the file system does."""
    found = []
    try:
        for entry in folder_entries(folder, counts):
            # Of what a link points to: configuration is often mounted as links. It may be older than the link.
            inode, size, mtime, ctime = _seen(entry.stat())
            if entry.is_symlink():
                ctime = max(ctime, entry.stat(follow_symlinks=False).st_ctime_ns)
            found.append((entry.name, inode, size, mtime, ctime))
    except OSError as error:
        return TOO_MANY if is_too_many(error) else None
    return tuple(sorted(found))


def scan_file(path: str) -> Scan:
    """As `scan`, of one file."""
    try:
        return ((path, *_seen(os.stat(path))),)
    except OSError:
        return None


def _seen(status: os.stat_result) -> tuple[int, int, int, int]:
    if not stat.S_ISREG(status.st_mode):
        # A device that is used has other times at each look, and would never settle.
        return status.st_ino, 0, _NO_TIME, _NO_TIME
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class FolderWatch:
    """Calls when the files of a folder are other ones than those that were read last."""

    def __init__(self, scanned: Callable[[], Scan], changed: Callable[[], Awaitable[bool]], *, read_at_ns: int) -> None:
        """scanned     what is there now; called in a thread of its own
        changed     reads the folder; called once for every state of it, whether it can be used or not, also while it
                    reads an older one. False when it could not be read at all, for a reason that may pass: called
                    again after RETRY_LOOKS
        read_at_ns  when reading the folder for the first time began, ns since 1970 UTC
        """
        self._scanned = scanned
        self._changed = changed
        self._read_at_ns = read_at_ns
        self._aside = Aside()
        self._reads: set[asyncio.Task[None]] = set()
        self._seen: Scan = None  # at the last look
        self._taken: Scan = None  # as it was when it was read
        self._retry_in = 0  # looks; 0: not
        self._is_first = True
        self._is_unread = False  # there may be something that was not read, whatever it looks like

    async def look(self, every_s: float = 1.0) -> None:
        """Look once; have read what has stayed since the last time and has not been read.

        every_s  for so long a read is waited for; it goes on while others look
        """
        now = await self._scan()
        is_settled, self._seen = now == self._seen and not self._is_first, now
        if self._is_first:
            self._is_first, self._taken = False, now
            # A file written after reading began may not have been read.
            self._is_unread = any(max(mtime, ctime) >= self._read_at_ns - TICK_NS for *_, mtime, ctime in now or ())
        if is_settled and (self._is_unread or now != self._taken) and len(self._reads) < MAX_READS:
            self._taken, self._is_unread = now, False
            self._retry_in = 0
            self._reads.add(asyncio.get_running_loop().create_task(self._read()))
        elif self._retry_in:
            self._retry_in -= 1
            self._is_unread = not self._retry_in
        if self._reads:
            done, _ = await asyncio.wait(self._reads, timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
            self._reads -= done
            for read in done:
                read.result()

    async def _read(self) -> None:
        if not await self._changed():
            self._retry_in = RETRY_LOOKS

    async def _scan(self) -> Scan:
        try:
            return await self._aside.run(self._scanned)
        except TimeoutError:
            return None  # the disk does not answer: it cannot be read

    async def take(self) -> None:
        """Treat the current contents as already read: the folder is about to be read for another reason."""
        self._taken = self._seen = await self._scan()
        self._is_first = self._is_unread = False
        self._retry_in = 0

    async def run(self, every_s: float, failed: Callable[[Exception], None]) -> None:
        """Look again and again, until cancelled.

        failed  gets a fault of ours, after which it looks on
        """
        try:
            while True:
                try:
                    await self.look(every_s)
                except Exception as error:
                    failed(error)
                await asyncio.sleep(every_s)
        finally:
            for read in self._reads:
                read.cancel()
