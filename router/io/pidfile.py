"""The file with the daemon's process id. Source: docs/spec/management.md §2.2.

Root writes it, and often into a folder that others may write to. So nothing is written through a name: the id goes into
a new file, which takes the place of the old one, and what does not look like a pid file of ours stays as it is.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Collection

# Blank where an installation has made the file before.
_PROCESS_ID = re.compile(rb"\s*[0-9]{0,10}\s*")
_MAX_BYTES = 32
# For its owner to write and the umask to narrow: whoever may change the number has root kill another process.
_MODE = 0o644


class PidFileError(Exception):
    """str() says why the file cannot be written."""


def write_pidfile(path: str, process_id: int, owners: Collection[int]) -> None:
    """Write the process id and a newline, whole or not at all. Raises PidFileError; then nothing has changed.

    owners  ids of the users of whom a file that is there already is ours
    """
    name = os.path.basename(path)
    text = b"%d\n" % process_id
    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise PidFileError(error.strerror) from None
    try:
        old = _opened(folder, name, owners)
        try:
            _put(folder, name, text, old)
        finally:
            if old is not None:
                os.close(old)
    except OSError as error:
        raise PidFileError(error.strerror) from None
    finally:
        os.close(folder)


def _opened(folder: int, name: str, owners: Collection[int]) -> int | None:
    """A descriptor of the pid file that is there; None where there is none.

    Raises PidFileError for anything else of this name. Attacks: a symbolic or hard link to /etc/passwd, which root
    would overwrite; a FIFO, which would hold up the start for ever.
    """
    try:
        # Looked at before it is opened: to open some devices is to use them.
        if not stat.S_ISREG((found := os.stat(name, dir_fd=folder, follow_symlinks=False)).st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no regular file"
            raise PidFileError(f"it is {kind}")
        opened = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        _refuse_foreign(opened, owners)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _refuse_foreign(opened: int, owners: Collection[int]) -> None:
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        raise PidFileError("it is no regular file")
    if found.st_nlink != 1:
        raise PidFileError("the file has another name as well")
    if found.st_uid not in owners:
        raise PidFileError("the file belongs to another user")
    if _PROCESS_ID.fullmatch(os.read(opened, _MAX_BYTES + 1)) is None or found.st_size > _MAX_BYTES:
        raise PidFileError("the file holds something else than a process id")


def _put(folder: int, name: str, text: bytes, old: int | None) -> None:
    new = f".{name[:200]}.{secrets.token_hex(8)}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new, flags, _MODE, dir_fd=folder)
    except OSError as error:
        if old is None or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        # A folder that is not ours, with a file that is: it was made for us.
        os.ftruncate(old, 0)
        os.pwrite(old, text, 0)
        return
    try:
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
        if old is None:
            # Unlike a rename, a link does not replace what has come there since we looked.
            os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(new, dir_fd=folder)
        else:
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(new, dir_fd=folder)
        raise
