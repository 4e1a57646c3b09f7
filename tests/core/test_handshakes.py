"""Connections that are not open yet, by host (docs/spec/policy-and-auth.md §8.9)."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admission import handshakes
from router.admission.handshakes import CONNECTION_BYTES, FEW, MOST_OF_HOST, Handshakes

PLENTY = 10_000
A, B, C, D, E = (f"192.0.2.{number}" for number in range(1, 6))


def filled(*hosts: str, **limits: Any) -> Handshakes:
    """Connections 1, 2, ... of these hosts, one a second."""
    handshakes = Handshakes(**limits)
    for number, host in enumerate(hosts, 1):
        assert handshakes.enter(number, host, PLENTY) is None
    return handshakes


def test_attack_a_host_has_no_more_than_its_share() -> None:
    made = filled(A, A, max_of_host=2)
    assert made.enter(3, A, PLENTY) == (3, "host", 2)
    assert made.enter(4, B, PLENTY) is None
    made.leave(1)
    assert made.enter(5, A, PLENTY) is None
    assert (made.count, made.count_of(A), made.bytes_held) == (3, 2, 3 * CONNECTION_BYTES)


def test_attack_a_network_of_64_bits_has_as_much_as_one_address() -> None:
    made = filled("2001:db8::1", "2001:db8::2", max_of_host=2)
    assert made.enter(3, "2001:db8::3", PLENTY) == (3, "host", 2)


def test_without_limits_set_the_descriptors_that_are_left_count() -> None:
    made = Handshakes()
    assert [made.enter(number, A, 80) for number in range(41)] == [None] * 40 + [(40, "host", 40)]
    assert [made.enter(number, B, 80) for number in range(41, 61)] == [None] * 20
    assert made.enter(61, C, 80) == (0, "all", 60)
    assert made.enter(62, D, 40) == (1, "all", 30)


def test_a_few_may_always_come() -> None:
    made = Handshakes()
    assert [made.enter(number, A, 2) for number in range(FEW + 1)] == [None] * FEW + [(FEW, "host", FEW)]
    assert made.enter(FEW + 1, B, 2) == (0, "all", FEW)


def test_attack_connections_cost_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_HOST_BYTES", 20 * CONNECTION_BYTES)
    monkeypatch.setattr(handshakes, "MAX_BYTES", 30 * CONNECTION_BYTES)
    made = Handshakes()
    assert made.enter(100, A, PLENTY) is None
    assert made.hold(100, 10 * CONNECTION_BYTES) is None
    assert [made.enter(number, A, PLENTY) for number in range(10)] == [None] * 9 + [(9, "host", 10)]
    assert [made.enter(number, B, PLENTY) for number in range(10, 20)] == [None] * 10
    assert made.enter(20, C, PLENTY) == (100, "all", 20)


def test_attack_all_together_are_full_and_the_host_with_most_gives_way() -> None:
    made = filled(A, A, A, A, B, max_of_all=5)
    assert made.enter(6, C, PLENTY) == (1, "all", 5)
    assert 1 not in made
    assert made.enter(7, D, PLENTY) == (2, "all", 5)
    assert made.enter(8, A, PLENTY) == (8, "all", 5)  # not for one who has as much


def test_attack_all_places_are_taken_by_hosts_with_one_each_and_the_newcomer_comes_in() -> None:
    draws = iter((2, 0, 1))
    made = Handshakes(max_of_all=3, choose=lambda count: next(draws) % count)
    for number, host in enumerate((A, B, C)):
        made.enter(number, host, PLENTY)
    assert made.enter(3, D, PLENTY) == (2, "all", 3)
    assert made.enter(4, E, PLENTY) == (0, "all", 3)
    assert {number for number in range(5) if number in made} == {1, 3, 4}


def test_attack_who_says_nothing_makes_way_before_who_has_begun_to_log_in() -> None:
    made = filled(A, A, B, C, max_of_all=4)
    made.hear(1)
    made.hear(2)
    made.hear(3)
    assert made.enter(5, D, PLENTY) == (4, "all", 4)  # though A has more
    made.hear(5)
    assert made.enter(6, E, PLENTY) == (1, "all", 4)  # all have said something: it is drawn


def test_attack_eight_hundred_addresses_rotate_silent_sockets_and_newcomers_come_in() -> None:
    """As many come again as have to go. A newcomer is about to log in when 50 others have come."""
    chance = Random(33)
    made = Handshakes(choose=chance.randrange)
    hosts = [f"198.51.{number // 250}.{number % 250}" for number in range(800)]
    number, shut_out = 0, 0
    for host in hosts:
        made.enter(number := number + 1, host, 500)
    for _ in range(50):
        newcomer = number = number + 1
        assert made.enter(newcomer, "192.0.2.1", 500) != (newcomer, "all", 375)
        for _ in range(50):
            made.enter(number := number + 1, chance.choice(hosts), 500)
        if newcomer in made:
            made.hear(newcomer)
            for _ in range(400):
                made.enter(number := number + 1, chance.choice(hosts), 500)
            assert newcomer in made, "who has said something stays before those who have not"
            made.leave(newcomer)
        else:
            shut_out += 1
    assert shut_out < 10


def test_a_host_that_keeps_coming_pushes_nobody_out() -> None:
    made = filled(A, A, B, C, max_of_all=4)
    assert made.enter(5, A, PLENTY) == (5, "all", 4)


def test_attack_a_host_has_few_by_default_however_much_room_there_is() -> None:
    made = Handshakes()
    found = [made.enter(number, A, 20_000) for number in range(MOST_OF_HOST + 1)]
    assert found == [None] * MOST_OF_HOST + [(MOST_OF_HOST, "host", MOST_OF_HOST)]


def test_attack_bytes_of_a_host_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_HOST_BYTES", 5 * CONNECTION_BYTES)
    made = filled(A, A, B)
    assert made.hold(1, 2 * CONNECTION_BYTES) is None
    assert made.hold(1, 2 * CONNECTION_BYTES) is None
    assert made.hold(2, 2 * CONNECTION_BYTES) == (2, "host", 5 * CONNECTION_BYTES)
    assert made.hold(3, 4 * CONNECTION_BYTES) is None
    assert made.hold(2, 4 * CONNECTION_BYTES) is None  # gone
    assert made.bytes_held == 8 * CONNECTION_BYTES


def test_attack_bytes_of_all_have_a_limit_and_who_holds_most_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_BYTES", 20 * CONNECTION_BYTES)
    made = filled(A, B)
    assert made.hold(1, 16 * CONNECTION_BYTES) is None
    assert made.hold(2, 3 * CONNECTION_BYTES) == (1, "all", 20 * CONNECTION_BYTES)
    assert made.hold(2, 0) is None
    assert made.bytes_held == CONNECTION_BYTES


STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "hold", "hear", "leave"]), st.integers(0, 12), st.sampled_from((A, B, C, D)),
              st.integers(0, 300_000))
)  # fmt: skip


@given(STEPS, st.integers(1, 6), st.integers(1, 12))
def test_the_sums_are_those_of_what_is_there(steps: list[tuple[str, int, str, int]], of_host: int, of_all: int) -> None:
    made = Handshakes(max_of_host=of_host, max_of_all=of_all, choose=lambda count: len(steps) % count)
    held: dict[int, int] = {}
    hosts: dict[int, str] = {}
    number = 0
    for step, at, host, size in steps:
        excess = None
        chosen = at % (number + 1)
        if step == "enter":
            number += 1
            excess = made.enter(number, host, PLENTY)
            held[number], hosts[number] = 0, host
        elif step == "hold":
            excess = made.hold(chosen, size)
            if chosen in held:
                held[chosen] = size
        elif step == "hear":
            made.hear(chosen)
        else:
            made.leave(chosen)
            held.pop(chosen, None)
        if excess is not None:
            del held[excess.connection_id]
        assert {each for each in range(number + 1) if each in made} == held.keys()
        assert made.count == len(held) <= of_all
        assert made.bytes_held == sum(held.values()) + CONNECTION_BYTES * len(held)
        counts = Counter(hosts[each] for each in held)
        assert {each: made.count_of(each) for each in (A, B, C, D)} == {each: counts[each] for each in (A, B, C, D)}
        assert max(counts.values(), default=0) <= of_host
    for each in list(held):
        made.leave(each)
    assert (made.count, made.bytes_held) == (0, 0)
    assert not made._hosts
    assert not made._by_bytes._hosts
    assert not made._by_silent._hosts
    assert (len(made._all), len(made._silent)) == (0, 0)
