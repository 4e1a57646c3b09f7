"""sources, targets and their patterns: policy 30, 31, and that nothing in a user's name widens them."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.addressing.lists import compile_literals, compile_patterns, escaped
from policy.addressing.patterns import MAX_TOKENS, PatternTree, normalise, split_tokens


def literal(item: str, user: str, address: str) -> bool:
    return compile_literals([item]).bind(user).match(address) is not None


def pattern(item: str, user: str, address: str) -> bool:
    return compile_patterns([item]).bind(user).match(address) is not None


@pytest.mark.parametrize(
    ("item", "allowed", "denied"),
    [
        ("*", ["a", "a/b", "$management"], [""]),
        ("a", ["a"], ["", "aa", "A", "amqp:/a", "_local/a"]),
        ("a*", ["a", "ab", "a.b"], ["", "b", "A"]),
        ("a*b", ["a*b"], ["axb"]),
        ("**", ["*", "*x"], ["a"]),
        ("${user}", ["bob"], ["bobby", "", "${user}"]),
        ("${user}-temp", ["bob-temp"], ["bob", "bob-temp2", "rob-temp"]),
        ("${user}.*", ["bob.", "bob.x"], ["bob", "bobby.x"]),
        ("${user}*", ["bob", "bobby"], ["rob"]),
        ("temp-${user}", ["temp-bob"], ["temp-", "temp-bobby"]),
        ("temp-${user}-home", ["temp-bob-home"], ["temp-bob-homes", "temp--home"]),
        ("temp-${user}-home*", ["temp-bob-home", "temp-bob-homes"], ["temp-bob-hom"]),
        ("temp-${user}*", ["temp-bob", "temp-bobby"], ["temp-"]),
    ],
)
def test_literal_items(item: str, allowed: list[str], denied: list[str]) -> None:
    """policy 30"""
    assert [address for address in allowed if not literal(item, "bob", address)] == []
    assert [address for address in denied if literal(item, "bob", address)] == []


@pytest.mark.parametrize(
    ("item", "allowed", "denied"),
    [
        ("a.*.b", ["a.x.b", "a/xx/b"], ["a.b", "a.b.c", "a.x.y.b"]),
        ("a.#.b", ["a.b", "a.x.b", "a.x.y.zz.b"], ["z.a.b", "a.b.c"]),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["b.a", "ab"]),
        ("*/#/*", ["x.y", "x.y.z"], ["x"]),
        ("/#/policy", ["/policy", "/good/policy"], ["help/police"]),
        ("*", ["a", "/a", "a/"], ["a.b", ""]),
        ("#", ["a", "a.b", "$management"], [""]),
        ("a..b", ["a..b", "a/.b"], ["a.b", "a.x.b"]),
        ("a.*.b", ["a..b"], []),
        ("a*", ["a*"], ["ab"]),
        ("#.a.#.b", ["a.b", "x.a.y.b", "a.a.b.b"], ["b.a", "a.x"]),
        ("${user}", ["bob", "bob."], ["bobby", "bob/x", "x.bob", "${user}"]),
        ("${user}.xyz", ["bob.xyz", "bob/xyz"], ["bobxyz", "bob.xyz.more", "${user}.xyz"]),
        ("${user}/#", ["bob", "bob/x", "bob.a.b"], ["bobz", "${user}/x"]),
        ("${user}/*", ["bob/x", "bob.."], ["bob", "bob/", "bob/x/y"]),
        ("abc.${user}", ["abc.bob", "abc/bob", "/abc.bob"], ["abc.x.bob", "abc.abob", "abc..bob", "abc.bob.x"]),
        ("#.${user}", ["bob", "a.bob", "a.b/bob"], ["a.bobby", "abob"]),
        ("x${user}", [], ["xbob", "x.bob", "bob"]),
        ("${user}x", [], ["bobx", "bob.x", "bob"]),
    ],
)
def test_pattern_items(item: str, allowed: list[str], denied: list[str]) -> None:
    """policy 31"""
    assert [address for address in allowed if not pattern(item, "bob", address)] == []
    assert [address for address in denied if pattern(item, "bob", address)] == []


@pytest.mark.parametrize(
    ("item", "user", "address"),
    [
        ("${user}", "bo*", "bob"),
        ("inbox.${user}", "*", "inbox.alice"),
        ("${user}.*", "*", "alice.x"),
        ("${user}*", "", "alice"),
        ("inbox.${user}*", "", "inbox.alice"),
        ("a.${user}", "x,*", "secret"),
        ("a.${user}", "${user}", "a.bob"),
    ],
)
def test_a_user_name_is_no_wildcard_in_a_list(item: str, user: str, address: str) -> None:
    assert not literal(item, user, address)


@pytest.mark.parametrize(
    ("item", "user", "address"),
    [
        ("${user}", "*", "alice"),
        ("${user}/#", "#", "alice/x"),
        ("inbox/${user}", "#", "inbox/alice/x"),
        ("${user}/#", "", "/alice"),
        ("inbox/${user}", "", "inbox/"),
        ("${user}/in", "bob/x", "bob.x/in"),
        ("${user}/in", "bob/x", "bob/in"),
    ],
)
def test_a_user_name_is_one_literal_word_in_a_pattern(item: str, user: str, address: str) -> None:
    assert not pattern(item, user, address)


def test_a_user_name_with_separators_is_matched_as_a_unit() -> None:
    assert pattern("${user}/#", "a/b", "a/b/x")
    assert pattern("in.${user}", "a.b", "in.a.b")


def test_the_deciding_item_is_named() -> None:
    rules = compile_literals(["a", "b*", "${user}.x", "${user}-*"]).bind("rob")
    addresses = {"a": "a", "bcd": "b*", "rob.x": "${user}.x", "rob-1": "${user}-*", "c": None}
    assert {address: rules.match(address) for address in addresses} == addresses
    # Where everything is allowed, nothing is allowed by more than that.
    open_list = compile_literals(["*", "a", "b*"]).bind("rob")
    assert [open_list.match(address) for address in ("a", "bc", "x")] == ["*", "*", "*"]
    patterns = compile_patterns(["a/#", "${user}/*", "in/${user}"]).bind("bob")
    assert [patterns.match(address) for address in ("a.b", "bob/x", "in.bob")] == ["a/#", "${user}/*", "in/${user}"]


@pytest.mark.parametrize(
    ("written", "normal"),
    [("#.#", "#"), ("#.*", "*/#"), ("#.*.#.*", "*/*/#"), ("/a//b/", "a//b"), ("a.#.#.b", "a/#/b")],
)
def test_normal_form(written: str, normal: str) -> None:
    assert normalise(written) == normal


@pytest.mark.parametrize(
    ("patterns", "name", "best"),
    [
        (["#", "*.b", "a.b"], "a.b", "a.b"),
        (["#", "*.b"], "a.b", "*.b"),
        (["#.b", "a.#"], "a.b", "a.#"),
        (["#.com", "#"], "www.com", "#.com"),
        (["#.example.com", "*.example.com"], "www.example.com", "*.example.com"),
        (["*.example.com"], "example.com", None),
        (["a.#", "a"], "a", "a"),
    ],
)
def test_the_best_pattern_wins_in_any_order(patterns: list[str], name: str, best: str | None) -> None:
    for order in (patterns, patterns[::-1]):
        assert PatternTree((split_tokens(text), text) for text in order).find(split_tokens(name)) == best


def test_a_pattern_cannot_be_made_to_search_for_ever() -> None:
    """Attack: many `#` and an address that nearly matches make naive matching exponential."""
    tree = PatternTree([(split_tokens("#.a." * 30 + "b"), "x")])
    started = time.process_time()
    assert tree.find(["a"] * MAX_TOKENS) is None
    assert tree.find(["a"] * (MAX_TOKENS + 1)) is None
    assert time.process_time() - started < 0.5


# A second opinion: patterns by way of regular expressions.

words = st.sampled_from(["a", "b", "bob", "", "*", "#"])
names = st.lists(st.sampled_from(["a", "b", "bob", ""]), max_size=5).map("/".join)


def as_expression(item: str) -> re.Pattern[str]:
    parts = [{"*": "(?:[^/]*/)", "#": "(?:[^/]*/)*"}.get(word, f"{re.escape(word)}/") for word in split_tokens(item)]
    return re.compile("".join(parts))


def reference_pattern(item: str, address: str) -> bool:
    tokens = split_tokens(address)
    return bool(address) and bool(as_expression(item).fullmatch("".join(f"{token}/" for token in tokens)))


@given(st.lists(st.lists(words, max_size=5).map(".".join), max_size=4), names)
def test_patterns_agree_with_regular_expressions(items: list[str], address: str) -> None:
    matched = compile_patterns(items).bind("").match(address) is not None
    assert matched == any(reference_pattern(item, address) for item in items)


def reference_literal(item: str, user: str, address: str) -> bool:
    if not address:
        return False
    if "${user}" in item:
        head, _, rest = item.partition("${user}")
        if rest.endswith("*"):
            return address.startswith(head + user + rest[:-1]) and (user + rest[:-1] != "")
        return address == head + user + rest
    return address.startswith(item[:-1]) if item.endswith("*") else address == item


texts = st.text(st.sampled_from("ab.*#/"), max_size=4)
items = st.one_of(texts, st.tuples(texts, texts).map("${user}".join)).filter(bool)


@given(st.lists(items, max_size=6), texts, texts)
def test_lists_agree_with_trying_item_by_item(listed: list[str], user: str, address: str) -> None:
    matched = compile_literals(listed).bind(user).match(address) is not None
    assert matched == any(reference_literal(item, user, address) for item in listed)


@pytest.mark.parametrize(
    ("item", "user", "allowed", "denied"),
    [
        ("${user:escaped}", "bob", ["bob"], ["bob.x", "${user:escaped}"]),
        ("${user:escaped}", "b.c/d", ["b%2Ec%2Fd"], ["b.c/d", "b%2Ec/d"]),
        ("in.${user:escaped}/x", "a%2E", ["in.a%252E/x"], ["in.a%2E/x", "in.a./x"]),
        ("${user:escaped}.*", "bob", ["bob.", "bob.smith"], ["bob", "bob%2Esmith", "bob%2Esmith.x"]),
        ("${user:escaped}.*", "bob.smith", ["bob%2Esmith.x"], ["bob.smith.x"]),
        ("${user:escaped}*", "", [], ["a", "%"]),
    ],
)
def test_an_escaped_name_in_a_literal(item: str, user: str, allowed: list[str], denied: list[str]) -> None:
    assert [address for address in allowed if not literal(item, user, address)] == []
    assert [address for address in denied if literal(item, user, address)] == []


@pytest.mark.parametrize(
    ("item", "user", "allowed", "denied"),
    [
        ("${user:escaped}", "bob", ["bob", "bob."], ["bob.x", "${user:escaped}"]),
        ("${user:escaped}/#", "bob", ["bob", "bob.smith/x"], ["bob%2Esmith/x"]),
        ("${user:escaped}/#", "bob.smith", ["bob%2Esmith", "bob%2Esmith/x"], ["bob.smith/x", "bob.smith"]),
        ("in/${user:escaped}", "*#:", ["in/%2A%23%3A"], ["in/*#:", "in/x"]),
        ("x${user:escaped}", "bob", [], ["xbob"]),
        ("${user:escaped}/#", "", [], ["/a", "a"]),
    ],
)
def test_an_escaped_name_in_a_pattern(item: str, user: str, allowed: list[str], denied: list[str]) -> None:
    assert [address for address in allowed if not pattern(item, user, address)] == []
    assert [address for address in denied if pattern(item, user, address)] == []


def test_both_ways_to_write_a_name_stand_in_one_list() -> None:
    patterns = compile_patterns(["${user}/x", "${user:escaped}/#", "in/${user}", "out/${user:escaped}"]).bind("a.b")
    addresses = ["a.b/x", "a%2Eb/y", "in/a.b", "out/a%2Eb", "a.b/y", "in/a%2Eb", "out/a.b"]
    expected = ["${user}/x", "${user:escaped}/#", "in/${user}", "out/${user:escaped}", None, None, None]
    assert [patterns.match(address) for address in addresses] == expected


names = st.lists(st.sampled_from([*"ab.*#/:%", "%2E", "2E"]), min_size=1, max_size=4).map("".join)


@given(names, names, st.sampled_from([".x", "/x", ".*", "/*", "/#", ".#", "", "/x/#"]), names, st.sampled_from("./"))
def test_no_escaped_name_is_within_another(user: str, other: str, tail: str, end: str, separator: str) -> None:
    """The address of one user under an item is the address of no other."""
    item = f"${{user:escaped}}{tail}"
    for address in (escaped(user), f"{escaped(user)}{separator}x", f"{escaped(user)}{separator}{end}"):
        for is_match in (literal, pattern):
            assert not (is_match(item, user, address) and is_match(item, other, address)) or user == other


hostile = st.text(st.sampled_from("a*#./,${}ser"), max_size=8) | st.sampled_from(["${user}", "*", "#", "a,*", "a.#"])
tails = st.sampled_from(["", ".x", "/x", ".x.*", "/#", "/*"])


@given(hostile, tails, st.text(st.sampled_from("ab*#./,x"), min_size=1, max_size=8))
def test_a_hostile_user_name_reaches_only_what_begins_with_it(user: str, tail: str, address: str) -> None:
    if literal(f"${{user}}{tail}", user, address) or pattern(f"${{user}}{tail}", user, address):
        assert address.startswith(user)


@given(hostile, st.text(st.sampled_from("ab*#./,x"), min_size=1, max_size=8))
def test_a_hostile_user_name_reaches_only_what_ends_with_it(user: str, address: str) -> None:
    for item in ("in/${user}", "in.${user}"):
        if literal(item, user, address) or pattern(item, user, address):
            assert address.endswith(user)
            assert address.lstrip("./").startswith("in")
