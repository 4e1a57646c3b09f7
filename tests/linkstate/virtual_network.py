"""A network of machines in virtual time: what the core and the wire do, without either. Seeded.

Links delay messages, reorder and lose them. Half a link may be known to be lost before the other half is.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from router.effects import Log
from router.linkstate import paths
from router.linkstate.effects import (
    AddressesChanged,
    Effect,
    FloodControl,
    RadiusChanged,
    RouterChanged,
    RouterGone,
    RouterRow,
    SendControl,
)
from router.linkstate.limits import Limits
from router.linkstate.machine import Machine, ReceivedControl
from router.linkstate.settings import Settings


@dataclass(frozen=True, slots=True)
class Message:
    to: str
    opcode: str
    body: dict[str, Any]
    trace: tuple[str, ...]


@dataclass
class Node:
    """What the core keeps of a machine's effects."""

    name: str
    machine: Machine
    generation: int
    phase: float
    rows: dict[str, RouterRow] = field(default_factory=dict)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    links: dict[int, tuple[str, int]] = field(default_factory=dict)  # tag -> the node and its tag at the other end
    radius: int = 0
    logs: list[Log] = field(default_factory=list)


class Network:
    def __init__(self, seed: int = 1, *, delay_s: float = 0.01, loss: float = 0.0, keeps_logs: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.delay_s = delay_s
        self.loss = loss
        self.nodes: dict[str, Node] = {}
        self.sent: Counter[str] = Counter()  # transmissions by opcode
        self._keeps_logs = keeps_logs
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._tags: Counter[str] = Counter()
        self._instances: Counter[str] = Counter()

    # What happens

    def start(self, name: str, **settings: Any) -> Node:
        self._instances[name] += 1
        instance = 1000 + self._instances[name]
        machine = Machine(Settings(router_id=name, instance=instance, **settings), Limits())
        node = self.nodes[name] = Node(name, machine, instance, self.random.random())
        self._at(self.now + node.phase, lambda: self._tick(node))
        return node

    def stop(self, name: str) -> None:
        node = self.nodes.pop(name)
        for tag, (other, other_tag) in list(node.links.items()):
            del node.links[tag]
            self._lose(other, other_tag)

    def connect(self, one: str, other: str, cost: int = 1) -> None:
        tags = self._next_tag(one), self._next_tag(other)
        self.nodes[one].links[tags[0]] = (other, tags[1])
        self.nodes[other].links[tags[1]] = (one, tags[0])
        for name, tag in ((one, tags[0]), (other, tags[1])):
            self._apply(self.nodes[name], self.nodes[name].machine.link_up(tag, cost, self.now))

    def disconnect(self, one: str, other: str, later_s: float = 0.0) -> None:
        """Both ends lose their links; the other's notices it `later_s` later."""
        for tag, (peer, peer_tag) in list(self.nodes[one].links.items()):
            if peer == other:
                self._lose(one, tag)
                if later_s:
                    self._at(self.now + later_s, lambda tag=peer_tag: self._lose(other, tag))  # type: ignore[misc]
                else:
                    self._lose(other, peer_tag)

    def appear(self, name: str, key: str, hint: int = 3) -> None:
        node = self.nodes[name]
        node.local.add(key)
        self._apply(node, node.machine.address_appeared(key, hint))

    def go(self, name: str, key: str) -> None:
        node = self.nodes[name]
        node.local.discard(key)
        self._apply(node, node.machine.address_gone(key))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def run_until(self, holds: Callable[[], bool], limit_s: int) -> int:
        """Seconds until something holds; AssertionError if it does not in time."""
        for second in range(limit_s + 1):
            if holds():
                return second
            self.run(1)
        raise AssertionError(f"not within {limit_s} s")

    def inject(self, name: str, tag: int, message: Message) -> None:
        self._arrive(self.nodes[name], tag, message)

    # What is to hold

    def islands(self) -> list[frozenset[str]]:
        left, found = set(self.nodes), []
        while left:
            island, todo = set(), [min(left)]
            while todo:
                name = todo.pop()
                if name not in island:
                    island.add(name)
                    todo += [peer for peer, _ in self.nodes[name].links.values() if peer in self.nodes]
            left -= island
            found.append(frozenset(island))
        return found

    def is_consistent(self) -> bool:
        """All of an island know it, its paths and its addresses, and nobody reaches anybody else."""
        return not any(self.faults())

    def faults(self) -> Iterator[str]:
        costs = {name: node.machine.peers() for name, node in self.nodes.items()}
        for island in self.islands():
            for name in island:
                node = self.nodes[name]
                reached = {row.id for row in node.rows.values() if row.path is not None}
                if reached != island - {name}:
                    yield f"{name} reaches {sorted(reached)} of {sorted(island)}"
                    continue
                for other in reached:
                    trace = self.trace(name, other)
                    if trace is None or len(set(trace)) != len(trace):
                        yield f"{name} to {other}: {trace}"
                    elif sum(costs[a].get(b, 10**9) for a, b in pairwise(trace)) != (node.rows[other].cost):
                        yield f"{name} to {other}: {trace} does not cost {node.rows[other].cost}"
                expected: dict[str, set[str]] = {}
                for other in reached:
                    for key in self.nodes[other].local:
                        expected.setdefault(key, set()).add(other)
                known = {key: routers & island for key, routers in node.addresses.items() if routers & island}
                if known != expected:
                    yield f"{name} knows {known}, not {expected}"

    def trace(self, start: str, end: str) -> list[str] | None:
        """The way of a message."""
        passed = [start]
        while passed[-1] != end:
            node = self.nodes[passed[-1]]
            row = node.rows.get(end)
            if row is None or row.path is None or row.path not in node.links or len(passed) > len(self.nodes):
                return None
            passed.append(node.links[row.path][0])
        return passed

    # The core and the wire

    def _apply(self, node: Node, effects: list[Effect], received: tuple[int, Message] | None = None) -> None:
        for effect in effects:
            match effect:
                case SendControl():
                    message = Message(effect.to, effect.opcode, effect.body, (node.name,))
                    for link in effect.links:
                        self._transmit(node, link, message)
                case FloodControl():
                    assert received is not None
                    for link in effect.links:
                        self._forward(node, link, received[1])
                case RouterChanged():
                    node.rows[effect.row.id] = effect.row
                case RouterGone():
                    assert node.rows.pop(effect.id).index == effect.index
                    assert all(effect.id not in routers for routers in node.addresses.values())
                case RadiusChanged():
                    node.radius = effect.radius
                case AddressesChanged():
                    for key, _ in effect.mapped:
                        routers = node.addresses.setdefault(key, set())
                        assert effect.router not in routers
                        routers.add(effect.router)
                    for key in effect.unmapped:
                        node.addresses[key].remove(effect.router)
                        if not node.addresses[key]:
                            del node.addresses[key]
                case Log():
                    assert effect.level != "error" or not self._keeps_logs, effect
                    if self._keeps_logs:
                        node.logs.append(effect)

    def _tick(self, node: Node) -> None:
        if self.nodes.get(node.name) is not node:
            return
        self._apply(node, node.machine.tick(self.now))
        while node.machine.has_work:
            self._apply(node, node.machine.work())
        self._at(self.now + 1, lambda: self._tick(node))

    def _forward(self, node: Node, link: int, message: Message) -> None:
        assert node.name not in message.trace
        self._transmit(node, link, Message(message.to, message.opcode, message.body, (*message.trace, node.name)))

    def _transmit(self, node: Node, link: int, message: Message) -> None:
        if link not in node.links:
            return
        self.sent[message.opcode] += 1
        if self.loss and self.random.random() < self.loss:
            return
        name, tag = node.links[link]
        arrival = self.now + self.random.random() * self.delay_s

        def arrive() -> None:
            receiver = self.nodes.get(name)
            if receiver is not None and receiver.links.get(tag) == (node.name, link):
                self._arrive(receiver, tag, message)

        self._at(arrival, arrive)

    def _arrive(self, node: Node, tag: int, message: Message) -> None:
        scope, *rest = message.to.removeprefix("amqp:/").split("/")
        if scope == "_topo" and rest[1] not in ("all", node.name):
            row = node.rows.get(rest[1])
            if row is not None and row.path is not None and node.name not in message.trace:
                self._forward(node, row.path, message)
            return
        key = ("T" if rest[-2:-1] == ["all"] else "L") + rest[-1]
        received = ReceivedControl(
            link=tag, key=key, properties={"opcode": message.opcode}, body=message.body, trace=message.trace
        )
        self._apply(node, node.machine.receive(received, self.now), (tag, message))

    def _lose(self, name: str, tag: int) -> None:
        node = self.nodes.get(name)
        if node is not None and node.links.pop(tag, None) is not None:
            self._apply(node, node.machine.link_lost(tag, self.now))

    def _next_tag(self, name: str) -> int:
        self._tags[name] += 1
        return self._tags[name]

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))


def share_trees(patch: pytest.MonkeyPatch) -> None:
    """Routers with the same link states have the same trees: compute each once."""
    graphs: dict[paths.Graph, dict[int, paths.Tree]] = {}
    of_graph: dict[int, tuple[paths.Graph, dict[int, paths.Tree]]] = {}
    make, find = paths.Graph, paths.find_tree

    def make_shared(ids: tuple[str, ...], edges: tuple[tuple[tuple[int, int], ...], ...]) -> paths.Graph:
        graph = make(ids, edges)
        if len(graphs) > 64:
            graphs.clear()
            of_graph.clear()
        of_graph[id(graph)] = graph, graphs.setdefault(graph, {})
        return graph

    def find_shared(graph: paths.Graph, root: int) -> paths.Tree:
        _, trees = of_graph.setdefault(id(graph), (graph, {}))
        if root not in trees:
            trees[root] = find(graph, root)
        return trees[root]

    patch.setattr(paths, "Graph", make_shared)
    patch.setattr(paths, "find_tree", find_shared)


# Graphs: pairs of routers with the cost between them

Edges = list[tuple[str, str, int]]


def name_of(index: int) -> str:
    return f"R{index:03}"


def ring(count: int) -> Edges:
    return [(name_of(i), name_of((i + 1) % count), 1) for i in range(count)]


def grid(width: int, height: int) -> Edges:
    across = [(name_of(y * width + x), name_of(y * width + x + 1), 1) for y in range(height) for x in range(width - 1)]
    down = [(name_of(y * width + x), name_of((y + 1) * width + x), 1) for y in range(height - 1) for x in range(width)]
    return across + down


def tree(count: int) -> Edges:
    return [(name_of((i - 1) // 2), name_of(i), 1) for i in range(1, count)]


def random_graph(count: int, seed: int) -> Edges:
    """Connected, twice as many edges as routers, costs 1 to 10."""
    chance = random.Random(seed)
    edges = {(chance.randrange(i), i): chance.randint(1, 10) for i in range(1, count)}
    while len(edges) < 2 * count:
        low, high = sorted(chance.sample(range(count), 2))
        edges.setdefault((low, high), chance.randint(1, 10))
    return [(name_of(low), name_of(high), cost) for (low, high), cost in edges.items()]


def build(edges: Edges, seed: int = 1, **settings: Any) -> Network:
    network = Network(seed, **settings)
    for name in sorted({name for low, high, _ in edges for name in (low, high)}):
        network.start(name)
    for low, high, cost in edges:
        network.connect(low, high, cost)
    return network
