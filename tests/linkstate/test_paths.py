"""Next hops, costs, radius and valid origins; how long they take."""

import random
import time

import pytest
from virtual_network import Edges, grid, name_of, random_graph, ring, tree

from router.linkstate.paths import Computation

States = dict[str, dict[str, int]]

LINE: States = {"R1": {"R2": 1}, "R2": {"R1": 1, "R3": 1}, "R3": {"R2": 1}}
SIX: States = {
    "R2": {"R3": 1},
    "R3": {"R1": 1, "R2": 1, "R4": 1},
    "R4": {"R3": 1, "R5": 1},
    "R1": {"R3": 1, "R5": 1},
    "R5": {"R1": 1, "R4": 1, "R6": 1},
    "R6": {"R5": 1},
}
SEVEN: States = {
    **SIX,
    "R1": {"R2": 1, "R3": 1, "R5": 1},
    "R2": {"R1": 1, "R3": 1},
    "R6": {"R5": 1, "R7": 1},
}
ONE_WAY: States = {**SEVEN, "R1": {"R3": 1, "R5": 1}}
COSTS: States = {
    "R2": {"R3": 4, "R1": 20},
    "R3": {"R1": 3, "R2": 4, "R4": 4},
    "R4": {"R3": 4, "R5": 5},
    "R1": {"R3": 3, "R5": 10, "R2": 20},
    "R5": {"R1": 10, "R4": 5, "R6": 2},
    "R6": {"R5": 2, "R7": 1},
}
DETOUR: States = {
    "R2": {"R3": 4, "R1": 5},
    "R3": {"R1": 100, "R2": 4, "R4": 4},
    "R4": {"R3": 4, "R5": 100},
    "R1": {"R3": 100, "R5": 10, "R2": 5},
    "R5": {"R1": 10, "R4": 100, "R6": 2},
    "R6": {"R5": 2, "R7": 1},
}
TIE: States = {
    "R1": {"R2": 1, "R3": 10},
    "R2": {"R1": 1, "R4": 10},
    "R3": {"R1": 10, "R4": 10, "R5": 10},
    "R4": {"R2": 10, "R3": 10, "R6": 10},
    "R5": {"R3": 10, "R6": 1},
    "R6": {"R4": 10, "R5": 1},
}


def compute(states: States, router: str = "R1") -> Computation:
    computation = Computation(states, router)
    while not computation.step():
        pass
    return computation


def hops(computation: Computation) -> str:
    assert computation.routes is not None
    return " ".join(f"{router}>{route.next_hop}" for router, route in computation.routes.items())


def costs(computation: Computation) -> list[int]:
    assert computation.routes is not None
    return [route.cost for route in computation.routes.values()]


LEFT, RIGHT = ["R2", "R3"], ["R5", "R6", "R7"]


@pytest.mark.parametrize(
    ("states", "expected_hops", "expected_costs", "origins", "radius"),
    [
        (LINE, "R2>R2 R3>R2", [1, 2], {}, 2),
        (
            *(SIX, "R2>R3 R3>R3 R4>R3 R5>R5 R6>R5", [2, 1, 2, 1, 2]),
            *({"R2": RIGHT[:2], "R3": RIGHT[:2], "R5": LEFT, "R6": LEFT}, 2),
        ),
        (
            *(SEVEN, "R2>R2 R3>R3 R4>R3 R5>R5 R6>R5 R7>R5", [1, 1, 2, 1, 2, 3]),
            *({"R2": RIGHT, "R3": RIGHT, "R5": LEFT, "R6": LEFT, "R7": LEFT}, 3),
        ),
        (
            *(ONE_WAY, "R2>R3 R3>R3 R4>R3 R5>R5 R6>R5 R7>R5", [2, 1, 2, 1, 2, 3]),
            *({"R2": RIGHT, "R3": RIGHT, "R5": LEFT, "R6": LEFT, "R7": LEFT}, 3),
        ),
        (COSTS, "R2>R3 R3>R3 R4>R3 R5>R5 R6>R5 R7>R5", [7, 3, 7, 10, 12, 13], {}, 3),
        (
            *(DETOUR, "R2>R2 R3>R2 R4>R2 R5>R5 R6>R5 R7>R5", [5, 9, 13, 10, 12, 13]),
            *(
                {
                    **dict.fromkeys(("R2", "R3", "R4"), RIGHT),
                    **{router: ["R2", "R3", "R4"] for router in RIGHT},
                },
                3,
            ),
        ),
    ],
    ids=["line", "six", "seven", "one way", "costs", "detour"],
)
def test_the_vectors_of_the_specification(
    states: States, expected_hops: str, expected_costs: list[int], origins: dict[str, list[str]], radius: int
) -> None:
    """network 38"""
    computation = compute(states)
    assert hops(computation) == expected_hops
    assert costs(computation) == expected_costs
    assert {router: found for router, found in computation.origins.items() if found} == origins
    assert computation.radius == radius


def test_the_vector_of_the_tie() -> None:
    """network 38, 39: R4 is final before R5, so R6 stays behind R2."""
    computation = compute(TIE)
    assert hops(computation) == "R2>R2 R3>R3 R4>R2 R5>R3 R6>R2"
    assert (costs(computation), computation.radius) == ([1, 10, 11, 20, 21], 3)
    seen_from_3 = compute(TIE, "R3")
    assert (seen_from_3.origins["R6"], seen_from_3.radius) == ([], 2)


def test_equal_costs_choose_the_lower_id() -> None:
    """network 39"""
    around = {"R1": {"R2": 1, "R3": 1}, "R2": {"R1": 1, "R4": 1}, "R3": {"R1": 1, "R4": 1}, "R4": {"R2": 1, "R3": 1}}
    assert hops(compute(around)) == "R2>R2 R3>R3 R4>R2"
    assert hops(compute(around, "R4")) == "R1>R2 R2>R2 R3>R3"
    assert compute(around, "R2").origins == {"R1": ["R4"], "R3": [], "R4": ["R1"]}
    assert compute(around, "R3").origins == {"R1": [], "R2": [], "R4": []}


def test_a_router_without_neighbours_reaches_nobody() -> None:
    computation = compute({"R1": {}, "R2": {"R3": 1}})
    assert (computation.routes, computation.radius, computation.origins) == ({}, 0, {})


def states_of(edges: Edges) -> States:
    states: States = {name: {} for edge in edges for name in edge[:2]}
    for low, high, cost in edges:
        states[low][high] = states[high][low] = cost
    return states


def slow_paths(states: States, root: str) -> dict[str, list[str]]:
    """Each router's path by the words of the specification: nodes final by cost and id, replaced only by cheaper."""
    best, paths = {root: 0}, {root: [root]}
    final: set[str] = set()
    while open_ := {router: cost for router, cost in best.items() if router not in final}:
        router = min(open_, key=lambda name: (open_[name], name))
        final.add(router)
        for peer, cost in states[router].items():
            if peer not in best or best[router] + cost < best[peer]:
                best[peer], paths[peer] = best[router] + cost, [*paths[router], peer]
    return paths


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_have_the_paths_of_a_plain_reading(seed: int) -> None:
    """One-way edges, equal costs, routers that are cut off."""
    chance = random.Random(seed)
    names = [name_of(index) for index in range(14)]
    states: States = {
        name: {peer: chance.randint(1, 3) for peer in chance.sample(names, chance.randint(0, 11)) if peer != name}
        for name in names
    }
    own = names[chance.randrange(14)]
    computation = compute(states, own)
    assert computation.routes is not None
    paths = {root: slow_paths(states, root) for root in names}
    assert {to: route.next_hop for to, route in computation.routes.items()} == {
        to: path[1] for to, path in sorted(paths[own].items()) if to != own
    }
    assert computation.radius == max(map(len, paths[own].values())) - 1
    for to in computation.routes:
        assert computation.origins[to] == [
            root for root in names if root != own and root in paths[own] and own in paths[root].get(to, ())[:-1]
        ]


def full_mesh(count: int) -> Edges:
    chance = random.Random(5)
    return [(name_of(i), name_of(j), chance.randint(1, 1000)) for j in range(count) for i in range(j)]


@pytest.mark.parametrize(
    "edges", [ring(128), grid(16, 8), tree(128), random_graph(128, 1), full_mesh(128)],
    ids=["ring", "grid", "tree", "random", "mesh"],
)  # fmt: skip
def test_no_step_of_128_routers_takes_long(edges: Edges) -> None:
    """The router's messages pass between the steps: less than 1 ms each on a machine that does nothing else."""
    states = states_of(edges)
    steps: list[float] = []
    before = time.thread_time()
    computation = Computation(states, name_of(5))
    is_done = False
    while not is_done:
        is_done = computation.step()
        now = time.thread_time()
        steps.append(now - before)
        before = now
    assert len(computation.routes or ()) == 127
    print(f"{len(steps)} steps, together {sum(steps) * 1000:.1f} ms, the longest {max(steps) * 1000:.2f} ms")
    assert sorted(steps)[len(steps) // 2] < 0.004
    assert max(steps) < 0.025
