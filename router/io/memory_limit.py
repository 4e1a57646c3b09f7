"""The memory that the system allows this process, and the actions before it is used up.

The AMQP engine does not check its allocations, and the system ends a container that has used up its memory. In both
cases the process ends, with the connections of all peers. So the connection that holds most is closed earlier. Attack:
a process of 2 GiB and 16 MB of outcomes from one user. It died within seconds.
"""

import contextlib
import ctypes
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
# Control groups represent "no limit" by a number that no machine reaches.
_NO_LIMIT: Final = 1 << 60
# Kept free for memory that no account pays for: memory being released, passing messages, and buffers of the allocator.
_RESERVE_SHARE: Final = 8
_RESERVE_BYTES: Final = 64 * 1024 * 1024
# The memory of the process outside the budget: its own size, and connections that are not open yet.
BESIDE_BUDGET_BYTES: Final = 384 * 1024 * 1024
# The memory is at most this multiple of the account (router.core.kept).
_MOST_PER_CHARGED: Final = 2

_Measure = Literal["resident", "virtual", "data"]
_FIELD: Final[dict[_Measure, int]] = {"virtual": 0, "resident": 1, "data": 5}  # of /proc/self/statm, in pages


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """A limit of the system.

    size_bytes  that the process may have
    what        the thing that sets the limit, in words
    measure     the measure of the process that counts
    """

    size_bytes: int
    what: str
    measure: _Measure

    @property
    def least_free_bytes(self) -> int:
        """If fewer bytes are free than this, memory is short."""
        return min(max(self.size_bytes // _RESERVE_SHARE, _RESERVE_BYTES), self.size_bytes // 2)

    @property
    def reserve_bytes(self) -> int:
        """If the system gives no more than this, something is closed before the next read."""
        return self.least_free_bytes // 2

    @property
    def largest_budget_bytes(self) -> int:
        """The largest routerByteBudget that fits even if it is used up; 0: no budget fits."""
        return max(self.size_bytes - BESIDE_BUDGET_BYTES, 0) // _MOST_PER_CHARGED


def least_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Returns the lowest limit for this process; None if the system sets none.

    root  of the file system, or of a test's
    """
    return min((*_of_group(root), *_of_process(), *_of_machine(root)), key=lambda each: each.size_bytes, default=None)


def refusing_limit() -> MemoryLimit | None:
    """Returns the lowest limit at which the system refuses memory.

    A control group refuses none, but ends the process.
    """
    return min(_of_process(), key=lambda each: each.size_bytes, default=None)


def _of_group(root: Path) -> Iterator[MemoryLimit]:
    """Iterates over control groups of both versions: the process's own, and those around it.

    In a container its own is the root.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                mount, name = root / "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            else:
                continue
            folder = mount / group.lstrip("/")
            for each in (folder, *folder.parents):
                if each.is_relative_to(mount):
                    yield from _of_file(each / name)


def _of_file(path: Path) -> Iterator[MemoryLimit]:
    with contextlib.suppress(OSError, ValueError):
        size = int(path.read_text())
        if size < _NO_LIMIT:
            yield MemoryLimit(size_bytes=size, what="memory limit of the control group", measure="resident")


def _of_process() -> Iterator[MemoryLimit]:
    measures: tuple[tuple[str, int, _Measure], ...] = (
        ("RLIMIT_AS", resource.RLIMIT_AS, "virtual"),
        ("RLIMIT_DATA", resource.RLIMIT_DATA, "data"),
    )
    for name, number, measure in measures:
        size, _ = resource.getrlimit(number)
        if size != resource.RLIM_INFINITY:
            yield MemoryLimit(size_bytes=size, what=name, measure=measure)


def _of_machine(root: Path) -> Iterator[MemoryLimit]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                size = int(line.split()[1]) * 1024
                yield MemoryLimit(size_bytes=size, what="memory of the machine", measure="resident")


def is_given(size_bytes: int) -> bool:
    """Returns True if the system would give the process this many more bytes.

    The memory is not touched, so this takes only some microseconds.
    """
    try:
        mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


def warning_of(limit: MemoryLimit | None, budget_bytes: int) -> str | None:
    """Returns the warning for the log at the start if peers could use up the memory within the budget, else None.

    budget_bytes  routerByteBudget, 0: no limit
    """
    if limit is None or 0 < budget_bytes <= limit.largest_budget_bytes:
        return None
    most = limit.largest_budget_bytes
    return (
        f"routerByteBudget is {budget_bytes or 'without limit'}, and the {limit.what} is {limit.size_bytes} bytes: "
        f"peers can use it up, and the connection that holds most is then closed. "
        + (f"At most {most} fits" if most else f"More than {BESIDE_BUDGET_BYTES} bytes are needed beside it")
    )


class Shortage:
    """Closes connections that hold much when memory is short.

    on_second is called every second.
    """

    def __init__(
        self,
        limit: MemoryLimit,
        shed: Callable[[], str | None],
        say: Callable[[str], None],
        used: Callable[[MemoryLimit], int] | None = None,
    ) -> None:
        """Finds the trim function of the C library.

        shed  closes the connection that holds most, and returns its name; None: no connection holds much
        say   writes a line to the log
        used  returns the bytes that count for the limit
        """
        self._limit = limit
        self._shed = shed
        self._say = say
        self._used = used or used_bytes
        self._has_shed = False  # in this second
        self._trim: Callable[[int], int] = lambda _pad: 0
        with contextlib.suppress(AttributeError, OSError):
            self._trim = ctypes.CDLL(None).malloc_trim

    def on_second(self, _now: float) -> None:
        self._has_shed = False
        if self._is_short:
            self._relieve()

    def may_read(self) -> bool:
        """Returns True if there is memory for a read. If not, first closes the connection that holds most.

        Attack: more data arrives within a second than there is free memory. The engine writes to memory that it was not
        given. The process dies, or continues with a heap that a peer has overwritten.
        """
        reserve = self._limit.reserve_bytes
        if is_given(reserve):
            return True
        if not self._has_shed:
            self._relieve()
        return is_given(reserve // 2)

    def _relieve(self) -> None:
        self._trim(0)  # memory of a connection closed a second ago is free, but may still belong to the process
        if self._is_short and (name := self._shed()) is not None:
            self._has_shed = True
            self._say(
                f"memory is short: {self._used(self._limit)} bytes are used, and the {self._limit.what} is "
                f"{self._limit.size_bytes}; connection {name}, which holds most, is closed"
            )

    @property
    def _is_short(self) -> bool:
        return self._limit.size_bytes - self._used(self._limit) < self._limit.least_free_bytes


def used_bytes(limit: MemoryLimit) -> int:
    """Returns the process's bytes of the limited measure; 0 if the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[_FIELD[limit.measure]]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
