"""AMQP over WebSocket under TLS compared with AMQP over TLS: processor time of the router, in the same run."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from socket import create_connection
from typing import Final, Literal

from benchmarks import wire
from benchmarks.report import Row, row
from benchmarks.subjects import HOSTNAME, USER, Site, Subject

LISTENER: Final = """\
listener {
    name: web
    host: 127.0.0.1
    port: 0
    http: yes
    sslProfile: bench-tls
    requireSsl: yes
    saslMechanisms: PLAIN
}
"""
MOST: Final = 1.3  # times the processor time without WebSocket
MESSAGES: Final = 40_000
ALONE: Final = 4_000  # the number of messages that are sent one at a time
BATCH: Final = 100  # messages written at once
HEARTBEAT_EVERY: Final = 2_000
BODY: Final = bytes(100)
_KEY: Final = "AAECAwQFBgcICQoLDA0ODw=="
_MASK: Final = b"\x0f\xf0\x55\xaa"

Way = Literal["tls", "wss"]


def websocket(site: Site, runs: int) -> list[Row]:
    """100 B, presettled, over TLS and over WebSocket under TLS: a hundred in a write, and one at a time."""
    found: dict[tuple[Way, int], list[float]] = {}
    ways: tuple[Way, ...] = ("tls", "wss")
    with site.router(more=LISTENER) as router:
        web_port = int(router.process.wait_for(r"Listening for HTTP on 127\.0\.0\.1:(\d+) \(web\)")[1][1])
        for _ in range(runs):
            for batch in (BATCH, 1):
                for way in ways:
                    cost = _carry(router, router.tls_port if way == "tls" else web_port, way, batch)
                    found.setdefault((way, batch), []).append(cost)
    rows = []
    for batch in (BATCH, 1):
        what = f"{batch} in a write" if batch > 1 else "one at a time"
        plain, wrapped = found["tls", batch], found["wss", batch]
        rows += [row("websocket", f"{what}: CPU per message, {way}", "us", router=found[way, batch]) for way in ways]
        ratios = [mine / base for mine, base in zip(wrapped, plain, strict=True)]
        rows.append(row("websocket", f"{what}: wss to tls", "times", router=ratios, budget=MOST))
    return rows


class _Peer:
    """A client over TLS, with or without WebSocket. Not an AMQP client: see wire."""

    def __init__(self, connected: ssl.SSLSocket, way: Way) -> None:
        self._connected = connected
        self._is_wrapped = way == "wss"
        self._kept = bytearray()  # the beginning of a WebSocket frame
        self.frames = bytearray()  # and of an AMQP frame
        if self._is_wrapped:
            lines = ["GET / HTTP/1.1", f"Host: {HOSTNAME}", "Upgrade: websocket", "Connection: Upgrade"]
            lines += [f"Sec-WebSocket-Key: {_KEY}", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: amqp"]
            connected.sendall("\r\n".join([*lines, "", ""]).encode())
            while b"\r\n\r\n" not in self._kept:
                self._kept += self._piece()
            del self._kept[: self._kept.index(b"\r\n\r\n") + 4]

    def _piece(self) -> bytes:
        piece = self._connected.recv(1 << 17)
        if not piece:
            raise wire.RefusedError("the router closed the connection")
        return piece

    def wrapped(self, data: bytes) -> bytes:
        if not self._is_wrapped:
            return data
        size = len(data)
        header = bytes((0x82, 0x80 | size)) if size < 126 else b"\x82\xfe" + size.to_bytes(2, "big")
        mask = int.from_bytes((_MASK * (size // 4 + 1))[:size], "big")
        return header + _MASK + (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")

    def send(self, wrapped: bytes) -> None:
        self._connected.sendall(wrapped)

    def read(self) -> Iterator[wire.Frame]:
        data = self._piece()
        if self._is_wrapped:
            self._kept += data
            data = b"".join(self._payloads())
        return wire.frames(self.frames, data)

    def _payloads(self) -> Iterator[bytes]:
        kept = self._kept
        while len(kept) >= 4:
            start, size = (4, int.from_bytes(kept[2:4], "big")) if kept[1] == 126 else (2, kept[1])
            if len(kept) < start + size:
                return
            yield bytes(kept[start : start + size])
            del kept[: start + size]

    def until(self, code: int) -> None:
        while all(frame.code != code for frame in self.read()):
            pass


@contextmanager
def _logged_in(subject: Subject, port: int, way: Way) -> Iterator[_Peer]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(create_connection(("127.0.0.1", port), 30)) as connected:
        peer = _Peer(connected, way)
        said = wire.login(user=USER, password=subject.password, hostname=HOSTNAME)
        peer.send(peer.wrapped(said + wire.session()))
        yield peer


def _carry(subject: Subject, port: int, way: Way, batch: int) -> float:
    """Returns the router's processor time for each message, in microseconds."""
    count = MESSAGES if batch > 1 else ALONE
    with _logged_in(subject, port, way) as receiver, _logged_in(subject, port, way) as sender:
        receiver.send(receiver.wrapped(wire.receiver("bench", 0) + wire.credit(0, count)))
        receiver.until(wire.ATTACH)
        sender.send(sender.wrapped(wire.sender("bench", 0)))
        sender.until(wire.FLOW)
        before, passed, sent = subject.process.cpu_seconds(), 0, 0
        while passed < count:
            numbers = range(sent, sent + batch)
            sender.send(sender.wrapped(b"".join(wire.presettled(number, BODY) for number in numbers)))
            sent += batch
            if sent % HEARTBEAT_EVERY == 0:
                receiver.send(receiver.wrapped(wire.HEARTBEAT))
            while passed < sent:
                passed += sum(frame.code == wire.TRANSFER for frame in receiver.read())
        return (subject.process.cpu_seconds() - before) / count * 1e6
