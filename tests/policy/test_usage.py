"""Counting: the rows of docs/spec/policy-and-auth.md §4, and that nothing is left behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.facts import Usage
from policy.usage import MAX_IDLE_ENTRIES, UsageLedger


def nonzero(counters: dict[str, object] | dict[str, int]) -> dict[str, object]:
    return {key: value for key, value in counters.items() if isinstance(value, int) and value}


def test_a_router_counts_from_nothing() -> None:
    """policy 1"""
    assert UsageLedger().policy_counters() == {
        "connectionsProcessed": 0,
        "connectionsDenied": 0,
        "connectionsCurrent": 0,
        "linksDenied": 0,
        "maxMessageSizeDenied": 0,
        "totalDenials": 0,
    }


def test_accepted_and_refused_sockets() -> None:
    """policy 16"""
    ledger = UsageLedger()
    for is_allowed in (True, True, False):
        ledger.count_accept(is_allowed)
    ledger.count_accept_closed()
    assert nonzero(ledger.policy_counters()) == {
        "connectionsProcessed": 3,
        "connectionsDenied": 1,
        "connectionsCurrent": 1,
        "totalDenials": 1,
    }


def test_each_accepted_connection_is_open_until_it_is_closed() -> None:
    ledger = UsageLedger()
    for _ in range(3):
        ledger.count_accept(True)
    left = []
    for _ in range(4):
        ledger.count_accept_closed()
        left.append(ledger.open_connections)
    assert left == [2, 1, 0, 0]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_each_denial_counts(times: int) -> None:
    """policy 34"""
    ledger = UsageLedger()
    for _ in range(times):
        ledger.count_accept(False)
        ledger.count_open_denied("v")
        ledger.count_session_denied("v")
        ledger.count_link_denied("v", "send")
        ledger.count_link_denied("v", "receive")
        ledger.count_oversize("v")
    assert nonzero(ledger.policy_counters()) == {
        "connectionsProcessed": times,
        "connectionsDenied": times,
        "linksDenied": 2 * times,
        "maxMessageSizeDenied": times,
        "totalDenials": 5 * times,
    }
    assert nonzero(ledger.vhost_stats("v")) == {
        "connectionsDenied": times,
        "sessionDenied": times,
        "senderDenied": times,
        "receiverDenied": times,
        "maxMessageSizeDenied": times,
    }


def test_the_count_of_open_connections_never_wraps() -> None:
    """policy 45. Attack: one close too many locked everybody out of the C router."""
    ledger = UsageLedger()
    ledger.count_accept_closed()
    assert ledger.open_connections == 0


def test_two_connections_of_one_name_are_two() -> None:
    """Attack: one port of the peer's connected to two listeners; the second close was not counted, and the vhost was
    full one connection earlier for ever."""
    ledger = UsageLedger()
    for _ in range(2):
        ledger.admit("v", "alice", "10.0.0.1", "10.0.0.1:1")
    assert ledger.usage("v", "alice", "10.0.0.1") == Usage(total=2, of_user=2, of_host=2)
    assert ledger.vhost_stats("v")["perUserState"] == {"alice": ["10.0.0.1:1"] * 2}
    for left in (1, 0):
        ledger.release("v", "alice", "10.0.0.1", "10.0.0.1:1")
        assert ledger.usage("v", "alice", "10.0.0.1") == Usage(total=left, of_user=left, of_host=left)
        assert ledger.vhost_stats("v")["perUserState"] == {"alice": ["10.0.0.1:1"] * left}
        assert ledger.vhost_stats("v")["perHostState"] == {"10.0.0.1": ["10.0.0.1:1"] * left}


def test_users_and_hosts_are_counted_per_vhost() -> None:
    ledger = UsageLedger()
    ledger.admit("v", "alice", "10.0.0.1", "10.0.0.1:1")
    ledger.admit("v", "alice", "10.0.0.2", "10.0.0.2:1")
    ledger.admit("v", "bob", "10.0.0.1", "10.0.0.1:2")
    ledger.admit("w", "alice", "10.0.0.1", "10.0.0.1:3")
    assert ledger.usage("v", "alice", "10.0.0.1") == Usage(total=3, of_user=2, of_host=2)
    assert ledger.usage("v", "carol", "10.0.0.9") == Usage(total=3)
    assert ledger.usage("x", "alice", "10.0.0.1") == Usage()
    ledger.release("v", "alice", "10.0.0.1", "10.0.0.1:1")
    assert ledger.usage("v", "alice", "10.0.0.1") == Usage(total=2, of_user=1, of_host=1)


def test_a_host_is_one_host_over_ipv4_and_ipv6_sockets() -> None:
    """Attack: twice the connections per host through a listener for both families."""
    ledger = UsageLedger()
    ledger.admit("v", "u", "::ffff:10.0.0.1", "a")
    assert ledger.usage("v", "u", "10.0.0.1").of_host == 1
    ledger.release("v", "u", "10.0.0.1", "a")
    assert ledger.usage("v", "u", "::FFFF:10.0.0.1") == Usage()


def test_the_statistics_of_a_vhost() -> None:
    """policy 34, 35"""
    ledger = UsageLedger()
    ledger.admit("v", "alice", "10.0.0.1", "10.0.0.1:1")
    ledger.admit("v", "alice", "10.0.0.1", "10.0.0.1:2")
    ledger.admit("v", "bob", "10.0.0.2", "10.0.0.2:1")
    ledger.release("v", "bob", "10.0.0.2", "10.0.0.2:1")
    ledger.count_open_denied("v")
    ledger.count_session_denied("v")
    ledger.count_link_denied("v", "send")
    ledger.count_link_denied("v", "receive")
    ledger.count_link_denied("v", "receive")
    ledger.count_oversize("v")
    assert ledger.vhost_stats("v") == {
        "hostname": "v",
        "id": "v",
        "connectionsApproved": 3,
        "connectionsDenied": 1,
        "connectionsCurrent": 2,
        "perUserState": {"alice": ["10.0.0.1:1", "10.0.0.1:2"], "bob": []},
        "perHostState": {"10.0.0.1": ["10.0.0.1:1", "10.0.0.1:2"], "10.0.0.2": []},
        "sessionDenied": 1,
        "senderDenied": 1,
        "receiverDenied": 2,
        "maxMessageSizeDenied": 1,
    }
    assert nonzero(ledger.policy_counters()) == {"linksDenied": 3, "maxMessageSizeDenied": 1, "totalDenials": 5}
    assert ledger.vhost_denials("v") == {
        "sessionDenied": 1,
        "senderDenied": 1,
        "receiverDenied": 2,
        "maxMessageSizeDenied": 1,
    }


def test_denials_without_a_vhost_count_for_the_policy_alone() -> None:
    ledger = UsageLedger()
    ledger.count_session_denied(None)
    ledger.count_link_denied(None, "send")
    ledger.count_oversize(None)
    assert nonzero(ledger.policy_counters()) == {"linksDenied": 1, "maxMessageSizeDenied": 1, "totalDenials": 3}
    assert ledger.vhost_names() == ()


def test_a_vhost_has_statistics_from_its_creation() -> None:
    ledger = UsageLedger()
    ledger.ensure_vhost("v")
    ledger.ensure_vhost("v")
    assert ledger.vhost_names() == ("v",)
    assert (ledger.has_vhost("v"), ledger.has_vhost("w")) == (True, False)
    assert nonzero(ledger.vhost_stats("v")) == {}
    with pytest.raises(KeyError):
        ledger.vhost_stats("w")


def test_a_release_without_an_admission_counts_nothing() -> None:
    ledger = UsageLedger()
    ledger.release("v", "u", "h", "a")
    ledger.admit("v", "u", "10.0.0.1", "a")
    ledger.admit("v", "w", "10.0.0.2", "c")
    for others in (
        *(("v", "u", "10.0.0.1", "b"), ("v", "x", "10.0.0.1", "a"), ("v", "u", "10.0.0.9", "a")),
        *(("v", "w", "10.0.0.1", "c"), ("v", "w", "10.0.0.2", "a"), ("x", "u", "10.0.0.1", "a")),
    ):
        ledger.release(*others)
    assert ledger.usage("v", "u", "10.0.0.1") == Usage(total=2, of_user=1, of_host=1)
    assert ledger.usage("v", "w", "10.0.0.2") == Usage(total=2, of_user=1, of_host=1)
    ledger.release("v", "w", "10.0.0.2", "c")
    ledger.release("v", "u", "10.0.0.1", "a")
    ledger.release("v", "u", "10.0.0.1", "a")
    assert ledger.vhost_stats("v")["connectionsCurrent"] == 0


def test_endless_users_and_hosts_do_not_grow_the_router() -> None:
    """Attack: connect, close, connect as somebody else from somewhere else, for ever."""
    ledger = UsageLedger()
    ledger.admit("v", "stays", "10.9.9.9", "stays")
    for number in range(MAX_IDLE_ENTRIES + 50):
        ledger.admit("v", f"u{number}", f"2001:db8::{number:x}", "n")
        ledger.release("v", f"u{number}", f"2001:db8::{number:x}", "n")
    stats = ledger.vhost_stats("v")
    users, hosts = stats["perUserState"], stats["perHostState"]
    assert isinstance(users, dict)
    assert isinstance(hosts, dict)
    assert len(users) == len(hosts) == MAX_IDLE_ENTRIES + 1
    assert users["stays"] == ["stays"]
    assert "u0" not in users
    assert users[f"u{MAX_IDLE_ENTRIES + 49}"] == []


def test_who_is_back_is_not_forgotten_with_the_idle() -> None:
    """Attack: push oneself out of the list with other names, and connect past the limits."""
    ledger = UsageLedger()
    for connection in ("first", "second"):
        ledger.admit("v", "back", "10.0.0.1", connection)
        if connection == "first":
            ledger.release("v", "back", "10.0.0.1", connection)
    for number in range(MAX_IDLE_ENTRIES + 1):
        ledger.admit("v", f"u{number}", f"2001:db8::{number:x}", "n")
        ledger.release("v", f"u{number}", f"2001:db8::{number:x}", "n")
    assert ledger.usage("v", "back", "10.0.0.1") == Usage(total=1, of_user=1, of_host=1)


steps = st.lists(
    st.tuples(
        st.sampled_from("vw"), st.sampled_from(["a", "b", ""]), st.sampled_from(["10.0.0.1", "::1"]), st.booleans()
    )
)


@given(steps)
def test_usage_is_always_what_is_open(taken: list[tuple[str, str, str, bool]]) -> None:
    ledger = UsageLedger()
    open_: list[tuple[str, str, str, str]] = []
    for number, (vhost, user, host, is_admission) in enumerate(taken):
        if is_admission:
            open_.append((vhost, user, host, f"n{number}"))
            ledger.admit(*open_[-1])
        elif open_:
            ledger.release(*open_.pop(number % len(open_)))
        for name in ("v", "w"):
            there = [entry for entry in open_ if entry[0] == name]
            assert ledger.usage(name, "a", "::1") == Usage(
                total=len(there),
                of_user=sum(entry[1] == "a" for entry in there),
                of_host=sum(entry[2] == "::1" for entry in there),
            )
    for entry in open_:
        ledger.release(*entry)
    assert all(ledger.vhost_stats(name)["connectionsCurrent"] == 0 for name in ledger.vhost_names())
