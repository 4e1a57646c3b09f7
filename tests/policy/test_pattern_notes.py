"""The lines about patterns that docs/spec/policy-and-auth.md §2.6 has."""

import pytest
from rulesets import group_ruleset, ruleset

from policy.analysis.pattern_notes import pattern_notes
from policy.ruleset import Ruleset


def notes(rules: Ruleset) -> list[tuple[str, str, str]]:
    return [(note.module, note.level, note.text) for note in pattern_notes(rules, rules.vhosts.values())]


def rewritten(pattern: str, plain: str) -> tuple[str, str, str]:
    return "DEFAULT", "notice", f"configured pattern '{pattern}' optimized and re-written to '{plain}'"


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("#.#", "#"),
        ("#.*", "*.#"),
        ("a/#/*/#/*", "a/*/*/#"),
        ("${user}.#.#", "${user}.#"),
        ("#/#.b", "#.b"),
    ],
)
@pytest.mark.parametrize("key", ["sourcePattern", "targetPattern"])
def test_a_pattern_that_is_simplified_is_told(key: str, pattern: str, plain: str) -> None:
    assert notes(group_ruleset(**{key: f"{pattern}, other.*.#"})) == [rewritten(pattern, plain)]


@pytest.mark.parametrize("pattern", ["a.#", "*.#", "#.a.#", "/a/", "${user}", "*", "", "a..b"])
def test_a_plain_pattern_is_not(pattern: str) -> None:
    assert notes(group_ruleset(sourcePattern=pattern)) == []


def test_a_pattern_that_stands_twice_is_told() -> None:
    repeated = "Already exists: Duplicate pattern 'a/b' not added to parse tree"
    assert notes(group_ruleset(targetPattern="a.b, a/b, a.b, c")) == [("ERROR", "error", repeated)]


def test_literal_lists_are_no_patterns() -> None:
    assert notes(group_ruleset(sources="#.#, a.b, a/b", targets="#.*")) == []


def test_names_of_vhosts_are_patterns_where_the_policy_says_so() -> None:
    vhost = {"hostname": "#.#.example", "aliases": "#.*.test, plain"}
    assert notes(ruleset(vhost)) == []
    found = notes(ruleset(vhost, enableVhostNamePatterns=True))
    assert found == [rewritten("#.#.example", "#.example"), rewritten("#.*.test", "*.#.test")]
