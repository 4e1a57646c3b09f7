"""Configured addresses: which treatment an address gets (docs/spec/routing.md §3.3, §4)."""

import pytest
from memory_net import Net, at

from router.core.treatments import AddressBook

NAMES = ("multicast", "closest", "unavailable")


def book(*entries: tuple[str, str, str], default: str = "balanced") -> AddressBook:
    """entries  (prefix or pattern, text, distribution)"""
    made = AddressBook(default)
    for kind, text, distribution in entries:
        made.add({kind: text, "distribution": distribution})
    return made


@pytest.mark.parametrize(
    ("address", "matches"), [("P", True), ("P/x", True), ("P.x.y", True), ("Px", False), ("x/P", False)]
)
def test_a_prefix_ends_at_a_token(address: str, matches: bool) -> None:
    """routing 39: prefix `P` matches `P` and `P/x`, not `Px`."""
    found = book(("prefix", "P", "multicast")).treatment_of(address).distribution
    assert found == ("multicast" if matches else "balanced")


@pytest.mark.parametrize(
    ("patterns", "address", "winner"),
    [
        (("a.b", "a.*", "a.#"), "a.b", "a.b"),
        (("a.b", "a.*", "a.#"), "a.c", "a.*"),
        (("a.b", "a.*", "a.#"), "a", "a.#"),
        (("a.*.c", "*.b.c"), "a.b.c", "a.*.c"),
        (("a.#", "*.b.c"), "a.b.c", "a.#"),
        (("a.b.x", "a.#"), "a.b.y", "a.#"),
        (("#", "a"), "z.z", "#"),
        (("#.*", "a"), "z", "#.*"),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_most_specific_pattern_wins_from_the_left(
    patterns: tuple[str, ...], address: str, winner: str, is_reversed: bool
) -> None:
    """routing 40, 42: literal before `*` before `#`, with backtracking, whatever the order of configuration."""
    entries = [("pattern", text, name) for text, name in zip(patterns, NAMES, strict=False)]
    expected = dict(zip(patterns, NAMES, strict=False))[winner]
    made = book(*(reversed(entries) if is_reversed else entries))
    assert made.treatment_of(address).distribution == expected


def test_separators_are_equal_in_patterns_and_not_in_addresses() -> None:
    """routing 41: `a.b` configures `a/b` too; but they are two addresses."""
    made = book(("pattern", "a.b", "closest"))
    assert made.treatment_of("a/b").distribution == "closest"
    assert at("a/b").key != at("a.b").key


def test_phases_and_priority_come_with_the_treatment() -> None:
    """routing §4."""
    made = AddressBook()
    made.add({"prefix": "q", "distribution": "closest", "ingressPhase": 0, "egressPhase": 1, "priority": 7})
    found = made.treatment_of("q.x")
    assert (found.ingress_phase, found.egress_phase, found.priority) == (0, 1, 7)
    made.remove({"prefix": "q"})
    assert made.treatment_of("q.x").distribution == "balanced"


def test_the_default_distribution_covers_the_rest() -> None:
    """routing §4: router attribute defaultDistribution."""
    assert book(default="multicast").treatment_of("anything").distribution == "multicast"


def test_live_addresses_keep_their_treatment() -> None:
    """routing 45: adding or deleting configuration does not change addresses already there."""
    made = AddressBook()
    net = Net()
    net.core.table.treatment_of = made.treatment_of
    net.client().receiver("a", credit=10)
    net.pump()
    made.add({"prefix": "a", "distribution": "multicast"})
    net.client().receiver("a.b", credit=10)
    net.pump()
    table = net.core.table.addresses
    assert (table["M0a"].distribution, table["M0a.b"].distribution) == ("balanced", "multicast")


def test_many_distinct_addresses_do_not_grow_the_memory() -> None:
    """Attack: endless distinct addresses on anonymous links."""
    made = book(("prefix", "a", "closest"))
    for number in range(10_000):
        made.treatment_of(f"a.{number}")
    assert len(made._remembered) <= 4096


@pytest.mark.parametrize("text", ["amqp:/a", "amqp://h:1/a", "amqps://h/a", "//h/a", "/a", "a", "a/", "a."])
def test_forms_of_one_address(text: str) -> None:
    """routing 36."""
    assert at(text).key == "M0a"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("_local/x", "Lx"),
        ("_topo/0/QDR/x", "Lx"),
        ("_topo/0/OTHER/x", "ROTHER"),
        ("_topo/0/all/x", "Tx"),
        ("_topo/all/all/x", "Tx"),
        ("_topo/7/OTHER/x", "A7"),
        ("_edge/QDR/x", "Lx"),
        ("_edge/E1/x", "HE1"),
        ("x", "M0x"),
    ],
)
def test_keys_of_address_classes(text: str, key: str) -> None:
    """routing §3.2."""
    assert at(text).key == key
