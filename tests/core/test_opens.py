"""The Open of a connection (docs/spec/policy-and-auth.md §3.3)."""

from typing import Any

import pytest
from memory_net import Net, Vhosts

from router.amqp.codec import encode
from router.values import Array, Described, symbol, uint, ulong, ushort

ANYBODY = Vhosts(vhosts={"$default": {"groups": {"all": {"users": "*", "remoteHosts": "*"}}}})


def test_a_second_open_is_not_admitted_again() -> None:
    """Attack: each Open would be counted, and only one given back, until nobody else may connect."""
    net = Net(vhosts=ANYBODY)
    client = net.client()
    net.pump()
    first = client.uttered[8 : 8 + int.from_bytes(client.uttered[8:12], "big")]
    client.say(bytes(first))
    net.pump()
    assert client.is_closed_by_router
    assert net.ledger.vhost_stats("$default")["connectionsApproved"] == 1
    assert [event["reason"] for event in net.audits] == ["malformed_frame"]
    client.kill()
    net.pump()
    assert net.ledger.vhost_stats("$default")["connectionsCurrent"] == 0


def test_a_peers_odd_open_writes_nothing_to_our_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """Attack: the engine's own warnings would fill the operator's terminal past every log setting."""
    net = Net()
    client = net.client(opens=False)
    client.transport.max_frame_size = 512
    client.open()
    net.pump()
    uttered = bytes(client.uttered)
    again = net.client(opens=False)
    # max-frame-size 512 as uint (0x70) becomes 31, which AMQP forbids.
    again.say(uttered.replace(b"\x70\x00\x00\x02\x00", b"\x70\x00\x00\x00\x1f"))
    net.pump()
    assert b"\x70\x00\x00\x00\x1f" in bytes(again.uttered)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (Array(symbol, (symbol("A"), symbol("B"))), ("A", "B")),
        (symbol("A"), ("A",)),
        ([symbol("A"), symbol("B")], ("A", "B")),
        (["A", symbol("B")], ("A", "B")),
        ([], ()),
        ([uint(1), None, ["A"], {"A": "B"}], ()),
    ],
)
def test_capabilities_may_be_an_array_one_symbol_or_a_list(written: Any, read: tuple[str, ...]) -> None:
    """Issue 34, peer 13: proton 0.37 in Python writes a list as a list; routing 1.4"""
    net = Net()
    client = net.client(opens=False)
    client.stop_reading()  # proton would not understand the answers
    window = [uint(0), uint(9), uint(9)]
    terminus = Described(ulong(0x28), ["a", *[None] * 9, written])
    attach = ["r", uint(0), True, None, None, terminus, Described(ulong(0x29), []), *[None] * 4, written, written]
    net.pump()
    for code, fields in (
        (0x10, ["c", None, None, None, None, written, written, written, written, {}]),
        (0x11, [None, *window, None, written, written]),
        (0x12, attach),
    ):
        body = encode(Described(ulong(code), fields))
        client.say((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    net.pump()
    assert {frame.name for frame in client.frames()} == {"open", "begin", "attach", "flow"}
    remote = net.peer(client).remote
    assert remote is not None
    assert (remote.offered_capabilities, remote.desired_capabilities) == (read, read)
    (link,) = net.core.links.values()
    assert link.owning_key == "M0a"
    net.nothing_left()


@pytest.mark.parametrize("written", [{}, "A", b"A", uint(1), True, Array(uint, (uint(1),))])
def test_capabilities_of_another_type_are_refused_or_say_nothing(written: Any) -> None:
    """routing 1.4"""
    net = Net()
    client = net.client(opens=False)
    client.stop_reading()
    body = encode(Described(ulong(0x10), ["c", None, None, ushort(9), None, None, None, written]))
    net.pump()
    client.say((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    net.pump()
    if isinstance(written, Array):
        remote = net.peer(client).remote
        assert remote is not None
        assert remote.offered_capabilities == ()
    else:
        assert client.is_closed_by_router
        assert [event["reason"] for event in net.audits] == ["malformed_frame"]


def selection_lines(hostname: str, *, has_patterns: bool = True) -> list[tuple[str, str]]:
    """(level, text) of the lines about which vhost governs a client that asks for `hostname`."""
    group = {"allowUnknownUser": True, "groups": {"$default": {"remoteHosts": "*"}}}
    vhosts = {"*.example": {"aliases": "#.test", **group}, "$default": group}
    net = Net(vhosts=Vhosts(vhosts, {"enableVhostPolicy": True, "enableVhostNamePatterns": has_patterns}))
    net.client(hostname=hostname)
    net.pump()
    texts = ("lookup returned", "proceeds using")
    return [(entry.level, entry.text) for entry in net.logs if any(text in entry.text for text in texts)]


PREFIX = "AMQP Open for user 'anonymous', rhost '10.0.0.1', vhost"


@pytest.mark.parametrize(
    ("hostname", "found", "governs"),
    [
        ("shop.example", "*.example", "*.example"),
        ("a.b.test", "#.test", "*.example"),
        ("elsewhere", "null", "$default"),
    ],
)
def test_how_a_pattern_chose_the_vhost_is_logged(hostname: str, found: str, governs: str) -> None:
    """policy 19, 20: the lines of policy-and-auth.md §2.7"""
    assert selection_lines(hostname) == [
        ("trace", f"vhost hostname pattern '{hostname}' lookup returned '{found}'"),
        ("debug", f"{PREFIX} '{hostname}': proceeds using vhost '{governs}' ruleset"),
        ("debug", f"AMQP Open lookup settings for vhost '{hostname}': proceeds using vhost '{governs}' ruleset"),
    ]


def test_a_vhost_that_is_asked_for_by_its_name_is_no_news() -> None:
    assert selection_lines("*.example", has_patterns=False) == []
    assert [level for level, _ in selection_lines("other", has_patterns=False)] == ["debug", "debug"]
