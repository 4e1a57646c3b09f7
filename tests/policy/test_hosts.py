"""remoteHosts: policy 15."""

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulesets import resolve

from policy.hosts import HostError, HostRanges, is_loopback, names_in, parse_hosts, parse_network


@pytest.mark.parametrize(
    ("items", "inside", "outside"),
    [
        (["10.0.0.1"], ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "::1"]),
        (["10.0.0.5-10.0.1.3"], ["10.0.0.5", "10.0.0.255", "10.0.1.3"], ["10.0.0.4", "10.0.1.4", "2001:db8::1"]),
        (["10.0.0.5 - 10.0.1.3"], ["10.0.0.9"], ["10.0.0.4"]),
        (["10.0.0.1-10.0.0.1"], ["10.0.0.1"], ["10.0.0.0"]),
        (["::1"], ["::1"], ["127.0.0.1", "::2"]),
        (["2001:db8::-2001:db8::ffff"], ["2001:db8::1"], ["2001:db8::1:0", "10.0.0.1"]),
        (["*"], ["10.0.0.1", "::1", "fe80::1%eth0"], []),
        (["::ffff:10.0.0.1"], ["10.0.0.1"], ["10.0.0.2"]),
        (["10.0.0.1", "10.0.0.3"], ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        (["10.0.0.1-10.0.0.9", "10.0.0.3-10.0.0.4"], ["10.0.0.8"], ["10.0.0.10"]),
        (["one.example"], ["192.0.2.1"], ["192.0.2.2"]),
        (["twice.example"], ["192.0.2.1"], ["192.0.2.2"]),
        (["six.example"], ["2001:db8::1"], ["192.0.2.1"]),
        ([], [], ["10.0.0.1", "::1"]),
    ],
)
def test_hosts_inside_and_outside(items: list[str], inside: list[str], outside: list[str]) -> None:
    ranges = parse_hosts(items, resolve)
    assert [host for host in inside if not ranges.contains(host)] == []
    assert [host for host in outside if ranges.contains(host)] == []


@pytest.mark.parametrize(
    ("items", "low_and_high"),
    [
        (["10.0.0.1", "10.0.0.2"], [("10.0.0.1", "10.0.0.2")]),
        (["10.0.0.2-10.0.0.4", "10.0.0.1-10.0.0.2"], [("10.0.0.1", "10.0.0.4")]),
        (["10.0.0.1", "10.0.0.3"], [("10.0.0.1", "10.0.0.1"), ("10.0.0.3", "10.0.0.3")]),
        (["10.0.0.1-10.0.0.9", "10.0.0.3"], [("10.0.0.1", "10.0.0.9")]),
        (["10.0.0.0/31", "::ffff:10.0.0.2/127"], [("10.0.0.0", "10.0.0.3")]),
    ],
)
def test_lists_that_mean_the_same_are_the_same(items: list[str], low_and_high: list[tuple[str, str]]) -> None:
    """They have one digest."""
    ranges = tuple((int(ipaddress.ip_address(low)), int(ipaddress.ip_address(high))) for low, high in low_and_high)
    assert parse_hosts(items, resolve) == HostRanges(v4=ranges)
    assert parse_hosts(["*", *items], resolve) == HostRanges(is_any=True, v4=ranges)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.1", "10.0.0.1/32"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("2001:db8::1", "2001:db8::1/128"),
        ("2001:db8::/127", "2001:db8::/127"),
        ("::ffff:10.0.0.1", "10.0.0.1/32"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::ffff:10.0.0.1/128", "10.0.0.1/32"),
        ("::/0", "::/0"),
    ],
)
def test_a_network_is_what_it_is_written_as(text: str, network: str) -> None:
    assert parse_network(text) == ipaddress.ip_network(network)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("one.example", "'one.example' is neither an address nor a network such as 10.0.0.0/8"),
        ("10.0.0.0/0008", "'10.0.0.0/0008' is no network: write it as 10.0.0.0/8 or 2001:db8::/32"),
        ("10.0.0.0/\u0668", "'10.0.0.0/\u0668' is no network: write it as 10.0.0.0/8 or 2001:db8::/32"),
        ("10.0.0.0/a", "'10.0.0.0/a' is no network: write it as 10.0.0.0/8 or 2001:db8::/32"),
        ("10.0.0.0/", "'10.0.0.0/' is no network: write it as 10.0.0.0/8 or 2001:db8::/32"),
        ("::fffe:0:0/95", "'::fffe:0:0' has IPv4 addresses in it and others: write two networks"),
    ],
)
def test_what_is_no_network(text: str, problem: str) -> None:
    with pytest.raises(HostError) as refused:
        parse_network(text)
    assert str(refused.value) == problem


UNKNOWN = "[Errno -2] Name or service not known"


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("9.9.9.9-8.8.8.8", "host specs in range must have lower numeric address first"),
        ("1.1.1.1-::1", "mixed IPv4 and IPv6 host specs in range not allowed"),
        ("1.1.1.1-2.2.2.2-3.3.3.3", "hostspec must contain 1 or 2 host names"),
        ("no.example", f"HostStruct: 'no.example' failed to resolve: '{UNKNOWN}'"),
        ("10.0.0.1/8", "'10.0.0.1/8' is no network: 10.0.0.1/8 has host bits set"),
        ("10.0.0.0/33", "'10.0.0.0/33' is no network: '10.0.0.0/33' does not appear to be an IPv4 or IPv6 network"),
        ("10.0.0.0/255.0.0.0", "'10.0.0.0/255.0.0.0' is no network: write it as 10.0.0.0/8 or 2001:db8::/32"),
        ("10.0.0.0/8-11.0.0.0/8", "'10.0.0.0/8-11.0.0.0/8' is no network: write it as 10.0.0.0/8 or 2001:db8::/32"),
        ("1.1.1.1-", f"HostStruct: '' failed to resolve: '{UNKNOWN}'"),
        ("1.1.1.1\t", f"HostStruct: '1.1.1.1\t' failed to resolve: '{UNKNOWN}'"),
        ("*-1.1.1.1", f"HostStruct: '*' failed to resolve: '{UNKNOWN}'"),
        (
            "two.example",
            "HostStruct: 'two.example' failed to resolve: "
            "'HostStruct: 'two.example' resolves to multiple IP addresses'",
        ),
        (
            "none.example",
            "HostStruct: 'none.example' failed to resolve: "
            "'HostStruct: 'none.example' did not resolve to one of the supported address family'",
        ),
    ],
)
def test_refused_items(item: str, problem: str) -> None:
    with pytest.raises(HostError) as refused:
        parse_hosts([item], resolve)
    assert str(refused.value) == f"connectionOption '{item}' failed to translate: '{problem}'."


def test_what_no_host_name_can_be_is_not_handed_to_the_resolver() -> None:
    def reckless(_: str) -> list[str]:
        return ["10.0.0.1"]

    for item in ("a/8", "10.0.0.*", "a b", "*-10.0.0.9"):
        with pytest.raises(HostError):
            parse_hosts([item], reckless)


def test_the_names_that_compiling_asks_for_are_known_before() -> None:
    """The daemon looks them up ahead, so that no name server holds up a message."""
    items = [
        *("10.0.0.1", "*", "Xa.example", "b.example-c.example", "10.0.0.1 - d.example", "10.0.0.0/8", "", "x y"),
        *("*-e.example", "::1-::2", "f*.example", "g.example/8", "g.example-h.example/8", "i.example\t"),
    ]
    assert list(names_in(items)) == ["Xa.example", "b.example", "c.example", "d.example", "e.example"]
    asked = []

    def noted(name: str) -> list[str]:
        asked.append(name)
        return ["10.0.0.9"]

    for item in items:
        with contextlib.suppress(HostError):
            parse_hosts([item], noted)
    assert asked == ["Xa.example", "b.example", "c.example", "d.example"]  # not behind what is wrong already


def test_a_peer_that_has_no_numeric_address_is_an_error_even_where_anybody_may_come() -> None:
    with pytest.raises(ValueError, match="somewhere"):
        HostRanges(is_any=True).contains("somewhere")


addresses = st.integers(0, 40).map(lambda number: ipaddress.IPv4Address(number * 7))


@given(st.lists(st.tuples(addresses, addresses).map(sorted)), addresses)
def test_merged_ranges_hold_exactly_what_they_hold_one_by_one(
    bounds: list[list[ipaddress.IPv4Address]], host: ipaddress.IPv4Address
) -> None:
    ranges = parse_hosts([f"{low}-{high}" for low, high in bounds], resolve)
    assert ranges.contains(str(host)) == any(low <= host <= high for low, high in bounds)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.0.9", "::1", "0:0:0:0:0:0:0:1", "localhost", "LocalHost"])
def test_hosts_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "127.", "127.evil.example", "localhost.example", "::1234", "::", "0.0.0.0", "128.0.0.1", "[::1]"]
)
def test_hosts_that_only_begin_as_those_of_this_machine(host: str) -> None:
    assert not is_loopback(host)
