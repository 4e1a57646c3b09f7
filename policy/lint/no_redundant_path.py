"""The loss of one connection, or of one router, would cut a fleet in two.

Messages between the parts are released until it is back, and `unsettled` ones in flight come back as modified. Connect
interior routers so that each two have two ways between them, a ring for example, and give an edge two connectors to
different interior routers: one is in use, the other stands by. Where a connector leads cannot be told for every host
name; then nothing is said of the interior routers. Needs `--fleet`.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText
from policy.lint.fleet import FleetRouter, Graph, connectors_of, fleet, interior_graph

ID = "PAL111"
TITLE = "no redundant path"
FAMILY = Family.REACHABILITY
_LIKELY = About(confidence=Confidence.LIKELY)


def check(policy: PolicyText) -> Iterator[Finding]:
    routers = fleet(policy)
    graph = interior_graph(routers)
    for one, other in _weak_connections(graph) if graph is not None else ():
        text = f"its connection with router {routers[other].title} is the only path between two parts of the network"
        yield routers[one].anchor.finding(ID, Level.WARNING, text, about=_LIKELY)
    for place in _weak_routers(graph) if graph is not None else ():
        text = "without it the interior routers are in parts that do not reach each other"
        yield routers[place].anchor.finding(ID, Level.NOTE, text, about=_LIKELY)
    for router in routers:
        if router.mode == "edge" and len(_uplinks(router)) == 1:
            text = "an edge with one uplink: while that router is away, it reaches nobody"
            yield router.anchor.finding(ID, Level.NOTE, text)


def _uplinks(router: FleetRouter) -> set[tuple[str, str]]:
    return {(each.text("host"), each.text("port")) for each in connectors_of(router, "edge")}


def _parts(graph: Graph, *, without: int | None = None, cut: tuple[int, int] | None = None) -> int:
    """How many parts the network is in, without a router or a connection."""
    left = set(graph) - {without}
    count = 0
    while left:
        count += 1
        waiting = [left.pop()]
        while waiting:
            here = waiting.pop()
            for neighbour in graph[here] & left:
                if cut not in ((here, neighbour), (neighbour, here)):
                    left.discard(neighbour)
                    waiting.append(neighbour)
    return count


def _weak_connections(graph: Graph) -> Iterator[tuple[int, int]]:
    """Connections whose loss makes one part more. A network of 128 routers, the most there are, has few candidates:
    a spanning tree is enough.
    """
    parts = _parts(graph)
    for edge in _spanning_tree(graph):
        if _parts(graph, cut=edge) > parts:
            yield edge


def _spanning_tree(graph: Graph) -> Iterator[tuple[int, int]]:
    """Every connection that is the only path between two parts is in it."""
    seen: set[int] = set()
    for start in sorted(graph):
        if start in seen:
            continue
        seen.add(start)
        waiting = [start]
        while waiting:
            here = waiting.pop(0)
            for neighbour in sorted(graph[here] - seen):
                seen.add(neighbour)
                waiting.append(neighbour)
                yield here, neighbour


def _weak_routers(graph: Graph) -> Iterator[int]:
    """Routers between others whose loss makes one part more."""
    parts = _parts(graph)
    for place in sorted(graph):
        if len(graph[place]) > 1 and _parts(graph, without=place) > parts:
            yield place
