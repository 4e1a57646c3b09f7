"""Which bindings a subject matches, by both methods of exchanges."""

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.subjects import MAX_WORDS, MatchMethod, Subjects

CASES: list[tuple[MatchMethod, str, list[str], list[str]]] = [
    ("amqp", "a.b", ["a.b"], ["a", "a.b.c", "a/b", ""]),
    ("amqp", "a.*", ["a.b", "a.*"], ["a", "a.b.c"]),
    ("amqp", "#", ["a", "a.b", "", "a..b"], []),
    ("amqp", "a.#", ["a", "a.b", "a.b.c"], ["b.a", "ab"]),
    ("amqp", "#.a", ["a", "b.a", "a.a"], ["a.b"]),
    ("amqp", "a.#.z", ["a.z", "a.b.z", "a.z.z"], ["a", "z", "a.z.b"]),
    ("amqp", "*.#", ["a", "a.b"], []),
    ("amqp", "a.+", ["a.+"], ["a.b"]),
    ("mqtt", "a/b", ["a/b"], ["a.b", "a/b/"]),
    ("mqtt", "a/+", ["a/b", "a/"], ["a", "a/b/c", "a.b"]),
    ("mqtt", "a/#", ["a", "a/b", "a/b/c"], ["ab"]),
    ("mqtt", "+/+/z", ["a/b/z"], ["a/z", "a/b/z/z"]),
    ("mqtt", "a/*", ["a/*"], ["a/b"]),
]


@pytest.mark.parametrize(("method", "pattern", "right", "wrong"), CASES)
def test_a_subject_matches_a_pattern(method: MatchMethod, pattern: str, right: list[str], wrong: list[str]) -> None:
    """routing 123, 124"""
    subjects: Subjects[int] = Subjects(method)
    subjects.add(pattern, 1)
    assert [subjects.find(subject) for subject in right] == [[1]] * len(right)
    assert [subjects.find(subject) for subject in wrong] == [[]] * len(wrong)


def test_mqtt_has_many_words_at_the_end_only() -> None:
    """routing 124"""
    assert [Subjects[int]("mqtt").is_valid(pattern) for pattern in ("#", "a/#", "#/a", "a/#/b")] == [
        *(True, True, False, False)
    ]
    assert Subjects[int]("amqp").is_valid("a.#.b")


words = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), min_size=1, max_size=5).map(".".join)
subjects = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=6).map(".".join)


@given(st.lists(words, max_size=8), subjects, st.data())
def test_all_that_match_are_found_and_no_others(patterns: list[str], subject: str, data: st.DataObject) -> None:
    found: Subjects[int] = Subjects("amqp")
    for number, pattern in enumerate(patterns):
        found.add(pattern, number)
    gone = data.draw(st.sets(st.sampled_from(range(len(patterns))))) if patterns else set()
    for number in gone:
        found.remove(patterns[number], number)
    expected = {number for number, pattern in enumerate(patterns) if number not in gone and _matches(pattern, subject)}
    assert set(found.find(subject)) == expected
    assert len(found.find(subject)) == len(expected)
    for number in set(range(len(patterns))) - gone:
        found.remove(patterns[number], number)
    assert found._root.is_empty


def _matches(pattern: str, subject: str) -> bool:
    """By a regular expression, in which every word has its separator behind it."""
    forms = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    return (
        re.fullmatch("".join(forms.get(word, word + r"\.") for word in pattern.split(".")), subject + ".") is not None
    )


def test_a_long_subject_costs_little() -> None:
    """Attack: a subject of a hundred thousand words against patterns of many `#`."""
    found: Subjects[str] = Subjects("amqp")
    for pattern in map(".".join, itertools.product(["#", "a", "*"], repeat=6)):
        found.add(pattern, pattern)
    found.add("#", "all")
    long, longest = ".".join(["a"] * 100_000), ".".join(["a"] * MAX_WORDS)
    began = time.thread_time()
    assert found.find(long) == ["all"]
    assert time.thread_time() - began < 0.01
    began = time.thread_time()
    assert "a.#.#.#.#.#" in found.find(longest)
    assert time.thread_time() - began < 0.5
