"""Decides on which links a flooded message must still be sent.

A message to all routers is forwarded on each link that is a path, except to routers in its trace (network §5). That
alone would multiply it by all ways through the network. So this router forwards a message once on each link, whatever
copies of it arrive, because the copies are equal. If a false trace contains routers that did not have the message yet,
it only delays them: the next copy is sent on the remaining links.
"""

from collections import Counter
from collections.abc import Hashable, Iterable

from router.linkstate.limits import Limits


class Floods:
    """The messages forwarded in this tick and the one before."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.floods_per_router_and_tick
        self._now: dict[Hashable, set[int]] = {}
        self._before: dict[Hashable, set[int]] = {}
        self._origins: Counter[str] = Counter()

    def tick(self) -> None:
        self._before, self._now = self._now, {}
        self._origins.clear()

    def take(self, origin: str, content: Hashable, links: Iterable[int]) -> tuple[int, ...]:
        """Returns those of `links` that have not had the message, in their order.

        origin   the known router that sent the message
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
