"""Watches a folder of files by polling. This works on every file system, and needs no system support.

A change counts if two consecutive looks see the same state. So a file that is being written, or a set of files that is
being copied, is read only when it is complete. Sources: docs/spec/policy-and-auth.md §1.1.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Final

from policy.files.regular import folder_entries, is_too_many
from router.io.aside import Aside

# Name, inode, size, time of the last content change and time of the last change (ns) of every file that counts; None:
# the folder cannot be read.
Scan = tuple[tuple[str, int, int, int, int], ...] | None
# The result for a folder with too many files. Attack: a folder of a million files occupies the router every second.
TOO_MANY: Final[Scan] = (("", 0, 0, 0, 0),)

# File systems take their times from a clock that may be this much later than the one we read.
TICK_NS: Final = 50_000_000
# Used instead of the times of anything that is no file. It is later than any time, so the file counts as not read yet.
_NO_TIME: Final = 1 << 63
# The looks after which a temporary failure is retried. Each attempt needs a process, a log line and an audit event.
RETRY_LOOKS: Final = 30
# The maximum of concurrent reads: one, and one that waits until the first ends or is ended.
MAX_READS: Final = 2


def scan(folder: str, counts: Callable[[str], bool]) -> Scan:
    """Returns the state of a folder. Blocks as long as the file system does.

    counts  returns True if a file of this name counts
    """
    found = []
    try:
        for entry in folder_entries(folder, counts):
            # The state of a link's target, which may be older than the link: configuration is often mounted as links.
            inode, size, mtime, ctime = _seen(entry.stat())
            if entry.is_symlink():
                ctime = max(ctime, entry.stat(follow_symlinks=False).st_ctime_ns)
            found.append((entry.name, inode, size, mtime, ctime))
    except OSError as error:
        return TOO_MANY if is_too_many(error) else None
    return tuple(sorted(found))


def scan_file(path: str) -> Scan:
    """Returns the state of one file, as `scan` does for a folder."""
    try:
        return ((path, *_seen(os.stat(path))),)
    except OSError:
        return None


def _seen(status: os.stat_result) -> tuple[int, int, int, int]:
    if not stat.S_ISREG(status.st_mode):
        # A device that is in use has other times at each look, and would never be stable.
        return status.st_ino, 0, _NO_TIME, _NO_TIME
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class FolderWatch:
    """Calls back if the files of a folder differ from those that were read last."""

    def __init__(self, scanned: Callable[[], Scan], changed: Callable[[], Awaitable[bool]], *, read_at_ns: int) -> None:
        """Starts without a look.

        scanned     returns the current state; called in a separate thread
        changed     reads the folder. Called once for every state, usable or not, and also while it reads an older one.
                    Returns False if the folder could not be read for a temporary reason: it is called again after
                    RETRY_LOOKS
        read_at_ns  when the first reading of the folder began, ns since 1970 UTC
        """
        self._scanned = scanned
        self._changed = changed
        self._read_at_ns = read_at_ns
        self._aside = Aside()
        self._reads: set[asyncio.Task[None]] = set()
        self._seen: Scan = None  # at the last look
        self._taken: Scan = None  # the state that was read last
        self._retry_in = 0  # in this number of looks; 0: not at all
        self._is_first = True
        self._is_unread = False  # something may not have been read, whatever the state is

    async def look(self, every_s: float = 1.0) -> None:
        """Looks once, and starts a read of a state that is stable and has not been read.

        every_s  how long to wait for a read. It continues during later looks
        """
        now = await self._scan()
        is_settled, self._seen = now == self._seen and not self._is_first, now
        if self._is_first:
            self._is_first, self._taken = False, now
            # A file written after the reading began may not have been read.
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
            return None  # the disk does not answer, so it cannot be read

    async def take(self) -> None:
        """Treats the current contents as already read, because the folder is about to be read for another reason."""
        self._taken = self._seen = await self._scan()
        self._is_first = self._is_unread = False
        self._retry_in = 0

    async def run(self, every_s: float, failed: Callable[[Exception], None]) -> None:
        """Looks repeatedly until it is cancelled.

        failed  gets our own faults, after which the watch continues
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
