"""Networks of machines in virtual time: all come to agree, whatever happens to them. Seeded."""

import os
import random
from collections.abc import Callable, Iterator

import pytest
from virtual_network import (
    Edges,
    Network,
    build,
    grid,
    name_of,
    random_graph,
    ring,
    share_trees,
    tree,
)

GRAPHS: dict[str, Callable[[int], Edges]] = {
    "ring": ring,
    "grid": lambda count: grid(8, count // 8),
    "tree": tree,
    "random": lambda count: random_graph(count, 7),
}
# How long the news of a router takes over one hop, in ticks, and what the first exchanges take.
TICKS_PER_HOP, TICKS_FOR_NEIGHBOURS = 1.5, 8
# Of a campaign: 10,000 sequences, 11 minutes of processor time; 128 routers, minutes for each graph.
SEQUENCES = int(os.environ.get("PALISADE_SEQUENCES", "400"))
ROUTERS = int(os.environ.get("PALISADE_ROUTERS", "32"))


@pytest.fixture(autouse=True)
def shared_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        share_trees(patch)
        yield


def converge(name: str, count: int) -> None:
    """A network starts, says all there is to say, and loses one link of each of three routers."""
    edges = GRAPHS[name](count)
    network = build(edges)
    for index in range(0, count, 5):
        network.appear(name_of(index), f"M0here{index % 3}")
    reach = max(len(network_path) for network_path in widest(edges))
    started = network.run_until(network.is_consistent, TICKS_FOR_NEIGHBOURS + int(TICKS_PER_HOP * reach))
    assert {node.radius for node in network.nodes.values()} <= set(range(reach + 1))
    network.run(10)
    network.sent.clear()
    network.run(30)
    assert network.is_consistent()
    steady = sum(network.sent.values()) / 30 / count
    chance = random.Random(3)
    after: list[int] = []
    changing: list[float] = []
    for low, high, cost in chance.sample(edges, 3):
        network.sent.clear()
        network.disconnect(low, high)
        after.append(network.run_until(lambda: not list(path_faults(network)), 3))
        changing.append(sum(network.sent.values()) / max(1, after[-1]) / count)
        network.connect(low, high, cost)
        network.run(TICKS_FOR_NEIGHBOURS)
        network.run_until(network.is_consistent, TICKS_FOR_NEIGHBOURS + int(TICKS_PER_HOP * reach))
    print(
        f"{name} of {count}: all known after {started} s; paths agree {after} ticks after a loss; control messages per "
        f"second and router: {steady:.1f} at rest, {max(changing):.1f} after a loss"
    )


def path_faults(network: Network) -> Iterator[str]:
    return (fault for fault in network.faults() if " knows " not in fault)


def widest(edges: Edges) -> Iterator[list[str]]:
    """From each of some routers, the way to the one that is most hops away."""
    peers: dict[str, set[str]] = {}
    for low, high, _ in edges:
        peers.setdefault(low, set()).add(high)
        peers.setdefault(high, set()).add(low)
    for start in sorted(peers)[:4]:
        ways = {start: [start]}
        for name in (order := [start]):
            for peer in sorted(peers[name] - ways.keys()):
                ways[peer] = [*ways[name], peer]
                order.append(peer)
        # Nobody is more than twice as far from another as from any one.
        yield ways[order[-1]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_routers_agree_on_paths(name: str) -> None:
    """No message runs in a circle, and one link lost is repaired within three ticks."""
    converge(name, 16)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_many_routers_agree_on_paths(name: str) -> None:
    converge(name, ROUTERS)


def test_ids_of_127_characters() -> None:
    """network 44"""
    names = [letter * 127 for letter in "abcd"]
    network = build([(one, other, 1) for index, one in enumerate(names) for other in names[:index]])
    network.appear(names[0], "M0a")
    network.run_until(network.is_consistent, 10)


def test_2000_addresses_come_with_the_connection() -> None:
    """network 56: by one absolute update."""
    network = Network()
    network.start("A")
    network.start("B")
    for index in range(2000):
        network.appear("A", f"M0a{index}")
    network.run(5)
    network.sent.clear()
    network.connect("A", "B")
    network.run_until(network.is_consistent, 5)
    assert len(network.nodes["B"].addresses) == 2000
    assert network.sent["MAU"] == 1


def test_two_routers_are_complete_as_fast_as_the_specification_saw() -> None:
    """§21: two seconds after the connection."""
    network = build([("A", "B", 3)])
    network.appear("A", "M0a")
    assert network.run_until(network.is_consistent, 4) <= 4


def test_a_multicast_tree_reaches_everybody_once() -> None:
    """From every origin: a router carries a message on to those whose valid origins name it."""
    network = build(random_graph(16, 2))
    network.run_until(network.is_consistent, 40)
    for origin in network.nodes:
        copies: dict[str, int] = {}
        todo = [origin]
        while todo:
            node = network.nodes[todo.pop()]
            links = {
                row.path
                for row in node.rows.values()
                if row.path is not None and (node.name == origin or origin in (row.valid_origins or ()))
            }
            for link in links:
                peer = node.links[link][0]
                copies[peer] = copies.get(peer, 0) + 1
                todo.append(peer)
        assert copies == dict.fromkeys(network.nodes.keys() - {origin}, 1)


# Random sequences

NAMES = [name_of(index) for index in range(6)]


class Sequence:
    """Losses, restarts, partitions, delays and reorderings, and then a minute of quiet."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        delay = self.chance.choice((0.01, 0.5, 3.0))
        self.network = Network(seed, delay_s=delay, loss=self.chance.choice((0.0, 0.0, 0.1)))
        for name in NAMES:
            self.network.start(name)
        self.edges = {frozenset(edge[:2]): edge[2] for edge in random_graph(len(NAMES), seed)[:8]}
        self.up: set[frozenset[str]] = set()
        for edge in self.edges:
            self.connect(edge)

    def connect(self, edge: frozenset[str]) -> None:
        if edge not in self.up and edge <= self.network.nodes.keys():
            self.up.add(edge)
            one, other = sorted(edge)
            self.network.connect(one, other, self.edges[edge])

    def disconnect(self, edge: frozenset[str], later_s: float = 0.0) -> None:
        if edge in self.up:
            self.up.discard(edge)
            one, other = self.chance.sample(sorted(edge), 2)
            self.network.disconnect(one, other, later_s)

    def act(self) -> None:
        network, chance = self.network, self.chance
        match chance.randrange(8):
            case 0 | 1:
                self.disconnect(chance.choice(list(self.edges)), chance.choice((0.0, 0.3, 2.0)))
            case 2 | 3:
                self.connect(chance.choice(list(self.edges)))
            case 4:
                name = chance.choice(NAMES)
                if name in network.nodes:
                    network.stop(name)
                    self.up = {edge for edge in self.up if name not in edge}
                else:
                    network.start(name)
            case 5:
                side = set(chance.sample(NAMES, len(NAMES) // 2))
                for edge in self.edges:
                    if len(edge & side) == 1:
                        self.disconnect(edge)
            case _ if network.nodes:
                name, key = chance.choice(sorted(network.nodes)), f"M0a{chance.randrange(6)}"
                (network.go if key in network.nodes[name].local else network.appear)(name, key)
        network.run(chance.choice((0.0, 0.2, 1.0, 4.0)))

    def end(self) -> None:
        network = self.network
        network.loss, network.delay_s = 0.0, 0.01
        for name in NAMES:
            if name not in network.nodes:
                network.start(name)
        for edge in self.edges:
            self.connect(edge)
        # Who is stale ages out, and the last advertisement that was lost is repeated.
        network.run(40)
        faults = list(network.faults())
        assert faults == []


def run_sequence(seed: int) -> None:
    sequence = Sequence(seed)
    for _ in range(sequence.chance.randint(3, 15)):
        sequence.act()
    sequence.end()


@pytest.mark.parametrize("seed", range(12))
def test_a_random_sequence_ends_consistent(seed: int) -> None:
    run_sequence(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_random_sequences_end_consistent(part: int) -> None:
    for seed in range(100 + part, 100 + SEQUENCES, 10):
        try:
            run_sequence(seed)
        except BaseException as error:
            raise AssertionError(f"sequence {seed}") from error
