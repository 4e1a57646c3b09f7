"""Addresses and patterns in the small: what a mutant of policy.addressing would change and no larger test sees."""

import pytest
from rulesets import at

from policy.addressing.address import Address, Unclear, resolve, resolve_named
from policy.addressing.lists import compile_literals, compile_patterns, reached_item, tokens_before
from policy.addressing.patterns import MAX_TOKENS, PatternTree, configured_tokens, normalise, split_tokens


@pytest.mark.parametrize("text", ["a", "_topo/0/QDR/a", "_topo/1/QDR/a", "_topo/1/OTHER/a"])
@pytest.mark.parametrize("area", ["0", "1"])
@pytest.mark.parametrize("tenant", [None, "t"])
def test_an_optional_text_means_what_the_text_means(text: str, area: str, tenant: str | None) -> None:
    for router_id in ("QDR", "OTHER"):
        expected = resolve(text, router_id=router_id, tenant=tenant, area=area)
        assert resolve_named(text, router_id=router_id, tenant=tenant, area=area) == expected
    assert isinstance(resolve(text, router_id="QDR"), Address | Unclear)


@pytest.mark.parametrize("text", [None, ""])
def test_no_text_is_no_address(text: str | None) -> None:
    assert resolve_named(text, router_id="QDR") is None


def test_only_a_mobile_address_has_phases() -> None:
    mobile, local = at("a"), at("_local/a")
    assert isinstance(mobile, Address)
    assert isinstance(local, Address)
    assert [mobile.key_in(phase) for phase in (0, 1, 9)] == ["M0a", "M1a", "M9a"]
    assert [local.key_in(phase) for phase in (0, 1)] == [local.key, local.key]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", []), ("/", []), ("Xa", ["Xa"]), (".Xa", ["Xa"]), ("/.X/aX/", ["X", "aX"]), ("a..b", ["a", "", "b"])],
)
def test_a_text_is_cut_at_its_separators(text: str, tokens: list[str]) -> None:
    assert split_tokens(text) == tokens


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a.#.*", "a/*/#"), ("#.*", "*/#"), ("a.b.#.*.#.*.c", "a/b/*/*/#/c"), ("#.#", "#"), ("a.*.#", "a/*/#")],
)
def test_equal_patterns_look_equal(pattern: str, expected: str) -> None:
    assert normalise(pattern) == expected


@pytest.mark.parametrize(
    ("prefix", "pattern", "expected"),
    [
        ("a.b", None, ("a", "b", "#")),
        ("/a/", None, ("a", "#")),
        ("Xa.X", None, ("Xa", "X", "#")),
        (None, "a.#.*", ("a", "*", "#")),
        (None, "./a/", ("a",)),
    ],
)
def test_a_configured_address_is_a_pattern(prefix: str | None, pattern: str | None, expected: tuple[str, ...]) -> None:
    assert configured_tokens(prefix, pattern) == expected


@pytest.mark.parametrize(("prefix", "pattern"), [(None, None), ("", None), ("./", "a"), (None, "/"), (None, "")])
def test_separators_alone_configure_no_address(prefix: str | None, pattern: str | None) -> None:
    with pytest.raises(ValueError, match=r"^no tokens$"):
        configured_tokens(prefix, pattern)


def test_the_longest_text_that_is_looked_up() -> None:
    tree = PatternTree([(["#"], "found")])
    assert tree.find(["a"] * MAX_TOKENS) == "found"
    assert tree.find(["a"] * (MAX_TOKENS + 1)) is None


def test_a_place_without_a_match_leads_back_to_the_others() -> None:
    tree = PatternTree([(["#", "a", "#", "b"], "both"), (["a", "*", "c"], "one"), (["*", "x", "#"], "rest")])
    assert tree.find(["a", "a", "a", "b"]) == "both"
    assert tree.find(["a", "x", "d"]) == "rest"
    assert tree.find(["a", "x", "c"]) == "one"
    assert tree.find(["a", "a", "d"]) is None


def test_a_place_that_was_tried_leads_back_to_the_others() -> None:
    tree = PatternTree([(["#", "a", "#", "b"], "both"), (["#", "c"], "last")])
    assert tree.find(["a", "a", "c"]) == "last"
    assert tree.words(tree.start()) == {"a", "c"}


@pytest.mark.parametrize(
    ("text", "tokens"), [("", []), (".", []), ("Xa/", ["Xa"]), ("./Xa.b/", ["Xa", "b"]), ("a", None)]
)
def test_the_words_before_a_users_name(text: str, tokens: list[str] | None) -> None:
    assert tokens_before(text) == tokens


def test_a_users_name_in_the_middle_of_a_pattern_matches_nothing() -> None:
    rules = compile_patterns(["a/${user}/${user}"]).bind("bob")
    assert rules.match("a/${user}/bob") is None
    assert rules.match("a/bob/bob") is None


def test_an_address_of_an_edge_router_has_a_router_and_a_name() -> None:
    inner = at("_edge/QDR/a/b")
    assert isinstance(inner, Address)
    assert inner.key == resolve("_topo/0/QDR/a/b", router_id="QDR").key  # type: ignore[union-attr]
    for text in ("_edge/QDR", "/_edge/x/"):
        unclear = at(text)
        assert isinstance(unclear, Unclear)
        assert unclear.written == text


@pytest.mark.parametrize(
    ("key", "item", "reached"),
    [
        ("targets", "/a", "a"),
        ("targets", "amqp:/a/*", "a/*"),
        ("targetPattern", "/a", "/a"),
        ("sourcePattern", "amqp:/a.b", "a.b"),
    ],
)
def test_an_item_reaches_what_its_kind_of_list_understands(key: str, item: str, reached: str) -> None:
    """Separators around a pattern mean nothing, so they stay."""
    assert reached_item(key, item) == reached


@pytest.mark.parametrize("compiled", [compile_literals, compile_patterns])
def test_the_canonical_form_is_sorted_and_differs_by_item(compiled: object) -> None:
    assert callable(compiled)
    one, other = compiled(["b", "a"]), compiled(["a", "b"])
    assert one.canonical == other.canonical
    assert compiled(["a"]).canonical != compiled(["b"]).canonical
