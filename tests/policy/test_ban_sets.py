"""Bans: whom they hold for, when they end, how their hits are counted. Spec: docs/spec/policy-and-auth.md §3.15."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import ban_set as bans
from policy.ban_set import Ban, BanError, BanSet, parse_ban
from policy.hosts import parse_hosts


def no_names(name: str) -> list[str]:
    raise OSError("no name is known here")


def banned(host: str | None = None, user: str | None = None, *, name: str = "b", seconds: int | None = None) -> Ban:
    return parse_ban(name, host, user, seconds, 0.0)


def set_of(*items: Ban, spared: str = "") -> BanSet:
    made = BanSet(parse_hosts([spared] if spared else [], no_names))
    for item in items:
        made.add(item)
    return made


@pytest.mark.parametrize(
    ("host", "inside", "outside"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("192.0.2.7", "::ffff:192.0.2.7", "::192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.6"),
        ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
        ("::ffff:192.0.2.0/120", "192.0.2.255", "192.0.3.0"),
        ("2001:db8::1", "2001:db8:0:0::1", "2001:db8::2"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
        ("fe80::1", "fe80::1%eth0", "fe80::2%eth0"),
    ],
)
def test_a_ban_holds_for_its_addresses_alone(host: str, inside: str, outside: str) -> None:
    found = set_of(banned(host))
    assert found.of_host(inside) is not None
    assert found.of_host(outside) is None


def test_of_host_and_user_both_must_match() -> None:
    found = set_of(banned("192.0.2.0/24", "eve"))
    assert found.of_user("192.0.2.1", "eve") is not None
    assert found.of_user("192.0.2.1", "bob") is None
    assert found.of_user("198.51.100.1", "eve") is None
    assert found.of_host("192.0.2.1") is None  # who it is shows only later


def test_a_user_is_banned_wherever_he_comes_from() -> None:
    found = set_of(banned(user="eve"))
    assert found.of_user("192.0.2.1", "eve") is not None
    assert found.of_user("2001:db8::1", "eve") is not None
    for other in ("Eve", "eve ", "bob", "", None):
        assert found.of_user("192.0.2.1", other) is None


def test_a_banned_host_is_banned_for_all_users() -> None:
    found = set_of(banned("192.0.2.1"))
    assert found.of_user("192.0.2.1", "bob") is not None
    assert found.of_user("192.0.2.1", None) is not None


def test_what_is_no_address_is_in_no_network() -> None:
    assert set_of(banned("192.0.2.1")).of_host("nonsense") is None


def test_one_of_two_bans_is_lifted_and_the_other_holds() -> None:
    found = set_of(banned("192.0.2.1", name="one"), banned("192.0.2.1", name="two"))
    removed = found.remove("one")
    assert removed is not None
    assert removed.name == "one"
    left = found.of_host("192.0.2.1")
    assert left is not None
    assert left.name == "two"
    found.remove("two")
    assert found.of_host("192.0.2.1") is None
    assert found.remove("two") is None
    assert len(found) == 0


NETWORKS = st.one_of(
    st.builds(
        lambda number, length: ip_network((number >> (32 - length) << (32 - length), length)),
        st.integers(min_value=0xC0000200, max_value=0xC00002FF),
        st.integers(min_value=20, max_value=32),
    ),
    st.builds(
        lambda number, length: ip_network(((0x20010DB8 << 96 | number) >> (128 - length) << (128 - length), length)),
        st.integers(min_value=0, max_value=255),
        st.integers(min_value=100, max_value=128),
    ),
)
ADDRESSES = st.one_of(
    st.integers(min_value=0xC0000100, max_value=0xC00003FF).map(ip_address),
    st.integers(min_value=0, max_value=600).map(lambda number: ip_address(0x20010DB8 << 96 | number)),
)


@given(st.lists(NETWORKS, max_size=8), st.sets(st.integers(0, 7)), ADDRESSES)
def test_networks_match_as_the_standard_library_says(networks: list, gone: set[int], address: object) -> None:  # type: ignore[type-arg]
    """The oracle is ipaddress; bans that were taken out again leave nothing behind."""
    made = set_of(*(banned(str(network), name=str(number)) for number, network in enumerate(networks)))
    for number in gone:
        made.remove(str(number))
    left = [network for number, network in enumerate(networks) if number not in gone]
    expected = any(address in network for network in left)
    assert (made.of_host(str(address)) is not None) is expected
    assert len(made) == len(left)


@given(st.lists(st.tuples(st.none() | st.integers(1, 1000), st.booleans()), max_size=12), st.floats(0, 2000))
def test_a_ban_always_ends_and_never_early(seconds: list[tuple[int | None, bool]], now: float) -> None:
    made = set_of(*(banned("192.0.2.1", name=str(at), seconds=each[0]) for at, each in enumerate(seconds)))
    for at, (_, is_lifted) in enumerate(seconds):
        if is_lifted:
            made.remove(str(at))
    kept = {str(at): length for at, (length, is_lifted) in enumerate(seconds) if not is_lifted}
    for ban in made.due(now):
        made.remove(ban.name)
    assert made.due(now) == []
    assert {name for name in kept if made.get(name) is not None} == {
        name for name, length in kept.items() if length is None or length > now
    }
    for ban in made.due(1e9):
        made.remove(ban.name)
    assert len(made) == sum(length is None for length in kept.values())


def test_a_ban_without_seconds_never_ends() -> None:
    assert set_of(banned("192.0.2.1")).due(1e12) == []


@pytest.mark.parametrize(
    ("host", "user", "seconds", "text"),
    [
        (None, None, None, "a ban names a remoteHost (an address or a network such as 10.0.0.0/8), a user, or both"),
        ("", "", None, "a ban names a remoteHost"),
        ("example.com", None, None, "'example.com' is neither an address nor a network"),
        ("10.0.0.1/8", None, None, "has host bits set"),
        ("10.0.0.0/255.0.0.0", None, None, "is no network"),
        ("10.0.0.0/33", None, None, "is no network"),
        ("0.0.0.0/0", None, None, "is every address"),
        ("::/0", None, None, "is every address"),
        ("::ffff:0:0/96", None, None, "is every address"),
        (None, "x" * 1025, None, "no user has a name of more than 1024 characters"),
        ("10.0.0.1", None, 0, "seconds: 0 is not within 1 to "),
        ("10.0.0.1", None, -1, "seconds: -1 is not within 1 to "),
        ("10.0.0.1", None, 10**12, "seconds: 1000000000000 is not within 1 to "),
    ],
)
def test_a_ban_that_makes_no_sense_is_refused(
    host: str | None, user: str | None, seconds: int | None, text: str
) -> None:
    with pytest.raises(BanError) as raised:
        parse_ban("b", host, user, seconds, 0.0)
    assert text in str(raised.value)


def test_a_user_may_be_banned_from_every_address_by_network() -> None:
    assert set_of(banned("0.0.0.0/0", "eve")).of_user("192.0.2.1", "eve") is not None


def test_bans_by_hand_are_bounded_and_none_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans, "MAX_MANUAL", 3)
    made = set_of(*(banned(f"192.0.2.{number}", name=str(number)) for number in range(3)))
    with pytest.raises(BanError, match="there are 3 bans already"):
        made.add(banned("192.0.2.9", name="9"))
    assert len(made) == 3
    with pytest.raises(BanError, match="a ban '1' already"):
        made.add(banned("192.0.2.9", name="1"))


def automatic(number: int) -> Ban:
    network = ip_network(f"198.51.100.{number}")
    return Ban(name=f"automatic-{number}", network=network, user=None, until=100.0 + number, is_automatic=True)


def test_of_automatic_bans_the_oldest_makes_way_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a peer with endless addresses has bans made until the memory is full, or those by hand are gone."""
    monkeypatch.setattr(bans, "MAX_AUTOMATIC", 3)
    made = set_of(banned("192.0.2.1"), automatic(1), automatic(2))
    assert made.displaced() is None
    made.add(automatic(3))
    found = made.displaced()
    assert found is not None
    assert found.name == "automatic-1"
    made.remove(found.name)
    assert made.displaced() is None


def test_no_automatic_ban_holds_for_a_spared_host() -> None:
    """Not even that of the network it is in; one by hand does."""
    by_rule = Ban(name="a", network=ip_network("2001:db8::/64"), user=None, is_automatic=True)
    made = set_of(by_rule, spared="2001:db8::5")
    assert made.of_host("2001:db8::6") is not None
    assert made.of_host("2001:db8::5") is None
    made.add(banned("2001:db8::/64"))
    assert made.of_host("2001:db8::5") is not None


def test_hits_are_counted_as_long_as_the_ban_is_there() -> None:
    ban = banned("192.0.2.1")
    made = set_of(ban)
    for _ in range(3):
        made.count_hit(ban)
    assert made.hits("b") == 3
    made.remove("b")
    assert made.hits("b") == 0
