"""Comparing lists takes a bounded amount of work and memory, and never says "equal" for "cannot tell". Issue 11."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.analysis import effort
from policy.analysis.automata import address_automaton, denial_automaton, find_word
from policy.analysis.effort import Effort, TooComplexError
from policy.analysis.request_classes import names_in_denied
from policy.analysis.superfluous import superfluous_items

STEPS = 60_000
# What one comparison may hold here: its automata, and what STEPS can make besides.
PEAK_BYTES = 32 << 20
# Patterns written to be hard: few words, many wildcards, long tails.
words = st.lists(st.sampled_from(["#", "*", "a", "x"]), min_size=1, max_size=30)
patterns = st.builds(lambda head, tail: "/".join([*head, *["*"] * tail]), words, st.integers(0, 60))
lists = st.lists(patterns, min_size=1, max_size=60, unique=True).map(tuple)
addresses = st.lists(st.sampled_from("axy"), min_size=1, max_size=40).map("/".join)


def matches(items: tuple[str, ...], address: str) -> bool:
    automaton = address_automaton("targetPattern", items, "")
    return not automaton.walked(frozenset(automaton.starts), address).isdisjoint(automaton.accepting)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(lists, lists, st.lists(addresses, min_size=20, max_size=20))
def test_whatever_the_patterns_the_work_is_bounded_and_the_answer_true(
    ours: tuple[str, ...], others: tuple[str, ...], texts: list[str]
) -> None:
    bound = Effort(STEPS)
    tracemalloc.start()
    try:
        automata = [address_automaton("targetPattern", each, "", bound) for each in (ours, others)]
        word = find_word(automata, lambda is_in: is_in[0] and not is_in[1], bound)
    except TooComplexError as error:
        told = str(error)
    else:
        told = ""
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < PEAK_BYTES
    if told:
        assert told.startswith("cannot tell: too large to compare: '")
        assert any(f"'{item[:20]}" in told for item in (*ours, *others))
    elif word is None:
        assert not [text for text in texts if matches(ours, text) and not matches(others, text)]
    else:
        assert (matches(ours, word), matches(others, word)) == (True, False)


@settings(max_examples=8, deadline=None)
@given(lists)
def test_what_is_called_superfluous_under_a_bound_is_so_without(items: tuple[str, ...]) -> None:
    found = []
    try:
        for item, covering in superfluous_items("targetPattern", items, Effort(STEPS)):
            found.append((item, covering))
    except TooComplexError:
        pass
    for item, covering in found:
        one, all_of_them = (address_automaton("targetPattern", each, "") for each in ((item,), covering))
        assert find_word((one, all_of_them), lambda is_in: is_in[0] and not is_in[1]) is None


def test_sets_of_states_are_counted_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of thousands of states, of which a few ten thousand were gigabytes."""
    monkeypatch.setattr(effort, "MAX_HELD_BYTES", 1 << 20)
    items = tuple("#/x" + "/*" * number for number in range(104))
    with pytest.raises(TooComplexError, match="'#/x', '#/x/\\*', '#/x/\\*/\\*' and 101 more"):
        find_word((address_automaton("targetPattern", items, ""),), lambda _: False, Effort(10**12))


def test_a_list_that_is_too_long_is_not_made() -> None:
    with pytest.raises(TooComplexError, match="and 99997 more"):
        address_automaton("targets", tuple(f"address.{number}" for number in range(100_000)), "", Effort())
    with pytest.raises(TooComplexError):
        address_automaton("targetPattern", ("/".join(["#"] * 5000) + "/a",) * 5000, "", Effort())


def test_the_names_in_a_long_denial_are_counted_before_they_are_made() -> None:
    with pytest.raises(TooComplexError, match=r"'x\.aaaa"):
        names_in_denied(("x.${user}*",), ("x." + "a" * 50_000,), Effort())


def test_a_hard_list_leaves_something_to_others() -> None:
    whole = Effort(1000)
    for _ in range(5):
        with pytest.raises(TooComplexError), whole.naming(("a",)), whole.share() as share:
            share.spend(10**9)
    with whole.share(allowed=50) as share:
        share.spend(50 + 40)  # of what is left a quarter, and what is allowed


def test_the_lists_that_took_most_are_named() -> None:
    whole = Effort(100)
    with whole.naming(("large",)):
        whole.spend(90)
    with pytest.raises(TooComplexError, match=r"compare: 'large'$"), whole.naming(("small",)):
        whole.spend(20)


def test_denials_are_kept_apart_from_addresses() -> None:
    known = Effort()
    assert denial_automaton(("a",), "", known) is denial_automaton(("a",), "", known)
    assert denial_automaton(("a",), "", known) is not address_automaton("sources", ("a",), "", known)


# What comparing takes, whole: as many steps and bytes each time. A change here is one of every bound in effort.py.


class Counted(Effort):
    def __init__(self) -> None:
        super().__init__()
        self.taken = {"spent": 0, "held": 0, "built": 0}

    def spend(self, steps: int) -> None:
        self.taken["spent"] += steps
        super().spend(steps)

    def hold(self, size_bytes: int) -> None:
        self.taken["held"] += size_bytes
        super().hold(size_bytes)

    def build(self, size: int) -> None:
        self.taken["built"] += size
        super().build(size)


@pytest.mark.parametrize(
    ("key", "items", "others", "word", "taken"),
    [
        ("targets", ("a*", "b"), ("ab", "a.*", "b"), "a", {"spent": 415, "held": 3272, "built": 25}),
        ("targets", ("a.b", "${user}.x"), ("a*", "u*"), None, {"spent": 714, "held": 8100, "built": 26}),
        ("targetPattern", ("a/#/#/b", "*/c"), ("a/#", "#/c"), None, {"spent": 1502, "held": 16620, "built": 90}),
        (
            "targetPattern",
            ("a/#", "${user}/#", "x/${user}"),
            ("#/#/#", "a"),
            None,
            {"spent": 1000, "held": 10836, "built": 97},
        ),
    ],
)
def test_a_comparison_takes_what_it_takes(
    key: str, items: tuple[str, ...], others: tuple[str, ...], word: str | None, taken: dict[str, int]
) -> None:
    counted = Counted()
    automata = (address_automaton(key, items, "u", counted), address_automaton(key, others, "u", counted))
    assert find_word(automata, lambda is_in: is_in[0] and not is_in[1], counted) == word
    assert counted.taken == taken
    # What has been found out about the automata is held again, and need not be found out.
    counted.taken = dict.fromkeys(taken, 0)
    assert find_word(automata, lambda is_in: is_in[0] and not is_in[1], counted) == word
    assert counted.taken["built"] == 0
    assert 0 < counted.taken["spent"] < taken["spent"]
    assert 0 < counted.taken["held"] <= taken["held"]


def test_what_walks_have_found_out_is_kept_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Full(Effort):
        def may_keep_bytes(self, size_bytes: int) -> bool:
            asked.append(size_bytes)
            return super().may_keep_bytes(size_bytes)

    whole = Full()
    automaton = address_automaton("targets", ("ab", "a*"), "", whole)
    find_word((automaton,), lambda _: True, whole)
    table = automaton.subsets
    assert table is not None
    assert asked == [table.held_bytes] == [table.kept_bytes]
    find_word((automaton,), lambda _: False, whole)
    assert automaton.subsets is table
    assert asked == [asked[0], table.held_bytes - asked[0]]
    find_word((automaton,), lambda _: False, whole)
    assert asked[2:] == [0]
    monkeypatch.setattr(effort, "MAX_KEPT_BYTES", 0)
    other = address_automaton("targets", ("abc",), "", whole)
    find_word((other,), lambda _: True, whole)
    assert other.subsets is None


@pytest.mark.parametrize(
    "make",
    [
        lambda bound: address_automaton("targets", ("ab", "c"), "", bound),
        lambda bound: denial_automaton(("ab", "c"), "", bound),
        lambda bound: find_word((address_automaton("targets", ("ab", "c"), ""),), lambda _: False, bound),
    ],
    ids=["addresses", "denials", "walk"],
)
def test_a_list_that_takes_too_much_is_named(make: Callable[[Effort], object]) -> None:
    with pytest.raises(TooComplexError, match=r"compare: 'ab', 'c'$"):
        make(Effort(10))


def test_automata_are_kept_by_what_they_are_made_of() -> None:
    known = Effort()
    one = address_automaton("targets", ("a",), "", known)
    assert address_automaton("targets", ("a",), "", known) is one
    assert address_automaton("sources", ("a",), "", known) is not one
    assert address_automaton("targets", ("a",), "u", known) is not one
    assert one.effort is known
    assert denial_automaton(("a",), "R", known) is denial_automaton(("a",), "R", known)
    assert denial_automaton(("a",), "R", known) is not denial_automaton(("a",), "", known)
    assert denial_automaton(("a",), "", known).effort is known


# The bounds, each at its edge.


def test_steps_are_spent_to_the_last_one() -> None:
    whole = Effort(10)
    whole.spend(10)
    with pytest.raises(TooComplexError):
        whole.spend(1)
    allowed = Effort(10)
    allowed.allow(5)
    allowed.spend(15)
    with pytest.raises(TooComplexError):
        allowed.spend(1)


def test_memory_is_held_to_the_last_byte_until_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MAX_HELD_BYTES", 10)
    whole = Effort()
    for _ in range(2):
        whole.hold(4)
        whole.hold(6)
        with pytest.raises(TooComplexError):
            whole.hold(1)
        whole.release()


def test_states_are_built_to_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MAX_BUILT", 10)
    whole = Effort()
    whole.build(4)
    whole.build(6)
    with pytest.raises(TooComplexError):
        whole.build(1)
    paid = Effort(40)
    paid.build(10)  # of four steps each
    with pytest.raises(TooComplexError):
        paid.spend(1)
    with pytest.raises(TooComplexError):
        Effort(39).build(10)


def test_automata_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MAX_KEPT", 10)
    whole = Effort()
    whole.keep("large", object(), 11)
    assert whole.known == {}
    whole.keep("a", 1, 10)
    assert whole.known == {"a": 1}
    whole.keep("b", 2, 4)
    whole.keep("c", 3, 6)
    assert whole.known == {"b": 2, "c": 3}
    whole.keep("d", 4, 5)
    whole.keep("e", 5, 5)
    assert whole.known == {"d": 4, "e": 5}


def test_what_walks_find_out_is_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MAX_KEPT_BYTES", 10)
    whole = Effort()
    assert [whole.may_keep_bytes(size) for size in (11, 4, 6, 1)] == [False, True, True, False]


def test_lists_are_named_in_short() -> None:
    for items, named in (
        ((), "these lists"),
        (("a", "b", "c"), "'a', 'b', 'c'"),
        (("a", "b", "c", "d"), "'a', 'b', 'c' and 1 more"),
        (("x" * 60, "y" * 61), f"'{'x' * 60}', '{'y' * 60}…'"),
    ):
        with pytest.raises(TooComplexError) as refused, Effort(0).naming(items):
            raise TooComplexError
        assert refused.value.lists == named
        assert str(refused.value) == f"cannot tell: too large to compare: {named}"
        assert refused.value.about("x") == f"cannot tell whether x: too large to compare: {named}"
    assert TooComplexError().lists == "these lists"


def test_of_lists_that_took_as_much_the_last_is_named() -> None:
    whole = Effort(25)
    for name in ("a", "b"):
        with whole.naming((name,)):
            whole.spend(10)
    with pytest.raises(TooComplexError, match=r"compare: 'b'$"), whole.naming(("c",)):
        whole.spend(6)
