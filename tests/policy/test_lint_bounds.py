"""What rules say where lists are too large to compare, and that lists of usual sizes never are.

Also what rules do with values that no policy file may have, and with sections that no file is known of.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

import pytest

from policy.analysis.effort import Effort
from policy.attributes import SourceLocation
from policy.files.sections import Section
from policy.files.validation import load_sections
from policy.lint import (
    bare_groups,
    covered_item,
    denied_item,
    duplicate_item,
    exchange_past_targets,
    idle_denial,
    ignore_comment,
    ignored_entity,
    management_for_everybody,
    management_without_rights,
    powerful_from_anywhere,
    refused_vhost,
    second_name_of_a_queue,
    small_window,
    unreachable_limit,
    unreached_way,
    window_over,
)
from policy.lint.findings import Finding, LintRule, PolicyText, SectionText
from policy.lint.rules import check_all, check_fleet

FILE = "router.conf"
GROUP = '"g": {"users": "*", "remoteHosts": "*", '
LINKS = """
exchange {
    name: one
    address: one
    alternateAddress: two
}
exchange {
    name: three
    address: three
    alternateAddress: four
}
linkRoute {
    prefix: queue
    direction: in
    connection: broker
    delExternalPrefix: queue.
}
autoLink {
    address: queue
    direction: in
    connection: broker
    externalAddress: other
}
"""


def policy(groups: str, more: str = "") -> PolicyText:
    text = (
        "policy {\n    enableVhostPolicy: yes\n}\nvhost {\n    hostname: h\n    groups: {\n"
        f"        {groups}\n    }}\n}}\n{more}"
    )
    return PolicyText(entities=load_sections(text, FILE), texts={FILE: text})


def told(finding: Finding) -> str:
    return f"{finding.line}:{finding.column} {finding.rule} {finding.level.name} {finding.text}"


@pytest.mark.parametrize(
    ("rule", "lists", "found"),
    [
        (
            covered_item,
            '"sources": "a, b", "targets": "c, d, e, f", "denyTargets": "x"}',
            [
                "7:49 PAL017 NOTE vhost 'h' group 'g': cannot tell whether each item adds something: "
                "too large to compare: 'a', 'b'",
                "7:68 PAL017 NOTE vhost 'h' group 'g': cannot tell whether each item adds something: "
                "too large to compare: 'c', 'd', 'e' and 1 more",
            ],
        ),
        (
            denied_item,
            '"targets": "c, d", "denyTargets": "x"}',
            [
                "7:49 PAL064 NOTE vhost 'h' group 'g': cannot tell whether 'denyTargets' leaves something of each "
                "item: too large to compare: 'c'",
            ],
        ),
        (
            idle_denial,
            '"targets": "c, d", "denyTargets": "x"}',
            [
                "7:68 PAL065 NOTE vhost 'h' group 'g': cannot tell whether each denial denies something "
                "that 'targets' allows: too large to compare: 'c', 'd'",
            ],
        ),
        (
            management_for_everybody,
            '"targets": "*"}',
            [
                "7:49 PAL012 WARNING vhost 'h' group 'g': cannot tell whether users who are not named may send to "
                "management: too large to compare: these lists",
            ],
        ),
        (
            management_without_rights,
            '"targetPattern": "#"}',
            [
                "7:49 PAL070 WARNING vhost 'h' group 'g': cannot tell whether members reach management and may do "
                "everything there: too large to compare: these lists",
            ],
        ),
        (
            powerful_from_anywhere,
            '"targets": "*"}, "k": {"users": "k", "remoteHosts": "*", "targets": "*"}',
            [
                "7:29 PAL007 WARNING vhost 'h' group 'g': cannot tell whether members may send to management, from "
                "anywhere: too large to compare: these lists",
                "7:86 PAL007 WARNING vhost 'h' group 'k': cannot tell whether members may send to management, from "
                "anywhere: too large to compare: these lists",
            ],
        ),
        (
            exchange_past_targets,
            '"targets": "one"}',
            [
                "11:1 PAL140 NOTE exchange 'one': cannot tell whether no exchange leads a group past its targets: "
                "too large to compare: these lists",
            ],
        ),
        (
            second_name_of_a_queue,
            '"targets": "one"}',
            [
                "21:1 PAL132 NOTE linkRoute: cannot tell whether every group may use a queue by all of its names, "
                "or by none: too large to compare: these lists",
            ],
        ),
        (
            unreached_way,
            '"targets": "one"}',
            [
                "22:5 PAL133 NOTE linkRoute: cannot tell whether somebody may use each queue: "
                "too large to compare: 'queue/#'",
            ],
        ),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else "",
)
def test_what_is_too_large_to_compare_is_said_to_be(
    rule: LintRule, lists: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "RULE_STEPS", -(10**12))
    assert [told(each) for each in rule.check(policy(GROUP + lists, LINKS))] == found


MANY = [f"a{number}.*" for number in range(60)]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (covered_item, []),
        (denied_item, []),
        (idle_denial, []),
        (management_for_everybody, []),
        (management_without_rights, []),
        (powerful_from_anywhere, []),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else "",
)
def test_lists_of_many_items_are_compared_for_what_they_are_allowed(
    rule: LintRule, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what all lists share is used up."""
    monkeypatch.setattr(rule, "RULE_STEPS", 0)
    items = ", ".join(f"$m{item}" for item in MANY)
    denied = ", ".join(item.replace("*", "x") for item in items.split(", "))
    lists = f'"targets": "{items}", "denyTargets": "{denied}", "sources": "{items}", "denySources": "{denied}"}}'
    assert [told(each) for each in rule.check(policy(GROUP + lists))] == found


@pytest.mark.parametrize(
    ("rule", "compares", "allowed"),
    [
        (covered_item, ("superfluous_items",), [3000 * 3, 3000 * 2, 3000 * 2]),
        (denied_item, ("resolve_denials",), [6000 * (3 + 2)]),
        (idle_denial, ("idle_denials",), [6000 * (3 + 2)]),
        (
            management_for_everybody,
            ("address_automaton", "denial_automaton", "find_word"),
            [20_000 + 3000 * 5, 20_000 + 3000 * 2],
        ),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else "",
)
def test_every_comparison_is_paid_from_a_share_as_large_as_its_lists(
    rule: ModuleType, compares: tuple[str, ...], allowed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[Effort] = []
    given: list[int] = []
    share = Effort.share

    @contextmanager
    def observed(effort: Effort, allowed: int = 0) -> Iterator[Effort]:
        with share(effort, allowed) as one:
            given.append(allowed)
            shares.append(one)
            yield one

    def paid(compare: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            assert arguments[-1] is shares[-1]
            return compare(*arguments)

        return call

    monkeypatch.setattr(Effort, "share", observed)
    for name in compares:
        monkeypatch.setattr(rule, name, paid(getattr(rule, name)))
    lists = (
        '"targets": "$m.a, $m.b, $m.c", "denyTargets": "$x, $m.c", "sources": "q"}, '
        '"k": {"users": "*", "remoteHosts": "*", "targetPattern": "$m.d, $m.e"}'
    )
    list(rule.check(policy(GROUP + lists)))
    assert given == allowed


def test_each_way_to_a_broker_is_compared_by_one_effort_as_large_as_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    efforts: list[tuple[Effort, int]] = []

    def paid(compare: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            assert [arguments[-1]] == [each for each, _ in efforts]
            return compare(*arguments)

        return call

    monkeypatch.setattr(Effort, "allow", lambda effort, steps: efforts.append((effort, steps)))
    for name in ("address_automaton", "find_word"):
        monkeypatch.setattr(unreached_way, name, paid(getattr(unreached_way, name)))
    lists = '"targets": "a, b", "sources": "c, d, e"}, "k": {"users": "k", "sourcePattern": "f"}'
    assert len(list(unreached_way.check(policy(GROUP + lists, LINKS)))) == 2
    assert [steps for _, steps in efforts] == [6000 * (2 + 6)]


@pytest.mark.parametrize(
    ("rule", "spent"),
    [(second_name_of_a_queue, [40] * 3 + [80, 80]), (exchange_past_targets, [40] * 4)],
    ids=["second_name_of_a_queue", "exchange_past_targets"],
)
def test_what_comparing_with_each_group_takes_is_spent(
    rule: LintRule, spent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(Effort, "spend", lambda _, steps: found.append(steps))
    more = "autoLink {\n    address: second\n    direction: in\n    connection: broker\n    externalAddress: other\n}\n"
    list(rule.check(policy('"g": {"users": "g", "sources": "x"}, "k": {"users": "k", "targets": "y"}', LINKS + more)))
    assert found == spent


def of(groups: object, type_: str = "vhost", file: str | None = None, **attributes: object) -> Section:
    written: Mapping[str, object] = {"hostname": "h", "groups": groups, **attributes}
    return Section(type=type_, attributes=written, source=SourceLocation(file=file))


@pytest.mark.parametrize(
    ("rule", "group", "vhost"),
    [
        (duplicate_item, {"sources": {"a": 1}}, {}),
        (duplicate_item, {"sources": [1, 1]}, {}),
        (small_window, {"maxSessionWindow": "x"}, {}),
        (small_window, {"maxSessionWindow": 20000, "maxFrameSize": "x"}, {}),
        (unreachable_limit, {"maxConnectionsPerUser": 5}, {"maxConnections": "x"}),
        (unreachable_limit, {"maxConnectionsPerUser": "x"}, {"maxConnections": 5}),
        (window_over, {"validUntil": "x"}, {}),
    ],
)
def test_values_that_are_refused_elsewhere_are_left_alone(
    rule: LintRule, group: dict[str, object], vhost: dict[str, object]
) -> None:
    attributes = {"hostname": "h", "groups": {"g": group}, **vhost}
    section = Section(type="vhost", attributes=attributes, source=SourceLocation())
    assert list(rule.check(PolicyText(entities=(section,), now=1_800_000_000.0))) == []


def test_without_a_clock_nothing_is_over() -> None:
    section = of({"g": {"validUntil": "2020-01-01T00:00:00Z"}})
    assert list(window_over.check(PolicyText(entities=(section,)))) == []
    section = of({"wrong": {"validUntil": "x"}, "g": {"validUntil": "2020-01-01T00:00:00Z"}})
    (found,) = window_over.check(PolicyText(entities=(section,), now=1_800_000_000.0))
    assert found.text == "vhost 'h' group 'g': its members are refused since '2020-01-01T00:00:00Z'"


def test_sections_of_no_file_are_found_at_its_first_line() -> None:
    section = Section(type="policy", attributes={}, source=SourceLocation())
    found = list(ignored_entity.check(PolicyText(entities=(section,))))
    assert [(each.file, each.line, each.column) for each in found] == [("", 1, 1)]
    refused = of({"g": {"users": "a", "remoteHosts": "9.9.9.9-1.1.1.1"}})
    found = list(refused_vhost.check(PolicyText(entities=(refused,))))
    assert [(each.file, each.line, each.column) for each in found] == [("", 1, 1)]
    twice = (of({}, file="a.json"), of({}, file="b.json"))
    found = list(refused_vhost.check(PolicyText(entities=twice)))
    assert [(each.file, each.line) for each in found] == [("b.json", 1)]


def test_groups_are_looked_at_in_the_files_whose_texts_are_known() -> None:
    bare = "vhost {\n    hostname: H\n    groups: {\n        g: {\n            users: a\n        }\n    }\n}\n"
    texts = {"a.conf": bare.replace("H", "a"), "b.conf": bare.replace("H", "b")}
    entities = tuple(each for file, text in texts.items() for each in load_sections(text, file))
    json_vhost = load_sections('[["vhost", {"hostname": "j", "groups": {"g": {}}}]]', "j.json")
    nowhere = of({"g": {}})
    policy_text = PolicyText(entities=(nowhere, *json_vhost, *entities), texts={**texts, "j.json": "", "": "x"})
    assert [(each.file, each.line, each.column) for each in bare_groups.check(policy_text)] == [
        ("a.conf", 4, 9),
        ("b.conf", 4, 9),
    ]
    only = PolicyText(entities=entities, texts={"b.conf": texts["b.conf"]})
    assert [each.file for each in bare_groups.check(only)] == ["b.conf"]
    unplaced = PolicyText(entities=(of({"g": {}}, file="a.conf"),), texts={"a.conf": 'g: {\n"x": 1'})
    assert [(each.line, each.column) for each in bare_groups.check(unplaced)] == [(1, 1)]


def test_unknown_rules_are_told_of_where_the_rules_are_known() -> None:
    texts = {"a": "# qdpolicy: ignore[PAL998, PAL997] why\n", "b": "x # qdpolicy: ignore[PAL998]\n"}
    found = list(ignore_comment.check(PolicyText(entities=(), texts=texts, ids=frozenset({"PAL001"}))))
    assert [(each.file, each.line, each.text) for each in found] == [
        ("a", 1, "there is no rule PAL998"),
        ("b", 1, "the reason is missing"),
    ]
    found = list(ignore_comment.check(PolicyText(entities=(), texts=texts)))
    assert [(each.file, each.text) for each in found] == [("b", "the reason is missing")]


def test_findings_of_several_files_are_sorted_by_file_line_column_rule_and_text() -> None:
    groups = {"z": {"users": "*", "remoteHosts": "*", "sources": "*"}, "a": {"users": "b c"}}
    entities = (of(groups, file="b.json"), of(groups, file="a.json", hostname="k"))
    found = check_all(entities)
    assert found == tuple(sorted(found, key=lambda each: (each.file, each.line, each.column, each.rule, each.text)))
    assert found[0].file == "a.json"
    names = [each.rule for each in check_all(entities, ignored=["PAL043"])]
    assert "PAL043" not in names
    assert {*names, "PAL043"} == {each.rule for each in found}


@pytest.mark.parametrize(
    ("attributes", "title"),
    [
        ({"name": "n", "port": "5"}, "listener 'n'"),
        ({"port": 5}, "listener '5'"),
        ({"name": "", "port": ""}, "listener"),
        ({}, "listener"),
    ],
)
def test_a_section_is_called_by_its_name_or_port(attributes: dict[str, object], title: str) -> None:
    assert SectionText(type="listener", attributes=attributes, source=SourceLocation()).title == title


def test_findings_about_what_stands_in_no_file_are_at_line_1() -> None:
    entities = (of({"g": {"users": "anonymous"}}),)
    (found,) = [each for each in check_all(entities) if each.rule == "PAL027"]
    assert (found.file, found.line, found.column, found.within) == ("", 1, 1, ())


def test_a_router_of_a_fleet_is_known_by_the_name_of_its_file_whatever_folder_it_is_in() -> None:
    listener = "listener {\n    host: 0.0.0.0\n    port: 1\n    role: inter-router\n}\n"
    texts = {
        "/etc/x/one.conf": listener,
        "/etc/x/two.conf": listener,
        "/etc/x/three.conf": "connector {\n    host: two.example\n    port: 1\n    role: inter-router\n}\n",
    }
    routers = tuple(PolicyText(entities=load_sections(text, file)) for file, text in texts.items())
    assert "PAL114" not in {each.rule for each in check_fleet(routers, texts=texts)}
    lost = (
        *routers[:2],
        PolicyText(entities=load_sections(texts["/etc/x/three.conf"].replace("two", "six"), "c.conf")),
    )
    assert [told(each) for each in check_fleet(lost) if each.rule == "PAL114"] == [
        "2:5 PAL114 NOTE connector '1': no router given has a listener of role inter-router for six.example:1, "
        "or it cannot be told which"
    ]
