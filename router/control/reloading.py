"""Reads files again while the router runs: on SIGHUP, and when watched files change."""

import asyncio
from collections.abc import Awaitable, Callable

from router.effects import Emit, log
from router.faults import fault_text
from router.io.folder_watch import FolderWatch

Step = Callable[[], Awaitable[object] | None]


class Reloading:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._steps: list[Step] = []
        self._watching: list[asyncio.Task[None]] = []
        self._reloading: asyncio.Task[None] | None = None
        self._wants_reload = False
        self._stops: list[Callable[[], None]] = []
        self._hurry: Callable[[], None] = _nothing
        self._begun: Callable[[], None] = _nothing
        self._finished: Callable[[], None] = _nothing

    def add(self, *steps: Step) -> None:
        """Appends steps of a reload, in order."""
        self._steps += steps

    def hurry_by(self, hurry: Callable[[], None]) -> None:
        """Sets how a running reload is hurried.

        hurry  called when a signal comes during a reload, to end its steps early
        """
        self._hurry = hurry

    def tell_by(self, begun: Callable[[], None], finished: Callable[[], None]) -> None:
        """begun     called at each signal
        finished  called when all that the signals asked for has been done, or has failed
        """
        self._begun, self._finished = begun, finished

    def watch(self, watch: FolderWatch, every_s: int, what: str) -> None:
        """Watches for changes from now on. A failure is logged, and the settings in force stay."""

        def failed(error: Exception) -> None:
            log(self._emit, "ERROR", "error", f"Watching {what}: {fault_text(error)}")

        self._watching.append(asyncio.get_running_loop().create_task(watch.run(every_s, failed)))

    def begin(self) -> None:
        """Runs all steps (SIGHUP). What cannot be used changes nothing."""
        self._wants_reload = True
        self._begun()
        if self._reloading is not None:
            self._hurry()
        else:
            self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        try:
            while self._wants_reload:  # a signal came during the reload: once more
                self._wants_reload = False
                for step in self._steps:
                    if (rest := step()) is not None:
                        await rest
                log(self._emit, "SERVER", "notice", "Reload on SIGHUP finished")
        except Exception as error:  # our own fault: the router continues with its present state
            log(self._emit, "ERROR", "error", f"Reload on SIGHUP: {fault_text(error)}")
        finally:
            self._reloading = None
        self._finished()

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Also calls `stop` when the reloading stops."""
        self._stops.append(stop)

    def stop(self) -> None:
        for stop in self._stops:
            stop()
        for task in (*self._watching, self._reloading):
            if task is not None:
                task.cancel()


def _nothing() -> None:
    pass
