"""Opens files that another user may have put there: regular files only, without blocking, and with a size limit.

The daemon and `qdpolicy` read policy, configuration, certificates' names and credentials only in this way. A link
counts as its target, since mounted configuration (ConfigMaps, secrets) consists of links. All other kinds are refused:
/dev/zero never ends, a FIFO waits for a writer, and some devices act when they are opened.
Source: docs/security.md, Mistakes of those who write policy.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# The limits of a folder of policy files, and of a configuration. They bound the memory and time of the process that
# reads it, and of the router, which checks the files every second. 25,000 tenants have 16 MiB.
MAX_POLICY_BYTES: Final = 16 << 20  # of one file, and of all files together
MAX_POLICY_FILES: Final = 20_000
MAX_FOLDER_ENTRIES: Final = 100_000  # of any name
# Stops a wrong path from filling memory: bundles of certificates and maps of names have a few MiB.
MAX_OTHER_BYTES: Final = 16 << 20

_PIECE_BYTES: Final = 1 << 20


def read_regular(
    path: str,
    at_most: int,
    *,
    check: Callable[[os.stat_result], None] | None = None,
    may_be_pipe: bool = False,
) -> bytes:
    """Returns the content of a file.

    at_most      bytes
    check        gets the status of the open file before it is read; its exceptions are passed on
    may_be_pipe  for files that the operator names at start, as in `-c <(command)`: waits for the writer
    Errors       OSError with `strerror`, also if it is not a regular file or has more bytes
    """
    with _opened(path, may_be_pipe=may_be_pipe) as (descriptor, status):
        if check is not None:
            check(status)
        if status.st_size > at_most:
            raise _too_large(path, at_most)
        content = _start(descriptor, at_most + 1)
    if len(content) > at_most:
        raise _too_large(path, at_most)
    return content


def read_start(path: str, size: int) -> bytes:
    """Returns the first `size` bytes of a file, or all. Errors: OSError with `strerror`."""
    with _opened(path) as (descriptor, _):
        return _start(descriptor, size)


def why_unreadable(path: str, at_most: int = MAX_OTHER_BYTES) -> str | None:
    """Returns why `read_regular` would fail, None if it would not.

    Does not read: for files that a library opens by name.
    """
    try:
        with _opened(path) as (_, status):
            if status.st_size > at_most:
                raise _too_large(path, at_most)
    except OSError as error:
        return error.strerror
    return None


def is_policy_file(name: str) -> bool:
    """Returns whether policyDir reads a file of this name. Emacs' lock file, a link to nothing, is excluded."""
    return name.endswith(".json") and not name.startswith(".#")


def folder_names(folder: str, counts: Callable[[str], bool]) -> list[str]:
    """Returns the sorted names that count in a folder of policy files. Errors: OSError, also if there are too many."""
    found = [entry.name for entry in folder_entries(folder, counts)]
    found.sort()
    return found


def folder_entries(folder: str, counts: Callable[[str], bool]) -> Iterator[os.DirEntry[str]]:
    """Yields the entries that count, unless there are too many. Errors: as folder_names."""
    found = 0
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == MAX_FOLDER_ENTRIES:
                raise _too_many(folder, MAX_FOLDER_ENTRIES, "entries")
            if counts(entry.name):
                found += 1
                if found > MAX_POLICY_FILES:
                    raise _too_many(folder, MAX_POLICY_FILES, "policy files")
                yield entry


def is_too_many(error: OSError) -> bool:
    """Returns whether `folder_names` or `folder_entries` failed because there are too many."""
    return error.errno == errno.EMLINK


@contextmanager
def _opened(path: str, *, may_be_pipe: bool = False) -> Iterator[tuple[int, os.stat_result]]:
    """Yields the open file and its status. The check of the open file decides, since it cannot be exchanged."""
    # Checked before opening too: merely opening a device may make it act.
    _check_kind(path, os.stat(path), may_be_pipe=may_be_pipe)
    waits = 0 if may_be_pipe else os.O_NONBLOCK
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | waits)
    try:
        status = os.fstat(descriptor)
        _check_kind(path, status, may_be_pipe=may_be_pipe)
        yield descriptor, status
    finally:
        os.close(descriptor)


def _start(descriptor: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(descriptor, min(size, _PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _check_kind(path: str, status: os.stat_result, *, may_be_pipe: bool) -> None:
    if not (stat.S_ISREG(status.st_mode) or (may_be_pipe and stat.S_ISFIFO(status.st_mode))):
        raise OSError(errno.EINVAL, "not a regular file", path)


def _too_large(path: str, at_most: int) -> OSError:
    size = f"{at_most >> 20} MiB" if at_most >= 1 << 20 else f"{at_most} bytes"
    return OSError(errno.EFBIG, f"larger than {size}", path)


def _too_many(folder: str, at_most: int, what: str) -> OSError:
    return OSError(errno.EMLINK, f"it has more than {at_most} {what}", folder)
