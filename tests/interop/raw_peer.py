"""A peer without manners: a socket and the frames of AMQP 1.0, in any order and any state of repair."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import RunningRouter, connect

from router.amqp.codec import decode, encode
from router.values import Described, symbol, uint, ulong

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
TLS = b"AMQP\x02\x01\x00\x00"

_SASL_INIT = 0x41
OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DETACH, CLOSE = 0x16, 0x18
_SOURCE, _TARGET = 0x28, 0x29


def frame(code: int, *fields: object, kind: int = 0, payload: bytes = b"") -> bytes:
    """One frame with one performative, on channel 0. kind 1: SASL."""
    body = encode(Described(ulong(code), list(fields))) + payload
    return (len(body) + 8).to_bytes(4, "big") + bytes([2, kind, 0, 0]) + body


def sasl_init(mechanism: str, response: bytes | None = None) -> bytes:
    return frame(_SASL_INIT, symbol(mechanism), response, kind=1)


def plain(user: str, password: str) -> bytes:
    return sasl_init("PLAIN", f"\0{user}\0{password}".encode())


def open_frame(hostname: str = "localhost") -> bytes:
    return frame(OPEN, "raw", hostname)


def begin() -> bytes:
    return frame(BEGIN, None, uint(0), uint(2048), uint(2048))


def attach_sender(address: str) -> bytes:
    source, target = Described(ulong(_SOURCE), []), Described(ulong(_TARGET), [address])
    return frame(ATTACH, "raw-sender", uint(0), False, None, None, source, target, None, None, uint(0))


def attach_receiver(address: str) -> bytes:
    source, target = Described(ulong(_SOURCE), [address]), Described(ulong(_TARGET), [])
    return frame(ATTACH, "raw-receiver", uint(0), True, None, None, source, target)


def flow(*, credit: int) -> bytes:
    return frame(FLOW, uint(0), uint(2048), uint(0), uint(2048), uint(0), uint(0), uint(credit))


def transfer(payload: bytes, *, number: int = 0, is_last: bool = True) -> bytes:
    tag = number.to_bytes(4, "big")
    return frame(TRANSFER, uint(0), uint(number), tag, uint(0), False, not is_last, payload=payload)


# From the first byte to a session, as `anonymous` on a listener in the clear.
IN_SESSION = SASL + sasl_init("ANONYMOUS") + AMQP + open_frame() + begin()


def frames_in(received: bytes) -> Iterator[tuple[int, int, list[object]]]:
    """Kind (1: SASL), code and fields of every whole frame; headers and frames without a performative passed over."""
    at = 0
    while len(received) - at >= 8:
        if received[at : at + 4] == b"AMQP":
            at += 8
            continue
        size = int.from_bytes(received[at : at + 4], "big")
        if len(received) - at < size:
            return
        if size > 8:
            value, _ = decode(received[at + 8 : at + size])
            assert isinstance(value, Described)
            yield received[at + 5], int(value.descriptor), value.value
        at += size


class RawPeer:
    """One connection. `name` is what the router calls it, `ip:port`; a name is unique in the log `since` it began."""

    def __init__(self, connected: socket.socket, since: int) -> None:
        self.socket = connected
        self.since = since
        host, port = connected.getsockname()[:2]
        self.name = f"{host}:{port}"
        self.received = b""

    def send(self, data: bytes) -> None:
        """Errors of a peer that has closed already are no news here."""
        try:
            self.socket.sendall(data)
        except OSError:
            return

    def drip(self, data: bytes, pause_s: float) -> None:
        """Byte after byte, until all is sent or the router has closed."""
        self.socket.settimeout(pause_s)
        for at in range(len(data)):
            self.send(data[at : at + 1])
            try:
                piece = self.socket.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return
            if not piece:
                return
            self.received += piece

    def seconds_until_closed(self, at_most_s: float) -> float:
        """How long the router took to close from now on, reading what it sends; fails when it does not."""
        started = time.monotonic()
        while (left := started + at_most_s - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                break
            except OSError:  # a reset, or TLS's opinion of the end: closed all the same
                return time.monotonic() - started
            if not data:
                return time.monotonic() - started
            self.received += data
        raise AssertionError(f"{self.name} was not closed within {at_most_s:g} s; received {self.received!r}")

    def read_until(self, code: int, at_most_s: float = 10.0) -> list[Any]:
        """The fields of the next performative of that code; frames before it are passed over."""
        deadline = time.monotonic() + at_most_s
        while True:
            for found, fields in self.performatives():
                if found == code:
                    return fields
            left = deadline - time.monotonic()
            assert left > 0, f"no performative 0x{code:02x} within {at_most_s:g} s; received {self.received!r}"
            self.socket.settimeout(left)
            data = self.socket.recv(65536)
            assert data, f"closed before performative 0x{code:02x}; received {self.received!r}"
            self.received += data

    def performatives(self) -> Iterator[tuple[int, list[object]]]:
        """Code and fields of every whole frame received so far."""
        return ((code, fields) for _, code, fields in frames_in(self.received))


@contextmanager
def raw_peer(router: RunningRouter, listener: str, *, is_encrypted: bool = False) -> Iterator[RawPeer]:
    """A raw connection to a listener; inside TLS where asked."""
    since = router.mark()
    with connect(router, listener) as connected:
        peer = RawPeer(connected, since)
        if is_encrypted:
            context = ssl.create_default_context(cafile=router.certificates.ca)
            peer.socket = context.wrap_socket(connected, server_hostname="localhost")
        try:
            yield peer
        finally:
            peer.socket.close()
