"""A connection from its first byte to its last: what it opens with, its timers, and that its faults are its own."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, Client, Net, Vhosts

from policy.usage import _Names
from router.connection.stack import Stage


def test_open_answers_and_does_not_ask() -> None:
    """routing 1, 2, 3, 4, 5, 6, 7, 8"""
    net = Net()
    client = net.client(opens=False)
    net.pump()
    assert not client.frames()
    client.open()
    net.pump()
    (opening,) = client.frames("open")
    assert opening[0] == "QDR"
    assert opening[1] is None
    assert (opening[2], opening[3], opening[4]) == (16384, 32767, 8000)
    assert list(opening[9]) == ["product", "version", "qd.conn-id"]
    assert opening[9]["qd.conn-id"] == client.router.connection_id
    for capabilities in (opening[7], opening[8]):
        assert list(capabilities.values) == ["ANONYMOUS-RELAY", "qd.streaming-links"]


def test_no_idle_timeout_is_none() -> None:
    """routing 8"""
    net = Net(idle_timeout_s=0)
    client = net.client()
    net.pump()
    assert not client.frames("open")[0][4]
    net.advance(100, step=5)
    assert not client.router_closed


def test_a_silent_peer_is_closed_after_its_time() -> None:
    """routing 9"""
    net = Net(idle_timeout_s=16)
    client = net.client()
    net.pump()
    client.push_to_router = lambda: False  # type: ignore[method-assign]
    net.advance(15)
    assert not client.router_closed
    net.advance(10)
    assert client.router_closed
    (closing,) = client.frames("close")
    assert str(closing[0].value[0]) == "amqp:resource-limit-exceeded"
    assert closing[0].value[1] == "local-idle-timeout expired"
    net.nothing_left()


def test_peers_that_want_to_hear_something_do() -> None:
    """routing 9 (§1.6: empty frames often enough)"""
    net = Net(idle_timeout_s=60)
    client = net.client(opens=False)
    client.transport.idle_timeout = 4
    client.open()
    net.pump()
    said = []
    for _ in range(20):
        before = len(client.recorded)
        net.advance(1)
        said.append(len(client.recorded) > before)
    assert not client.router_closed
    assert all(any(said[at : at + 4]) for at in range(len(said) - 3))


def test_a_peer_without_an_open_is_closed() -> None:
    """routing 27"""
    net = Net(handshake_timeout_s=3)
    silent, header_only = net.client(opens=False), net.client(opens=False)
    for client in (silent, header_only):
        client.push_to_router = lambda: False  # type: ignore[method-assign]
    header_only.say(b"AMQP\x00\x01\x00\x00")
    net.advance(2.5)
    assert not silent.router_closed
    net.advance(1)
    assert silent.router_closed
    assert header_only.router_closed
    assert {audit["reason"] for audit in net.audits} == {"handshake_timeout"}


def test_session_window_is_what_the_listener_says() -> None:
    """routing 10"""
    net = Net(max_frame_bytes=1024, session_bytes=10 * 1024)
    client = net.client()
    net.pump()
    assert client.frames("begin")[0][2] == 10


def test_more_frames_than_the_window_end_the_connection() -> None:
    """routing 10: the window is enforced, not only announced"""
    net = Net(max_frame_bytes=512, session_bytes=4 * 512)
    client = net.client()
    client.sender("a")
    net.client().receiver("a")
    net.pump()
    for _ in range(2000):
        fields = b"\x43\x43\xa0\x01a\x43\x42\x41"
        body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 6]) + fields + bytes(400)
        client.say((len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    net.pump()
    assert client.router_closed
    net.nothing_left()


def boom(*_args: object, **_more: object) -> None:
    raise KeyError("secret of a peer")


def crashes(net: Net, client: Client) -> None:
    """The client is closed with an internal error; nothing of the error's text is in a log."""
    net.pump()
    assert client.router_closed
    assert client.router.stage is Stage.CLOSED
    assert str(client.frames("close")[-1][0].value[0]) == "amqp:internal-error"
    assert not any("secret" in entry.text for entry in net.logs)
    assert any(entry.level == "error" and "KeyError at " in entry.text for entry in net.logs)
    assert [audit["reason"] for audit in net.audits] == ["internal_error"]
    net.effects.clear()


def forwarding(net: Net, client: Client, sender: Any) -> None:
    link = next(iter(net.peer(client).attachment.in_links))
    wire: Any = link.wire
    wire.forward = boom
    sender.send()


def attaching(net: Net, client: Client, sender: Any) -> None:
    net.peer(client).on_attach = boom  # type: ignore[method-assign]
    client.sender("b")


def detaching(net: Net, client: Client, sender: Any) -> None:
    net.peer(client).links.detached = boom  # type: ignore[method-assign]
    sender.close()


@pytest.mark.parametrize("crash", [forwarding, attaching, detaching])
def test_an_exception_ends_its_connection_alone(crash: Callable[[Net, Client, Any], None]) -> None:
    """routing 90: and everything that connection held is given back at once"""
    net = Net()
    receiver = net.client().receiver("a", credit=10)
    doomed, other = net.client(), net.client().sender("a")
    sender = doomed.sender("a")
    net.pump()
    crash(net, doomed, sender)
    sender.send(b"behind")
    crashes(net, doomed)
    sending = other.send(b"lives")
    net.pump()
    receiver.accept_all()
    net.pump()
    assert sending.outcome == ACCEPTED
    assert b"lives" in receiver.bodies
    net.nothing_left()


def test_an_exception_while_writing_ends_its_connection_alone() -> None:
    """routing 90: the socket's own fault"""
    net = Net()
    broken = net.client()
    broken.receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    net.peer(broken).engine.write = boom
    sending = sender.send()
    net.pump()
    assert broken.router_closed
    assert sending.outcome == MODIFIED
    net.effects.clear()
    net.nothing_left()


def test_an_exception_as_the_connection_ends_leaves_nothing() -> None:
    """Messages that waited are read out, and the last step is done in any case."""
    net = Net()
    doomed = net.client()
    sender, other = doomed.sender("a"), doomed.sender("a")
    receiver = net.client().receiver("a", credit=10)
    net.pump()
    first, second = net.peer(doomed).attachment.in_links
    for link in (first, second):
        link.wire.hold()
    for each in (sender, other):
        each.send(b"1")
        each.send(b"2")
    net.pump()
    first.inspect = boom  # type: ignore[assignment]
    doomed.kill()
    net.pump()
    assert len(receiver.received) == 2
    assert any(entry.level == "error" and "KeyError at " in entry.text for entry in net.logs)
    assert not any("secret" in entry.text for entry in net.logs)
    net.effects.clear()
    net.nothing_left()


def test_an_exception_in_a_stream_ends_the_senders_connection_alone() -> None:
    """routing 90, 94: found when the receiver has taken some, long after the sender's bytes came"""
    net = Net()
    receiver = net.client().receiver("a", credit=1)
    doomed = net.client()
    sender = doomed.sender("a")
    net.pump()
    receiver.client.stop_reading()
    sender.send(bytes(3_000_000))
    net.pump()
    link = next(iter(net.peer(doomed).attachment.in_links))
    link.max_message_bytes = 1
    link.on_oversize = boom  # type: ignore[assignment]
    receiver.client.resume_reading()
    crashes(net, doomed)
    assert receiver.received[0].is_aborted
    net.nothing_left()


def test_messages_do_not_go_to_a_connection_that_is_closing() -> None:
    """routing 88: its socket may take a while to close; until then it is nobody's receiver"""
    net = Net()
    closing, stays = net.client(), net.client().receiver("a", credit=10)
    closing.receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    closing.stop_reading()
    closing.say(b"\x00\x00\x00\x04 nonsense")
    sendings = [sender.send() for _ in range(4)]
    net.pump()
    stays.accept_all()
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED] * 4
    net.nothing_left()


def test_closing_is_answered_and_leaves_nothing() -> None:
    """routing 88, 90 (§1.10)"""
    net = Net(vhosts=Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": {
        "remoteHosts": "*", "sources": "*", "targets": "*"}}}}))  # fmt: skip
    client = net.client(hostname="v")
    client.receiver("a", credit=1)
    sender = client.sender("a")
    net.pump()
    sender.send()
    client.close()
    net.pump()
    (closing,) = client.frames("close")
    assert closing[0] is None
    assert client.router_closed
    assert "[C1] Connection Closed" in net.log_texts()
    net.nothing_left()


def test_what_follows_a_close_is_not_listened_to() -> None:
    """routing 90: links attached behind a Close, or behind our own"""
    net = Net()
    client = net.client()
    net.pump()
    client.router.crash(KeyError("anything"))
    client.sender("a")
    client.receiver("a", credit=5)
    net.pump()
    assert not net.core.links
    net.effects.clear()
    net.nothing_left()


def test_a_connection_that_ends_does_not_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: ten thousand connections of one vhost that end together would else hold the router up for a minute."""
    net = Net(vhosts=Vhosts({"v": {"groups": {"g": {"users": "*", "remoteHosts": "*"}}}}))
    client = net.client(hostname="v")
    net.pump()
    monkeypatch.setattr(_Names, "listed", lambda _names: pytest.fail("listed all connections of a user"))
    client.kill()
    net.pump()
    assert any("closed with resources" in text for text in net.log_texts("POLICY"))
