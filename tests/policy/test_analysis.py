"""The difference of two rulesets: empty for the same, confirmed by the decisions, and complete."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rulesets import ROUTER_ID, at, present, ruleset

from policy.analysis.changes import NAMELESS, OTHERS, Change, Witness
from policy.analysis.confirmation import confirms
from policy.analysis.denials import idle_denials, resolve_denials
from policy.analysis.difference import diff_rulesets
from policy.analysis.host_sets import ALL_HOSTS, intersect, shown_hosts, subtract
from policy.analysis.superfluous import covering_items, superfluous_items
from policy.cli.main import main
from policy.decide import decide_connection, decide_connector, decide_link
from policy.facts import ConnectionFacts, LinkFacts, Usage
from policy.ruleset import PolicyError, Ruleset

BASE: dict[str, Any] = {"users": "anna", "remoteHosts": "10.0.0.1-10.0.0.9", "targets": "orders.*"}


INSTANTS = ("1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z")


def one_group(**changed: object) -> Ruleset:
    return ruleset({"hostname": "h", "groups": {"g": present({**BASE, **changed})}})


def summary(changes: tuple[Change, ...]) -> list[tuple[str, str, str | None]]:
    return [("+" if each.is_widening else "-", each.subject, each.addresses or each.after) for each in changes]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"targets": "orders.*, orders.a"}, []),
        ({"targets": "orders.*, stock"}, [("+", "send", "stock")]),
        ({"targets": "orders.a"}, [("-", "send", "orders.*")]),
        ({"targets": "*"}, [("+", "send", "*")]),
        ({"sources": "a"}, [("+", "receive", "a")]),
        ({"remoteHosts": "10.0.0.5-10.0.0.12"}, [("+", "connect", None), ("-", "connect", None)]),
        ({"maxSessions": 3}, [("-", "maxSessions", "3")]),
        ({"allowDynamicSource": True}, [("+", "allowDynamicSource", "true")]),
        ({"allowWaypointLinks": False}, [("-", "allowWaypointLinks", "false")]),
        ({"maxMessageSize": 10}, [("-", "maxMessageSize", "10")]),
        ({"maxConnectionsPerUser": 0}, [("-", "connect", None)]),
        ({"maxSenders": 0}, [("-", "send", "orders.*"), ("-", "maxSenders", "0")]),
        ({"maxFrameSize": 1000}, []),
        ({"denyTargets": "stock"}, []),
        ({"denyTargets": "orders.*"}, [("-", "send", "orders.*")]),
        ({"denyTargets": "orders.secret"}, [("-", "send", "orders.*' as far as it is 'orders.secret")]),
        ({"remoteHosts": "10.0.0.0/29"}, [("+", "connect", None), ("-", "connect", None)]),
    ],
)
def test_one_change(changed: dict[str, object], expected: list[tuple[str, str, str | None]]) -> None:
    assert summary(diff_rulesets(one_group(), one_group(**changed))) == expected


def test_a_change_is_a_set_with_a_witness() -> None:
    (change,) = diff_rulesets(one_group(targets="orders.a, orders.b, x"), one_group(targets="orders.*, x"))
    assert (change.users, change.hosts) == (("anna",), ("10.0.0.1-10.0.0.9",))
    assert (change.addresses, change.exceptions) == ("orders.*", ("orders.a", "orders.b"))
    witness = change.witness
    assert (witness.vhost, witness.user, witness.host, witness.direction) == ("h", "anna", "10.0.0.1", "send")
    assert witness.address is not None
    assert witness.address.startswith("orders.")


def test_hosts_are_intervals() -> None:
    widened, narrowed = diff_rulesets(one_group(), one_group(remoteHosts="10.0.0.5, 10.0.0.8-10.0.0.12"))
    assert widened.hosts == ("10.0.0.10-10.0.0.12",)
    assert narrowed.hosts == ("10.0.0.1-10.0.0.4", "10.0.0.6-10.0.0.7")


def test_everybody_else_is_a_class_of_its_own() -> None:
    old = ruleset({"hostname": "h", "groups": {"g": BASE}})
    new = ruleset({"hostname": "h", "groups": {"g": BASE, "all": {"users": "*", "remoteHosts": "::1"}}})
    (change,) = diff_rulesets(old, new)
    assert change.users == (NAMELESS, OTHERS)
    assert change.witness.user in (None, "someone")


def test_user_tokens_are_compared_for_every_name() -> None:
    """A name of two words is one that `*` does not allow."""
    old, new = (
        one_group(users="*", targetPattern="*", targets=None),
        one_group(users="*", targetPattern="${user}, *", targets=None),
    )
    changes = diff_rulesets(old, new)
    assert {(each.is_widening, each.addresses) for each in changes} == {(True, "${user}")}
    assert all("." in (each.witness.user or "") for each in changes)
    assert diff_rulesets(old, old) == ()


@pytest.mark.parametrize(("key", "rest"), [("targets", ".*"), ("targetPattern", "/#")])
def test_an_escaped_name_differs_for_names_with_separators(key: str, rest: str) -> None:
    old, new = ({"users": "*", "targets": None, key: f"{token}{rest}"} for token in ("${user}", "${user:escaped}"))
    changes = diff_rulesets(one_group(**old), one_group(**new))
    assert {(each.is_widening, each.addresses) for each in changes} == {
        (True, f"${{user:escaped}}{rest}"),
        (False, f"${{user}}{rest}"),
    }
    assert all("." in (each.witness.user or "") for each in changes)


@pytest.mark.parametrize(
    ("denied", "user"), [("in.a%2Eb", "a.b"), ("in.a%252E", "a%2E"), ("in.a%2*", "a#"), ("in.a%2F*", "a/")]
)
def test_a_denied_name_that_is_escaped(denied: str, user: str) -> None:
    old = one_group(users="*", targets="in.${user:escaped}")
    changes = diff_rulesets(old, one_group(users="*", targets="in.${user:escaped}", denyTargets=denied))
    assert changes
    assert not any(each.is_widening for each in changes)
    assert user in {each.witness.user for each in changes}


def test_a_denied_name_among_unnamed_users() -> None:
    """Only the user whose name somebody has denied notices."""
    old = one_group(users="*", targets="in.${user}")
    (change,) = diff_rulesets(old, one_group(users="*", targets="in.${user}", denyTargets="in.bob"))
    assert (change.is_widening, change.witness.user, change.witness.address) == (False, "bob", "in.bob")


def test_names_of_one_address_are_compared_as_one() -> None:
    """What is denied by one name is denied by all of them; items that are another name are addresses of their own."""
    old = one_group(targets="_topo/0/R/x, a")
    new = one_group(targets="_topo/0/R/x, a", denyTargets="_local/x, a")
    assert {each.addresses for each in diff_rulesets(old, new, router_id="S")} == {"a"}
    changes = diff_rulesets(old, new, router_id="R")
    assert {each.addresses for each in changes} == {"_topo/0/R/x' as far as it is '_local/x", "a"}
    denied = one_group(targets="*", denyTargets="$management")
    assert diff_rulesets(denied, one_group(targets="*", denyTargets="/_local/$management"), router_id="R") == ()
    (change,) = diff_rulesets(one_group(), one_group(targets="orders.*, amqp:/stock.*"))
    assert (change.is_widening, change.addresses, change.witness.address) == (True, "amqp:/stock.*", "amqp:/stock.x")


def test_patterns_against_literals() -> None:
    old, new = one_group(targets="a.*"), one_group(targets=None, targetPattern="a.#")
    assert {(each.is_widening, each.addresses) for each in diff_rulesets(old, new)} == {(True, "a.#")}


def test_vhost_names_by_pattern() -> None:
    """Which vhost governs a name changes, though no vhost does."""
    everything = {"g": {"users": "*", "remoteHosts": "*"}}
    nothing: dict[str, Any] = {}
    old = ruleset({"hostname": "#.example", "groups": everything}, enableVhostNamePatterns=True)
    new = ruleset(
        {"hostname": "#.example", "groups": everything},
        {"hostname": "a.*.example", "groups": nothing},
        enableVhostNamePatterns=True,
    )
    changes = diff_rulesets(old, new)
    assert {each.is_widening for each in changes} == {False}
    assert {each.witness.vhost for each in changes} <= {"a.*.example", "a.any.example"}


def test_switching_policy_off_permits_everything() -> None:
    old, new = one_group(), ruleset({"hostname": "h"}, enableVhostPolicy=False)
    changes = diff_rulesets(old, new)
    assert {each.is_widening for each in changes} == {True}
    assert diff_rulesets(new, new) == ()


def test_connectors() -> None:
    old = ruleset({"hostname": "h", "groups": {"$connector": {"targets": "a"}}})
    new = ruleset({"hostname": "h", "groups": {"$connector": {"targets": "a, b"}}})
    (change,) = diff_rulesets(old, new)
    assert (change.is_widening, change.subject, change.addresses) == (True, "connector send", "b")


def test_total() -> None:
    (change,) = diff_rulesets(ruleset(maxConnections=5), ruleset(maxConnections=4))
    assert (change.is_widening, change.before, change.after) == (False, "5", "4")


@pytest.mark.parametrize(
    ("key", "item", "others", "is_covered"),
    [
        ("targets", "a.b", ["a.*"], True),
        ("targets", "a.*", ["a.b*", "a.c"], False),
        ("targets", "${user}.x", ["${user}.*"], True),
        ("targets", "${user}.x", ["a*"], False),
        ("targets", "a.${user}", ["a.*"], True),
        ("targetPattern", "#", [".", "*", "*/*/#"], False),  # separators alone match nothing
        ("targetPattern", "*/#", ["*", "*/*/#"], True),
        ("targetPattern", "#", ["*", "*/*/#"], False),
        ("targetPattern", "${user}", ["*"], False),
        ("targetPattern", "${user}", ["#"], True),
        ("targetPattern", "a/${user}", ["a/#"], True),
        ("targetPattern", "a.b", ["c.#", "b"], False),
        ("targets", "amqp:/a*", ["amqp:*"], False),
        ("targets", "amqp:/a*", ["amqp:*", "a*"], True),
        ("targets", "a/", ["a*"], True),
        ("targetPattern", "amqp:/a", ["*.*", "b"], False),
    ],
)
def test_covered_items(key: str, item: str, others: list[str], is_covered: bool) -> None:
    assert (covering_items(key, item, others) is not None) == is_covered


def test_host_sets() -> None:
    assert shown_hosts(ALL_HOSTS) == ("*",)
    assert subtract(ALL_HOSTS, ALL_HOSTS) == ()
    some = ((4, 5, 9), (6, 1, 2))
    assert intersect(ALL_HOSTS, some) == some
    assert subtract(some, ((4, 6, 7),)) == ((4, 5, 5), (4, 8, 9), (6, 1, 2))


# Properties

DENIED = ["a", "b*", "in.anna", "b.c", "a.b", "_local/a", "_topo/0/QDR/*", "$management", "amqp:/a"]
ALIASES = ["amqp:/a", "amqp:/b*", "_local/*", "/*", "amqp:*", "amqp:/${user}", "${user:escaped}"]
literals = st.lists(
    st.sampled_from(["*", "a", "a.*", "b", "${user}", "in.${user}", "${user}.*", "a.b*", *ALIASES]), max_size=3
)
patterns = st.lists(
    st.sampled_from(
        ["#", "*", "a.#", "a.*", "*.b", "${user}", "a/${user}", "${user}.#", "amqp:/#", "_topo/#", "${user:escaped}/#"]
    ),
    max_size=3,
)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    group: dict[str, Any] = {
        "users": draw(st.sampled_from(["anna", "ben", "anna, ben", ""])),
        "remoteHosts": draw(st.sampled_from(["*", "10.0.0.1", "10.0.0.1-10.0.0.5, ::1", ""])),
    }
    for literal, pattern in (("sources", "sourcePattern"), ("targets", "targetPattern")):
        if draw(st.booleans()):
            group[literal] = draw(literals)
        else:
            group[pattern] = draw(patterns)
    for key in ("denySources", "denyTargets"):
        if draw(st.integers(0, 3)) == 0:
            group[key] = draw(st.lists(st.sampled_from(DENIED), max_size=2))
    for key in ("maxSenders", "maxConnectionsPerUser", "maxSessions", "maxMessageSize"):
        if (value := draw(st.sampled_from([None, None, 0, 2]))) is not None:
            group[key] = value
    for key in ("allowDynamicSource", "allowWaypointLinks", "allowReplies"):
        if draw(st.booleans()):
            group[key] = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        group["replyWindow"] = draw(st.sampled_from([1, 60]))
    if draw(st.integers(0, 3)) == 0:
        group[draw(st.sampled_from(["validFrom", "validUntil"]))] = draw(st.sampled_from(INSTANTS))
    return group


@st.composite
def rulesets(draw: st.DrawFn) -> Ruleset:
    vhosts = []
    for name in draw(st.lists(st.sampled_from(["h", "k", "$default", "*", "h.#"]), unique=True, max_size=3)):
        vhost: dict[str, Any] = {"hostname": name, "groups": {"g": draw(groups())}}
        if draw(st.booleans()):
            vhost["groups"]["$default"] = {**draw(groups()), "users": ""}
            vhost["allowUnknownUser"] = True
        if draw(st.booleans()):
            vhost["groups"]["$connector"] = {**draw(groups()), "users": ""}
        vhosts.append(vhost)
    try:
        return ruleset(*vhosts, enableVhostNamePatterns=draw(st.booleans()))
    except PolicyError:
        assume(False)
        raise


ADDRESSES = (
    *("a", "a.b", "anna", "b.c", "in.anna", "x.b", "a.b.c", "b", "a/a", "zz", "amqp:/a", "amqp:/b.c", "amqp:/zz"),
    *("_local/a", "_topo/0/QDR/a", "_topo/0/X/a", "$management", "_local/$management", "_edge/QDR/$management"),
)
requests = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["anna", "ben", "carl", "a", "b.c", ""]),
        "host": st.sampled_from(["10.0.0.1", "10.0.0.4", "::1", "9.9.9.9"]),
        "vhost": st.sampled_from(["h", "k", "x", "h.x", ""]),
        "now": st.sampled_from([0.0, 10.0, 15.0, 20.0]),
        "direction": st.sampled_from(["send", "receive"]),
        "address": st.sampled_from(ADDRESSES),
    }
)


def permits(rules: Ruleset, request: dict[str, Any]) -> tuple[bool, bool]:
    facts = ConnectionFacts(
        user=request["user"],
        remote_host=request["host"],
        requested_vhost=request["vhost"],
        connection_name="c",
        now=request["now"],
    )
    judged = decide_connection(rules, facts, Usage())
    if judged.settings is None:
        return judged.decision.is_allowed, judged.decision.is_allowed
    link = LinkFacts(direction=request["direction"], address=at(request["address"]))
    return True, decide_link(judged.settings, link).is_allowed


@pytest.mark.slow
@given(rulesets(), rulesets(), requests)
@settings(max_examples=80, deadline=None)
def test_every_witness_is_confirmed_and_nothing_is_missed(old: Ruleset, new: Ruleset, request: dict[str, Any]) -> None:
    changes = diff_rulesets(old, new, router_id=ROUTER_ID)
    assert all(confirms(old, new, change, router_id=ROUTER_ID) for change in changes)
    was, is_ = permits(old, request), permits(new, request)
    for before, after, subjects in ((was[0], is_[0], {"connect"}), (was[1], is_[1], {"connect", request["direction"]})):
        # Another spelling, which only a wildcard lets pass, of what is allowed by its plain text anyway.
        plain = {**request, "address": request["address"].removeprefix("amqp:/")}
        if before != after and not all(permits(rules, plain)[1] for rules in (old, new)):
            assert any(each.subject in subjects and each.is_widening == after for each in changes)


@given(groups(), st.data())
@settings(max_examples=60, deadline=None)
def test_removing_an_item_never_widens(group: dict[str, Any], data: st.DataObject) -> None:
    keys = [key for key in group if isinstance(group[key], list) and group[key] and not key.startswith("deny")]
    assume(keys)
    key = data.draw(st.sampled_from(sorted(keys)))
    fewer = {**group, key: group[key][1:]}
    old, new = (ruleset({"hostname": "h", "groups": {"g": each}}) for each in (group, fewer))
    assert not any(change.is_widening for change in diff_rulesets(old, new))


def test_connector_settings_are_what_is_compared() -> None:
    rules = ruleset({"hostname": "h", "groups": {"$connector": {"targets": "a"}}})
    assert decide_connector(rules, "h", None, None).settings is not None


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "old.json", tmp_path / "new.json"
    for path, targets in zip(paths, ("a, b", "a, b.*"), strict=True):
        group = {"users": "anna", "remoteHosts": "10.0.0.1", "targets": targets}
        path.write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))
    return str(paths[0]), str(paths[1])


def test_diff_command(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = files
    assert main(["diff", old, new]) == 0
    output = capsys.readouterr().out
    assert "widening: send to 'b.*' in vhost 'h'\n    who:     anna, from 10.0.0.1\n" in output
    assert "example: 'anna' from 10.0.0.1 at vhost 'h' sends to 'b." in output
    assert f"rules:   old {old}:1, new {new}:1" in output
    assert [main(["diff", old, new, "--fail-on", kind]) for kind in ("widening", "narrowing", "any")] == [1, 1, 1]
    assert main(["diff", old, old, "--fail-on", "any"]) == 0
    capsys.readouterr()
    main(["diff", old, new, "--json"])
    found = json.loads(capsys.readouterr().out)["changes"]
    assert [(each["kind"], each["addresses"]) for each in found] == [
        ("widening", "b.*"),
        ("narrowing", "b"),
    ]
    assert main(["diff", old, "missing.json"]) == 3


@pytest.mark.slow
@given(patterns, literals)
@settings(max_examples=100, deadline=None)
def test_without_superfluous_items_a_list_means_the_same(words: list[str], texts: list[str]) -> None:
    for key, items in (("targetPattern", words), ("targets", texts)):
        written = tuple(dict.fromkeys(items))
        removed = {item for item, _ in superfluous_items(key, written)}
        kept = [item for item in written if item not in removed]
        one, other = ({"users": "*, anna", "remoteHosts": "*", key: each} for each in (list(written), kept))
        rules = [ruleset({"hostname": "h", "groups": {"g": each}}) for each in (one, other)]
        assert diff_rulesets(rules[0], rules[1]) == ()
        for item in kept:
            assert covering_items(key, item, [each for each in kept if each != item]) is None


# Addresses by other names, and denials, whole: what differs, but for what, and an address that shows it.


@pytest.mark.parametrize(
    ("key", "before", "after", "router_id", "expected"),
    [
        (
            "sources",
            {"sources": "a.*"},
            {"sources": "a.*, amqp:/b.*"},
            "",
            [("+", "receive", "amqp:/b.*", (), "amqp:/b.x")],
        ),
        ("targets", {"targets": "amqp:/b.*"}, {"targets": "amqp:/b.*, b.*"}, "", [("+", "send", "b.*", (), "b.x")]),
        (
            "targets",
            {"targets": "amqp:/b.*, b.*"},
            {"targets": "b.*"},
            "",
            [("-", "send", "amqp:/b.*", (), "amqp:/b.x")],
        ),
        ("targets", {"targets": "*"}, {"targets": "*, amqp:/b"}, "", []),
        (
            "targets",
            {"targets": "amqp:/b*"},
            {"targets": "amqp:/b"},
            "",
            [("-", "send", "amqp:/b*", ("amqp:/b",), "amqp:/bx")],
        ),
        (
            "targets",
            {"targets": "a"},
            {"targets": "a, amqp:/a, /a, a/, amqp://h/a"},
            "",
            [
                ("+", "send", "/a", (), "/a"),
                ("+", "send", "a/", (), "a/"),
                ("+", "send", "amqp://h/a", (), "amqp://h/a"),
                ("+", "send", "amqp:/a", (), "amqp:/a"),
            ],
        ),
        ("targets", {"targets": "amqp:/a, a"}, {"targets": "a"}, "", [("-", "send", "amqp:/a", (), "amqp:/a")]),
        (
            "targets",
            {"targets": "amqp:/a*, a*"},
            {"targets": "amqp:/a*, a*", "denyTargets": "amqp:/ab"},
            "",
            [
                ("-", "send", "a*' as far as it is 'ab", (), "ab"),
                ("-", "send", "amqp:/a*", ("a*", "amqp:/a*"), "amqp:/ab"),
            ],
        ),
        (
            "targets",
            {"targets": "amqp:/a*, a*"},
            {"targets": "amqp:/a*, a*", "denyTargets": "ab"},
            "",
            [
                ("-", "send", "a*' as far as it is 'ab", (), "ab"),
                ("-", "send", "amqp:/a*", ("a*", "amqp:/a*"), "amqp:/ab"),
            ],
        ),
        (
            "targets",
            {"targets": "amqp:/a*, a*", "denyTargets": "amqp:/a*"},
            {"targets": "amqp:/a*, a*", "denyTargets": "amqp:/a"},
            "",
            [
                ("+", "send", "a*", ("a", "amqp:/a"), "ax"),
                ("+", "send", "amqp:/a*", ("a*", "amqp:/a*", "amqp:/a"), "amqp:/ax"),
            ],
        ),
        (
            "targets",
            {"targets": "amqp:/${user}, ${user}"},
            {"targets": "amqp:/${user}.*, ${user}"},
            "",
            [("+", "send", "amqp:/${user}.*", (), "amqp:/anna.x"), ("-", "send", "amqp:/${user}", (), "amqp:/anna")],
        ),
        (
            "targets",
            {"targets": "amqp:/${user}.*, ${user}.*"},
            {"targets": "${user}.*"},
            "",
            [("-", "send", "amqp:/${user}.*", (), "amqp:/anna.x")],
        ),
        (
            "targets",
            {"targets": "amqp://*"},
            {"targets": "amqp:/x"},
            "",
            [("+", "send", "amqp:/x", (), "amqp:/x"), ("-", "send", "amqp://*", (), "amqp://someone/y")],
        ),
        (
            "targets",
            {"targets": "amqp:/x, x", "denyTargets": "x"},
            {"targets": "amqp:/x, x"},
            "",
            [("+", "send", "amqp:/x", ("amqp:/x",), "amqp:/x"), ("+", "send", "x", (), "x")],
        ),
        (
            "targets",
            {"targets": "amqp:/x, x", "denyTargets": "amqp:/x"},
            {"targets": "amqp:/x, x"},
            "",
            [("+", "send", "amqp:/x", ("amqp:/x",), "amqp:/x"), ("+", "send", "x", (), "x")],
        ),
        ("targets", {"targets": "amqp:/anna, anna"}, {"targets": "amqp:/${user}, ${user}"}, "", []),
        ("targets", {"targets": "/b/*, b/*"}, {"targets": "b/*"}, "", [("-", "send", "/b/*", (), "/b/x")]),
        (
            "targets",
            {"targets": "_topo/0/R/x"},
            {"targets": "_local/x"},
            "R",
            [("+", "send", "_local/x", (), "_local/x"), ("-", "send", "_topo/0/R/x", (), "_topo/0/R/x")],
        ),
        (
            "targets",
            {"targets": "_topo/0/R/x"},
            {"targets": "_local/x"},
            "",
            [("+", "send", "_local/x", (), "_local/x"), ("-", "send", "_topo/0/R/x", (), "_topo/0/R/x")],
        ),
        (
            "targets",
            {"targets": "amqp:/_local/x, _local/x"},
            {"targets": "_local/x"},
            "R",
            [("-", "send", "amqp:/_local/x", (), "amqp:/_local/x")],
        ),
        (
            "targets",
            {"targets": "amqp:/_local/x, _local/x"},
            {"targets": "_local/x"},
            "",
            [("-", "send", "amqp:/_local/x", (), "amqp:/_local/x")],
        ),
        (
            "targetPattern",
            {"targetPattern": "a/#"},
            {"targetPattern": "a/#, amqp:/b/#"},
            "",
            [("+", "send", "amqp:/b/#", (), "amqp:.b")],
        ),
        (
            "targetPattern",
            {"targetPattern": "amqp:/b/#, b/#"},
            {"targetPattern": "b/#"},
            "",
            [("-", "send", "amqp:/b/#", (), "amqp:.b")],
        ),
        (
            "targetPattern",
            {"targetPattern": "amqp://*/b/#, b/#"},
            {"targetPattern": "amqp://*/b/c, b/#"},
            "",
            [("-", "send", "amqp://*/b/#", ("amqp://*/b/c",), "amqp:...b")],
        ),
        (
            "targetPattern",
            {"targetPattern": "amqp://h/b"},
            {"targetPattern": "amqp://*/b"},
            "",
            [("+", "send", "amqp://*/b", ("amqp://h/b",), "amqp:...b")],
        ),
        (
            "targets",
            {"targets": "orders.*, s"},
            {"targets": "orders.*, s", "denyTargets": "orders.a, s"},
            "",
            [("-", "send", "orders.*' as far as it is 'orders.a", (), "orders.a"), ("-", "send", "s", (), "s")],
        ),
        (
            "targets",
            {"targets": "orders.*", "denyTargets": "orders.a*, orders.b"},
            {"targets": "orders.*", "denyTargets": "orders.a, orders.b"},
            "",
            [("+", "send", "orders.*' as far as it is 'orders.a*", ("orders.a", "orders.b"), "orders.ax")],
        ),
        (
            "targets",
            {"targets": "$management"},
            {"targets": "$management", "denyTargets": "_topo/0/R/$management"},
            "R",
            [("-", "send", "$management' as far as it is '_topo/0/R/$management", (), "$management")],
        ),
        (
            "targets",
            {"targets": "$management"},
            {"targets": "$management", "denyTargets": "_topo/0/R/$management"},
            "",
            [],
        ),
        (
            "targets",
            {"targets": "*", "denyTargets": "$management"},
            {"targets": "*", "denyTargets": "_edge/S/$management"},
            "R",
            [("+", "send", "*' as far as it is '$management", ("_edge/S/$management",), "$management")],
        ),
        (
            "targets",
            {"targets": "*", "denyTargets": "$management"},
            {"targets": "*", "denyTargets": "_edge/S/$management"},
            "",
            [("+", "send", "*' as far as it is '$management", ("_edge/S/$management",), "$management")],
        ),
        (
            "targets",
            {"targets": "_topo/*"},
            {"targets": "_topo/*", "denyTargets": "_topo/all/*"},
            "R",
            [("-", "send", "_topo/*' as far as it is '_topo/all/*", (), "_topo/0/x/x")],
        ),
        (
            "targets",
            {"targets": "_topo/*"},
            {"targets": "_topo/*", "denyTargets": "_topo/all/*"},
            "",
            [("-", "send", "_topo/*' as far as it is '_topo/all/*", (), "_topo/0/x/x")],
        ),
        (
            "targets",
            {"targets": "_topo/*, _local/*, _edge/*"},
            {"targets": "_topo/*, _local/*, _edge/*", "denyTargets": "_local/x*"},
            "R",
            [
                ("-", "send", "_edge/*' as far as it is '_local/x*", (), "_edge/R/x"),
                ("-", "send", "_local/*' as far as it is '_local/x*", (), "_local/x"),
                ("-", "send", "_topo/*' as far as it is '_local/x*", (), "_topo/0/R/x"),
            ],
        ),
        (
            "targets",
            {"targets": "_topo/*, _local/*, _edge/*"},
            {"targets": "_topo/*, _local/*, _edge/*", "denyTargets": "_local/x*"},
            "",
            [("-", "send", "_local/*' as far as it is '_local/x*", (), "_local/x")],
        ),
    ],
)
def test_other_names_of_addresses_are_compared(
    key: str, before: dict[str, object], after: dict[str, object], router_id: str, expected: list[object]
) -> None:
    lists: dict[str, object] = {"targets": None, key: None}
    found = diff_rulesets(one_group(**{**lists, **before}), one_group(**{**lists, **after}), router_id=router_id)
    assert [
        ("+" if each.is_widening else "-", each.subject, each.addresses, each.exceptions, each.witness.address)
        for each in found
    ] == expected


def vhost_ruleset(**vhost: object) -> Ruleset:
    return ruleset({"hostname": "h", "groups": {"g": BASE}, **vhost})


NARROWER_AND_WIDER: list[tuple[dict[str, object], dict[str, object], str]] = [
    ({"maxSessions": 3}, {"maxSessions": 5}, "maxSessions"),
    ({"maxSessions": 3}, {"maxSessions": 0}, "maxSessions"),
    ({"maxSenders": 1}, {"maxSenders": 2}, "maxSenders"),
    ({"maxSenders": 1}, {}, "maxSenders"),
    ({"maxReceivers": 1, "sources": "a"}, {"maxReceivers": 2, "sources": "a"}, "maxReceivers"),
    ({"maxReceivers": 1, "sources": "a"}, {"sources": "a"}, "maxReceivers"),
    ({"maxMessageSize": 10}, {"maxMessageSize": 20}, "maxMessageSize"),
    ({"maxMessageSize": 10}, {}, "maxMessageSize"),
    ({}, {"allowDynamicSource": True}, "allowDynamicSource"),
    ({}, {"allowAnonymousSender": True}, "allowAnonymousSender"),
    ({}, {"allowUserIdProxy": True}, "allowUserIdProxy"),
    ({"allowWaypointLinks": False}, {}, "allowWaypointLinks"),
    ({"allowFallbackLinks": False}, {}, "allowFallbackLinks"),
    ({"maxSenders": 1, "maxReceivers": 1}, {"maxSenders": 1, "maxReceivers": 1, "allowReplies": True}, "allowReplies"),
    ({"allowReplies": True, "replyWindow": 5}, {"allowReplies": True, "replyWindow": 6}, "replyWindow"),
    ({"maxMessageRate": 5}, {"maxMessageRate": 6}, "maxMessageRate"),
    ({"maxMessageRate": 5}, {}, "maxMessageRate"),
    ({"maxByteRate": 5}, {"maxByteRate": 6}, "maxByteRate"),
    ({"maxByteRate": 5}, {}, "maxByteRate"),
    ({"maxConnectionsPerUser": 2}, {"maxConnectionsPerUser": 3}, "maxConnectionsPerUser"),
    ({"maxConnectionsPerHost": 2}, {"maxConnectionsPerHost": 3}, "maxConnectionsPerHost"),
    ({"remoteHosts": "10.0.0.1"}, {}, "connect"),
    ({"targets": "orders.a"}, {}, "send"),
    ({}, {"sources": "a"}, "receive"),
    ({"management": ""}, {"management": "read connection"}, "management"),
]


@pytest.mark.parametrize(("narrower", "wider", "subject"), NARROWER_AND_WIDER)
def test_a_change_is_confirmed_in_its_direction_only(
    narrower: dict[str, object], wider: dict[str, object], subject: str
) -> None:
    for old, new in ((narrower, wider), (wider, narrower)):
        before, after = one_group(**old), one_group(**new)
        (change,) = diff_rulesets(before, after)
        assert (change.subject, change.is_widening) == (subject, new is wider)
        assert confirms(before, after, change)
        assert not confirms(after, before, change)
        assert not confirms(before, before, change)
        assert not confirms(after, after, change)


@pytest.mark.parametrize("key", ["maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"])
def test_a_change_of_a_vhosts_limit_is_confirmed_in_its_direction_only(key: str) -> None:
    others = {"maxConnections": 9, "maxConnectionsPerUser": 9, "maxConnectionsPerHost": 9}
    for counts in ((2, 3), (3, 2)):
        before, after = (vhost_ruleset(**{**others, key: count}) for count in counts)
        (change,) = diff_rulesets(before, after)
        assert (change.subject, change.before, change.after) == (key, str(counts[0]), str(counts[1]))
        assert confirms(before, after, change)
        assert not confirms(after, before, change)
        assert not confirms(before, before, change)
        # A count that is below both limits shows nothing.
        assert not confirms(before, after, replace(change, before="1", after="1"))


def test_what_is_not_governed_is_confirmed_in_its_direction_only() -> None:
    limits = {"maxSessions": 3, "maxSenders": 3, "maxReceivers": 3, "maxMessageSize": 9, "maxMessageRate": 9}
    group = {**BASE, "remoteHosts": "*", "users": "*", **limits, "allowReplies": True, "replyWindow": 5}
    governed = ruleset({"hostname": "h", "groups": {"g": group}})
    free = ruleset({"hostname": "h", "groups": {"g": group}}, enableVhostPolicy=False)
    for before, after in ((governed, free), (free, governed)):
        changes = [each for each in diff_rulesets(before, after) if each.vhost == "h" or not each.vhost]
        assert {*limits, "send", "receive", "management"} <= {each.subject for each in changes}
        for change in changes:
            assert confirms(before, after, change)
            assert not confirms(after, before, change)


def test_a_change_of_the_total_is_told_whole() -> None:
    before, after = (ruleset({"hostname": "h", "groups": {"g": BASE}}, maxConnections=count) for count in (5, 7))
    for old, new, is_widening in ((before, after, True), (after, before, False)):
        (change,) = diff_rulesets(old, new)
        assert change == Change(
            is_widening=is_widening,
            subject="policy maxConnections",
            vhost="",
            users=(),
            hosts=("*",),
            witness=Witness(vhost="", user=None, host="127.0.0.1"),
            before="5" if is_widening else "7",
            after="7" if is_widening else "5",
        )
        assert confirms(old, new, change)
        assert not confirms(new, old, change)
    assert not confirms(after, after, replace(change, is_widening=True))


def test_changes_for_connectors_are_told_whole() -> None:
    """With their times, and for a name that somebody has denied."""
    old = {"targets": "in.${user}, _topo/0/R/x", "sources": "a"}
    new = {"targets": "in.${user}, _topo/0/R/x", "sources": "a, b", "denyTargets": "in.bob, _local/x"}
    window = {"validUntil": INSTANTS[1]}
    before = ruleset({"hostname": "h", "groups": {"$connector": old}})
    after = ruleset({"hostname": "h", "groups": {"$connector": {**new, **window}}})
    found = [
        (
            "+" if each.is_widening else "-",
            each.subject,
            each.vhost,
            each.users,
            each.addresses,
            each.times,
            each.witness.user,
            each.witness.address,
            each.witness.at,
        )
        for each in diff_rulesets(before, after, router_id="R")
    ]
    both = ("peers of connectors, peers without a name", "peers of connectors, every other user")
    until, since = (f"until {INSTANTS[1]}",), (f"from {INSTANTS[1]}",)
    last = "1970-01-01T00:00:19Z"
    alias, named = "_topo/0/R/x' as far as it is '_local/x", "in.${user}' as far as it is 'in.bob"
    assert found == [
        ("-", "connector send", "h", both, alias, until, None, "_topo/0/R/x", last),
        ("+", "connector receive", "h", both, "b", until, None, "b", last),
        ("-", "connector connect", "h", both, None, since, None, None, INSTANTS[1]),
        ("-", "connector send", "h", both[1:], named, until, "bob", "in.bob", last),
    ]
    at_once = diff_rulesets(before, after, 15.0, router_id="R")
    assert {(each.subject, each.times, each.witness.at) for each in at_once} == {
        ("connector receive", (), "1970-01-01T00:00:15Z"),
        ("connector send", (), "1970-01-01T00:00:15Z"),
    }


# Lists, whole: what adds nothing, and what is denied.


@pytest.mark.parametrize(
    ("key", "items", "superfluous"),
    [
        ("targets", ["a*", "ab", "b", "abc*"], [("ab", ("a*",)), ("abc*", ("a*",))]),
        ("targets", ["ab", "ab*", "a"], [("ab", ("ab*",))]),
        ("targets", ["*", "a", "amqp:/x*", "${user}"], [("a", ("*",)), ("amqp:/x*", ("*",)), ("${user}", ("*",))]),
        ("targets", ["a.${user}", "a.*", "${user}*", "b"], [("a.${user}", ("a.*",))]),
        ("targets", ["amqp:/x*", "x*", "amqp:/xy"], [("amqp:/xy", ("amqp:/x*",))]),
        ("targets", ["a*", "a*"], []),
        ("targets", ["a", "b", "c"], []),
        ("targetPattern", ["a/#", "a/*", "a/b", "b/*"], [("a/*", ("a/#", "a/b")), ("a/b", ("a/#",))]),
        ("targetPattern", ["a/b", "a/c", "*/b", "#/d"], [("a/b", ("*/b", "#/d"))]),
        ("targetPattern", ["*", "a", "#"], [("*", ("a", "#")), ("a", ("#",))]),
        ("targetPattern", ["a/*/c", "a/#/c", "a/b/c"], [("a/*/c", ("a/#/c", "a/b/c")), ("a/b/c", ("a/#/c",))]),
        ("targetPattern", ["${user}/#", "#", "x/${user}"], [("${user}/#", ("#", "x/${user}")), ("x/${user}", ("#",))]),
        ("targetPattern", ["a/b", "a.b"], [("a/b", ("a.b",))]),
        ("targetPattern", ["*/a", "b/*", "b/a"], [("b/a", ("*/a", "b/*"))]),
        ("targetPattern", ["a/b/#", "a/#", "a/b/c/d"], [("a/b/#", ("a/#", "a/b/c/d")), ("a/b/c/d", ("a/#",))]),
        ("targetPattern", ["x/*", "y/*", "x/y", "*/y"], [("x/y", ("x/*", "*/y"))]),
        ("targetPattern", ["amqp:/a/#", "a/#", "a/b"], [("a/b", ("a/#",))]),
        ("targetPattern", ["a/*", "a/b*", "a/b#"], [("a/b*", ("a/*",)), ("a/b#", ("a/*",))]),
    ],
)
def test_items_that_add_nothing_are_found(key: str, items: list[str], superfluous: list[object]) -> None:
    assert list(superfluous_items(key, items)) == superfluous


@pytest.mark.parametrize(
    ("key", "items", "denied", "resolved", "idle"),
    [
        ("targets", ("a", "b.*", "c"), ("a", "b.x"), (("c",), ("a",), (("b.*", "b.y"),), ()), ()),
        (
            "targets",
            ("amqp:/x*", "y/", "z."),
            ("x", "q"),
            (("amqp:/x*", "y/", "z."), (), (), ("amqp:/x*", "y/", "z.")),
            (),
        ),
        ("targetPattern", ("a/#", "b"), ("a", "b"), ((), (), (("a/#", ".a"), ("b", ".b")), ()), ()),
        ("targets", ("in.${user}",), ("in.bob", "in.*"), ((), ("in.${user}",), (), ()), ()),
        ("sources", ("${user}",), ("x*",), ((), (), (("${user}", "\ue010"),), ()), ()),
        ("targets", ("a",), (), (("a",), (), (), ()), ()),
        ("targets", ("a", "b*"), ("a", "c", "bx*", "x*"), ((), ("a",), (("b*", "b"),), ()), ("c", "x*")),
        ("targets", ("/a",), ("c",), (("/a",), (), (), ("/a",)), ()),
        ("targets", ("a.",), ("c",), (("a.",), (), (), ("a.",)), ()),
    ],
)
def test_denials_are_resolved(
    key: str, items: tuple[str, ...], denied: tuple[str, ...], resolved: tuple[object, ...], idle: tuple[str, ...]
) -> None:
    found = resolve_denials(key, items, denied)
    assert (found.kept, found.denied, found.partial, found.renamed) == resolved
    assert idle_denials(key, items, denied) == idle
