"""Reads the server name from the first message of a TLS client. The name selects the sslProfile, before TLS begins.

Pure. Faults in the message are left to OpenSSL: a message that cannot be read here yields no name.
Sources: RFC 8446 §4.1.2, §5.1; RFC 6066 §3.
"""

from typing import Final

# A longer message yields no name. Stops a peer from making us store and scan ever more; honest messages have 2 KiB.
MAX_HELLO_BYTES: Final = 16 * 1024
# No honest client splits it into more records. Stops a message of a thousand tiny records, rescanned at every byte.
MAX_RECORDS: Final = 16
# DNS permits no longer name.
MAX_NAME_CHARACTERS: Final = 253

_HEADER: Final = 5  # of a record: type, version, length
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0  # the extension, and the one kind of name in it


class _Unreadable(ValueError):
    """The message is no ClientHello."""


class Unfinished(Exception):
    """The message is not complete yet."""


def server_name(data: bytes) -> str | None:
    """Returns the host that a client wants, in lower case and without a final dot. None if it names none or is not TLS.

    data    all bytes that the client has sent
    Errors  Unfinished
    """
    try:
        return _name(_Reader(_message(data)))
    except _Unreadable:
        return None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def block(self, size: int) -> "_Reader":
        """Returns the bytes after their length field, which has `size` bytes."""
        return _Reader(self.take(self.number(size)))

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise _Unreadable
        self._at += size
        return taken

    def rest(self) -> bytes:
        return self._data[self._at :]


def _message(data: bytes) -> bytes:
    """Returns the body of the ClientHello, joined from its records. Errors: Unfinished, _Unreadable."""
    found, at, records = bytearray(), 0, 0
    while True:
        if len(found) >= 4:
            size = int.from_bytes(found[1:4])
            if found[0] != _CLIENT_HELLO or size > MAX_HELLO_BYTES:
                raise _Unreadable
            if len(found) >= 4 + size:
                return bytes(found[4 : 4 + size])
        if at > len(data):  # the last record is incomplete
            raise Unfinished
        if records == MAX_RECORDS:
            raise _Unreadable
        if at < len(data) and data[at] != _HANDSHAKE:
            raise _Unreadable
        if at + _HEADER > len(data):
            raise Unfinished
        length = data[at + 3] << 8 | data[at + 4]
        if not length:
            raise _Unreadable
        found += data[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length
        records += 1


def _name(hello: _Reader) -> str | None:
    hello.take(2 + 32)  # version, random
    hello.block(1)  # session id
    hello.block(2)  # cipher suites
    hello.block(1)  # compression methods
    if not hello:
        return None
    extensions = hello.block(2)
    while extensions:
        kind, content = extensions.number(2), extensions.block(2)
        if kind != _SERVER_NAME:
            continue
        names = content.block(2)
        while names:
            form, name = names.number(1), names.block(2).rest()
            if form == _SERVER_NAME:
                return _normal(name)
    return None


def _normal(name: bytes) -> str | None:
    try:
        text = name.decode("ascii")
    except UnicodeDecodeError:
        return None
    text = text.lower().removesuffix(".")
    return text if 0 < len(text) <= MAX_NAME_CHARACTERS and text.isprintable() else None
