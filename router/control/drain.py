"""How a router ends: at once, or after what is under way has its outcome. Source: docs/spec/management.md §2.4."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from policy.configuration.kinds.router import MAX_SHUTDOWN_TIMEOUT_S
from router.control.router import Router
from router.core.draining import UnderWay, look
from router.effects import Emit, log
from router.management.requests import ManagementError
from router.values import Condition

# How often a router that drains looks at what is under way.
LOOK_S: Final = 0.1
_ENDS: Final = Condition(name="amqp:connection:forced", description="The router shuts down")


class Drain:
    """seconds  how long the end may wait for deliveries under way; 0: it waits for none"""

    def __init__(self, router: Router, configured_s: int, stop: Callable[[], None], emit: Emit) -> None:
        """configured_s  shutdownTimeout
        stop          begins the end
        """
        self.seconds = 0
        self._router = router
        self._configured_s = configured_s
        self._stop = stop
        self._emit = emit
        self._hurry = asyncio.Event()
        self._is_asked = False

    def perform(self, properties: Mapping[str, object]) -> object:
        """DRAIN. Returns the body of the reply. Errors: ManagementError."""
        seconds = properties.get("timeout", self._configured_s)
        if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= MAX_SHUTDOWN_TIMEOUT_S:
            text = f"DRAIN wants 'timeout', else shutdownTimeout: seconds from 1 to {MAX_SHUTDOWN_TIMEOUT_S}"
            raise ManagementError(400, text)
        if not self._is_asked:
            self._is_asked = True
            self.seconds = seconds
            self._stop()
        return {"timeout": self.seconds}

    def on_terminate(self) -> None:
        """The first SIGTERM. Where a host ends, it follows DRAIN, and must not cut that short."""
        if not self._is_asked:
            self._is_asked = True
            self.seconds = self._configured_s
        self._stop()

    def hurry(self) -> None:
        """Any further signal, and those that do not drain: nobody wants to wait (any longer)."""
        self._is_asked = True
        self._hurry.set()
        self._stop()

    async def end(self) -> None:
        """Drain, and close every connection; bounded in time."""
        if not self.seconds:
            await self._router.stop()
            return
        log(self._emit, "SERVER", "notice", f"Draining, for at most {self.seconds} seconds")
        left = await self._drain()
        log(self._emit, "SERVER", "warning" if left else "notice", f"Drained: {left} deliveries have no outcome")
        await self._router.stop(_ENDS)

    async def _drain(self) -> int:
        """Accept nothing more, give senders no more credit, and wait until what is under way has its outcome.

        Returns how many deliveries are under way still.
        """
        router, before = self._router, -1
        router.close_ports()
        deadline = router.clock() + self.seconds
        while True:
            found = await self._look()
            # Nothing came between two looks: senders that were asked for their credit have had time to answer.
            is_quiet = not found.waiting and found.came == before
            if is_quiet or self._hurry.is_set() or router.clock() >= deadline:
                return found.waiting
            before = found.came
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), LOOK_S)

    async def _look(self) -> UnderWay:
        found = UnderWay()
        for _ in look(self._router.core, found):
            self._router.work.finish()
            await asyncio.sleep(0)
        self._router.work.finish()
        return found
