"""Writes files as a whole or not at all."""

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from policy.cli.sources import CLEAN, UNREADABLE
from policy.printing import printable


def written(path: Path, text: str) -> int:
    """Writes a text and returns the exit status. Line ends stay unchanged."""
    try:
        write_whole(path, text.encode("utf-8"))
    except OSError as error:
        print(printable(f"{path}: cannot be written: {error.strerror}"), file=sys.stderr)
        return UNREADABLE
    return CLEAN


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the file's content by `content`. Raises OSError, and then nothing has changed.

    A reader, such as a router that reads its policyDir again, sees either the old file or the new one. A link stays a
    link, and the file keeps its permissions. A device or pipe, such as /dev/stdout, is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    if target.exists() and not os.access(target, os.W_OK):
        # Replacing it would bypass the write protection that its owner set.
        raise PermissionError(13, "it is write-protected", str(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
