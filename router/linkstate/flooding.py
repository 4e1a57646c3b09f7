"""Which links a flooded message still has to take.

A message to all routers is forwarded to each link that is the path to some router, but to none that its trace names
(network §5). That alone multiplies it by every way through the network there is. So this router forwards a message once
to each link, whatever copies of it arrive: the copies say the same. A trace that leaves routers out which did not have
the message yet only delays them: the next copy takes the links that are left.
"""

from collections import Counter
from collections.abc import Hashable, Iterable

from router.linkstate.limits import Limits


class Floods:
    """What was forwarded in this tick and the one before."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.floods_per_router_and_tick
        self._now: dict[Hashable, set[int]] = {}
        self._before: dict[Hashable, set[int]] = {}
        self._origins: Counter[str] = Counter()

    def tick(self) -> None:
        self._before, self._now = self._now, {}
        self._origins.clear()

    def take(self, origin: str, content: Hashable, links: Iterable[int]) -> tuple[int, ...]:
        """Those of `links` that have not had the message, in their order.

        origin   a known router, whose message it is
        content  equal for copies of one message
        """
        done = self._now.get(content) or self._before.get(content)
        if done is None:
            if self._origins[origin] >= self._limit:
                return ()
            self._origins[origin] += 1
            done = self._now[content] = set()
        left = tuple(sorted(set(links) - done))
        done.update(left)
        return left
