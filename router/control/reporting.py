"""Reports repeated events once a minute, and at the end: those that the ban gate and the probes only counted."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from router.admission.connection_gate import Gate

INTERVAL_S: Final = 60.0
# Events in one second: thousands of bans may have something to tell, and the audit log's queue is bounded.
AT_ONCE: Final = 200


class Reporting:
    def __init__(self, gate: Gate, now: float) -> None:
        self._gate = gate
        self._next = now + INTERVAL_S
        self._left: Iterator[None] = iter(())

    def on_second(self, now: float) -> None:
        """To be called once a second."""
        if now >= self._next:
            self._next = now + INTERVAL_S
            self._left = self._round()
        for _ in islice(self._left, AT_ONCE):
            pass

    def stop(self) -> None:
        """Report all that was counted."""
        for _ in self._round():
            pass

    def _round(self) -> Iterator[None]:
        return chain(self._gate.bans.reports(), self._gate.entrance.reports(), self._gate.breakoffs.reports())
