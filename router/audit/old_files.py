"""The closed files of an audit log: finds them, chooses those to delete, and reads the end of the last one.

Only the writer thread uses them. Before a file is deleted, an event of the log records that (router.audit.trail).
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from stat import S_ISREG
from typing import Final

from router.audit.chain import Rest, end_of, first_previous
from router.audit.compression import SUFFIX, Compressor
from router.audit.event import DeletedFile

# A file's first and last events are searched in this number of bytes: an event is under 150 kB.
_LOOK_BYTES: Final = 256 * 1024
# The number of files deleted before something else is written: new limits of a folder may concern thousands of files.
_AT_ONCE: Final = 100
_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The files of a router id that are kept; None: no limit. The file being written is always kept.

    max_files  including the one being written
    max_bytes  in total, with the maximum size for the one being written
    max_age_s  since the last event of a file
    """

    max_files: int | None = None
    max_bytes: int | None = None
    max_age_s: float | None = None


class OldFiles:
    """The closed files of one router id.

    router_name  the router's id as in file names
    now_s        seconds since 1970 UTC
    compressor   None: closed files stay uncompressed
    """

    def __init__(
        self,
        directory: Path,
        *,
        router_name: str,
        now_s: Callable[[], float],
        retention: Retention,
        report: Callable[[str], None],
        compressor: Compressor | None,
    ) -> None:
        self._directory = directory
        self._router_name = router_name
        self._now_s = now_s
        self._retention = retention
        self._report = report
        self._compressor = compressor
        self._ours = re.compile(
            rf"denials-(\d{{8}}T\d{{6}}\.\d{{6}}Z)-{re.escape(router_name)}-\d+\.jsonl(?:{re.escape(SUFFIX)})?"
        )
        self._doomed: set[str] = set()  # names of files whose deletion is being recorded
        self._last_stamp_s = 0.0

    def last_end(self) -> tuple[str | None, list[Rest]]:
        """Returns the `previous` for the first line of the next file, or None if there is no earlier file.

        Also returns the half lines at the ends of the last files.
        """
        rests: list[Rest] = []
        for path in reversed(self.all()):
            try:
                digest, rest = end_of(path)
            except (OSError, EOFError, zlib.error) as error:
                self._report(f"audit log: cannot read {path}, so that the chain begins anew: {error}")
                return None, rests
            if rest is not None:
                rests.append(replace(rest, file=plain_name(path)))
            if digest is not None:
                return digest, rests
        return None, rests

    def all(self) -> list[Path]:
        """Returns the regular files of this router's id, sorted by name. This is the order of the chain."""
        with self._named():
            names = sorted(name for name in os.listdir(self._directory) if self._ours.fullmatch(name))
            return [path for path in (self._directory / name for name in names) if S_ISREG(os.lstat(path).st_mode)]

    def _named(self) -> AbstractContextManager[object]:
        """Returns a context in which no file is renamed."""
        return self._compressor.naming() if self._compressor is not None else nullcontext()

    def new_stamps(self) -> Iterator[str]:
        """Iterates over times for the name of a new file.

        They are later than those of all files, even if the clock was set back.
        """
        time = datetime.fromtimestamp(self._now_s(), UTC)
        names = [name for name in os.listdir(self._directory) if self._ours.fullmatch(name)]
        if names and (found := self._ours.fullmatch(max(names))):
            last = datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC)
            # No clock is ten years ahead: such a name is not from the router, and would affect all its later names.
            if last < time + timedelta(days=3650):
                time = max(time, last + timedelta(microseconds=1))
        for attempt in range(1000):
            yield (time + timedelta(microseconds=attempt)).strftime(_STAMP)

    def compress(self, current: Path) -> None:
        """Compresses the files before the current one, because a new file is begun."""
        if self._compressor is not None:
            for path in self.all():
                if path != current and path.suffix != SUFFIX:
                    self._compressor.add(path)

    def surplus(self, current: Path, open_size: int, upcoming: str | None) -> list[tuple[Path, DeletedFile]]:
        """Returns the files to delete. Record each deletion, then `delete` the file.

        current    the file being written, or written last
        open_size  the size that the file being written may reach, bytes
        upcoming   the `previous` for the next file; None: a file is being written
        """
        if self._retention == Retention():
            return []
        with self._named():
            found = list(islice(self._surplus(current, open_size, upcoming), _AT_ONCE))
        self._doomed.update(plain_name(path) for path, _ in found)
        return found

    @property
    def has_more(self) -> bool:
        """True if there were more files than `surplus` returned at once."""
        return len(self._doomed) >= _AT_ONCE

    def _surplus(self, current: Path, open_size: int, upcoming: str | None) -> Iterator[tuple[Path, DeletedFile]]:
        retention = self._retention
        names = sorted(name for name in os.listdir(self._directory) if self._ours.fullmatch(name))
        older = [self._directory / name for name in names if upcoming is not None or name != current.name]
        older = [path for path in older if plain_name(path) not in self._doomed]
        states = [os.lstat(path) for path in older]
        files = len(older) + (upcoming is None)
        size = sum(state.st_size for state in states) + open_size
        oldest_s = self._now_s() - retention.max_age_s if retention.max_age_s is not None else None
        for (path, following), state in zip(pairwise([*older, current]), states, strict=True):
            if retention.max_files is not None and files > retention.max_files:
                limit = "auditMaxFiles"
            elif retention.max_bytes is not None and size > retention.max_bytes:
                limit = "auditMaxBytes"
            elif oldest_s is not None and state.st_mtime < oldest_s:
                limit = "auditMaxAgeDays"
            else:
                return  # keep the rest, so that the chain has no gap
            files -= 1
            size -= state.st_size
            start, first, last = _events_in(path)
            yield (
                path,
                DeletedFile(
                    name=path.name,
                    size=state.st_size,
                    start=start,
                    first=first,
                    last=last,
                    limit=limit,
                    digest=upcoming if following is current and upcoming is not None else first_previous(following),
                ),
            )

    def delete(self, path: Path) -> None:
        """Deletes a file whose deletion is recorded."""
        self._doomed.discard(plain_name(path))
        try:
            if self._compressor is not None:
                self._compressor.delete(path)
            else:
                os.unlink(path)
        except OSError as error:
            self._report(f"audit log: cannot delete {path}: {error}")
        else:
            self._report(f"audit log: deleted {path}, as the limits of its files ask")

    def close(self) -> None:
        if self._compressor is not None:
            self._compressor.close()


def plain_name(path: Path) -> str:
    """Returns a file's name before it was compressed."""
    return path.name.removesuffix(SUFFIX)


def _events_in(path: Path) -> tuple[str | None, int | None, int | None]:
    """Returns the start of a file's events, and the numbers of its first and last whole event; None: unreadable."""
    head = tail = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, None, None
    try:
        with open(fd, "rb") as file:
            state = os.fstat(fd)
            if not S_ISREG(state.st_mode):
                return None, None, None
            if path.suffix != SUFFIX:
                head = os.pread(fd, _LOOK_BYTES, 0)
                tail = os.pread(fd, _LOOK_BYTES, max(0, state.st_size - _LOOK_BYTES))
            else:
                with gzip.open(file) as content:
                    while block := content.read(_LOOK_BYTES):
                        head, tail = head or block, (tail + block)[-_LOOK_BYTES:]
    except (OSError, EOFError, zlib.error):
        return None, None, None
    start, first = _numbers(head.partition(b"\n")[0])
    whole = tail[: tail.rfind(b"\n") + 1].splitlines()  # a torn line at the end does not count
    return start, first, _numbers(whole[-1])[1] if whole else None


def _numbers(line: bytes) -> tuple[str | None, int | None]:
    try:
        event = json.loads(line)
        start, sequence = event["start"], event["sequence"]
    except (ValueError, KeyError, TypeError):
        return None, None
    return (start, sequence) if isinstance(start, str) and isinstance(sequence, int) else (None, None)
