"""What a text means: against a naive reading of the specification, on every short text and on random ones."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.naive_addresses import LETTERS, ROUTER, WORDS, is_management, key_of, meaning, read, texts
from policy.addressing.address import MANAGEMENT_TEXTS, Address, Unclear, resolve
from policy.addressing.lists import Permission, compile_literals, compile_patterns, denied_items
from policy.analysis.automata import Automaton, denial_automaton, management_automaton, unclear_automaton

TENANTS = (None, "t", "t/u", "_local", "x:", "/t", "$management", "_topo/0/QDR", "t.")
SHORT = [*texts(LETTERS, 6), *texts(WORDS, 4)]
FEW = [
    *texts(LETTERS, 4),
    *texts(WORDS, 3),
    *(f"_topo/{a}/{r}/{n}" for a in ("0", "all") for r in ("QDR", "X") for n in "ab"),
]
any_text = st.lists(st.sampled_from((*WORDS, *LETTERS)), min_size=1, max_size=9).map("".join)


def check(text: str, tenant: str | None) -> None:
    found, expected = resolve(text, router_id=ROUTER, tenant=tenant), meaning(text, tenant)
    if expected is None:
        assert isinstance(found, Unclear), (text, tenant)
        assert (found.written, bool(found.why)) == (text, True)
        return
    assert isinstance(found, Address), (text, tenant)
    assert found.key == key_of(expected), (text, tenant)
    assert found.written == text
    assert found.plain == read(text)
    for phase in (0, 7):
        assert found.key_in(phase) == key_of(expected, phase)
    assert found.is_management == (is_management(expected) and (tenant is None or expected[0] != "M"))
    # What is said of it elsewhere means the same there, and every name of it reaches it.
    again = [resolve(found.plain, router_id=ROUTER, tenant=tenant), resolve(found.full, router_id=ROUTER)]
    if found.is_mobile:
        again.append(resolve(found.name, router_id=ROUTER))
        assert tenant is None or found.key.startswith(f"M0{tenant}/")
    assert all(isinstance(each, Address) and each.key == found.key for each in again), (text, tenant)
    if not found.is_management and tenant is None:
        assert {meaning(name) for name in found.names} == {expected}


@pytest.mark.slow
def test_every_short_text() -> None:
    """routing 36"""
    for text in FEW:
        check(text, None)
    for text in SHORT:
        found, expected = resolve(text, router_id=ROUTER), meaning(text)
        key = found.key if isinstance(found, Address) else None
        assert key == (key_of(expected) if expected is not None else None), text


@pytest.mark.slow
@pytest.mark.parametrize("tenant", TENANTS[1:])
def test_every_short_text_of_a_tenant(tenant: str) -> None:
    """routing 46"""
    for text in FEW:
        check(text, tenant)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(any_text, st.sampled_from(TENANTS) | any_text)
def test_random_texts(text: str, tenant: str | None) -> None:
    check(text, tenant)


@settings(max_examples=300, deadline=None)
@given(st.text(min_size=1))
def test_any_unicode(text: str) -> None:
    check(text, None)
    check(text, "t")


def test_a_router_whose_id_is_not_known_has_no_topological_address() -> None:
    address = resolve("_topo/0//x", router_id="")
    assert isinstance(address, Unclear)
    address = resolve("_topo/0/QDR/x", router_id="")
    assert isinstance(address, Address)
    assert address.key == "RQDR"


# Denials


@pytest.mark.slow
@pytest.mark.parametrize(
    "item",
    [
        *("a", "$management", "_local/a", "_topo/0/QDR/a", "_edge/QDR/$_management_internal", "_topo/0/X/a", "/a"),
        *("_topo/all/X/$management", "_topo/all/all/a", "_edge/X/a", "_topo/9/QDR/a", "a.", "t/a"),
        *("_topo/0/OTHER/$management", "x:/a"),
    ],
)
@pytest.mark.parametrize("tenant", [None, "t"])
def test_a_denial_denies_what_the_text_reaches(item: str, tenant: str | None) -> None:
    """Every text that reaches what the item names is denied, and no other."""
    permission = Permission(compile_literals(["*"]), compile_literals(denied_items([item])), "bob")
    # A tenant may be left out, or stand there.
    reached = {meaning(item), meaning(item, tenant)} - {None}
    denies_own = any(each is not None and is_management(each) and each[0] in "ML" for each in reached)
    for text in FEW:
        address, found = resolve(text, router_id=ROUTER, tenant=tenant), meaning(text, tenant)
        if found is None:
            continue
        assert isinstance(address, Address)
        is_denied = found in reached or (denies_own and address.is_management)
        for is_message in (False, True):
            verdict = permission.judge(address, is_message=is_message)
            assert (verdict.denied_by is not None) == is_denied, (text, item)
            assert (verdict.item is None) == is_denied


@pytest.mark.slow
@pytest.mark.parametrize(
    "item", ["_topo/*", "_local/*", "_edge/QDR/*", "_topo/0/QDR/a*", "$man*", "a*", "_t*", "_topo/all/X/*", "_topo/0*"]
)
def test_a_denied_beginning_denies_all_names_of_what_begins_so(item: str) -> None:
    permission = Permission(compile_literals(["*"]), compile_literals(denied_items([item])), "")
    plain = [text for text in {*FEW, *MANAGEMENT_TEXTS} if read(text) == text and meaning(text) is not None]
    of_it = defaultdict(set)
    for text in plain:
        of_it[meaning(text)].add(text)
    for text in plain:
        address, found = resolve(text, router_id=ROUTER), meaning(text)
        assert isinstance(address, Address)
        if not address.is_management:
            assert found is not None
            assert (permission.judge(address).denied_by is not None) == any(
                name.startswith(item[:-1]) for name in (*of_it[found], *address.names)
            )


def test_who_is_denied_management_is_denied_it_by_every_name() -> None:
    for item in (
        "$management",
        "_local/$management",
        "_topo/0/QDR/$management",
        "_edge/QDR/*",
        "$*",
        "/*",
        "amqp:/$management",
    ):
        permission = Permission(compile_literals(["*"]), compile_literals(denied_items([item])), "")
        for text in (
            *MANAGEMENT_TEXTS,
            "amqp://h/_topo/all/QDR/$_management_internal",
            "/$management/",
            "_edge/QDR/$management",
        ):
            address = resolve(text, router_id=ROUTER)
            assert isinstance(address, Address)
            assert permission.judge(address).item is None, (item, text)


# What is allowed


def naive_literal(item: str, text: str) -> bool:
    return text.startswith(item[:-1]) if item.endswith("*") else text == item


@pytest.mark.slow
@pytest.mark.parametrize(
    "items", [["a*"], ["a/*"], ["x:/a"], ["x:/a*"], ["/*"], ["a", "x:*"], ["*"], ["a."], ["//h/a*", "b"], ["_topo/*"]]
)
def test_a_text_is_allowed_as_it_is_written_and_as_it_is_understood(items: list[str]) -> None:
    permission = Permission(compile_literals(items), compile_literals([]), "")
    for text in FEW:
        address = resolve(text, router_id=ROUTER)
        if isinstance(address, Unclear):
            continue
        plain = read(text)
        both = any(naive_literal(item, text) for item in items) and any(naive_literal(item, plain) for item in items)
        # An item that is an alias itself is meant.
        alias = any(
            naive_literal(item, text)
            and naive_literal(f"{without(item[:-1])}*" if item.endswith("*") else read(item), plain)
            for item in items
        )
        assert (permission.judge(address).item is not None) == (both or alias), (text, items)


def without(text: str) -> str:
    """The head of an address, without scheme and host. `x` keeps a separator at the end."""
    return read(text + "|")[:-1] if not text.startswith("//") or "/" in text[2:] else ""


@pytest.mark.parametrize(
    ("pattern", "text", "is_allowed"),
    [
        ("a/#", "a/x:/b", False),
        ("a/#", "a/x:/a/b", True),
        ("x:/a/#", "x:/a/b", True),
        ("x:/#", "x:/$management", True),
        ("*/*", "//h/secret", False),
        ("/a", "a", True),
        ("/a", "/a", True),
        ("${user}/#", "bob/x:/secret", False),
        ("x:/${user}", "x:/bob", True),
    ],
)
def test_patterns(pattern: str, text: str, is_allowed: bool) -> None:
    permission = Permission(compile_patterns([pattern]), compile_literals([]), "bob")
    address = resolve(text, router_id=ROUTER)
    assert isinstance(address, Address)
    assert (permission.judge(address).item is not None) == is_allowed


def test_a_users_name_is_no_alias() -> None:
    """Attack: a name that, put into an item, makes the text mean another address."""
    for user, text in (("/h/secret", "x://h/secret"), ("y:/secret", "in.y:/secret"), ("secret/", "x:/secret/")):
        permission = Permission(compile_literals(["x:/${user}", "in.${user}"]), compile_literals([]), user)
        address = resolve(text, router_id=ROUTER)
        assert isinstance(address, Address)
        assert address.plain == "secret"
        assert permission.judge(address).item is None


# As sets


def accepts(automaton: Automaton, text: str) -> bool:
    return not automaton.walked(frozenset(automaton.starts), text).isdisjoint(automaton.accepting)


def test_the_texts_that_stand_for_themselves() -> None:
    automaton = unclear_automaton()
    for text in (*FEW, *texts(LETTERS, 5)):
        assert accepts(automaton, text) == (read(text) != text or meaning(text) is None), text


def test_the_texts_that_reach_management() -> None:
    automaton = management_automaton()
    for text in FEW:
        found = meaning(text)
        if found is not None and read(text) == text and text != "$_management_internal":
            assert accepts(automaton, text) == is_management(found), text


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(any_text | st.sampled_from(["_topo/*", "$man*", "_topo/0/QDR/a", "_local/a*", "_t*"]), max_size=3),
    st.sampled_from([ROUTER, ""]),
    st.lists(any_text, min_size=20, max_size=20),
)
def test_denials_as_sets_are_what_is_denied(items: list[str], router_id: str, asked: list[str]) -> None:
    denied = denied_items(items)
    permission = Permission(compile_literals(["*"]), compile_literals(denied), "")
    automaton = denial_automaton(denied, router_id)
    for text in (*asked, *items, *FEW[::97], *MANAGEMENT_TEXTS):
        address = resolve(text, router_id=router_id)
        if isinstance(address, Address) and address.plain == text:
            assert accepts(automaton, text) == (permission.judge(address).denied_by is not None), text
