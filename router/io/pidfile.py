"""The file with the daemon's process id. Source: docs/spec/management.md §2.2.

Root writes it, often into a folder that other users may write to. So nothing is written through an existing name. The
id goes into a new file, which replaces the old one. A file that does not look like our pid file stays unchanged.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Collection

# Blank if an installation has made the file before.
_PROCESS_ID = re.compile(rb"\s*[0-9]{0,10}\s*")
_MAX_BYTES = 32
# Only the owner may write, and the umask may reduce it further: a user who can change the number can have root kill
# another process.
_MODE = 0o644


class PidFileError(Exception):
    """str() says why the file cannot be written."""


def write_pidfile(path: str, process_id: int, owners: Collection[int]) -> None:
    """Writes the process id and a newline, completely or not at all. Raises PidFileError; then nothing has changed.

    owners  ids of users: an existing file is ours if it belongs to one of them
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
    """Returns a descriptor of the existing pid file; None if there is none.

    Raises PidFileError for anything else of this name. Attacks: a symbolic or hard link to /etc/passwd, which root
    would overwrite; a FIFO, which would block the start forever.
    """
    try:
        # Checked before it is opened, because opening some devices has an effect.
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
        # The folder is not ours, but the file is: it was made for us.
        os.ftruncate(old, 0)
        os.pwrite(old, text, 0)
        return
    try:
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
        if old is None:
            # Unlike a rename, a link does not replace a file made since the check.
            os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(new, dir_fd=folder)
        else:
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(new, dir_fd=folder)
        raise
