"""The failures that lead to a ban. Spec: docs/spec/policy-and-auth.md §3.15."""

import random
from ipaddress import IPv4Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.ban_set import MAX_SECONDS, BanError
from policy.failures import FailureCounter, FailureRule, counted_as, read_failure_rule, read_max_delay
from policy.hosts import HostRanges, parse_hosts


def no_names(name: str) -> list[str]:
    raise OSError("no name is known here")


def counter(
    limit: int = 3, window_s: int = 60, *, allowed: str = "", room: int = 1000, seed: int = 1
) -> FailureCounter:
    ranges = parse_hosts([allowed], no_names) if allowed else HostRanges()
    rule = FailureRule(limit=limit, window_s=window_s, ban_s=600, allowed=ranges)
    return FailureCounter(rule, random.Random(seed).randrange, room)


@pytest.mark.parametrize("policy", [{}, {"banAfterFailures": 0}, {"banAfterFailures": "0", "banSeconds": 5}])
def test_without_a_number_of_failures_nobody_is_banned_for_them(policy: dict[str, object]) -> None:
    assert read_failure_rule(policy) is None


def test_the_rule_has_its_defaults_and_its_bounds() -> None:
    assert read_failure_rule({"banAfterFailures": 1}) == FailureRule(
        limit=1, window_s=60, ban_s=600, allowed=HostRanges()
    )
    written = {
        "banAfterFailures": 100,
        "banWindowSeconds": 86_400,
        "banSeconds": MAX_SECONDS,
        "banAllowList": "10.0.0.0/8, ::1",
    }
    assert read_failure_rule(written) == FailureRule(
        limit=100, window_s=86_400, ban_s=MAX_SECONDS, allowed=parse_hosts(["10.0.0.0/8", "::1"], no_names)
    )
    shortest = read_failure_rule({"banAfterFailures": 1, "banWindowSeconds": 1, "banSeconds": 1})
    assert shortest is not None
    assert (shortest.window_s, shortest.ban_s) == (1, 1)


@pytest.mark.parametrize("limit", [0, 3])
@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("banAfterFailures", 101, "Value '101' is above maximum '100'."),
        ("banAfterFailures", "many", "Value 'many' does not resolve to an integer."),
        ("banWindowSeconds", 0, "Value '0' is below minimum '1'."),
        ("banWindowSeconds", 86_401, "Value '86401' is above maximum '86400'."),
        ("banSeconds", 0, "Value '0' is below minimum '1'."),
        ("banSeconds", MAX_SECONDS + 1, f"Value '{MAX_SECONDS + 1}' is above maximum '{MAX_SECONDS}'."),
        ("banAllowList", 5, "has illegal value '5'. Type must be 'str' or 'list' but is '<class 'int'>;"),
        (
            *("banAllowList", "friend.example"),
            "connectionOption 'friend.example' failed to translate: 'HostStruct: 'friend.example' failed to resolve: "
            "'host names are not looked up here: write its address''.",
        ),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(limit: int, key: str, value: object, text: str) -> None:
    """Where it is off as well: it would be in force with the next change."""
    with pytest.raises(BanError) as raised:
        read_failure_rule({"banAfterFailures": limit, key: value})
    assert str(raised.value) == f"{key}: {text}"
    assert raised.value.attribute == key


def test_so_many_failures_within_the_window_lead_to_a_ban() -> None:
    counts = counter(limit=3, window_s=60)
    noted = [counts.note("192.0.2.1", now) for now in (0.0, 30.0, 59.9)]
    assert noted == [None, None, ip_network("192.0.2.1/32")]


def test_failures_apart_by_more_than_the_window_do_not() -> None:
    counts = counter(limit=3, window_s=60)
    assert [counts.note("192.0.2.1", now) for now in (0.0, 30.0, 60.0, 90.0, 120.0)] == [None] * 5


def test_one_host_does_not_count_for_another() -> None:
    counts = counter(limit=2)
    assert counts.note("192.0.2.1", 0.0) is None
    assert counts.note("192.0.2.2", 0.0) is None


def test_one_failure_may_be_one_too_many() -> None:
    counts = counter(limit=1)
    assert counts.note("192.0.2.1", 0.0) == ip_network("192.0.2.1/32")
    assert len(counts) == 0


def test_counting_begins_anew_after_a_ban() -> None:
    counts = counter(limit=2)
    noted = [counts.note("192.0.2.1", now) is not None for now in (0.0, 1.0, 2.0, 3.0)]
    assert noted == [False, True, False, True]


def test_the_addresses_of_one_ipv6_network_are_one_host() -> None:
    """Attack: a host with 2**64 addresses takes another for each attempt."""
    counts = counter(limit=3)
    noted = [counts.note(f"2001:db8::{number:x}", 0.0) for number in range(3)]
    assert noted == [None, None, ip_network("2001:db8::/64")]


def test_an_address_mapped_into_ipv6_is_that_ipv4_address() -> None:
    counts = counter(limit=2)
    assert counts.note("::ffff:192.0.2.1", 0.0) is None
    assert counts.note("192.0.2.1", 0.0) == ip_network("192.0.2.1/32")
    assert counted_as("::ffff:192.0.2.1") == ip_network("192.0.2.1/32")


def test_what_is_no_address_is_not_counted() -> None:
    counts = counter(limit=1)
    assert counts.note("", 0.0) is None
    assert counts.note("nonsense", 0.0) is None


HOSTS = st.integers(0, 15).map(lambda number: str(IPv4Address(0xC0000200 + number)))
FAILURES = st.lists(st.tuples(HOSTS, st.floats(0, 20)), max_size=60)


@given(FAILURES, st.integers(1, 5), st.integers(0, 1000))
def test_an_allowed_host_is_never_banned(failures: list[tuple[str, float]], limit: int, seed: int) -> None:
    counts = counter(limit, allowed="192.0.2.0/29", room=4, seed=seed)
    now = 0.0
    for host, pause in failures:
        now += pause
        network = counts.note(host, now)
        assert network is None or not network.subnet_of(ip_network("192.0.2.0/29"))  # type: ignore[arg-type]


@given(FAILURES, st.integers(1, 5), st.integers(0, 1000), st.integers(1, 20))
def test_memory_is_bounded_and_nobody_is_banned_for_others(
    failures: list[tuple[str, float]], limit: int, seed: int, room: int
) -> None:
    """With any room: a ban means that this host failed so often in the window. With enough: that is all it takes."""
    counts = counter(limit, window_s=30, room=room, seed=seed)
    times: dict[str, list[float]] = {}
    now = 0.0
    for host, pause in failures:
        now += pause
        recent = times[host] = [time for time in [*times.get(host, []), now] if time > now - 30]
        is_banned = counts.note(host, now) is not None
        assert len(counts) <= room
        if is_banned or room >= 16:
            assert is_banned is (len(recent) >= limit)
        if is_banned:
            recent.clear()


@pytest.mark.parametrize("room", [200])
def test_going_round_more_addresses_than_are_kept_in_mind_does_not_help(room: int) -> None:
    """Attack: each address is used again just when the oldest of the others have pushed it out."""
    counts = counter(limit=5, window_s=10**9, room=room)
    banned = 0
    for turn in range(50):
        for number in range(room + room // 2):
            banned += counts.note(str(IPv4Address(0xC6336400 + number)), float(turn)) is not None
    assert banned > 1000  # of 15,000 failures; without a bound 3,000


def test_a_host_close_to_its_limit_is_not_pushed_out_by_strangers() -> None:
    """Attack: a flood from elsewhere, each address once, between an attacker's own attempts."""
    counts = counter(limit=10, window_s=10**9, room=200)
    for _ in range(9):
        assert counts.note("192.0.2.1", 0.0) is None
    for number in range(20_000):
        counts.note(str(IPv4Address(0x0A000000 + number)), 1.0)
    assert counts.note("192.0.2.1", 2.0) is not None


def test_of_those_drawn_the_one_with_the_fewest_failures_in_the_window_makes_way() -> None:
    rule = FailureRule(limit=5, window_s=10, ban_s=1, allowed=HostRanges())
    draws = iter([0, 1, 0, 1, 0])
    counter = FailureCounter(rule, lambda _count: next(draws), room=2)
    # 10.0.0.1 failed twice, of which one failure is exactly as old as the window, and so is over; and both failed last
    # at different times.
    for host, now in (("10.0.0.1", 0.0), ("10.0.0.1", 5.0), ("10.0.0.2", 6.0)):
        counter.note(host, now)
    counter.note("10.0.0.3", 10.0)
    assert {str(network.network_address) for network in counter._hosts} == {"10.0.0.2", "10.0.0.3"}


def test_more_failures_weigh_more_than_later_ones() -> None:
    rule = FailureRule(limit=5, window_s=10, ban_s=1, allowed=HostRanges())
    draws = iter([1, 0, 1, 0, 1])
    counter = FailureCounter(rule, lambda _count: next(draws), room=2)
    for host, now in (("10.0.0.1", 1.0), ("10.0.0.1", 2.0), ("10.0.0.2", 6.0)):
        counter.note(host, now)
    counter.note("10.0.0.3", 7.0)
    assert {str(network.network_address) for network in counter._hosts} == {"10.0.0.1", "10.0.0.3"}


@pytest.mark.parametrize(
    ("value", "seconds"), [({}, 5), ({"maxLoginDelaySeconds": "0"}, 0), ({"maxLoginDelaySeconds": 60}, 60)]
)
def test_the_longest_delay_of_a_login(value: dict[str, object], seconds: int) -> None:
    assert read_max_delay(value) == seconds


@pytest.mark.parametrize("value", [-1, 61, "soon"])
def test_a_delay_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(BanError, match=r"^maxLoginDelaySeconds: "):
        read_max_delay({"maxLoginDelaySeconds": value})
