"""The links to other routers, the router that uses each, and this router's own link state.

If a router uses several links, one of them is in use: the cheapest, then the oldest (network §13). A link has one
router. Source: docs/spec/network.md §7.3, §7.4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from router.linkstate.messages import LinkState


@dataclass(slots=True)
class Link:
    """An outgoing control link.

    order         shows which link came first
    admitted_id   the only router id that may use it; None: any, but one at a time
    heard_id      of the last HELLO, while that is not too old
    qualified_at  when a HELLO last named this router; None: never
    is_blamed     True if a HELLO of another router than the admitted one was reported
    """

    tag: int
    cost: int
    order: int
    admitted_id: str | None
    heard_id: str | None = None
    heard_at: float = 0.0
    qualified_at: float | None = None
    is_blamed: bool = False


class Neighbours:
    """The links and neighbours of this router.

    max_age_s  the age after which a HELLO no longer counts
    """

    def __init__(self, router: str, max_age_s: float) -> None:
        self._router = router
        self._max_age_s = max_age_s
        self._order = 0
        self.links: dict[int, Link] = {}
        self.peers: dict[str, int] = {}  # neighbour -> cost: the own link state
        self.in_use: dict[str, int] = {}  # neighbour -> tag of its link
        self.ls_seq = 0
        self.is_changed = False  # since the last sequence number

    def add(self, tag: int, cost: int, admitted_id: str | None) -> None:
        self._order += 1
        self.links[tag] = Link(tag, max(1, cost), self._order, admitted_id)

    def remove(self, tag: int) -> str | None:
        """Removes a link. Returns its neighbour."""
        self.links.pop(tag, None)
        return self.neighbour_on(tag)

    def neighbour_on(self, tag: int) -> str | None:
        return next((router for router, used in self.in_use.items() if used == tag), None)

    def hear(self, link: Link, router: str, now: float) -> bool:
        """Notes a HELLO of `router`. Returns False if another router uses this link.

        Attack: one neighbour that pretends to be a hundred.
        """
        if link.admitted_id not in (None, router):
            return False
        if link.heard_id not in (None, router):
            return False
        link.heard_id, link.heard_at = router, now
        return True

    def forget(self, now: float) -> Iterator[str]:
        """Forgets HELLOs that are too old. Yields the routers that are no longer heard on any link."""
        for link in self.links.values():
            if link.heard_id is not None and self._is_old(link.heard_at, now):
                router, link.heard_id, link.qualified_at = link.heard_id, None, None
                if router not in self.heard():
                    yield router

    def heard(self) -> tuple[str, ...]:
        """Returns the routers that were heard on any link."""
        return tuple(dict.fromkeys(link.heard_id for link in self.links.values() if link.heard_id is not None))

    def best_link(self, router: str, now: float) -> Link | None:
        """Returns the link to use, among those on which `router` has recently named this router."""
        candidates = [
            link
            for link in self.links.values()
            if link.heard_id == router and link.qualified_at is not None and not self._is_old(link.qualified_at, now)
        ]
        return min(candidates, key=lambda link: (link.cost, link.order), default=None)

    def use(self, router: str, link: Link) -> None:
        self.in_use[router] = link.tag
        if self.peers.get(router) != link.cost:
            # A new mapping, because a computation holds the old one.
            self.peers = {**self.peers, router: link.cost}
            self.is_changed = True

    def drop(self, router: str) -> None:
        del self.in_use[router]
        self.peers = {peer: cost for peer, cost in self.peers.items() if peer != router}
        self.is_changed = True

    def state(self) -> LinkState:
        return LinkState(id=self._router, ls_seq=self.ls_seq, peers=self.peers)

    def _is_old(self, then: float, now: float) -> bool:
        return now - then > self._max_age_s
