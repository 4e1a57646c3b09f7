"""Blocking work off the event loop: verifying passwords.

Bounded in threads and in waiting requests; what does not fit is refused, not queued.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from auth.credentials import VERIFIER_UNAVAILABLE, VerifyRequest, VerifyResult

# Password hashing is deliberately slow: a few threads, and no more waiting than clients wait for.
THREADS: Final = 2
# Stops a flood of logins from growing the queue without end; each entry holds one password.
MAX_WAITING: Final = 2048

UNAVAILABLE: Final = VerifyResult(is_valid=False, detail=VERIFIER_UNAVAILABLE)


class Workers:
    """Runs a verifier in threads and calls back on the loop."""

    def __init__(self, verify: Callable[[VerifyRequest], VerifyResult], on_error: Callable[[str], None]) -> None:
        self._verify = verify
        self._on_error = on_error
        self._pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="verifier")
        self._waiting = 0

    def submit(self, request: VerifyRequest, done: Callable[[VerifyResult], None]) -> None:
        loop = asyncio.get_running_loop()
        if self._waiting >= MAX_WAITING:
            self._on_error(f"more than {MAX_WAITING} logins wait for verification: refused")
            loop.call_soon(done, UNAVAILABLE)
            return
        self._waiting += 1

        def finished(future: "Future[VerifyResult]") -> None:
            loop.call_soon_threadsafe(conclude, future)

        def conclude(future: "Future[VerifyResult]") -> None:
            self._waiting -= 1
            error = future.exception()
            if error is not None:
                # The text may hold what the user typed; the class says enough to look further.
                self._on_error(f"the verifier failed with {type(error).__name__}")
                done(UNAVAILABLE)
            else:
                done(future.result())

        self._pool.submit(self._verify, request).add_done_callback(finished)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
