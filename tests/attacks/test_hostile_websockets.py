"""Attack: hostile WebSocket frames, and pages of strangers that open a WebSocket in their visitor's name.

The frames are not masked, have reserved bits, announce terabytes, or come in endless fragments or as Pings.
"""

import pytest
from memory_net import Net
from web_net import WebPeer, close_code, frame, frames_of, site, websocket

PROTOCOL_ERROR, UNSUPPORTED, POLICY, TOO_BIG = 1002, 1003, 1008, 1009


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([frame(b"AMQP\0\1\0\0", is_masked=False)], PROTOCOL_ERROR),
        ([frame(b"x", first=0xC2)], PROTOCOL_ERROR),  # compressed, which is not negotiated
        ([frame(b"x", first=0xA2)], PROTOCOL_ERROR),
        ([frame(b"x", first=0x83)], PROTOCOL_ERROR),  # an opcode of nothing
        ([frame(b"x", first=0x80)], PROTOCOL_ERROR),  # goes on with nothing
        ([frame(b"A", first=0x02), frame(b"x", first=0x82)], PROTOCOL_ERROR),  # another message inside one
        ([frame(b"x", first=0x09)], PROTOCOL_ERROR),  # a Ping in fragments
        ([frame(bytes(126), first=0x89)], PROTOCOL_ERROR),
        ([b"\x82\xfe\0\x05" + bytes(9)], PROTOCOL_ERROR),  # five bytes, announced in the longer form
        ([frame(b"text", first=0x81)], UNSUPPORTED),
        ([frame(b"AMQP", size=1 << 62)], TOO_BIG),
        ([frame(b"AMQP", size=1 << 20)], TOO_BIG),
        ([frame(b"A", first=0x02), *[frame(b"", first=0x00)] * 200], POLICY),
        ([frame(b"", first=0x82)] * 200, POLICY),
        ([frame(b"p" * 100, first=0x89)] * 200, POLICY),
        ([frame(b"", first=0x8A)] * 200, POLICY),
    ],
)
def test_frames_that_break_the_rules_end_the_connection(frames: list[bytes], code: int) -> None:
    net = Net()
    peer = websocket(net).send(b"".join(frames))
    said = peer.read()
    assert close_code(said)[0] == code
    assert len(said) < 20_000
    assert peer.is_closed
    assert [(event["stage"], event["reason"]) for event in net.audits] == [("header", "websocket_malformed")]
    net.nothing_left()


def test_a_message_before_the_login_is_no_larger_in_fragments() -> None:
    peer = websocket(Net())
    peer.send(frame(b"AMQP\3\1\0\0"))
    for number in range(4):
        peer.send(frame(bytes(60_000), first=0x00 if number else 0x02))
    assert peer.is_closed


def test_an_answer_to_pings_waits_for_nobody_and_is_bounded() -> None:
    """Pings in a reasonable number are answered for as long as they come."""
    net = Net()
    peer = websocket(net, handshake_timeout_s=1e9)
    for _ in range(1000):
        peer.send(frame(b"alive", first=0x89))
        assert frames_of(peer.read()) == [(10, b"alive")]
        net.now += 1.0


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://router.example:8080", 101),
        ("HTTP://ROUTER.example:8080", 101),
        ("https://console.example:8443", 101),
        ("https://evil.example", 403),
        ("http://router.example:8081", 403),
        ("https://router.example:8080", 403),
        ("http://router.example:8080.evil.example", 403),
        ("http://router.example:8080@evil.example", 403),
        ("http://router.example:8080/evil", 403),
        ("https://console.example", 403),
        ("https://*", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_a_page_of_a_stranger_gets_no_websocket(origin: str, status: int) -> None:
    net = Net()
    peer = WebPeer(net, site(origins=frozenset({"https://console.example:8443"})))
    assert peer.upgrade(f"Origin: {origin}").status == status
    if status == 403:
        (event,) = net.audits
        assert (event["stage"], event["reason"]) == ("header", "origin_refused")
        assert event["detail"].endswith(f": {origin}" if origin else "(httpOrigins)")


def test_two_origins_are_none() -> None:
    peer = WebPeer(Net(), site())
    assert peer.upgrade("Origin: http://router.example:8080", "Origin: https://evil.example").status == 400
