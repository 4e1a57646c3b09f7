"""Addresses and patterns in the small: what a mutant of policy.addressing would change and no larger test sees."""

import pytest
from rulesets import at

from policy.addressing.address import Address, Unclear, resolve, resolve_named
from policy.addressing.lists import (
    Permission,
    Verdict,
    compile_literals,
    compile_patterns,
    denied_items,
    reached_item,
    tokens_before,
)
from policy.addressing.patterns import MAX_TOKENS, PatternTree, configured_tokens, normalise, split_tokens
from policy.addressing.text import normalise as plain_text
from policy.analysis.automata import denial_automaton

MANAGEMENT = ("$management", "_local/$management", "_local/$_management_internal")
OWN_MANAGEMENT = (
    *MANAGEMENT,
    *("_topo/0/QDR/$management", "_topo/all/QDR/$management", "_edge/QDR/$management"),
    *("_topo/0/QDR/$_management_internal", "_topo/all/QDR/$_management_internal"),
    "_edge/QDR/$_management_internal",
)
OWN_A = ("_local/a", "_topo/0/QDR/a", "_topo/all/QDR/a", "_edge/QDR/a")


@pytest.mark.parametrize("text", ["a", "_topo/0/QDR/a", "_topo/1/QDR/a", "_topo/1/OTHER/a"])
@pytest.mark.parametrize("area", ["0", "1"])
@pytest.mark.parametrize("tenant", [None, "t"])
def test_an_optional_text_means_what_the_text_means(text: str, area: str, tenant: str | None) -> None:
    for router_id in ("QDR", "OTHER"):
        expected = resolve(text, router_id=router_id, tenant=tenant, area=area)
        assert resolve_named(text, router_id=router_id, tenant=tenant, area=area) == expected
    assert isinstance(resolve(text, router_id="QDR"), Address | Unclear)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Xa", "Xa"),
        ("amqp:/a", "a"),
        ("amqp://h:5672/a/b", "a/b"),
        (":/a", "a"),
        ("x:/y:/z", "y:/z"),
        ("urn:a", "urn:a"),
        ("/x:/a", "x:/a"),
        ("/a", "a"),
        ("//h/a", "a"),
        ("///a", "a"),
        ("//h", ""),
        ("//h/", ""),
        ("/", ""),
        ("a/", "a"),
        ("a.", "a"),
        ("a//", "a/"),
        ("aX", "aX"),
    ],
)
def test_scheme_authority_and_outer_separators_are_left_out(text: str, plain: str) -> None:
    """routing 36"""
    assert plain_text(text) == plain


@pytest.mark.parametrize(
    ("text", "plain", "key", "names"),
    [
        ("a", "a", "M0a", ("a",)),
        ("amqp://h/a/", "a", "M0a", ("a",)),
        ("_local/a", "_local/a", "La", OWN_A),
        ("/_topo/0/QDR/a", "_topo/0/QDR/a", "La", OWN_A),
        ("_topo/all/QDR/a", "_topo/all/QDR/a", "La", OWN_A),
        ("_edge/QDR/a.", "_edge/QDR/a", "La", OWN_A),
        ("_topo/0/X/a/b", "_topo/0/X/a/b", "RX", ("_topo/0/X/a/b", "_topo/all/X/a/b")),
        ("/_topo/all/X/a", "_topo/all/X/a", "RX", ("_topo/0/X/a", "_topo/all/X/a")),
        ("_topo/0/all/a", "_topo/0/all/a", "Ta", ("_topo/0/all/a", "_topo/all/all/a")),
        ("/_topo/9/QDR/a", "_topo/9/QDR/a", "A9", ("_topo/9/QDR/a",)),
        ("/_edge/X/a", "_edge/X/a", "HX", ("_edge/X/a",)),
    ],
)
def test_an_address_has_one_key_and_every_name(text: str, plain: str, key: str, names: tuple[str, ...]) -> None:
    """By the table of routing §3.2."""
    found = at(text)
    assert isinstance(found, Address)
    assert (found.written, found.plain, found.full, found.name, found.key) == (text, plain, text, plain, key)
    assert sorted(found.names) == sorted(names)
    assert found.is_management is False


@pytest.mark.parametrize(
    ("text", "plain", "key", "names"),
    [
        ("/$management", "$management", "M0$management", OWN_MANAGEMENT),
        ("_local/$management", "_local/$management", "L$management", OWN_MANAGEMENT),
        ("_edge/QDR/$management", "_edge/QDR/$management", "L$management", OWN_MANAGEMENT),
        (
            *("/$_management_internal", "$_management_internal", "M0$_management_internal"),
            ("$_management_internal", *OWN_MANAGEMENT),
        ),
        (
            *("_topo/0/X/$management", "_topo/0/X/$management", "RX"),
            ("_topo/0/X/$management", "_topo/all/X/$management", *MANAGEMENT),
        ),
        ("_topo/9/X/$management", "_topo/9/X/$management", "A9", ("_topo/9/X/$management", *MANAGEMENT)),
        ("_edge/X/$management", "_edge/X/$management", "HX", ("_edge/X/$management", *MANAGEMENT)),
    ],
)
def test_management_has_every_name_of_management(text: str, plain: str, key: str, names: tuple[str, ...]) -> None:
    found = at(text)
    assert isinstance(found, Address)
    assert (found.written, found.plain, found.full, found.name, found.key) == (text, plain, text, plain, key)
    assert sorted(found.names) == sorted(names)
    assert found.is_management is True


def test_the_name_of_another_router_is_not_ours_where_ours_is_not_known() -> None:
    found = resolve("_local/a", router_id="")
    assert isinstance(found, Address)
    assert found.names == ("_local/a",)
    edge = resolve("_edge/X/a", router_id="")
    assert isinstance(edge, Address)
    assert edge.key == "HX"


@pytest.mark.parametrize("text", ["/a", "a", "a."])
def test_a_tenants_address_is_in_the_tenants_space(text: str) -> None:
    """routing 46"""
    assert at(text, "t") == Address(
        written=text, plain="a", full="t/a", name="t/a", key="M0t/a", names=("a", "t/a"), is_management=False
    )


def test_a_tenant_reaches_the_router_by_the_same_names() -> None:
    for text in ("_local/a", "_topo/0/X/a", "_edge/X/a", "_topo/all/all/a"):
        assert at(text, "t") == at(text)
    tenants = at("$management", "t")
    assert isinstance(tenants, Address)
    assert (tenants.key, tenants.is_management) == ("M0t/$management", False)


def test_an_address_that_a_router_made_up_is_in_nobodys_space() -> None:
    text = "_$temp.abcdefghijklmno"
    found = at(text, "t")
    assert isinstance(found, Address)
    assert (found.key, found.names, found.is_dynamic) == (f"M0{text}", (text,), True)


@pytest.mark.parametrize(
    ("text", "tenant", "why"),
    [
        ("//h/", None, "it names nothing: an address has a name behind scheme, host and separators"),
        ("a//", None, "it means 'a/', which read again means another address: write the one that is meant"),
        ("/_topo/0/X", None, "'_topo/0/X' is incomplete: such addresses are _topo/AREA/ROUTER/NAME"),
        ("_topo//X/a", None, "'_topo//X/a' is incomplete: such addresses are _topo/AREA/ROUTER/NAME"),
        ("/_edge/X", None, "'_edge/X' is incomplete: such addresses are _edge/ROUTER/NAME"),
        ("_edge//a", None, "'_edge//a' is incomplete: such addresses are _edge/ROUTER/NAME"),
        ("/a", "t/u", "the tenant's name 't/u' has a '/': its space is part of another's"),
        ("/a", "x:", "in the address space of 'x:' it is 'x:/a', which is outside of that space"),
        ("/a", "_local", "in the address space of '_local' it is '_local/a', which is outside of that space"),
        ("/a", "_topo", "in the address space of '_topo' it is '_topo/a', which is outside of that space"),
        ("/a", "_edge", "in the address space of '_edge' it is '_edge/a', which is outside of that space"),
    ],
)
def test_an_unclear_text_says_what_is_wrong(text: str, tenant: str | None, why: str) -> None:
    assert at(text, tenant) == Unclear(text, why)


@pytest.mark.parametrize("text", ["$_management_internal", "/$_management_internal", "amqp:/$_management_internal/"])
@pytest.mark.parametrize("item", ["$_management_internal", "$_*", "$management"])
def test_the_other_name_of_management_is_denied_however_it_is_written(item: str, text: str) -> None:
    """Attack: who is denied `$_management_internal` writes `/$_management_internal`."""
    denied = denied_items([item])
    permission = Permission(compile_literals(["*"]), compile_literals(denied), "bob")
    address = at(text)
    assert isinstance(address, Address)
    assert permission.judge(address) == Verdict(None, item, text)
    automaton = denial_automaton(denied, "QDR")
    reached = automaton.walked(frozenset(automaton.starts), address.plain)
    assert not reached.isdisjoint(automaton.accepting)


def test_a_permission_names_the_item_and_the_text_that_decided() -> None:
    permission = Permission(compile_literals(["*"]), compile_literals(["b"]), "bob")
    aliased = Permission(compile_literals(["amqp:/o*"]), compile_literals([]), "bob")
    judged = {
        "a": Verdict("*", None, "a"),
        "/b": Verdict(None, "b", "/b"),
        "amqp:/orders": Verdict("amqp:/o*", None, "amqp:/orders"),
        "amqp:/o": Verdict("amqp:/o*", None, "amqp:/o"),
        "o": Verdict(None, None, "o"),
    }
    for text, verdict in judged.items():
        address = at(text)
        assert isinstance(address, Address)
        assert (aliased if "o" in text else permission).judge(address) == verdict


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
        ("targets", "//h*", "*"),
        ("sources", "//h/*", "*"),
        ("targetPattern", "/a", "/a"),
        ("sourcePattern", "amqp:/a.b", "a.b"),
    ],
)
def test_an_item_reaches_what_its_kind_of_list_understands(key: str, item: str, reached: str) -> None:
    """Separators around a pattern mean nothing, so they stay."""
    assert reached_item(key, item) == reached


def test_the_items_that_are_another_name_are_known() -> None:
    """What stands for itself is no alias, nor what names no address at all."""
    literals = compile_literals(["a*", "amqp:/b*", "//${user}", "c/${user}", "x:/whole"])
    assert [(alias.item, alias.reached.items) for alias in literals.aliases] == [("amqp:/b*", ("b*",))]
    patterns = compile_patterns(["a/#", "/b/#", "amqp:/b/#", "amqp:/"])
    assert [(alias.item, alias.reached.items) for alias in patterns.aliases] == [("amqp:/b/#", ("b/#",))]


@pytest.mark.parametrize("compiled", [compile_literals, compile_patterns])
def test_the_canonical_form_is_sorted_and_differs_by_item(compiled: object) -> None:
    assert callable(compiled)
    one, other = compiled(["b", "a"]), compiled(["a", "b"])
    assert one.canonical == other.canonical
    assert compiled(["a"]).canonical != compiled(["b"]).canonical
