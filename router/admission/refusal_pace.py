"""How many refusals a second are worked off for one user, or one host without a login. Pure: the clock is an argument.

Attack: a user with a valid password asks 5,000 times a second for what he may not have. Each answer takes a tenth to a
quarter of a millisecond of the one event loop, and the messages of all others wait behind them. So a party is refused
`rate` times a second, and BURST times at first; a connection that is refused more often is not read until its party's
time has come. Its own messages wait with it. Source: docs/policy.md, Whoever is refused too often waits.
"""

from collections.abc import Hashable
from typing import Final

# Refusals of a party that are worked off at once, after it had none for a while: a client with a thousand links whose
# rights have ended attaches them all again.
BURST: Final = 1000
# A pause ends after so long, whatever the party's other connections do: the peer's heartbeats wait, too.
LONGEST_S: Final = 2.0


class RefusalPace:
    """rate  refusals a second; 0: as many as come"""

    __slots__ = ("_due", "rate")

    def __init__(self, rate: int = 0) -> None:
        self.rate = rate
        # Party -> monotonic seconds: when its latest refusal would have come at `rate`, the burst taken off.
        self._due: dict[Hashable, float] = {}

    def pause_s(self, party: Hashable, now: float) -> float:
        """A party is refused something now. Returns for how long the connection is not to be read; 0: for no time.

        party  of a bounded number: `forget_idle` forgets them no sooner than they could begin anew
        """
        rate = self.rate
        if not rate:
            return 0.0
        due = self._due[party] = max(self._due.get(party, 0.0), now - BURST / rate) + 1 / rate
        return min(due - now, LONGEST_S) if due > now else 0.0

    def forget_idle(self, now: float) -> None:
        """Forget the parties that may have a whole burst again."""
        if self.rate:
            until = now - BURST / self.rate
            for party in [party for party, due in self._due.items() if due <= until]:
                del self._due[party]
