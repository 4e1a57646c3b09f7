"""The file of an audit log that is being written. Only the writer thread uses it."""

import bisect
import contextlib
import errno
import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from router.audit.chain import LINKS_BYTES, Chain, Rest, Signer
from router.audit.compression import Compressor
from router.audit.event import DeletedFile
from router.audit.old_files import OldFiles, Retention

# If files are deleted by age, a new file is begun after a day. So its first events are not kept as long as its last.
_DAY_S: Final = 86400.0
# The time that a power cut may cost if auditFsync is interval.
SYNC_S: Final = 1.0

# The bytes of lines that one write() takes together, in addition to the first line. They are held twice meanwhile.
MAX_WRITE_BYTES: Final = 256 * 1024

# When a line counts as written. each: when it is on the disk. interval: when the system has it, and writes it within a
# second. none: when the system has it, and writes it at any time.
Fsync = Literal["each", "interval", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTerms:
    """How an audit log's files are written and kept.

    max_file_bytes  a file that would become larger is closed and a new one begun
    max_file_s      the same for a file that is older; None: no limit
    """

    max_file_bytes: int
    max_file_s: float | None = None
    fsync: Fsync = "each"
    is_compressed: bool = False
    retention: Retention = field(default_factory=Retention)


class Deletion(bytes):
    """The line that records the deletion of a file.

    It never begins a file, because a new file may cause another deletion.
    """

    path: Path


def open_new_file(path: Path) -> int:
    """Opens a new file, only for its owner. Does not follow or overwrite a link of that name."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class Files:
    """The file being written, and the files before it.

    rests  ends of files that are no part of the chain and must still be recorded
    """

    def __init__(
        self,
        directory: Path,
        *,
        router_id: str,
        now_s: Callable[[], float],
        terms: FileTerms,
        signer: Signer | None,
        open_file: Callable[[Path], int],
        report: Callable[[str], None],
    ) -> None:
        self.directory = directory
        self.rests: list[Rest] = []
        self._router_name = re.sub(r"[^A-Za-z0-9._-]", "_", router_id)[:64] or "_"
        self._now_s = now_s
        self._terms = terms
        self._open_file = open_file
        self._report = report
        self.old = OldFiles(
            directory,
            router_name=self._router_name,
            now_s=now_s,
            retention=terms.retention,
            report=report,
            compressor=Compressor(report) if terms.is_compressed else None,
        )
        ages = [terms.max_file_s, _DAY_S if terms.retention.max_age_s is not None else None]
        self._max_age_s = min((age for age in ages if age is not None), default=None)
        self._chain = Chain(signer)
        self._fd: int | None = None
        self._path = directory
        self._size = 0
        self._begun_s = 0.0  # since 1970 UTC
        self._synced_at = 0.0  # monotonic
        self._is_synced = True
        self._is_fresh = False
        self._is_look_due = False

    @property
    def digest(self) -> str:
        """The `previous` of the next line."""
        return self._chain.digest

    def resume(self) -> None:
        """Continues the chain of the last existing file. Call before anything is written."""
        try:
            digest, self.rests = self.old.last_end()
        except OSError as error:
            self._report(f"audit log: cannot look for earlier files in {self.directory}: {error}")
            return
        if digest is not None:
            self._chain.before = digest

    def write(self, batch: list[bytes]) -> tuple[int, Exception | None]:
        """Writes lines until the batch or the file ends, then calls fsync if it is due.

        Returns  the number of lines written, and the error that stopped it. Lines that may or may not be on disk count
                 as not written. Written again they have the same event_id, and the report counts them once.
        """
        error: Exception | None = None
        try:
            fd = self._ready(batch[0])
        except Exception as failed:
            return 0, failed
        start, chain = self._size, self._chain.copy()
        lines: list[bytes] = []
        taken = 0
        try:
            lines = self._linked(batch)
            # One write(): if the process is killed here, at most one line is torn, at the end of the file. A write()
            # for each line would take the interpreter from the event loop each time.
            taken = os.write(fd, b"".join(lines))
        except Exception as failed:
            error = failed
        ends = list(itertools.accumulate(map(len, lines)))
        done = bisect.bisect_right(ends, taken)
        if done < len(lines):
            error = error or OSError(f"took {taken} of {ends[-1]} bytes: the disk is full or a quota is reached")
        self._size = start + (ends[done - 1] if done else 0)
        is_torn = False
        if error is not None:
            self._chain = chain.copy()
            for line, whole in zip(batch, lines[:done], strict=False):
                self._chain.took(line, whole)
            is_torn = not self._cut_to(fd, self._size)
        self._is_synced = False
        try:
            if self._terms.fsync == "each":
                self._sync(fd)
        except Exception as failed:
            # After a failed fsync it is unknown which pages are on disk, and a second fsync may report a false success.
            # So begin a new file.
            self._chain = chain
            if not self._cut_to(fd, start):
                self._note_rest(fd, start, lines[:done])
            self._leave()
            return 0, error or failed
        if is_torn:
            self._note_rest(fd, self._size, lines[done:])
            self._leave()  # nothing may follow the torn line
        elif done and self._is_fresh:
            # Only after a success: a disk that fails repeatedly must not cause the deletion of good files.
            self._is_fresh = False
            self._is_look_due = True
        return done, error

    def _linked(self, batch: list[bytes]) -> list[bytes]:
        """Returns the first lines of a batch as they are written, as many as one write and the file allow.

        Advances the chain.
        """
        lines: list[bytes] = []
        size, most = self._size, self._size + MAX_WRITE_BYTES
        for line in batch:
            if (size and self._has_no_room(line, size)) or (lines and size + len(line) + LINKS_BYTES > most):
                break
            whole = self._chain.linked(line)
            self._chain.took(line, whole)
            lines.append(whole)
            size += len(whole)
        return lines

    def _note_rest(self, fd: int, size: int, lines: list[bytes]) -> None:
        """Notes that the file has more than the chain contains: `lines`, completely or in part, from `size` on."""
        try:
            extra = os.fstat(fd).st_size - size
        except OSError:
            return
        if extra > 0:
            digest = hashlib.sha256(b"".join(lines)[:extra]).hexdigest()
            self.rests.append(Rest(file=self._path.name, size=extra, sha256=digest))

    def _sync(self, fd: int) -> None:
        os.fsync(fd)
        self._synced_at, self._is_synced = time.monotonic(), True

    def _leave(self) -> None:
        """Gives up the file after a fault. Removes an empty file, so that repeated attempts leave none."""
        self._close_fd()
        if self._size == 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _finish(self) -> None:
        """Closes the file unchanged: it is full, old, or the log is closed."""
        if self._fd is not None and not self._is_synced and self._terms.fsync == "interval":
            self._sync_late(self._fd)
        self._close_fd()

    def close(self) -> None:
        self._finish()
        self.old.close()

    def _close_fd(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.close(fd)
            except OSError as error:
                self._report(f"audit log: closing {self._path}: {error}")

    def _has_no_room(self, line: bytes, size: int) -> bool:
        is_over = size + len(line) + LINKS_BYTES > self._terms.max_file_bytes
        return is_over and not isinstance(line, Deletion)

    def _is_old(self) -> bool:
        return self._max_age_s is not None and abs(self._now_s() - self._begun_s) > self._max_age_s

    def _ready(self, line: bytes) -> int:
        """Returns a descriptor with room for a line."""
        if self._fd is not None and self._size and (self._has_no_room(line, self._size) or self._is_old()):
            self._finish()
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self._report(f"audit log: {self._path} was removed while it was being written; a new file is begun")
            self._close_fd()
        if self._fd is None:
            self._begin()
        assert self._fd is not None
        return self._fd

    def _begin(self) -> None:
        time_s = self._now_s()
        path = self.directory
        for stamp in self.old.new_stamps():
            path = self.directory / f"denials-{stamp}-{self._router_name}-{os.getpid()}.jsonl"
            try:
                self._fd = self._open_file(path)
            except FileExistsError:
                continue
            self._path, self._size, self._is_fresh, self._begun_s = path, 0, True, time_s
            self._chain.begin_file()
            _sync_directory(self.directory)
            return
        raise FileExistsError(f"{path} and a thousand names before it are taken")

    # Time

    def next_chore_s(self) -> float | None:
        """Returns the seconds until `on_time` has something to do; None: it has nothing to do."""
        left = []
        if self._fd is not None and not self._is_synced and self._terms.fsync == "interval":
            left.append(self._synced_at + SYNC_S - time.monotonic())
        if self._fd is not None and self._terms.max_file_s is not None:
            left.append(self._begun_s + self._terms.max_file_s - self._now_s())
        return max(0.01, min(left)) if left else None

    def on_time(self) -> None:
        """Syncs if it is due, and closes a file that is old enough, even if nothing is written."""
        if self._fd is None:
            return
        if self._terms.fsync == "interval" and not self._is_synced and time.monotonic() >= self._synced_at + SYNC_S:
            self._sync_late(self._fd)
        if self._terms.max_file_s is not None and self._is_old():
            self._finish()

    def _sync_late(self, fd: int) -> None:
        """Syncs lines that already count as written."""
        try:
            self._sync(fd)
        except OSError as error:
            self._report(f"audit log: {self._path}: lines of the last moments may not be on the disk: {error}")
            self._is_synced = True
            self._close_fd()

    # Retention

    def look_again(self) -> None:
        """Makes `take_surplus` look again, because time has passed and older files may have expired."""
        self._is_look_due = True

    def take_surplus(self) -> list[tuple[Path, DeletedFile]]:
        """Returns the files to delete, once for each file begun. Record each deletion, then `delete` the file."""
        if not self._is_look_due:
            return []
        self._is_look_due = False
        try:
            if self._fd is not None:
                self.old.compress(self._path)
            size = max(self._size, self._terms.max_file_bytes)
            upcoming = self.digest if self._fd is None else None
            found = self.old.surplus(self._path, size, upcoming)
        except OSError as error:
            self._report(f"audit log: cannot look for old files in {self.directory}: {error}")
            return []
        self._is_look_due = self.old.has_more
        return found

    def _cut_to(self, fd: int, size: int) -> bool:
        try:
            os.ftruncate(fd, size)
        except OSError:
            return False
        self._size = size
        return True


def _sync_directory(directory: Path) -> None:
    """Makes a new file's name durable. Otherwise a power cut may remove the whole file."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems do not support this for a directory
            raise
    finally:
        os.close(fd)
