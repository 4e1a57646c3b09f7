"""How much memory the process has, as management and the start-up log show it, and that it gives back what it frees."""

import contextlib
import ctypes
from pathlib import Path
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")

# glibc's names for what `mallopt` sets (malloc.h), and our values.
_TRIM_THRESHOLD: Final = (-1, 4 * 1024 * 1024)
_MMAP_THRESHOLD: Final = (-3, 128 * 1024)
_ARENA_MAX: Final = (-8, 2)


def give_back_freed_memory() -> None:
    """Tell the C library to return large buffers to the system when they are freed.

    glibc by default raises the size from which it does so to that of whatever was freed last, up to 32 MiB: the buffers
    of large messages then lie between small ones that stay, and hours of connections that come and go leave holes.
    Elsewhere nothing is done.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX):
            mallopt(name, value)


def virtual_bytes() -> int | None:
    """The process's virtual size; None where the system does not tell."""
    return _read(Path("/proc/self/status"), "VmSize")


def virtual_text() -> str:
    """`<virtual size> (<memory> available memory)`."""
    available = _read(Path("/proc/meminfo"), "MemAvailable") or 0
    return f"{_scaled(virtual_bytes() or 0)} ({_scaled(available)} available memory)"


def _read(path: Path, key: str) -> int | None:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _scaled(size: float) -> str:
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.2f} {_UNITS[unit]}"
