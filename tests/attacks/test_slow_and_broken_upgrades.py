"""Attack: thousands of slow or broken upgrades, each of which tries to leave memory or sockets in use.

Also header sections that come byte by byte, and requests in advance from a peer that reads no answer.
"""

import gc

import pytest
from memory_net import Net
from web_net import AMQP, LargeFile, WebPeer, frame, open_frame, request, site, upgrade_request, websocket

from router.admission.handshakes import TLS_BYTES
from router.web import limits

ENDS = {
    "at once": b"",
    "in the head": upgrade_request()[:40],
    "with a wrong key": upgrade_request(key="?"),
    "in a frame": upgrade_request() + frame(b"AMQP\0\1\0\0")[:9],
    "with a broken frame": upgrade_request() + b"\xff\xff\xff",
    "in SASL": upgrade_request() + frame(b"AMQP\3\1\0\0"),
    "in AMQP": upgrade_request() + frame(b"AMQP\0\1\0\0"),
}


@pytest.mark.parametrize("said", ENDS.values(), ids=ENDS)
def test_a_broken_upgrade_leaves_nothing(said: bytes) -> None:
    net = Net()
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            peer = WebPeer(net, site()).send(said)
            peer.close()
        net.nothing_left()
        del peer
        net.effects.clear()
        alive = [each for each in gc.get_objects() if type(each).__name__ in ("WebConnection", "WebLayer", "Frames")]
        assert len(alive) == 0
    finally:
        gc.enable()


def test_a_head_that_comes_byte_by_byte_is_cut_off() -> None:
    net = Net()
    peer = WebPeer(net, site())
    for byte in request("/" + "a" * 100):
        peer.send(bytes((byte,)))
        peer.look(1.0)
        if peer.is_closed:
            break
    assert b"HTTP/1.1 408" in peer.read()
    assert net.now - 1000.0 <= 2 * limits.HEAD_S
    assert [event["reason"] for event in net.audits] == ["handshake_timeout"]


def test_an_upgrade_without_a_login_ends_in_time() -> None:
    net = Net()
    peer = websocket(net, handshake_timeout_s=3.0)
    peer.look(3.5)
    assert peer.is_closed
    assert [event["reason"] for event in net.audits] == ["handshake_timeout"]


def test_an_upgrade_has_its_own_time() -> None:
    """Not what is left of the connection's first seconds, nor longer than that."""
    net = Net()
    peer = WebPeer(net, site(), handshake_timeout_s=20.0)
    for _ in range(3):
        assert peer.get("/healthz").status == 200
        peer.look(limits.KEEP_ALIVE_S - 1)
    assert peer.upgrade().status == 101
    assert net.timers[peer.router] == net.now + 20.0
    peer.look(19.0)
    assert not peer.is_closed
    peer.look(2.0)
    assert peer.is_closed


def test_the_first_byte_begins_the_time_of_a_head() -> None:
    net = Net()
    peer = WebPeer(net, site()).send(b"G")
    assert net.timers[peer.router] == net.now + limits.HEAD_S


def test_pings_do_not_prolong_the_login() -> None:
    net = Net()
    peer = websocket(net, handshake_timeout_s=3.0)
    for _ in range(8):
        peer.send(frame(b"", first=0x89))
        peer.look(0.5)
    assert peer.is_closed


def test_requests_before_the_answer_are_bounded() -> None:
    net = Net()
    files = LargeFile(size=10)
    peer = WebPeer(net, site(files=files))
    peer.send(request("/big"))
    for _ in range(1000):
        peer.send(request("/next"))
        if peer.is_closed:
            break
    assert peer.is_closed
    assert peer.held < limits.MAX_EARLY_BYTES + limits.WEB_BYTES + TLS_BYTES
    assert len(files.bodies) == 1
    assert files.bodies[0].is_closed


def test_a_peer_that_reads_no_answer_gets_no_further_one() -> None:
    net = Net()
    peer = WebPeer(net, site())
    assert peer.get("/").status == 200
    peer.router.set_blocked(True)
    peer.send(request("/") * 20)
    assert peer.read() == b""
    peer.look(limits.STALL_S + 1)
    assert peer.is_closed


def test_a_connection_answers_so_many_requests_and_no_more() -> None:
    peer = WebPeer(Net(), site())
    for _ in range(limits.MAX_REQUESTS):
        assert peer.get("/healthz").status == 200
    assert peer.is_closed


def test_a_read_full_of_requests_or_frames_is_no_more_than_a_turn() -> None:
    """Others have their turn in between: `has_more` is left."""
    net = Net(is_sliced=True)
    peer = WebPeer(net, site())
    peer.router.receive(request("/healthz") * 50)
    assert peer.router.has_more
    other = websocket(net)
    said = AMQP + open_frame()
    pieces = [frame(said[at : at + 1], first=0x00 if at else 0x02) for at in range(len(said))]
    other.router.receive(b"".join(pieces))
    assert other.router.has_more
    other.send(b"")
    assert other.router.is_open
