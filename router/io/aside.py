"""Work that may wait for a disk, in a thread nobody has to wait for: not the loop, not the router's end."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final, TypeVar

# How long a disk that does not answer is waited for.
ANSWER_S: Final = 5.0

_T = TypeVar("_T")


class Aside:
    """One thread at a time: a disk that hangs costs one, however often somebody asks."""

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """Call it once what this owner had called before has ended.

        Errors  those of the call; TimeoutError when it has not begun or not ended within ANSWER_S. It may still end
        """
        loop = asyncio.get_running_loop()
        results: list[_T] = []
        errors: list[Exception] = []

        def call() -> None:
            try:
                results.append(work())
            except Exception as error:  # raised again where it is waited for
                errors.append(error)
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(conclude)

        def conclude() -> None:
            self._running = None
            ended.set_result(None)

        async with asyncio.timeout(ANSWER_S):
            while self._running is not None:
                await asyncio.shield(self._running)
            ended = loop.create_future()
            # A daemon: at its end, Python waits for all other threads, whatever they wait for.
            threading.Thread(target=call, name="aside", daemon=True).start()
            self._running = ended
            await asyncio.shield(ended)
        for error in errors:
            raise error
        return results[0]
