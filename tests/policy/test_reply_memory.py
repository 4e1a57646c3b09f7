"""The memory of reply addresses: bounded, and fair to those who ask."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import replies
from policy.replies import ENTRY_BYTES, MAX_KEY_CHARACTERS, MAX_REPLIES, MAX_REPLY_BYTES, ReplyMemory


def test_it_says_how_long_ago_the_last_one_came() -> None:
    memory = ReplyMemory(10)
    assert memory.age("a", 5) is None
    memory.remember("a", "alice", 5)
    assert memory.age("a", 7.5) == 2.5
    assert memory.remember("a", "alice", 7.5)
    assert memory.age("a", 7.5) == 0


def test_it_knows_a_key_for_twice_as_long_as_it_counts() -> None:
    """So that a denial can say that the reply comes too late."""
    memory = ReplyMemory(10)
    memory.remember("a", "alice", 0)
    memory.remember("b", "alice", 19.9)
    assert memory.age("a", 19.9) == 19.9
    memory.remember("c", "alice", 20)
    assert memory.age("a", 20) is None
    assert len(memory) == 2


@pytest.mark.slow
def test_a_flood_of_reply_tos_costs_the_one_who_sends_it() -> None:
    """Attack: mallory asks so often, each time for another address, that the service forgets alice."""
    memory = ReplyMemory(10)
    memory.remember("alice's", "alice", 0)
    for number in range(3 * MAX_REPLIES):
        memory.remember(f"mallory.{number}", "mallory", 1)
    assert len(memory) == MAX_REPLIES
    assert memory.age("alice's", 1) == 1
    assert memory.age("mallory.0", 1) is None
    assert memory.age(f"mallory.{3 * MAX_REPLIES - 1}", 1) == 0
    memory.remember("bob's", "bob", 1)
    assert memory.age("alice's", 1) == 1


def test_a_flood_of_long_addresses_has_a_bound_in_bytes() -> None:
    """Attack: few addresses, but of a thousand characters that take four bytes each."""
    memory = ReplyMemory(10)
    memory.remember("alice's", "alice", 0)
    for number in range(MAX_REPLIES):
        memory.remember(f"{number:06}" + "\U0001f600" * (MAX_KEY_CHARACTERS - 6), "mallory", 1)
    assert memory.size_bytes <= MAX_REPLY_BYTES
    assert len(memory) == 1 + (MAX_REPLY_BYTES - ENTRY_BYTES - 7) // (ENTRY_BYTES + 6 + 4 * (MAX_KEY_CHARACTERS - 6))
    assert memory.age("alice's", 1) == 1


def test_an_entry_costs_its_key_in_utf_8_and_the_room_can_be_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ReplyMemory(10)
    memory.remember("é" * 5, "alice", 0)
    assert memory.size_bytes == ENTRY_BYTES + 10
    memory.remember("\udc80", "alice", 0)  # no text of UTF-8, and no error
    assert memory.size_bytes == 2 * ENTRY_BYTES + 11
    monkeypatch.setattr(replies, "MAX_REPLY_BYTES", 2 * ENTRY_BYTES + 11)
    memory.remember("x", "alice", 1)
    assert [memory.age(key, 1) is not None for key in ("é" * 5, "\udc80", "x")] == [False, True, True]
    memory.remember("y" * 10, "alice", 1)
    assert [memory.age(key, 1) is not None for key in ("\udc80", "x", "y" * 10)] == [False, True, True]
    assert memory.size_bytes == 2 * ENTRY_BYTES + 11


def test_each_message_pays_for_two_that_are_forgotten() -> None:
    """Attack: a thousand reply-tos that end at once hold up the message that comes next."""
    memory = ReplyMemory(10)
    for number in range(7):
        memory.remember(f"old.{number}", "alice", 0)
    sizes = []
    for number in range(4):
        memory.remember(f"new.{number}", "bob", 20)
        sizes.append(len(memory))
    assert sizes == [6, 5, 4, 4]


def test_what_is_too_long_is_not_remembered() -> None:
    memory = ReplyMemory(10)
    assert memory.remember("x" * MAX_KEY_CHARACTERS, "mallory", 1)
    assert not memory.remember("x" * (MAX_KEY_CHARACTERS + 1), "mallory", 1)


@pytest.mark.parametrize("now", [10, 11])
def test_what_counts_no_longer_goes_first(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(replies, "MAX_REPLIES", 3)
    memory = ReplyMemory(10)
    memory.remember("old", "bob", 0)
    memory.remember("a1", "alice", 9)
    memory.remember("a2", "alice", 9)
    memory.remember("a3", "alice", now)
    assert [memory.age(key, now) is not None for key in ("old", "a1", "a2", "a3")] == [False, True, True, True]


def test_who_repeats_the_address_of_another_does_not_take_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: mallory asks for replies to the queue she shares with alice, floods, and has it forgotten as her own."""
    monkeypatch.setattr(replies, "MAX_REPLIES", 4)
    memory = ReplyMemory(10)
    memory.remember("shared", "alice", 0)
    memory.remember("shared", "mallory", 1)
    for number in range(20):
        memory.remember(f"m{number}", "mallory", 2)
    assert memory.age("shared", 2) == 1


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.sampled_from([0, 0, 1, 7])), max_size=80))
def test_whatever_comes_the_bounds_hold_and_the_heaviest_loses(steps: list[tuple[int, int, int]]) -> None:
    memory, now = ReplyMemory(10), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replies, "MAX_REPLIES", 6)
        for key, asker, passed in steps:
            now += passed
            before = {each: len(keys) for each, keys in memory._askers.items()}
            oldest = next((now - entry.received_at for entry in memory._entries.values()), 0.0)
            memory.remember(str(key), asker, now)
            after = {each: len(keys) for each, keys in memory._askers.items()}
            assert memory.age(str(key), now) == 0
            assert len(memory) == len(memory._entries) == sum(after.values()) <= 6
            assert memory.size_bytes == sum(entry.size for entry in memory._entries.values())
            assert sorted((each, rank) for rank, askers in memory._ranks.items() for each in askers) == sorted(
                after.items()
            )
            assert memory._most == max(after.values())
            times = [entry.received_at for entry in memory._entries.values()]
            assert times == sorted(times)
            losers = [each for each in before if after.get(each, 0) < before[each]]
            if oldest < 10:
                assert all(before[each] == max(before.values()) for each in losers)
