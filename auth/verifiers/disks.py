"""Finds the kinds of file systems that a path leads over. Source: proc(5), /proc/self/mountinfo."""

import os
from pathlib import Path
from typing import Final

_MOUNTS: Final = "/proc/self/mountinfo"
# File systems of this machine. Attack or outage: an NFS server or a FUSE program that does not answer stops the event
# loop, because the loop asks for a file there. Every other kind of file system counts as remote.
_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay"})
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def never_waits(path: str) -> bool:
    """Returns whether the file and all folders above it are on disks of this machine. False if that is unknown."""
    try:
        kinds = _kinds()
        ways = [Path(way) for way in (os.path.abspath(path), os.path.realpath(path))]
        passed = [kinds.get(str(place)) for way in ways for place in (way, *way.parents)]
        return "/" in kinds and all(kind is None or kind in _LOCAL for kind in passed)
    except (OSError, ValueError, IndexError):
        return False


def is_in_memory(folder: str) -> bool:
    """Returns whether the folder is on a file system in memory. False if that is unknown."""
    try:
        kinds = _kinds()
        place = Path(os.path.realpath(folder))
        return next((kinds[str(each)] for each in (place, *place.parents) if str(each) in kinds), "") in _IN_MEMORY
    except (OSError, ValueError, IndexError):
        return False


def _kinds() -> dict[str, str]:
    """Returns the file system of each mount point. Errors: OSError, ValueError, IndexError."""
    mounts = [line.split() for line in Path(_MOUNTS).read_text().splitlines()]
    # The mount point is field 5, the file system the field after "-". A later mount hides earlier ones.
    return {_unescaped(fields[4]): fields[fields.index("-") + 1] for fields in mounts}


def _unescaped(text: str) -> str:
    """Decodes a blank, a tab, a line break and a backslash, which are octal in mountinfo."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text
