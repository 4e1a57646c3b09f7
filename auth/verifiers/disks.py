"""The kinds of file systems that a path leads over. Source: proc(5), /proc/self/mountinfo."""

import os
from pathlib import Path
from typing import Final

_MOUNTS: Final = "/proc/self/mountinfo"
# Of this machine. Attack or outage: a server of NFS, or a program behind FUSE, that does not answer, so that the event
# loop stands still with whoever asks for a file there. Any other kind counts as one of those.
_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay"})
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def never_waits(path: str) -> bool:
    """Are the file, and all folders on the way to it, on disks of this machine? No where that is not known."""
    try:
        kinds = _kinds()
        ways = [Path(way) for way in (os.path.abspath(path), os.path.realpath(path))]
        passed = [kinds.get(str(place)) for way in ways for place in (way, *way.parents)]
        return "/" in kinds and all(kind is None or kind in _LOCAL for kind in passed)
    except (OSError, ValueError, IndexError):
        return False


def is_in_memory(folder: str) -> bool:
    """Is the folder on a file system that has no disk? No where that is not known."""
    try:
        kinds = _kinds()
        place = Path(os.path.realpath(folder))
        return next((kinds[str(each)] for each in (place, *place.parents) if str(each) in kinds), "") in _IN_MEMORY
    except (OSError, ValueError, IndexError):
        return False


def _kinds() -> dict[str, str]:
    """Mount point -> kind of its file system. Errors: OSError, ValueError, IndexError."""
    mounts = [line.split() for line in Path(_MOUNTS).read_text().splitlines()]
    # The mount point is the fifth field, the kind of file system the one behind "-"; the later mount hides others.
    return {_unescaped(fields[4]): fields[fields.index("-") + 1] for fields in mounts}


def _unescaped(text: str) -> str:
    """A blank, a tab, a line break and a backslash are octal there."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text
