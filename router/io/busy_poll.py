"""Polls for the next read a moment longer before the event loop sleeps, if that makes the next read come sooner.

The answer to a message often comes about 30 microseconds after it. On an otherwise idle machine, putting a processor to
sleep and waking it takes longer than that, and costs more. So after a read the loop polls its sockets for a moment
without sleeping. Other sockets, timers and callbacks are served meanwhile: only the sleep is delayed.

Whether polling helps is measured repeatedly. The loop waits for some reads with sleep, and for others with polling, and
uses the faster way for the reads that follow. Polling is not faster if peers answer slowly or send without a pause, or
if other processes need the processor. The loop then sleeps. Source: docs/performance.md, busy polling.
"""

import os
import time
from collections.abc import Callable
from statistics import fmean
from typing import Final

# The reads of each trial, and the reads for which its result is used.
TRIAL_READS: Final = 32
CHOSEN_READS: Final = 2048

# Polling must be faster than sleeping by this factor. A smaller difference is chance, and not worth the processor time.
# If two routers answer each other, the factor is 0.75 for the first that polls, while the other still sleeps.
WORTHWHILE: Final = 0.8

# A read that comes later than this multiple of the polling time is no answer to the read before.
ANSWER_FACTOR: Final = 10


# In a network an answer may pass further routers, and takes this many times as long.
HOPS_FACTOR: Final = 4
# In a network, reads with more bytes than this on average are no single answers. Between processes that exchange many
# messages, the polling process takes the processor from the one that it waits for.
ANSWER_BYTES: Final = 1024


def has_processor_to_spare() -> bool:
    """Returns True if another processor can run the peer meanwhile."""
    return len(os.sched_getaffinity(0)) > 1


class BusyPoll:
    """Decides whether the loop polls after a read.

    seconds  how long to poll after a read; 0, the initial value: no polling
    """

    __slots__ = (
        "_bytes",
        "_call_soon",
        "_clock",
        "_gaps",
        "_is_looking",
        "_last",
        "_left",
        "_looks",
        "_looks_until",
        "_most_bytes",
        "_trials",
        "seconds",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Starts without polling.

        call_soon  has the loop call in its next pass, for which it does not sleep
        clock      seconds, of microsecond resolution
        """
        self.seconds = 0.0
        self._call_soon = call_soon
        self._clock = clock
        self._looks = False  # True if it currently polls after each read
        self._left = TRIAL_READS  # the number of reads for which that stays so
        self._gaps: list[float] | None = []  # the time before each read of the current trial; None: there is no trial
        self._trials: list[list[float]] = [self._gaps]
        self._bytes = 0  # the bytes of the reads of both trials
        self._most_bytes: int | None = None  # the limit for these bytes; None: no limit
        self._last = 0.0
        self._looks_until = 0.0
        self._is_looking = False

    def look_for(self, seconds: float, *, is_in_network: bool) -> None:
        """Sets how long to poll after a read. The time is longer in a network."""
        self.seconds = seconds * (HOPS_FACTOR if is_in_network else 1)
        self._most_bytes = 2 * TRIAL_READS * ANSWER_BYTES if is_in_network else None

    def after_read(self, size: int = 0) -> None:
        """Notes that `size` bytes of a socket were read, and their messages have left."""
        if not self.seconds:
            return
        now = self._clock()
        if self._gaps is not None:
            self._gaps.append(now - self._last)
            self._bytes += size
        self._last = now
        self._left -= 1
        if not self._left:
            self._choose()
        if self._looks:
            self._looks_until = now + self.seconds
            if not self._is_looking:
                self._is_looking = True
                self._call_soon(self._look)

    def _look(self) -> None:
        """Does one pass of the loop without a sleep."""
        if self._clock() < self._looks_until:
            os.sched_yield()  # to the process that it waits for, if all processors are in use
            self._call_soon(self._look)
        else:
            self._is_looking = False

    def _choose(self) -> None:
        """Begins the next trial, or uses the results of two trials."""
        if len(self._trials) == 2:
            asleep, looking = map(self._answer_time, self._trials)
            is_worthwhile = looking < WORTHWHILE * asleep
            self._looks = is_worthwhile and (self._most_bytes is None or self._bytes <= self._most_bytes)
            self._bytes = 0
            self._trials, self._gaps, self._left = [], None, CHOSEN_READS
        else:
            self._looks = len(self._trials) == 1
            self._gaps = []
            self._trials.append(self._gaps)
            self._left = TRIAL_READS

    def _answer_time(self, gaps: list[float]) -> float:
        """Returns the mean seconds to an answer. Infinite if most reads are no answers.

        It is not the median: in a row of routers every second read comes early and every second late, so a median would
        be one of these two.
        """
        answers = [gap for gap in gaps if gap < ANSWER_FACTOR * self.seconds]
        return fmean(answers) if 2 * len(answers) >= len(gaps) else float("inf")
