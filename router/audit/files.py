"""The files of an audit log: the one that is written, and which of the older ones retention deletes.

The writer thread alone uses them. What is deleted has an event of the log's own first (router.audit.trail).
"""

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from router.audit.event import DeletedFile

# A file's first and last events are looked for in so many bytes: an event is under 150 kB.
_LOOK_BYTES: Final = 256 * 1024
# Where files are deleted by age, one is left after a day, so that its first events are not kept as long as its last.
_DAY_S: Final = 86400.0
# Files deleted before something else is written: the first limits of a folder may concern thousands.
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which files of a router id are kept; None: all. The file being written always is.

    max_files  with the one being written
    max_bytes  in all, that one taken as large as it may become
    max_age_s  since the last event of a file
    """

    max_files: int | None = None
    max_bytes: int | None = None
    max_age_s: float | None = None


class Deletion(bytes):
    """The line that says that a file is deleted. It never begins a file, which might have another one deleted."""

    path: Path


def open_new_file(path: Path) -> int:
    """A file that was not there before, for its owner alone. No link of that name is followed or overwritten."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class Files:
    """The file being written, and those before it."""

    def __init__(
        self,
        directory: Path,
        *,
        router_id: str,
        now_s: Callable[[], float],
        max_file_bytes: int,
        retention: Retention,
        open_file: Callable[[Path], int],
        report: Callable[[str], None],
    ) -> None:
        self.directory = directory
        self._router_name = re.sub(r"[^A-Za-z0-9._-]", "_", router_id)[:64] or "_"
        self._now_s = now_s
        self._max_file_bytes = max_file_bytes
        self._retention = retention
        self._open_file = open_file
        self._report = report
        self._fd: int | None = None
        self._path = directory
        self._size = 0
        self._begun_s = 0.0  # since 1970 UTC
        self._is_fresh = False
        self._is_look_due = False
        self._doomed: set[str] = set()  # names whose deletion is being recorded

    def write(self, batch: list[bytes]) -> tuple[int, Exception | None]:
        """Write lines until the batch or the file ends, then fsync.

        Returns  how many lines are durable, and the error that stopped it. Lines that may or may not be on disk count
                 as not written: written again they carry the same event_id, and the report counts them once.
        """
        done = 0
        error: Exception | None = None
        is_torn = False
        try:
            fd = self._ready(batch[0])
        except Exception as failed:
            return 0, failed
        start = self._size
        try:
            for line in batch:
                if self._size and self._has_no_room(line):
                    break
                # One write() a line: a process killed here leaves at most this one line torn, at the end of the file.
                taken = os.write(fd, line)
                if taken < len(line):
                    raise OSError(f"took {taken} of {len(line)} bytes: the disk is full or a quota is reached")
                self._size += len(line)
                done += 1
        except Exception as failed:
            error = failed
            is_torn = not self._cut_to(fd, self._size)
        try:
            os.fsync(fd)
        except Exception as failed:
            # After a failed fsync nobody knows which pages are on disk, and a second fsync may lie: begin a new file.
            self._cut_to(fd, start)
            self._leave()
            return 0, error or failed
        if is_torn:
            self._leave()  # nothing may follow on the torn line
        elif done and self._is_fresh:
            # Only after a success: a disk that fails again and again must not cost the files that are good.
            self._is_fresh = False
            self._is_look_due = True
        return done, error

    def _leave(self) -> None:
        """Give up the file after a fault; an empty one is taken away, lest each attempt leave one behind."""
        self.close()
        if self._size == 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.close(fd)
            except OSError as error:
                self._report(f"audit log: closing {self._path}: {error}")

    def _has_no_room(self, line: bytes) -> bool:
        return not isinstance(line, Deletion) and self._size + len(line) > self._max_file_bytes

    def _is_of_another_day(self) -> bool:
        return self._retention.max_age_s is not None and abs(self._now_s() - self._begun_s) > _DAY_S

    def _ready(self, line: bytes) -> int:
        """A descriptor with room for a line."""
        if self._fd is not None and self._size and (self._has_no_room(line) or self._is_of_another_day()):
            self.close()
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self._report(f"audit log: {self._path} was removed while it was being written; a new file is begun")
            self.close()
        if self._fd is None:
            self._begin()
        assert self._fd is not None
        return self._fd

    def _begin(self) -> None:
        time_s = self._now_s()
        for attempt in range(1000):
            stamp = datetime.fromtimestamp(time_s + attempt * 1e-6, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
            path = self.directory / f"denials-{stamp}-{self._router_name}-{os.getpid()}.jsonl"
            try:
                self._fd = self._open_file(path)
            except FileExistsError:
                continue
            self._path, self._size, self._is_fresh, self._begun_s = path, 0, True, time_s
            _sync_directory(self.directory)
            return
        raise FileExistsError(f"{path} and a thousand names after it are taken")

    # Retention

    def look_again(self) -> None:
        """Time has passed: older files may have come of age."""
        self._is_look_due = True

    def take_surplus(self) -> list[tuple[Path, DeletedFile]]:
        """The files to be deleted, once for each file begun: record each, then `delete` it."""
        if not self._is_look_due:
            return []
        self._is_look_due = False
        try:
            found = list(islice(self._surplus(), _AT_ONCE))
        except OSError as error:
            self._report(f"audit log: cannot look for old files in {self.directory}: {error}")
            return []
        self._is_look_due = len(found) == _AT_ONCE
        self._doomed.update(path.name for path, _ in found)
        return found

    def _surplus(self) -> Iterator[tuple[Path, DeletedFile]]:
        retention = self._retention
        if retention == Retention():
            return
        ours = re.compile(rf"denials-\d{{8}}T\d{{6}}\.\d{{6}}Z-{re.escape(self._router_name)}-\d+\.jsonl")
        older = [self.directory / name for name in os.listdir(self.directory) if ours.fullmatch(name)]
        older = sorted(path for path in older if path.name not in self._doomed and path != self._path)
        states = [os.lstat(path) for path in older]
        files = len(older) + (self._fd is not None)
        size = sum(state.st_size for state in states) + max(self._size, self._max_file_bytes)
        oldest_s = self._now_s() - retention.max_age_s if retention.max_age_s is not None else None
        for path, state in zip(older, states, strict=True):
            if retention.max_files is not None and files > retention.max_files:
                limit = "auditMaxFiles"
            elif retention.max_bytes is not None and size > retention.max_bytes:
                limit = "auditMaxBytes"
            elif oldest_s is not None and state.st_mtime < oldest_s:
                limit = "auditMaxAgeDays"
            else:
                continue
            files -= 1
            size -= state.st_size
            start, first, last = _events_in(path)
            yield (
                path,
                DeletedFile(name=path.name, size=state.st_size, start=start, first=first, last=last, limit=limit),
            )

    def delete(self, path: Path) -> None:
        """Delete a file whose deletion is on record."""
        self._doomed.discard(path.name)
        try:
            os.unlink(path)
        except OSError as error:
            self._report(f"audit log: cannot delete {path}: {error}")
        else:
            self._report(f"audit log: deleted {path}, as the limits of its files ask")

    def _cut_to(self, fd: int, size: int) -> bool:
        try:
            os.ftruncate(fd, size)
        except OSError:
            return False
        self._size = size
        return True


def _sync_directory(directory: Path) -> None:
    """Make a new file's name durable; without it a power cut may take the file whole."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot do this for a directory
            raise
    finally:
        os.close(fd)


def _events_in(path: Path) -> tuple[str | None, int | None, int | None]:
    """The start whose events a file has, and the numbers of its first and last whole one; None: not to be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, None, None
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            return None, None, None
        head = os.pread(fd, _LOOK_BYTES, 0)
        tail = os.pread(fd, _LOOK_BYTES, max(0, state.st_size - _LOOK_BYTES))
    except OSError:
        return None, None, None
    finally:
        os.close(fd)
    start, first = _numbers(head.partition(b"\n")[0])
    whole = tail[: tail.rfind(b"\n") + 1].splitlines()  # a torn line at the end is none
    return start, first, _numbers(whole[-1])[1] if whole else None


def _numbers(line: bytes) -> tuple[str | None, int | None]:
    try:
        event = json.loads(line)
        start, sequence = event["start"], event["sequence"]
    except (ValueError, KeyError, TypeError):
        return None, None
    return (start, sequence) if isinstance(start, str) and isinstance(sequence, int) else (None, None)
