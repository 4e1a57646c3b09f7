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


@pytest.mark.parametrize(
    ("host", "user", "at", "of", "is_met"),
    [
        ("192.0.2.0/24", None, "192.0.2.1", None, True),
        ("192.0.2.0/24", None, "192.0.2.1", "eve", True),
        ("192.0.2.0/24", None, "198.51.100.1", "eve", False),
        ("::/1", None, "192.0.2.1", None, False),
        ("0.0.0.0/1", None, "::1", None, False),
        (None, "eve", "192.0.2.1", "eve", True),
        (None, "eve", "192.0.2.1", "bob", False),
        (None, "eve", "192.0.2.1", None, False),
        ("192.0.2.1", "eve", "192.0.2.1", "eve", True),
        ("192.0.2.1", "eve", "192.0.2.2", "eve", False),
        ("192.0.2.1", "eve", "192.0.2.1", "bob", False),
    ],
)
def test_an_open_connection_meets_a_ban_by_its_address_and_its_user(
    host: str | None, user: str | None, at: str, of: str | None, is_met: bool
) -> None:
    ban = banned(host, user)
    assert ban.matches(ip_address(at), of) is is_met
    assert (set_of(ban).of_user(at, of) is not None) is is_met


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


def test_the_bans_of_a_user_are_lifted_one_by_one_and_leave_nothing() -> None:
    """Attack: a program that bans and lifts under ever other names fills the memory."""
    found = set_of(
        banned(user="eve", name="one"),
        banned(user="eve", name="two"),
        banned("192.0.2.1", "eve", name="three"),
    )
    for name in ("one", "two"):
        assert found.of_user("192.0.2.2", "eve") is not None
        assert found.remove(name) is not None
    assert found.of_user("192.0.2.2", "eve") is None
    assert found.of_user("192.0.2.1", "eve") is not None
    found.remove("three")
    assert found.of_user("192.0.2.1", "eve") is None
    assert (found._by_user, found._bans, found._hits, found._automatic) == ({}, {}, {}, {})


def test_a_ban_ends_at_its_instant_and_looking_is_cheap_until_the_next_one() -> None:
    """Attack: twenty thousand bans, each looked at in every second."""
    found = set_of(banned("192.0.2.1", name="one", seconds=5), banned("192.0.2.2", name="two", seconds=9))
    assert found.due(4.999) == []
    assert [ban.name for ban in found.due(5.0)] == ["one"]
    found.remove("one")
    assert found.due(5.0) == []
    assert found._first_due == 9.0
    assert found.due(8.999) == []
    assert [ban.name for ban in found.due(9.0)] == ["two"]


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
    ("host", "user", "seconds", "attribute", "text"),
    [
        (
            *(None, None, None, None),
            "a ban names a remoteHost (an address or a network such as 10.0.0.0/8), a user, or both",
        ),
        ("", "", None, None, "a ban names a remoteHost"),
        ("example.com", None, None, "remoteHost", "remoteHost: 'example.com' is neither an address nor a network"),
        ("10.0.0.1/8", None, None, "remoteHost", "has host bits set"),
        ("10.0.0.0/255.0.0.0", None, None, "remoteHost", "is no network"),
        ("10.0.0.0/33", None, None, "remoteHost", "is no network"),
        (
            *("0.0.0.0/0", None, None, "remoteHost"),
            "remoteHost: '0.0.0.0/0' is every address, that of whoever would lift the ban too: "
            "ban networks, or delete the listeners",
        ),
        ("::/0", None, None, "remoteHost", "is every address"),
        ("::ffff:0:0/96", None, None, "remoteHost", "is every address"),
        (None, "x" * 1025, None, "user", "user: no user has a name of more than 1024 characters"),
        ("10.0.0.1", None, 0, "seconds", "seconds: 0 is not within 1 to 3153600000; leave it out for good"),
        ("10.0.0.1", None, -1, "seconds", "seconds: -1 is not within 1 to "),
        ("10.0.0.1", None, 10**12, "seconds", "seconds: 1000000000000 is not within 1 to "),
        ("10.0.0.1", None, 3_153_600_001, "seconds", "seconds: 3153600001 is not within 1 to "),
    ],
)
def test_a_ban_that_makes_no_sense_is_refused(
    host: str | None, user: str | None, seconds: int | None, attribute: str | None, text: str
) -> None:
    with pytest.raises(BanError) as raised:
        parse_ban("b", host, user, seconds, 0.0)
    assert str(raised.value).startswith(text) or f" {text}" in str(raised.value)
    assert raised.value.attribute == attribute


def test_the_longest_that_a_ban_may_be() -> None:
    ban = parse_ban("b", "10.0.0.1", "x" * 1024, 3_153_600_000, 5.0, reason="r" * 512)
    assert (ban.until, ban.reason, ban.user) == (3_153_600_005.0, "r" * 512, "x" * 1024)
    assert parse_ban("b", "10.0.0.1", "", 1, 5.0) == Ban(
        name="b", network=ip_network("10.0.0.1"), user=None, until=6.0, reason=""
    )
    with pytest.raises(BanError, match=r"^reason: it has 513 characters, and 512 at most$") as raised:
        parse_ban("b", "10.0.0.1", None, None, 0.0, reason="r" * 513)
    assert raised.value.attribute == "reason"


def test_a_user_may_be_banned_from_every_address_by_network() -> None:
    assert set_of(banned("0.0.0.0/0", "eve")).of_user("192.0.2.1", "eve") is not None


def test_bans_by_hand_are_bounded_and_none_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans, "MAX_MANUAL", 3)
    made = set_of(*(banned(f"192.0.2.{number}", name=str(number)) for number in range(3)))
    with pytest.raises(BanError, match=r"^there are 3 bans already: ban networks in place of single addresses$"):
        made.add(banned("192.0.2.9", name="9"))
    assert len(made) == 3
    with pytest.raises(BanError, match=r"^there is a ban '1' already$") as raised:
        made.add(banned("192.0.2.9", name="1"))
    assert raised.value.attribute == "name"
    made.add(automatic(1))  # which are no bans by hand
    assert len(made) == 4
    made.remove("0")
    made.add(banned("192.0.2.9", name="9"))
    with pytest.raises(BanError, match=r"^there are 3 bans already"):
        made.add(banned("192.0.2.9", name="10"))


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
