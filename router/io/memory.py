"""How much memory the process has, as management and the start-up log show it, and that it gives back what it frees."""

import contextlib
import ctypes
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")

# glibc's names for what `mallopt` sets (malloc.h), and our values.
_TRIM_THRESHOLD: Final = (-1, 4 * 1024 * 1024)
_MMAP_THRESHOLD: Final = (-3, 128 * 1024)
_ARENA_MAX: Final = (-8, 2)

_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h

# When so much less is held than at the most, and how often at the most.
_TRIM_BYTES: Final = 8 * 1024 * 1024
_TRIM_EVERY_S: Final = 10.0


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


def forbid_core_dumps() -> None:
    """Keep what is in memory there: no core dump, and no process of the same user may look into this one.

    Attack: passwords under way, and those of the configuration, read from a dump that a crash has left, or with a
    debugger by another service of the same account. RLIMIT_CORE alone leaves dumps that are piped to a program. Who has
    to examine a crash sets PALISADE_CORE_DUMPS=1. Elsewhere than on Linux the limit is all.
    """
    if os.environ.get("PALISADE_CORE_DUMPS") == "1":
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Trimmer:
    """Gives the holes between what stays back to the system, when much was held and is not any more.

    Attack: a flood that is over leaves as much free memory in small pieces as it held. It takes some ten milliseconds
    for 100 MiB, and a full garbage collection, so it is not done for little and not often.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        """held  bytes that the router holds for its peers"""
        self._held = held
        self._most = 0  # since the last time
        self._next_s = 0.0
        self._trim: Callable[[int], int] = lambda _pad: 0
        with contextlib.suppress(AttributeError, OSError):
            self._trim = ctypes.CDLL(None).malloc_trim

    def on_second(self, now: float) -> None:
        """now  monotonic seconds"""
        held = self._held()
        self._most = max(self._most, held)
        if self._most - held >= _TRIM_BYTES and now >= self._next_s:
            self._most = held
            self._next_s = now + _TRIM_EVERY_S
            gc.collect()  # links and connections that are gone refer to each other
            self._trim(0)


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
