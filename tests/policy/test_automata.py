"""An address list as an automaton allows exactly what the compiled list allows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.addressing.address import Address, resolve_named
from policy.addressing.lists import Permission, compile_literals, compile_patterns
from policy.addressing.patterns import PatternTree
from policy.analysis.automata import (
    Automaton,
    address_automaton,
    denial_automaton,
    find_word,
    management_automaton,
)

texts = st.text(alphabet="ab./*", max_size=6)
tokens = st.sampled_from(["${user}", "${user:escaped}"])
users = st.sampled_from(["", "a", "b.a", ".", "a.", "/b", "ab", "*"])
literal_items = st.lists(
    st.one_of(
        texts, texts.map(lambda text: text.replace("*", "") + "*"), st.builds("{}{}{}".format, texts, tokens, texts)
    ),
    max_size=4,
).map(lambda items: tuple(item for item in items if item))
pattern_words = st.text(alphabet="ab./*#", max_size=7)
pattern_items = st.lists(
    st.one_of(
        pattern_words,
        st.builds("{}/{}".format, tokens, pattern_words),
        st.builds("{}/{}".format, pattern_words, tokens),
        st.sampled_from(["${user}", "x${user}", "#", "*", "a.#", ".", "${user}..", "*/#/*", "#.a.#"]),
    ),
    max_size=4,
).map(lambda items: tuple(item for item in items if item))
letters = st.sampled_from([*"ab./*x", "%2E", "%2F"])
addresses = st.lists(letters, min_size=1, max_size=9).map("".join)


def accepts(automaton: Automaton, word: str) -> bool:
    states = frozenset(automaton.starts)
    for letter in word:
        states = automaton.moved(states, letter)
    return not states.isdisjoint(automaton.accepting)


@given(literal_items, users, addresses)
@settings(max_examples=200, deadline=None)
def test_literals_agree(items: tuple[str, ...], user: str, address: str) -> None:
    expected = compile_literals(items).bind(user).match(address) is not None
    assert accepts(address_automaton("targets", items, user), address) == expected


@pytest.mark.slow
@given(pattern_items, users, addresses)
@settings(max_examples=500, deadline=None)
def test_patterns_agree(items: tuple[str, ...], user: str, address: str) -> None:
    expected = compile_patterns(items).bind(user).match(address) is not None
    assert accepts(address_automaton("targetPattern", items, user), address) == expected


@given(pattern_items, literal_items, users)
@settings(max_examples=150, deadline=None)
def test_a_difference_that_is_found_is_one(patterns: tuple[str, ...], literals: tuple[str, ...], user: str) -> None:
    pair = (address_automaton("targetPattern", patterns, user), address_automaton("targets", literals, user))
    bound = (compile_patterns(patterns).bind(user), compile_literals(literals).bind(user))
    word = find_word(pair, lambda accepted: accepted[0] and not accepted[1])
    if word is not None:
        assert bound[0].match(word) is not None
        assert bound[1].match(word) is None


@given(pattern_items, pattern_items, users, addresses)
@settings(max_examples=200, deadline=None)
def test_where_none_is_found_there_is_none(
    one: tuple[str, ...], other: tuple[str, ...], user: str, address: str
) -> None:
    pair = (address_automaton("sourcePattern", one, user), address_automaton("sourcePattern", other, user))
    if find_word(pair, lambda accepted: accepted[0] and not accepted[1]) is None:
        bound = (compile_patterns(one).bind(user), compile_patterns(other).bind(user))
        assert bound[0].match(address) is None or bound[1].match(address) is not None


def test_known_inclusions() -> None:
    def covers(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        pair = (address_automaton("sourcePattern", one, ""), address_automaton("sourcePattern", other, ""))
        return find_word(pair, lambda accepted: accepted[1] and not accepted[0]) is None

    assert covers(("a.#",), ("a.*.b", "a"))
    assert not covers((".", "*", "*.*.#"), ("#",))  # separators alone match nothing
    assert covers(("*", "*.*.#"), ("*.#",))
    assert not covers(("*", "*.*.#"), ("#",))
    assert not covers(("a.*",), ("a.#",))


names = st.lists(st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=4).map(tuple), max_size=6)


@given(names, st.lists(st.sampled_from(["a", "b", "x", "*"]), max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_walk_through_a_tree_ends_at_its_best_match(patterns: list[tuple[str, ...]], tokens: list[str]) -> None:
    """policy 22: which pattern of several is the best."""
    tree = PatternTree((pattern, "/".join(pattern)) for pattern in patterns)
    places = tree.start()
    for token in tokens:
        places = tree.moved(places, token)
    assert tree.result(places) == tree.find(tokens)


# Denials reach further than their texts.

HEADS = ["", "_local/", "_topo/0/R/", "_topo/all/R/", "_topo/0/S/", "_topo/all/S/", "_topo/area/S/", "_edge/R/"]
HEADS += ["_edge/S/", "_topo/R/", "_edge/R/S/", "x/"]
TAILS = ["$management", "$_management_internal", "x", "x/y", "xy", "y", "temp.1", "z$management"]
DENIALS: list[tuple[str, ...]] = [
    *((name,) for name in ("$management", "_local/$management", "_local/$_management_internal", "_local/x", "x*", "*")),
    *((name,) for name in ("_topo/0/R/$management", "_edge/S/$management", "_topo/0/S/$management", "_local/*")),
    *((name,) for name in ("_topo/0/R/x*", "_topo/all/x", "_topo/0/S/x", "_topo/all/S/xy", "_edge/R/x", "_topo/0/*")),
    ("_edge/R/x", "_local/y*"),
    ("_topo/0/R/x", "_topo/all/S/y", "z"),
    ("_topo/0/", "_local/"),
]


@pytest.mark.parametrize("router_id", ["R", ""])
@pytest.mark.parametrize("denied", DENIALS, ids=" ".join)
def test_a_denial_holds_for_every_plain_text_of_what_it_reaches(denied: tuple[str, ...], router_id: str) -> None:
    automaton = denial_automaton(denied, router_id)
    permission = Permission(compile_literals(("*",)), compile_literals(denied), "")
    told, judged = {}, {}
    for text in (head + tail for head in HEADS for tail in TAILS):
        address = resolve_named(text, router_id=router_id)
        if isinstance(address, Address) and address.plain == text:
            told[text] = accepts(automaton, text)
            judged[text] = permission.judge(address).item is None
    assert told == judged
    assert len(told) > 60


def test_the_management_of_every_router_is_known_by_its_texts() -> None:
    automaton = management_automaton()
    for text in (head + tail for head in HEADS for tail in TAILS):
        address = resolve_named(text, router_id="R")
        # A mobile address of the internal name is taken for management by decisions, and nobody is reached by it.
        is_nobody = text == "$_management_internal"
        if isinstance(address, Address) and address.plain == text and not is_nobody:
            assert accepts(automaton, text) == address.is_management, text


def test_a_character_that_no_list_has_is_found_beyond_the_readable_ones() -> None:
    taken = address_automaton("targets", ("a*", "xyzuvwbcdefghijklmnopqrst0123456789_-\ue000\ue001\ue002\ue003"), "")
    every = address_automaton("targets", ("*",), "")
    assert find_word((every, taken), lambda is_in: is_in == (True, False)) == "\ue004"


def test_an_automaton_names_its_items() -> None:
    items = ("a", "b*")
    assert address_automaton("targets", items, "").items == items
    assert address_automaton("targets", items, "").behind("b").items == items
    assert denial_automaton(items, "").items == items
