"""Reports repeated events: bans and probes once a minute, floods more often, and everything at the end."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from router.admission.connection_gate import Gate

INTERVAL_S: Final = 60.0
# If the process is killed, at most this many seconds of counts are lost, as long as the flood's budget has room for
# them.
FLOODS_INTERVAL_S: Final = 10.0
# Maximum number of events in one second: thousands of bans may have reports, and the audit log's queue is bounded.
AT_ONCE: Final = 200


class Reporting:
    def __init__(self, gate: Gate, now: float) -> None:
        self._gate = gate
        self._next = now + INTERVAL_S
        self._next_of_floods = now + FLOODS_INTERVAL_S
        self._left: Iterator[None] = iter(())
        self._left_of_floods: Iterator[None] = iter(())

    def on_second(self, now: float) -> None:
        """To be called once a second."""
        if now >= self._next:
            self._next = now + INTERVAL_S
            self._left = self._round()
        if now >= self._next_of_floods:
            self._next_of_floods = now + FLOODS_INTERVAL_S
            self._left_of_floods = self._sums()
        for _ in islice(chain(self._left, self._left_of_floods), AT_ONCE):
            pass

    def stop(self) -> None:
        """Reports everything that was counted."""
        for _ in chain(self._round(), self._sums(is_end=True)):
            pass

    def _sums(self, *, is_end: bool = False) -> Iterator[None]:
        allows = self._gate.allows
        denials = self._gate.folding.reports(is_end=is_end)
        return denials if allows is None else chain(denials, allows.folding.reports(is_end=is_end))

    def _round(self) -> Iterator[None]:
        return chain(self._gate.bans.reports(), self._gate.entrance.reports(), self._gate.breakoffs.reports())
