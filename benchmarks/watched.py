"""The daemon on an event loop that measures itself: `python -m benchmarks.watched ACCOUNTS -c FILE`.

A round trip seen from outside includes other work of the machine. Here the loop itself is timed, from one return of its
selector to the next call, in wall and processor time. So our own delays show in both. It runs on asyncio's own loop,
because uvloop cannot be instrumented.

SIGUSR1 begins a new account. SIGUSR2 appends it to the file ACCOUNTS, as one line of JSON.
"""

import asyncio
import gc
import json
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Account:
    """The measurements of a loop.

    turns            of the loop
    wall_ms, cpu_ms  the longest turn; not necessarily the same one
    total_cpu_ms     of all turns
    over_5_ms        turns that took more than 5 ms of processor time
    gc_ms            the longest garbage collection, by generation
    """

    turns: int = 0
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    total_cpu_ms: float = 0.0
    over_5_ms: int = 0
    gc_ms: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def turn(self, wall_s: float, cpu_s: float) -> None:
        self.turns += 1
        self.total_cpu_ms += cpu_s * 1000
        self.wall_ms = max(self.wall_ms, wall_s * 1000)
        self.cpu_ms = max(self.cpu_ms, cpu_s * 1000)
        self.over_5_ms += cpu_s > 0.005


class Watch(selectors.DefaultSelector):
    """Times the work between two waits."""

    def __init__(self, accounts: Path) -> None:
        super().__init__()
        self.account = Account()
        self._accounts = accounts
        self._began: tuple[float, float] | None = None
        self._collecting_since = 0.0
        gc.callbacks.append(self._on_collection)

    def select(self, timeout: float | None = None) -> Any:
        if self._began is not None:
            wall, cpu = self._began
            self.account.turn(time.perf_counter() - wall, time.thread_time() - cpu)
        found = super().select(timeout)
        self._began = time.perf_counter(), time.thread_time()
        return found

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.perf_counter()
        else:
            took = (time.perf_counter() - self._collecting_since) * 1000
            slowest = self.account.gc_ms
            slowest[info["generation"]] = max(slowest[info["generation"]], took)

    def begin(self) -> None:
        self.account = Account()

    def store(self) -> None:
        with self._accounts.open("a") as file:
            file.write(json.dumps(asdict(self.account)) + "\n")


class Policy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, accounts: Path) -> None:
        super().__init__()
        self._accounts = accounts

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        watch = Watch(self._accounts)
        loop = asyncio.SelectorEventLoop(watch)
        loop.add_signal_handler(signal.SIGUSR1, watch.begin)
        loop.add_signal_handler(signal.SIGUSR2, watch.store)
        return loop


def main(arguments: Sequence[str]) -> int:
    """Runs the daemon.

    arguments  of the daemon, with the file of the accounts as the second
    """
    program, accounts, *rest = arguments
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    asyncio.set_event_loop_policy(Policy(Path(accounts)))
    from router.io import daemon

    return daemon.main([program, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
