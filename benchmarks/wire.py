"""The few bytes of a client's login, sent together, and the answer that confirms it.

Not an AMQP client: no state, no flow control. It costs the measuring process almost nothing.
"""

import hashlib
import hmac
import secrets
import socket
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

from router.amqp.codec import decode, encode
from router.values import Described, symbol, uint, ulong

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_SASL_INIT, _SASL_CHALLENGE, _SASL_RESPONSE, _SASL_OUTCOME = 0x41, 0x42, 0x43, 0x44
_OPEN, _BEGIN, ATTACH, FLOW, TRANSFER, _DISPOSITION, DETACH, CLOSE = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x18
_ACCEPTED, _SOURCE, _TARGET = 0x24, 0x28, 0x29


class RefusedError(Exception):
    """The peer refused the client."""


def _frame(kind: int, code: int, *fields: object) -> bytes:
    body = encode(Described(ulong(code), list(fields)))
    return (len(body) + 8).to_bytes(4, "big") + bytes([2, kind, 0, 0]) + body


def login(*, user: str, password: str, hostname: str, source: str | None = None) -> bytes:
    """Returns headers, SASL PLAIN and Open together.

    source  also a session and a receiving link without credit
    """
    response = f"\0{user}\0{password}".encode()
    parts = [
        SASL_HEADER,
        _frame(1, _SASL_INIT, symbol("PLAIN"), response),
        AMQP_HEADER,
        _frame(0, _OPEN, f"bench-{user}", hostname),
    ]
    if source is not None:
        terminus = Described(ulong(_SOURCE), [source])
        parts.append(_frame(0, _BEGIN, None, uint(0), uint(100), uint(100)))
        parts.append(_frame(0, ATTACH, "receiver", uint(0), True, None, None, terminus, Described(ulong(_TARGET), [])))
    return b"".join(parts)


class ScramLogin:
    """A login by SCRAM-SHA-256, step by step. The expensive key is computed once for all logins."""

    def __init__(self, *, user: str, password: str, hostname: str) -> None:
        self._user = user
        self._password = password.encode()
        self._last = AMQP_HEADER + _frame(0, _OPEN, f"bench-{user}", hostname)
        self._keys: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}

    def begin(self) -> tuple[bytes, str]:
        """Returns the bytes to send, and the client's first message without its header, which `answer` needs."""
        first = f"n={self._user},r={secrets.token_urlsafe(18)}"
        init = _frame(1, _SASL_INIT, symbol("SCRAM-SHA-256"), f"n,,{first}".encode())
        return SASL_HEADER + init, first

    def answer(self, first: str, challenge: bytes) -> bytes:
        """Returns the answer to the server's challenge."""
        text = challenge.decode()
        nonce, salt, iterations = (part[2:] for part in text.split(",")[:3])
        chosen = b64decode(salt), int(iterations)
        if chosen not in self._keys:
            salted = hashlib.pbkdf2_hmac("sha256", self._password, *chosen)
            client = hmac.digest(salted, b"Client Key", "sha256")
            self._keys[chosen] = client, hashlib.sha256(client).digest()
        client, stored = self._keys[chosen]
        unsigned = f"c=biws,r={nonce}"
        signature = hmac.digest(stored, f"{first},{text},{unsigned}".encode(), "sha256")
        proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
        response = f"{unsigned},p={b64encode(proof).decode()}".encode()
        return _frame(1, _SASL_RESPONSE, response)

    def confirm(self) -> bytes:
        """Returns the answer to the server's second challenge, its own proof."""
        return _frame(1, _SASL_RESPONSE, b"")

    def end(self) -> bytes:
        """Returns the bytes to send after the outcome."""
        return self._last


def challenge_in(data: bytes) -> bytes | None:
    """Returns the challenge of the server, None before it is complete. Errors: RefusedError"""
    fields = _answer_in(data, _SASL_CHALLENGE)
    return None if fields is None else bytes(fields[0])


def is_accepted(data: bytes) -> bool:
    """Returns whether the outcome of the login has arrived. Errors: RefusedError"""
    fields = _answer_in(data, _SASL_OUTCOME)
    if fields is not None and fields[0] != 0:
        raise RefusedError("the peer refused the login")
    return fields is not None


def _answer_in(data: bytes, code: int) -> list[Any] | None:
    """Returns the fields of a SASL frame, None before it is complete."""
    start = data.find(bytes([0x00, 0x53, code])) - 8
    if start < 0 or len(data) < (end := start + int.from_bytes(data[start : start + 4])):
        return None
    return list(decode(data[start + 8 : end])[0].value)


def close() -> bytes:
    return _frame(0, CLOSE)


class Admission:
    """Reads until the peer has answered the whole login."""

    def __init__(self, *, has_link: bool) -> None:
        self._wanted = ATTACH if has_link else _OPEN
        self._input = bytearray()

    def receive(self, data: bytes) -> bool:
        """Returns True once the peer has answered the last frame of the login.

        Errors  RefusedError if it closes instead, or refuses.
        """
        if not data:
            raise RefusedError("the peer closed the connection")
        self._input += data
        while len(self._input) >= 8:
            if self._input.startswith(b"AMQP"):
                del self._input[:8]
                continue
            size = int.from_bytes(self._input[:4], "big")
            if len(self._input) < size:
                return False
            # A performative: 0x00 0x53 and its code, after the frame's header.
            code = self._input[10] if size > 10 else None
            # The outcome's code is its last field: ubyte 0 is ok.
            if code == _SASL_OUTCOME and self._input[size - 2 : size] != b"\x50\x00":
                raise RefusedError("the peer refused the password")
            if code == CLOSE:
                raise RefusedError("the peer sent Close")
            del self._input[:size]
            if code == self._wanted:
                return True
        return False


# Clients with several links, for special loads


class Frame(NamedTuple):
    """One AMQP frame: the code of its performative, and everything after its header."""

    code: int
    data: bytes

    def fields(self) -> list[object]:
        described, _ = decode(self.data)
        assert isinstance(described, Described)
        return list(described.value)


def frames(kept: bytearray, data: bytes) -> Iterator[Frame]:
    """Yields the complete frames in new data after kept data, and keeps the rest. Skips headers and heartbeats."""
    kept += data
    at = 0
    while len(kept) - at >= 8:
        if kept.startswith(b"AMQP", at):
            at += 8
            continue
        size = int.from_bytes(kept[at : at + 4], "big")
        if len(kept) - at < size:
            break
        if size > 10:
            yield Frame(kept[at + 10], bytes(kept[at + 8 : at + size]))
        at += size
    del kept[:at]


def anonymous(hostname: str) -> bytes:
    """Returns headers, SASL ANONYMOUS, Open and one session."""
    init, opened = _frame(1, _SASL_INIT, symbol("ANONYMOUS")), _frame(0, _OPEN, "bench", hostname)
    return SASL_HEADER + init + AMQP_HEADER + opened + session()


def session() -> bytes:
    window = uint(2**31 - 1)
    return _frame(0, _BEGIN, None, uint(0), window, window)


def presettled(number: int, body: bytes) -> bytes:
    """Returns a settled message on handle 0."""
    frame = _frame(0, TRANSFER, uint(0), uint(number), number.to_bytes(4, "big"), uint(0), True)
    section = b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body
    return (len(frame) + len(section)).to_bytes(4, "big") + frame[4:] + section


def receiver(address: str, handle: int) -> bytes:
    source, target = Described(ulong(_SOURCE), [address]), Described(ulong(_TARGET), [])
    return _frame(0, ATTACH, f"r{handle}", uint(handle), True, None, None, source, target)


def sender(address: str | None, handle: int) -> bytes:
    """Returns an Attach of a sender.

    address  None: an anonymous one
    """
    source, target = Described(ulong(_SOURCE), []), Described(ulong(_TARGET), [address])
    return _frame(0, ATTACH, f"s{handle}", uint(handle), False, None, None, source, target, None, None, uint(0))


def credit(handle: int, count: int) -> bytes:
    window = uint(2**31 - 1)
    return _frame(0, FLOW, uint(0), window, uint(0), window, uint(handle), uint(0), uint(count))


def accepted(first: int, last: int) -> bytes:
    return _frame(0, _DISPOSITION, True, uint(first), uint(last), True, Described(ulong(_ACCEPTED), []))


def until_attached(connected: socket.socket, links: int, kept: bytearray) -> list[Frame]:
    """Reads until `links` links are attached. Returns the frames read; the beginning of another one stays in `kept`.

    Errors  RefusedError
    """
    seen: list[Frame] = []
    while links > 0:
        data = connected.recv(65536)
        if not data:
            raise RefusedError("the peer closed the connection")
        for frame in frames(kept, data):
            if frame.code in (CLOSE, DETACH):
                raise RefusedError("the peer refused the connection or a link")
            links -= frame.code == ATTACH
            seen.append(frame)
    return seen
