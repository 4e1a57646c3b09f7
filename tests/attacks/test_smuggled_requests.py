"""Attack: a proxy in front of the router reads a request in another way than the router does.

Its rest then is a request that the proxy has never judged. Also header sections that fill the memory.
"""

import pytest
from memory_net import Net
from web_net import WebPeer, site

SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n"
LENGTH = str(len(SMUGGLED)).encode()
MANY = b"".join(b"a%d: b\r\n" % number for number in range(100))


def head(*lines: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: r\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (head(b"Content-Length: " + LENGTH, b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SMUGGLED, 400),
        (head(b"Content-Length: 0", b"Content-Length: " + LENGTH) + SMUGGLED, 400),
        (head(b"Content-Length: 0, " + LENGTH) + SMUGGLED, 400),
        (head(b"Content-Length: +0") + SMUGGLED, 400),
        (head(b"Content-Length: " + LENGTH) + SMUGGLED, 413),
        (head(b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SMUGGLED, 400),
        (head(b"Transfer-Encoding: identity") + SMUGGLED, 400),
        (head(b"Transfer-Encoding : chunked") + SMUGGLED, 400),
        (head(b"a: b", b" c: folded") + SMUGGLED, 400),
        (head(b"a: b\nc: d") + SMUGGLED, 400),
        (head(b"a: b\rc: d") + SMUGGLED, 400),
        (head(b"a: b\0c") + SMUGGLED, 400),
        (b"GET / HTTP/1.1\nHost: r\n\n" + b"\r\n\r\n" + SMUGGLED, 400),
        (head(b"Host: other") + SMUGGLED, 400),
        (b"GET / HTTP/1.1\r\n\r\n" + SMUGGLED, 400),
        (b"GET http://r/metrics HTTP/1.1\r\nHost: r\r\n\r\n" + SMUGGLED, 400),
        (b"GET / HTTP/3.0\r\nHost: r\r\n\r\n" + SMUGGLED, 400),
        (b"\x16\x03\x01" + SMUGGLED, 0),
        (head(MANY), 431),
        (head(b"a: " + bytes(9000).replace(b"\0", b"b")), 431),
        (b"GET /" + b"a" * 9000, 431),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: r\r\n\r\n", 414),
    ],
)
def test_what_can_be_read_in_two_ways_ends_the_connection(said: bytes, expected: int) -> None:
    net = Net()
    peer = WebPeer(net, site()).send(said)
    response = peer.read()
    assert response.startswith(b"HTTP/1.1 %d " % expected if expected else b"")
    assert response.count(b"server: ") == (1 if expected else 0)
    assert b"qdr_" not in response
    assert peer.is_closed
    (event,) = net.audits
    assert event["stage"] == "header"
    assert event["reason"] == ("http_malformed" if expected else "unexpected_header")
    net.nothing_left()
