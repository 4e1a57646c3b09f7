"""PROFILE: shows where the router's loop spends its time, to users who may change the management node.

It slows everything down while it runs. Therefore it needs the right to update `management`, is recorded as a change,
and ends by itself. Source: docs/spec/management.md §7.7.
"""

import asyncio
import cProfile
import io
import pstats
from collections.abc import Mapping
from typing import Final

from router.effects import Emit, log
from router.management.requests import ManagementError

# A forgotten profile would slow the router down forever.
MAX_S: Final = 60
# Maximum number of functions in the report, those with the most time including their calls.
MAX_LINES: Final = 100


class Profiling:
    """The profile of the loop's thread; there is one at a time."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._profile: cProfile.Profile | None = None
        self._end: asyncio.TimerHandle | None = None

    def perform(self, properties: Mapping[str, object]) -> object:
        """Returns the body of the reply: an empty map for `start`, the statistics as text for `stop`.

        Errors: ManagementError.
        """
        if properties.get("start") is not None:
            self._start()
            return {}
        if properties.get("stop") is not None:
            return self._stop()
        raise ManagementError(400, "PROFILE wants the property 'start' or 'stop'")

    def _start(self) -> None:
        """Starts a profile; a running profile begins again."""
        self._pause()
        self._profile = cProfile.Profile()
        self._profile.enable()
        self._end = asyncio.get_running_loop().call_later(MAX_S, self._expire)

    def _stop(self) -> str:
        self._pause()
        profile, self._profile = self._profile, None
        if profile is None:
            raise ManagementError(400, "Profiler not started")
        text = io.StringIO()
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats("cumulative").print_stats(MAX_LINES)
        return text.getvalue()

    def _pause(self) -> None:
        if self._profile is not None:
            self._profile.disable()
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _expire(self) -> None:
        self._pause()
        log(
            self._emit,
            "AGENT",
            "notice",
            f"Profiling has ended after {MAX_S} seconds; PROFILE with 'stop' gives it out",
        )
