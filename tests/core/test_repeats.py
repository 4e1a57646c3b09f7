"""What is told once and then by numbers: floods of the same, whatever they are of."""

from hypothesis import given
from hypothesis import strategies as st

from router.admission.repeats import Repeats


def test_a_flood_is_told_once_and_then_by_numbers() -> None:
    """Attack: a peer that does the same again and again fills the disk with records of it."""
    repeats: Repeats[str] = Repeats(10)
    assert [repeats.count("a", "") for _ in range(1000)] == [True] + [False] * 999
    assert list(repeats.take()) == [("a", 999)]
    assert repeats.count("a", "") is False
    assert list(repeats.take()) == [("a", 1)]
    assert list(repeats.take()) == []
    assert repeats.count("a", "") is True  # it had been quiet


def test_what_is_forgotten_is_told_first() -> None:
    repeats: Repeats[str] = Repeats(10)
    for _ in range(5):
        repeats.count("a", "")
    assert repeats.forget("a") == 4
    assert repeats.forget("a") == 0
    assert list(repeats.take()) == []


def test_keys_may_go_while_numbers_are_taken() -> None:
    repeats: Repeats[str] = Repeats(10)
    for key in "aabb":
        repeats.count(key, "")
    taken = repeats.take()
    assert next(taken) == ("a", 1)
    repeats.forget("b")
    assert list(taken) == []


def test_a_key_that_has_gone_hides_none_behind_it() -> None:
    repeats: Repeats[str] = Repeats(10)
    for key in "aabbcc":
        repeats.count(key, "")
    taken = repeats.take()
    assert next(taken) == ("a", 1)
    repeats.forget("b")
    assert list(taken) == [("c", 1)]


def test_a_key_that_may_not_be_reported_yet_hides_none_behind_it_and_is_first_next_time() -> None:
    repeats: Repeats[str] = Repeats(10)
    for key in "aabbcc":
        repeats.count(key, "")
    assert list(repeats.take(lambda key: key != "a")) == [("b", 1), ("c", 1)]
    repeats.count("b", "")
    assert list(repeats.take()) == [("a", 1), ("b", 1)]


def test_what_is_added_is_reported_later_under_its_key_or_that_of_the_crowd() -> None:
    repeats: Repeats[str] = Repeats(2)
    assert repeats.add("a", "crowd", 5) == "a"
    assert repeats.add("a", "crowd", 2) == "a"
    repeats.count("b", "crowd")
    assert repeats.add("b", "crowd", 3) == "b"
    assert repeats.add("c", "crowd", 4) == "crowd"
    assert repeats.add("a", "crowd", 1) == "a"
    assert sorted(repeats.take()) == [("a", 8), ("b", 3), ("crowd", 4)]


@given(st.lists(st.integers(0, 9) | st.none(), max_size=80), st.integers(1, 5))
def test_nothing_is_lost_and_memory_is_bounded(script: list[int | None], room: int) -> None:
    """Whatever the order: told at once and told by number add up to what happened. None: the numbers are taken."""
    repeats: Repeats[int] = Repeats(room)
    told = happened = 0
    for key in script:
        if key is None:
            told += sum(number for _, number in repeats.take())
        else:
            happened += 1
            told += repeats.count(key, -1)
        assert len(repeats._counts) <= room + 1
    assert told + sum(number for _, number in repeats.take()) == happened
