"""Runs the steps of TLS handshakes in threads: OpenSSL computes for milliseconds, without the interpreter's lock.

Hosts take turns, one step each. The number of waiting steps is limited, because each connection that is not open has at
most one step (router.admission.handshakes). Measured: docs/performance.md, strangers.
"""

import asyncio
import os
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final

from router.io.host_turns import HostTurns
from router.io.workers import Threads

# More would take processors from the event loop, which serves the peers that have logged in.
MAX_THREADS: Final = 4


class Step:
    """One step of a handshake.

    is_wanted  asked when its turn has come. If it returns False, the others are not called
    run        called in a thread; must not raise
    done       called on the event loop after `run`
    """

    __slots__ = ("done", "host", "is_wanted", "run")

    def __init__(
        self, host: Hashable, is_wanted: Callable[[], bool], run: Callable[[], None], done: Callable[[], None]
    ) -> None:
        self.host = host
        self.is_wanted = is_wanted
        self.run = run
        self.done = done


class Shaking:
    """Runs steps. Leaves one processor to the event loop if there are several."""

    def __init__(self, threads: int = 0) -> None:
        """Starts without steps.

        threads  0: the number depends on the processors
        """
        self._most = threads or max(min(len(os.sched_getaffinity(0)) - 1, MAX_THREADS), 1)
        self._threads = Threads(self._most, "handshake")
        self._waiting: HostTurns[Step] = HostTurns()
        self._running = 0

    def __len__(self) -> int:
        """The number of steps that wait for their turn."""
        return len(self._waiting)

    def submit(self, step: Step) -> None:
        self._waiting.add(step.host, step)
        self._begin_next()

    def discard(self, step: Step) -> None:
        """Removes a step whose connection is over. A running step is finished, and its `done` called."""
        self._waiting.discard(step)

    def close(self) -> None:
        """Drops all waiting steps, and ends the threads."""
        self._waiting = HostTurns()
        self._threads.close()

    def _begin_next(self) -> None:
        while self._running < self._most and (step := self._waiting.take()) is not None:
            if not step.is_wanted():
                # A banned host may have hundreds of steps to decline: one in each pass of the loop.
                asyncio.get_running_loop().call_soon(self._begin_next)
                return
            self._run(step)

    def _run(self, step: Step) -> None:
        loop = asyncio.get_running_loop()
        self._running += 1

        def run() -> None:
            step.run()
            with suppress(RuntimeError):  # the loop is closed, because the router has ended
                loop.call_soon_threadsafe(conclude)

        def conclude() -> None:
            self._running -= 1
            try:
                step.done()
            finally:
                self._begin_next()

        self._threads.submit(run, self._running)
