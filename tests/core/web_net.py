"""A router in memory with an HTTP listener: raw bytes to its connections, no sockets, the clock in our hands."""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from memory_net import Net

from auth import sasl_frames
from router.admission.connection_gate import ConnectionGate
from router.amqp.codec import encode
from router.amqp.headers import AMQP, SASL
from router.connection.over_http import WebConnection
from router.connection.stack import Stage
from router.values import Described, ulong
from router.web.answers import Answer, Respond
from router.web.requests import Request
from router.web.site import Site

KEY = b64encode(bytes(range(16))).decode()
ACCEPT = b64encode(hashlib.sha1(f"{KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()  # RFC 6455
MASK = b"\x0f\xf0\x55\xaa"


class Pulse:
    """A router that is well, or not, with a text of metrics."""

    def __init__(self) -> None:
        self.is_fine = True
        self.waiting: list[Callable[[bytes], None]] = []
        self.is_slow = False

    def is_well(self) -> bool:
        return self.is_fine

    def with_metrics(self, done: Callable[[bytes], None]) -> None:
        if self.is_slow:
            self.waiting.append(done)
        else:
            done(b"qdr_connections_total 0\n")


class PiecesOf:
    """A body that the test gives out."""

    def __init__(self) -> None:
        self.asked: Callable[[bytes], None] | None = None
        self.is_closed = False

    def read(self, done: Callable[[bytes], None]) -> None:
        assert self.asked is None, "two pieces at once"
        self.asked = done

    def give(self, piece: bytes) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        asked(piece)

    def close(self) -> None:
        self.is_closed = True


class LargeFile:
    """Files of which every one is the same body in pieces."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bodies: list[PiecesOf] = []

    def answer(self, names: tuple[str, ...], request: Request, respond: Respond) -> None:
        self.bodies.append(PiecesOf())
        respond(Answer(status=200, source=self.bodies[-1], size=self.size))


class WebPeer:
    """A client of an HTTP listener, by its bytes."""

    def __init__(self, net: Net, site: Site, **terms: Any) -> None:
        net._last_id += 1
        self.net = net
        self.written = bytearray()
        self.is_closed = False
        held = self._held = [0]  # the router's connection must not refer back to this
        listener = net.listener(site=site, **terms)
        gate = ConnectionGate(
            net.gate,
            connection_id=net._last_id,
            connection_name=f"{net.remote_host}:{net._last_id}",
            remote_host=net.remote_host,
            listener=listener.place,
            is_governed=listener.is_governed,
            is_counted=False,
        )
        self.router = WebConnection(
            listener=listener,
            gate=gate,
            surroundings=net.surroundings,
            write=self.written.extend,
            close=self.close,
            on_opened=lambda _connection: None,
        )
        self.router.on_held = held.append

    @property
    def held(self) -> int:
        """Bytes, as the connection told of them last."""
        return self._held[-1]

    def close(self) -> None:
        """The socket is closed, by whichever side."""
        if not self.is_closed:
            self.is_closed = True
            self.net.timers.pop(self.router, None)
            self.router.on_lost()
            self.net.work.finish()

    def send(self, data: bytes) -> "WebPeer":
        self.router.receive(data)
        self.net.work.finish()
        while self.router.has_more:
            self.router.resume()
            self.net.work.finish()
        return self

    def read(self) -> bytes:
        read = bytes(self.written)
        self.written.clear()
        return read

    def get(self, target: str, *headers: str, method: str = "GET") -> "Response":
        self.send(request(target, *headers, method=method))
        return Response(self.read(), has_body=method != "HEAD")

    def upgrade(self, *headers: str, **options: Any) -> "Response":
        self.send(upgrade_request(*headers, **options))
        return Response(self.read())

    def look(self, seconds: float) -> None:
        """Let time pass, and run the connection's timer."""
        self.net.now += seconds
        self.router.on_timer(self.net.now)
        self.net.work.finish()

    @property
    def stage(self) -> Stage:
        return self.router.stage


class Response:
    """A response, taken apart."""

    def __init__(self, data: bytes, *, has_body: bool = True) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1]) if first else 0
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.rest = b""
        if has_body and "content-length" in self.headers:
            size = int(self.headers["content-length"])
            self.body, self.rest = self.body[:size], self.body[size:]


def request(target: str, *headers: str, method: str = "GET", host: str = "router.example:8080") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def upgrade_request(
    *headers: str, protocol: str = "amqp", key: str = KEY, version: str = "13", **options: Any
) -> bytes:
    asked = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        f"Sec-WebSocket-Version: {version}",
        f"Sec-WebSocket-Protocol: {protocol}",
    ]
    return request("/", *asked, *headers, **options)


def frame(payload: bytes, *, first: int = 0x82, is_masked: bool = True, size: int | None = None) -> bytes:
    """A frame of a client. size: to be announced in the place of the payload's"""
    size = len(payload) if size is None else size
    bit = 0x80 if is_masked else 0
    if size < 126:
        header = bytes((first, bit | size))
    elif size < 1 << 16:
        header = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        header = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    if not is_masked:
        return header + payload
    return header + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """Opcode and payload of every frame of the server."""
    found, at = [], 0
    while at < len(data):
        size, start = data[at + 1], at + 2
        if size in (126, 127):
            width = 2 if size == 126 else 8
            size, start = int.from_bytes(data[start : start + width], "big"), start + width
        assert data[at + 1] < 128, "the server masks nothing"
        found.append((data[at] & 15, data[start : start + size]))
        at = start + size
    return found


def close_code(data: bytes) -> tuple[int, str]:
    """Code and reason of the Close frame at the end."""
    opcode, payload = frames_of(data)[-1]
    assert opcode == 8
    return int.from_bytes(payload[:2], "big"), payload[2:].decode()


def anonymous() -> bytes:
    return sasl_frames.encode(sasl_frames.Init(mechanism="ANONYMOUS", initial_response=b""))


def open_frame() -> bytes:
    body = encode(Described(ulong(0x10), ["raw", "localhost"]))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\0\0\0" + body


def site(**settings: Any) -> Site:
    return Site(**{"pulse": Pulse(), **settings})


def websocket(net: Net, **terms: Any) -> WebPeer:
    """A peer that has a WebSocket."""
    peer = WebPeer(net, terms.pop("site", None) or site(), **terms)
    assert peer.upgrade().status == 101
    return peer


__all__ = [
    "ACCEPT", "AMQP", "KEY", "SASL", "LargeFile", "Pulse", "Response", "WebPeer", "anonymous", "close_code", "frame",
    "frames_of", "open_frame", "request", "site", "upgrade_request", "websocket",
]  # fmt: skip
