"""Attack: exchanges that name each other, as next hop or alternate, send one message round forever.

They are on one router, on several, or on edges. A user who may change or configure exchanges needs no other right.

A message passes one exchange. Over edges, where messages have no trace, it passes one of its edge, one of an interior
router and one of another edge. Source: docs/spec/routing.md §18, 8.
"""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_net import Fleet
from test_exchanges import exchange, receiver

INTERIOR, EDGES = ("A", "B", "C"), ("E1", "E2")
ADDRESSES = ("x", "y", "z")
# Addresses of exchanges, what is bound to each, and its alternate.
EXCHANGES = st.dictionaries(
    st.sampled_from(ADDRESSES),
    st.tuples(st.sets(st.sampled_from(ADDRESSES), max_size=3), st.sampled_from((None, *ADDRESSES))),
    max_size=3,
)
ROUND_AND_ROUND: dict[str, Any] = {
    "x": ({"y"}, "z"),
    "y": ({"z"}, "x"),
    "z": ({"x"}, "y"),
}
LARGE = b"x" * 100_000
# More than carrying each of the messages over the longest way needs.
ROUNDS = 300


def ring(*names: str) -> Fleet:
    """Interior routers in a ring, the first two with an edge each, where those are named."""
    edges = tuple(name for name in names if name in EDGES)
    fleet = Fleet(*INTERIOR, edges=edges)
    for one, other in ("AB", "BC", "CA"):
        fleet.connect(one, other)
    for edge, interior in zip(edges, INTERIOR, strict=False):
        fleet.connect(edge, interior, role="edge")
    return fleet


def received(
    configured: dict[str, dict[str, Any]], readers: set[tuple[str, str]], at: str, *, has_edges: bool
) -> tuple[int, int]:
    """How many messages exchanges have got of one message of each size that is sent at a router, and readers."""
    fleet = ring(*EDGES) if has_edges else ring()
    made = []
    for name, exchanges in configured.items():
        for address, (bound, alternate) in exchanges.items():
            rest = alternate if alternate != address else None
            made.append(exchange(fleet[name], *(("#", to) for to in bound - {address}), at=address, alternate=rest))
    ends = [receiver(fleet[name], address) for name, address in sorted(readers)]
    fleet.settle()
    fleet.tick(3)
    sender = fleet[at].client().sender(None)
    fleet.pump()
    for body in (b"m", LARGE):
        sender.send(body, subject="s", address="x")
        sender.send(body, subject="s", address="x", is_settled=True)
        fleet.pump(rounds=ROUNDS)
    fleet.no_errors()
    return sum(each.terms.received for each in made), sum(len(end.bodies) for end in ends)


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(st.sampled_from(INTERIOR), EXCHANGES),
    st.sets(st.tuples(st.sampled_from(INTERIOR), st.sampled_from(ADDRESSES)), max_size=4),
)
@example(dict.fromkeys(INTERIOR, ROUND_AND_ROUND), set())
@example(dict.fromkeys(INTERIOR, ROUND_AND_ROUND), {("A", "y"), ("B", "z"), ("C", "x")})
@example({"A": {"x": ({"y"}, None)}, "B": {"y": ({"x"}, "z")}, "C": {"z": ({"x", "y"}, None)}}, set())
def test_a_message_passes_one_exchange(
    configured: dict[str, dict[str, Any]], readers: set[tuple[str, str]]
) -> None:  # fmt: skip
    count, read = received(configured, readers, "A", has_edges=False)
    assert count <= 4
    # Of each of the four messages one copy for its own address, its next hops and its alternate.
    assert read <= 4 * 3


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(st.sampled_from((*INTERIOR, *EDGES)), EXCHANGES),
    st.sets(st.tuples(st.sampled_from((*INTERIOR, *EDGES)), st.sampled_from(ADDRESSES)), max_size=4),
    st.sampled_from(("A", *EDGES)),
)
@example(dict.fromkeys((*INTERIOR, *EDGES), ROUND_AND_ROUND), set(), "E1")
@example(dict.fromkeys(EDGES, ROUND_AND_ROUND), {("E2", "x")}, "E2")
@example({"E1": {"x": ({"y"}, None)}, "A": {"y": ({"z"}, None)}, "E2": {"z": ({"x"}, "y")}}, set(), "E1")
def test_over_edges_it_passes_three_in_a_row_at_most(
    configured: dict[str, dict[str, Any]], readers: set[tuple[str, str]], at: str
) -> None:  # fmt: skip
    count, _ = received(configured, readers, at, has_edges=True)
    # Two next hops, and the own address, of each: 1 at the edge, 3 beyond it, 9 beyond those.
    assert count <= 4 * (1 + 3 + 9)
