"""Runs work that may wait for a disk in a thread that nothing waits for: not the loop, and not the router's end."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final, TypeVar

# How long to wait for a disk that does not answer.
ANSWER_S: Final = 5.0

_T = TypeVar("_T")


class Aside:
    """One thread at a time: a disk that does not answer costs one thread, however often a caller asks."""

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """Calls `work` in a thread, after the earlier call of this object has ended. Returns its result.

        Errors  those of the call; TimeoutError if it has not begun or not ended within ANSWER_S. It may still end later
        """
        loop = asyncio.get_running_loop()
        results: list[_T] = []
        errors: list[Exception] = []

        def call() -> None:
            try:
                results.append(work())
            except Exception as error:  # raised again in the caller
                errors.append(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed meanwhile
                loop.call_soon_threadsafe(conclude)

        def conclude() -> None:
            self._running = None
            ended.set_result(None)

        async with asyncio.timeout(ANSWER_S):
            while self._running is not None:
                await asyncio.shield(self._running)
            ended = loop.create_future()
            # A daemon thread: at its end, Python waits for all other threads, whatever they wait for.
            threading.Thread(target=call, name="aside", daemon=True).start()
            self._running = ended
            await asyncio.shield(ended)
        for error in errors:
            raise error
        return results[0]
