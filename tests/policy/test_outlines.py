"""Rulesets in which only what matters is compiled: the answers are those of the whole."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rulesets import resolve

from policy.analysis.conversion import plain
from policy.analysis.difference import diff_rulesets
from policy.analysis.explain import explain_connection
from policy.analysis.outlines import outline, rulesets_to_compare
from policy.attributes import SourceLocation
from policy.facts import ConnectionFacts
from policy.ruleset import PolicyError, Ruleset, compile_ruleset

Written = list[tuple[dict[str, Any], SourceLocation | None]]

groups = st.fixed_dictionaries(
    {
        "users": st.sampled_from(["anna", "ben", "*"]),
        "remoteHosts": st.sampled_from(["*", "10.0.0.1", "nowhere.example"]),
        "targets": st.sampled_from(["a", "b.*", "${user}"]),
    },
    optional={"maxSenders": st.sampled_from([1, "1"])},
)


@st.composite
def vhosts(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(["h", "k", "m", "$default", "h.#"]), unique=True, max_size=4))
    found = []
    for name in names:
        vhost: dict[str, Any] = {"hostname": name, "groups": {"g": draw(groups)}}
        if alias := draw(st.sampled_from(["", "", "x", "y", "h"])):
            vhost["aliases"] = alias
        found.append(vhost)
    return found


policies = st.fixed_dictionaries(
    {"enableVhostPolicy": st.sampled_from([True, True, True, False])},
    optional={
        "enableVhostNamePatterns": st.booleans(),
        "maxMessageSize": st.sampled_from([0, 10]),
        "defaultVhost": st.sampled_from(["", "k"]),
        "maxConnections": st.sampled_from([5, 10]),
    },
)


def placed(written: list[dict[str, Any]], file: str) -> Written:
    return [(each, SourceLocation(file=file, line=number)) for number, each in enumerate(written, start=1)]


@pytest.mark.slow
@given(policies, policies, vhosts(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_comparison_of_outlines_is_that_of_the_whole(
    old_policy: dict[str, Any], new_policy: dict[str, Any], old: list[dict[str, Any]], data: st.DataObject
) -> None:
    """The new policy has some vhosts of the old one, and others, in any order."""
    kept = [each for each in old if data.draw(st.booleans())]
    names = {each["hostname"] for each in kept}
    new = data.draw(st.permutations([*kept, *(each for each in data.draw(vhosts()) if each["hostname"] not in names)]))
    old_policy = data.draw(st.sampled_from([old_policy, new_policy]))
    sides = ((old_policy, placed(old, "old")), (new_policy, placed(new, "new")))
    try:
        wholes = [compile_ruleset(policy, each, resolve=resolve) for policy, each in sides]
    except PolicyError:
        assume(False)
    outlines = [outline(policy, each, resolve=resolve) for policy, each in sides]
    is_plain = data.draw(st.booleans())
    compared = rulesets_to_compare(outlines[0], outlines[1], plain if is_plain else dict)
    assert diff_rulesets(*compared) == diff_rulesets(wholes[0], wholes[1])
    if compared[0].digest == compared[1].digest:
        assert wholes[0].digest == wholes[1].digest


@pytest.mark.slow
@given(policies, vhosts(), st.sampled_from(["h", "k", "x", "h.a", ""]), st.sampled_from(["anna", "carl"]))
@settings(max_examples=200, deadline=None)
def test_a_question_about_one_vhost_is_answered_as_by_the_whole(
    policy: dict[str, Any], written: list[dict[str, Any]], requested: str, user: str
) -> None:
    facts = ConnectionFacts(user=user, remote_host="10.0.0.1", requested_vhost=requested, connection_name="c")
    answers: list[tuple[object, ...]] = []
    for compiled in (whole, around):
        try:
            found = explain_connection(compiled(policy, placed(written, "f"), requested), facts)
            answers.append((found.decision, found.vhost, found.group, found.steps))
        except PolicyError as error:
            answers.append((str(error), error.file, error.line))
    assert answers[0] == answers[1]


def whole(policy: dict[str, Any], written: Written, _: str) -> Ruleset:
    return compile_ruleset(policy, written, resolve=resolve)


def around(policy: dict[str, Any], written: Written, requested: str) -> Ruleset:
    return outline(policy, written, resolve=resolve).around(requested)


def test_what_is_refused_is_refused_though_nobody_asks_for_it() -> None:
    wrong = {"hostname": "other", "groups": {"g": {"users": "a", "maxSenders": "many"}}}
    with pytest.raises(PolicyError, match="does not resolve to an integer"):
        outline({}, [({"hostname": "h"}, None), (wrong, None)], resolve=resolve)
