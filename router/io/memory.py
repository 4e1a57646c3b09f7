"""How much memory the process has, as management and the start-up log show it."""

from pathlib import Path
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


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
