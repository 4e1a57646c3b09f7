"""The memory of the process, for management and the start-up log, and how freed memory is returned to the system."""

import contextlib
import ctypes
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")

# glibc's names for the parameters of `mallopt` (malloc.h), and our values.
_TRIM_THRESHOLD: Final = (-1, 4 * 1024 * 1024)
_MMAP_THRESHOLD: Final = (-3, 128 * 1024)
_ARENA_MAX: Final = (-8, 2)

_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h

# The memory is trimmed if this much less is held than at the peak, and at most this often.
_TRIM_BYTES: Final = 8 * 1024 * 1024
_TRIM_EVERY_S: Final = 10.0


def give_back_freed_memory() -> None:
    """Makes the C library return large buffers to the system when they are freed.

    By default, glibc raises the size limit for this to the size of the last freed buffer, up to 32 MiB. The buffers of
    large messages then lie between small ones that stay, and hours of connecting and disconnecting leave holes. Does
    nothing with other C libraries.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX):
            mallopt(name, value)


def forbid_core_dumps() -> None:
    """Protects the contents of memory: no core dump, and no access for other processes of the same user.

    Attack: a dump after a crash, or a debugger of another service with the same account, shows passwords under way and
    those of the configuration. RLIMIT_CORE alone does not prevent dumps that are piped to a program. To examine a
    crash, set PALISADE_CORE_DUMPS=1. On systems other than Linux only the limit is set.
    """
    if os.environ.get("PALISADE_CORE_DUMPS") == "1":
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Trimmer:
    """Returns free memory between used blocks to the system, after much was held and released.

    Attack: after a flood, the free memory in small pieces is as large as the flood. Trimming takes about ten
    milliseconds for 100 MiB, and a full garbage collection. So it is done only for much memory, and not often.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        """Finds the trim function of the C library.

        held  returns the bytes that the router holds for its peers
        """
        self._held = held
        self._most = 0  # since the last trim
        self._next_s = 0.0
        self._trim: Callable[[int], int] = lambda _pad: 0
        with contextlib.suppress(AttributeError, OSError):
            self._trim = ctypes.CDLL(None).malloc_trim

    def on_second(self, now: float) -> None:
        """Trims the memory if it is worth it.

        now  monotonic seconds
        """
        held = self._held()
        self._most = max(self._most, held)
        if self._most - held >= _TRIM_BYTES and now >= self._next_s:
            self._most = held
            self._next_s = now + _TRIM_EVERY_S
            gc.collect()  # links and connections that are gone refer to each other
            self._trim(0)


def virtual_bytes() -> int | None:
    """Returns the process's virtual size; None if the system does not report it."""
    return _read(Path("/proc/self/status"), "VmSize")


def virtual_text() -> str:
    """Returns `<virtual size> (<memory> available memory)`."""
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
