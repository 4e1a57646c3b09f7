"""Decides open connections again, after the rules or the time have changed their rights.

It works in slices between which messages are routed: no message of a link that stays is delayed by more than 50 ms.
Source: docs/spec/policy-and-auth.md §2.8.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from policy.ruleset import Ruleset
from router.admission.gate import Admission, Gate
from router.connection.stack import Stack
from router.effects import Emit, Occasion, log
from router.faults import fault_text
from router.io.turns import TURN_S, take, turn

# If a turn of the loop takes long, the pass gets this share of it. Otherwise a flood of messages would delay the end of
# denied connections for as long as it lasts.
SLICE_SHARE: Final = 0.2
# Total time that a pass waits for the audit log: thousands of closures in a moment would overrun its queue. A disk that
# does not write must not keep denied connections open.
AUDIT_PATIENCE_S: Final = 5.0
_AUDIT_PAUSE_S: Final = 0.01
LONGEST_SLICE_S: Final = 0.01


def everybody(_connection: Admission) -> bool:
    return True


class Redecision:
    """The pass over all open connections: one at a time. It begins again when something changes in between."""

    def __init__(
        self,
        gate: Gate,
        connections: Mapping[int, Stack],
        finish: Callable[[], None],
        emit: Emit,
        wall_clock: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """connections  by number, the oldest first
        finish       sends messages that were made outside a pass of the loop
        wall_clock   seconds since 1970 UTC
        clock        seconds since any starting point
        """
        self._gate = gate
        self._clock = clock
        self._connections = connections
        self._finish = finish
        self._emit = emit
        self._wall_clock = wall_clock
        self._task: asyncio.Task[None] | None = None
        self._next = 0  # number of the next connection
        self.has_much_to_write: Callable[[], bool] = lambda: False  # True while the audit log has much to write

    def begin(self, occasion: Occasion, concerns: Callable[[Admission], bool] = everybody) -> None:
        """Decides every open connection again by the rules in force, and ends what they deny.

        From now on a concerned connection gets nothing new by its earlier rights, even before its turn.
        """
        self._gate.begin_epoch(occasion, concerns, self._wall_clock())
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        gate = self._gate
        try:
            epoch = -1
            while epoch != gate.epoch:
                epoch, steps = gate.epoch, self._steps()
                slice_s, patience_s = TURN_S, AUDIT_PATIENCE_S
                while epoch == gate.epoch and self._go_on(steps, slice_s):
                    left_at = self._clock()
                    await asyncio.sleep(0)
                    turn_s = self._clock() - left_at
                    slice_s = min(max(TURN_S, turn_s * SLICE_SHARE), LONGEST_SLICE_S)
                    while patience_s > 0 and self.has_much_to_write():
                        patience_s -= _AUDIT_PAUSE_S
                        await asyncio.sleep(_AUDIT_PAUSE_S)
            ended = gate.ended
            text = (
                f"Open connections decided again after {gate.occasion}: {ended['connections']} connections closed, "
                f"{ended['sessions']} sessions ended, {ended['links']} links detached"
            )
            log(self._emit, "POLICY", "info", text)
            gate.end_epoch()
        except Exception as error:  # our own fault; outdated connections still get nothing new
            log(self._emit, "ERROR", "error", f"Deciding open connections again: {fault_text(error)}")
        finally:
            self._task = None

    def _go_on(self, steps: Iterator[None], slice_s: float) -> bool:
        """Works for one slice of time. Returns False when there is nothing left to do."""
        try:
            return take(steps, turn(self._clock, slice_s))
        finally:
            self._finish()

    def _steps(self) -> Iterator[None]:
        # Begins where the last pass stopped: rules that change all the time must not spare the last connections.
        numbers = list(self._connections)
        first = bisect_left(numbers, self._next)
        for number in (*numbers[first:], *numbers[:first]):
            self._next = number
            connection = self._connections.get(number)
            if connection is not None:
                yield from connection.redecide()
            yield
        self._next = 0
        # Every connection now counts in its new place. If there are too many, the newest are closed.
        for connection in reversed(list(self._connections.values())):
            connection.keep_within_limits()
            yield


class Expiry:
    """Watches the validUntil of groups: then their connections are decided again, whatever onPolicyChange says."""

    def __init__(self, gate: Gate, redecision: Redecision, wall_clock: Callable[[], float]) -> None:
        """wall_clock  seconds since 1970 UTC"""
        self._gate = gate
        self._redecision = redecision
        self._wall_clock = wall_clock
        self._checked_at = wall_clock()
        # Times of the rules in force and of earlier rules: a connection keeps the settings of an old Open only until
        # such a time.
        self._instants: set[float] = set()
        self._next = float("inf")
        self.learn(gate.ruleset)

    def learn(self, ruleset: Ruleset) -> None:
        """Notes the times of rules that come into force."""
        if ruleset.is_enabled:
            self._instants.update(instant for instant in ruleset.boundaries if instant > self._checked_at)
        self._next = min(self._instants, default=float("inf"))

    def on_second(self) -> None:
        """Begins a redecision at the end of a group.

        Checked once a second, without a timer, because the clock may be set.
        """
        now, before = self._wall_clock(), self._checked_at
        self._checked_at = now
        if now >= self._next:
            self._instants = {instant for instant in self._instants if instant > now}
            self._redecision.begin("expiry", lambda connection: connection.is_over_at(now))
        if now >= self._next or now < before:
            self.learn(self._gate.ruleset)
