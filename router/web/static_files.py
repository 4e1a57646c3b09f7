"""Reads files below one folder, and nothing else. Blocking: the caller needs a thread for it.

Source: docs/spec/routing.md §2.
"""

import os
import stat
from dataclasses import dataclass
from io import FileIO
from typing import Final

from router.web.paths import accepts, type_of

# Follows no link: a user who can put a link into the folder could have any file of the router read. Does not wait: a
# FIFO would block the thread forever.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# Codings that browsers accept, the best first, with the extension of a precompressed file.
_CODINGS: Final = (("br", ".br"), ("gzip", ".gz"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """A regular file, open for reading.

    file    closes itself when it has no reference left: the code that asked for it may have given up
    etag    changes with the file
    coding  of a precompressed file; None: it is the file itself
    """

    file: FileIO
    size: int
    etag: str
    content_type: str
    coding: str | None

    def read(self, at: int, size: int) -> bytes:
        """Returns the bytes, or b"" at the end or if the file cannot be read."""
        try:
            return os.pread(self.file.fileno(), size, at)
        except OSError:
            return b""

    def close(self) -> None:
        self.file.close()


def open_below(root: str, names: tuple[str, ...], accepted: tuple[str, ...]) -> OpenFile | None:
    """Opens a file, or a precompressed form of it; None: there is none that may be served.

    root      the folder as configured. It may be a link, and contain links that stay inside it
    names     of folders and the file, as returned by `paths.names_of`
    accepted  the elements of Accept-Encoding
    """
    try:
        real_root = os.path.realpath(root, strict=True)
        real = os.path.realpath(os.path.join(real_root, *names), strict=True)
    except (OSError, ValueError):
        return None
    if os.path.commonpath((real_root, real)) != real_root or real == real_root:
        return None
    inner = os.path.relpath(real, real_root).split(os.sep)
    for coding, suffix in _CODINGS:
        if accepts(accepted, coding) and (found := _open(real_root, inner, suffix)) is not None:
            return _described(*found, names[-1], coding)
    found = _open(real_root, inner, "")
    return _described(*found, names[-1], None) if found is not None else None


def _open(root: str, names: list[str], suffix: str) -> tuple[int, os.stat_result] | None:
    """Opens folder by folder, without following links: a link may have replaced a folder since the check."""
    folder = -1
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in names[:-1]:
            inner = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(names[-1] + suffix, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    finally:
        if folder >= 0:
            os.close(folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status
    os.close(descriptor)
    return None


def _described(descriptor: int, status: os.stat_result, name: str, coding: str | None) -> OpenFile:
    return OpenFile(
        file=FileIO(descriptor, closefd=True),
        size=status.st_size,
        etag=f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}{f"-{coding}" if coding else ""}"',
        content_type=type_of(name),
        coding=coding,
    )
