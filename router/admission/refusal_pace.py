"""Limits the refusals per second of one user, or of one host without a login. Pure: the clock is an argument.

Attack: a user with a valid password asks 5,000 times a second for something that is not allowed. Each answer takes a
tenth to a quarter of a millisecond of the one event loop, and all other messages wait. So a party is refused at most
`rate` times a second, after BURST times at first. A connection that is refused more often is not read until its party
may be refused again. Its own messages wait too. Source: docs/policy.md, Whoever is refused too often waits.
"""

from collections.abc import Hashable
from typing import Final

# Refusals of a party that are handled at once, if it had none for a while. A client with a thousand links whose rights
# have ended attaches them all again.
BURST: Final = 1000
# The maximum length of a pause, whatever the party's other connections do: the peer's heartbeats wait too.
LONGEST_S: Final = 2.0


class RefusalPace:
    """The recent refusals of each party.

    rate  refusals per second; 0: no limit
    """

    __slots__ = ("_due", "rate")

    def __init__(self, rate: int = 0) -> None:
        self.rate = rate
        # Party -> the monotonic time at which its latest refusal would have come at `rate`, minus the burst.
        self._due: dict[Hashable, float] = {}

    def pause_s(self, party: Hashable, now: float) -> float:
        """Counts a refusal of a party now. Returns the seconds for which the connection must not be read; 0: no pause.

        party  the number of parties must be limited: `forget_idle` forgets each only after it has its whole burst again
        """
        rate = self.rate
        if not rate:
            return 0.0
        due = self._due[party] = max(self._due.get(party, 0.0), now - BURST / rate) + 1 / rate
        return min(due - now, LONGEST_S) if due > now else 0.0

    def forget_idle(self, now: float) -> None:
        """Forgets the parties that have their whole burst again."""
        if self.rate:
            until = now - BURST / self.rate
            for party in [party for party, due in self._due.items() if due <= until]:
                del self._due[party]
