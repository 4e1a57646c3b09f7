"""Looks for the next read a moment longer before the loop sleeps, where that makes the next read come sooner.

The answer to a message often comes some 30 microseconds after it. On a machine that is else idle, putting a processor
to sleep and waking it takes longer than that, and costs more. So after a read the loop polls its sockets for a moment
without sleeping. Other sockets, timers and callbacks are served meanwhile: only the sleep is put off.

Whether it helps is measured, again and again: some reads are waited for asleep, some looking, and the shorter way is
chosen for the reads that follow. Where peers do not answer so fast, where they send without a pause, and where other
processes want the processor, looking is not shorter, and the loop sleeps. Source: docs/performance.md, busy polling.
"""

import os
import time
from collections.abc import Callable
from statistics import fmean
from typing import Final

# Reads of each trial, and reads for which its result holds.
TRIAL_READS: Final = 32
CHOSEN_READS: Final = 2048

# Looking has to be so much shorter than sleeping; else the difference is chance, and not worth the processor's time.
# Where two routers answer each other it is 0.75 for the first that looks: the other still sleeps.
WORTHWHILE: Final = 0.8

# A read that takes so many times as long as the router looks is no answer to the one before.
ANSWER_FACTOR: Final = 10


# In a network an answer may come over further routers, and takes so many times as long.
HOPS_FACTOR: Final = 4
# There, reads that bring more than so many bytes in the mean are no single answers: between processes that hand many
# messages to each other, whoever looks takes the processor from whom it waits for.
ANSWER_BYTES: Final = 1024


def has_processor_to_spare() -> bool:
    """Whether another processor can run the peer meanwhile."""
    return len(os.sched_getaffinity(0)) > 1


class BusyPoll:
    """seconds  how long to look after a read; 0, as it begins: not at all"""

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
        """call_soon  has the loop call in its next pass, for which it does not sleep
        clock      seconds, of microsecond resolution
        """
        self.seconds = 0.0
        self._call_soon = call_soon
        self._clock = clock
        self._looks = False  # after each read, at present
        self._left = TRIAL_READS  # reads, for which that holds
        self._gaps: list[float] | None = []  # before each read of the trial under way; None: there is none
        self._trials: list[list[float]] = [self._gaps]
        self._bytes = 0  # that the reads of both trials brought
        self._most_bytes: int | None = None  # that they may have brought; None: as many as they like
        self._last = 0.0
        self._looks_until = 0.0
        self._is_looking = False

    def look_for(self, seconds: float, *, is_in_network: bool) -> None:
        """From now on look so long after a read, and longer in a network."""
        self.seconds = seconds * (HOPS_FACTOR if is_in_network else 1)
        self._most_bytes = 2 * TRIAL_READS * ANSWER_BYTES if is_in_network else None

    def after_read(self, size: int = 0) -> None:
        """`size` bytes of a socket were read, and their messages have left."""
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
        """One pass of the loop without a sleep."""
        if self._clock() < self._looks_until:
            os.sched_yield()  # to whom it waits for, where all processors are taken
            self._call_soon(self._look)
        else:
            self._is_looking = False

    def _choose(self) -> None:
        """A trial is over, or its result held long enough."""
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
        """Mean seconds to an answer. Infinite where most reads are none.

        Not the median: in a row of routers every second read comes soon and every second late, and it would be either.
        """
        answers = [gap for gap in gaps if gap < ANSWER_FACTOR * self.seconds]
        return fmean(answers) if 2 * len(answers) >= len(gaps) else float("inf")
