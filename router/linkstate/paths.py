"""Shortest paths over the link states: next hops, costs, radius, valid origins.

Edges are directed: u's link state contains the cost from u to v. The trees of all roots are computed with the same rule
for ties, so that all routers agree on all of them. Source: docs/spec/network.md §8.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

UNREACHABLE: Final = -1
# The work of one step, in edges and nodes: about half a millisecond. A network of 128 routers takes many steps, and the
# router's messages pass between them.
WORK_PER_STEP: Final = 3000


@dataclass(frozen=True, slots=True)
class Graph:
    """Routers by index, in the order of their ids, and the edges that leave each: (to, cost), the cheapest first."""

    ids: tuple[str, ...]
    edges: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """The shortest paths from one root.

    order   the routers that are reached, by cost and then by id; the root is the first
    parents the router before each on its path; UNREACHABLE for the root and for routers that are not reached
    costs   of each path; UNREACHABLE if there is none
    """

    order: tuple[int, ...]
    parents: tuple[int, ...]
    costs: tuple[int, ...]


def find_tree(graph: Graph, root: int) -> Tree:
    """Runs Dijkstra's algorithm. A path is replaced only by a cheaper one, so that the lowest id wins a tie."""
    count = len(graph.ids)
    infinite = 1 << 62
    best, parents, order = [infinite] * count, [UNREACHABLE] * count, []
    is_final = [False] * count
    best[root] = 0
    reached = 1
    # Cost and index in one integer, so that the comparison needs no tuple.
    heap = [root]
    while heap:
        cost, node = divmod(heappop(heap), count)
        if is_final[node]:
            continue
        is_final[node] = True
        order.append(node)
        # The most expensive path that could still be replaced. Edges are sorted, so later edges replace none.
        leaving = graph.edges[node]
        limit = max(best) if reached == count and len(leaving) > 8 else infinite
        for to, edge in leaving:
            total = cost + edge
            if total >= limit:
                break
            if total < best[to]:
                if best[to] == infinite:
                    reached += 1
                best[to] = total
                parents[to] = node
                heappush(heap, total * count + to)
    return Tree(tuple(order), tuple(parents), tuple(cost if cost < infinite else UNREACHABLE for cost in best))


@dataclass(frozen=True, slots=True)
class Route:
    """How this router reaches another one."""

    next_hop: str
    cost: int


class Computation:
    """The routes of one router, computed in steps: the routes, then the valid origins, with a tree of each router.

    routes   router id -> its route, for all reachable routers, sorted by id; None until they are known
    radius   the largest number of hops
    origins  router id -> the ids of its valid origins, without this router's; complete when all work is done
    """

    def __init__(self, states: Mapping[str, Mapping[str, int]], router: str) -> None:
        """Prepares the computation.

        states  router id -> {neighbour id: cost of at least 1}; the inner maps must not change any more
        """
        self._states = _complete(states)
        self._router = router
        self._work = self._compute()
        self.routes: dict[str, Route] | None = None
        self.radius = 0
        self.origins: dict[str, list[str]] = {}

    def step(self) -> bool:
        """Does a part of the work. Returns True if all work is done."""
        spent = 0
        for work in self._work:
            spent += work
            if spent >= WORK_PER_STEP:
                return False
        return True

    def _compute(self) -> Iterator[int]:
        """Yields the amount of work of each piece, in edges."""
        ids = tuple(sorted(self._states))
        indexes = {router: index for index, router in enumerate(ids)}
        edges = []
        for router in ids:
            edges.append(_leaving(router, self._states[router], indexes))
            yield 2 * len(edges[-1]) + 4
        graph = Graph(ids, tuple(edges))
        work = 4 * len(ids) + sum(map(len, edges)) // 3
        own = indexes[self._router]
        reached = self._route(graph, own)
        yield work
        for root in reached:
            self._look_from(graph, root, own)
            yield work

    def _route(self, graph: Graph, own: int) -> list[int]:
        tree = find_tree(graph, own)
        hops, next_hops = {own: 0}, dict[int, int]()
        for node in tree.order[1:]:
            parent = tree.parents[node]
            hops[node] = hops[parent] + 1
            next_hops[node] = node if parent == own else next_hops[parent]
        reached = sorted(next_hops)
        self.routes = {graph.ids[node]: Route(graph.ids[next_hops[node]], tree.costs[node]) for node in reached}
        self.radius = max(hops.values())
        self.origins = {router: [] for router in self.routes}
        return reached

    def _look_from(self, graph: Graph, root: int, own: int) -> None:
        tree = find_tree(graph, root)
        if own not in tree.parents:
            return
        through = {own}
        for node in tree.order:
            if tree.parents[node] in through:
                through.add(node)
                # Edges may be one-way: a router that is reached from there may not be reached from here.
                if (origins := self.origins.get(graph.ids[node])) is not None:
                    origins.append(graph.ids[root])


def _complete(states: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Adds a link state for each router that is named but has none.

    Such a router is assumed to have one link of cost 1, back to the first router that names it.
    """
    complete = dict(states)
    for namer in sorted(states):
        for named in states[namer].keys() - complete.keys():
            complete[named] = {namer: 1}
    return complete


def _leaving(router: str, state: Mapping[str, int], indexes: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    edges = sorted((cost, indexes[to]) for to, cost in state.items() if to != router)
    return tuple((to, cost) for cost, to in edges)
