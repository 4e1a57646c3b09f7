"""Encodes and decodes SASL frames.

Sans-IO and strict: whatever a peer sends yields a frame, a request for more bytes, or `SaslFrameError`, never another
exception. Bytes after the requested frames stay in the reader unchanged.
Sources: AMQP 1.0 §5.3 (SASL), §1.2 (type encodings), §2.3 (frame layout).
"""

import struct
from dataclasses import dataclass
from functools import lru_cache

# AMQP 1.0 §5.3.1: no SASL frame may exceed MIN-MAX-FRAME-SIZE. The frames that we send obey it, except for tokens.
MAX_SENT_FRAME_BYTES = 512

# The largest frame we accept: Kerberos tickets and bearer tokens exceed 512 bytes in practice. Stops an unauthenticated
# peer from announcing a frame of 4 GiB and making us hold the part that arrives.
MAX_RECEIVED_FRAME_BYTES = 64 * 1024

# Stops an array of a million one-byte symbols from becoming a million objects; no library has this many mechanisms.
MAX_MECHANISMS = 64

_SASL_FRAME_TYPE = 1
_HEADER = struct.Struct(">IBBH")  # size, data offset in words, type, two ignored bytes

_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = range(0x40, 0x45)
_DESCRIPTOR_SYMBOLS = {
    b"amqp:sasl-mechanisms:list": _MECHANISMS,
    b"amqp:sasl-init:list": _INIT,
    b"amqp:sasl-challenge:list": _CHALLENGE,
    b"amqp:sasl-response:list": _RESPONSE,
    b"amqp:sasl-outcome:list": _OUTCOME,
}

OUTCOME_OK = 0
OK_FRAME = b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x44\xc0\x03\x01\x50\x00"  # the Outcome of that code
OUTCOME_AUTH = 1
OUTCOME_SYS_TEMP = 4
_OUTCOME_CODES = range(5)  # ok, auth, sys, sys-perm, sys-temp

_NULL, _UBYTE = 0x40, 0x50
_BINARY, _STRING, _SYMBOL = (0xA0, 0xB0), (0xA1, 0xB1), (0xA3, 0xB3)
_ARRAY = (0xE0, 0xF0)


class SaslFrameError(ValueError):
    """The bytes are not the expected SASL frame. The text names the fault and is safe for a log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms:
    """The server's offer, in its order of preference; may be empty."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """The client's choice. `initial_response` None: absent, which is not the same as empty."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None

    def __repr__(self) -> str:  # the response may hold a password
        return f"Init(mechanism={self.mechanism!r}, initial_response=…, hostname={self.hostname!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    challenge: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    response: bytes

    def __repr__(self) -> str:
        return "Response(response=…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """code 0 is success, 1 a failed authentication, 2..4 faults of the server's system."""

    code: int
    additional_data: bytes | None = None


SaslFrame = Mechanisms | Init | Challenge | Response | Outcome


class FrameReader:
    """Splits a byte stream into frames, one at a time.

    Holds the bytes fed and not yet taken. A caller that feeds without reading must check `pending_bytes` itself.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Returns the number of bytes held."""
        return len(self._pending)

    def feed(self, data: bytes) -> None:
        self._pending += data

    def next_frame(self) -> SaslFrame | None:
        """Returns the next complete frame, or None until more bytes come.

        Errors  SaslFrameError as soon as the bytes cannot become a frame; an oversized frame is refused on its header,
                before its body arrives.
        """
        pending = self._pending
        if len(pending) < _HEADER.size:
            return None
        size, offset_words, frame_type, _ignored = _HEADER.unpack_from(pending)
        if frame_type != _SASL_FRAME_TYPE:
            raise SaslFrameError(f"frame type {frame_type} during SASL, expected {_SASL_FRAME_TYPE}")
        if size > MAX_RECEIVED_FRAME_BYTES:
            raise SaslFrameError(f"SASL frame of {size} bytes, at most {MAX_RECEIVED_FRAME_BYTES} are accepted")
        if offset_words < 2 or offset_words * 4 > size:
            raise SaslFrameError(f"SASL frame of {size} bytes with a data offset of {offset_words} words")
        if len(pending) < size:
            return None
        body = bytes(pending[offset_words * 4 : size])
        del pending[:size]
        return _usual(body) or _decode_body(body)

    def take_rest(self) -> bytes:
        """Returns all bytes not yet taken as a frame, unchanged. The reader is empty afterwards."""
        rest = bytes(self._pending)
        self._pending.clear()
        return rest


@lru_cache(maxsize=64)
def encode_offer(names: tuple[str, ...]) -> bytes:
    """Encodes `Mechanisms`. Each connection gets one, and few differ. Errors: as `encode`."""
    return encode(Mechanisms(names=names))


def encode_challenge(data: bytes) -> bytes:
    """Encodes `Challenge`. Errors: as `encode`."""
    if (size := len(data)) <= 0xFF - 3:
        return b"\x00\x00%c%c\x02\x01\x00\x00\x00\x53\x42\xc0%c\x01\xa0%c%b" % (
            (size + 16) >> 8, (size + 16) & 0xFF, size + 3, size, data
        )  # fmt: skip
    return encode(Challenge(challenge=data))


def encode(frame: SaslFrame, max_bytes: int = MAX_SENT_FRAME_BYTES) -> bytes:
    """Encodes a frame for the wire.

    max_bytes  limit of the frame: the standard's; more for a token, which would not fit, and for a forwarded frame,
               which may be as large as what we accepted
    Errors     SaslFrameError if the frame would exceed it or a name is not ASCII.
    """
    match frame:
        case Mechanisms(names=names):
            descriptor, fields = _MECHANISMS, [_encode_symbol_array(names)]
        case Init(mechanism=mechanism, initial_response=response, hostname=hostname):
            descriptor, fields = _INIT, [_encode_bytes(_SYMBOL, _ascii(mechanism))]
            if response is not None or hostname is not None:
                fields.append(_encode_optional(_BINARY, response))
            if hostname is not None:
                fields.append(_encode_bytes(_STRING, hostname.encode("utf-8")))
        case Challenge(challenge=data):
            descriptor, fields = _CHALLENGE, [_encode_bytes(_BINARY, data)]
        case Response(response=data):
            descriptor, fields = _RESPONSE, [_encode_bytes(_BINARY, data)]
        case Outcome(code=code, additional_data=additional):
            descriptor, fields = _OUTCOME, [bytes((_UBYTE, code))]
            if additional is not None:
                fields.append(_encode_bytes(_BINARY, additional))
    body = bytes((0x00, 0x53, descriptor)) + _encode_list(fields)
    size = _HEADER.size + len(body)
    if size > max_bytes:
        raise SaslFrameError(f"SASL frame of {size} bytes, at most {max_bytes} may be sent")
    return _HEADER.pack(size, 2, _SASL_FRAME_TYPE, 0) + body


def _ascii(name: str) -> bytes:
    try:
        return name.encode("ascii")
    except UnicodeEncodeError:
        raise SaslFrameError("a SASL mechanism name must be ASCII") from None


def _encode_list(fields: list[bytes]) -> bytes:
    content = b"".join(fields)
    if len(content) + 1 <= 0xFF:
        return bytes((0xC0, len(content) + 1, len(fields))) + content
    return struct.pack(">BII", 0xD0, len(content) + 4, len(fields)) + content


def _encode_symbol_array(names: tuple[str, ...]) -> bytes:
    items = [_ascii(name) for name in names]
    if any(len(item) > 0xFF for item in items):
        raise SaslFrameError("a SASL mechanism name is longer than 255 bytes")
    content = b"".join(bytes((len(item),)) + item for item in items)
    if len(content) + 2 <= 0xFF:
        return bytes((0xE0, len(content) + 2, len(items), _SYMBOL[0])) + content
    return struct.pack(">BIIB", 0xF0, len(content) + 5, len(items), _SYMBOL[0]) + content


def _encode_optional(codes: tuple[int, int], data: bytes | None) -> bytes:
    return bytes((_NULL,)) if data is None else _encode_bytes(codes, data)


def _encode_bytes(codes: tuple[int, int], data: bytes) -> bytes:
    if len(data) <= 0xFF:
        return bytes((codes[0], len(data))) + data
    return struct.pack(">BI", codes[1], len(data)) + data


def _usual(body: bytes) -> SaslFrame | None:
    """Decodes an Init or a Response in the short encodings that nearly every client uses. None: use `_decode_body`.

    Accepts an Init with a mechanism and a response, but no hostname.
    """
    size = len(body)
    if size < 8 or body[:2] != b"\x00\x53" or body[3] != 0xC0 or body[4] != size - 5:
        return None
    code, fields, at = body[2], body[5], 6
    if code == _RESPONSE and fields == 1 and body[at] == _BINARY[0] and body[at + 1] == size - at - 2:
        return Response(response=body[at + 2 :])
    if code != _INIT or fields != 2 or body[at] != _SYMBOL[0]:
        return None
    end = at + 2 + body[at + 1]
    if size < end + 2 or body[end] != _BINARY[0] or body[end + 1] != size - end - 2:
        return None
    return Init(mechanism=_symbol(body[at + 2 : end]), initial_response=body[end + 2 :])


def _decode_body(body: bytes) -> SaslFrame:
    cursor = _Cursor(body)
    descriptor = cursor.descriptor()
    fields = cursor.list_fields()
    if not cursor.is_at_end:
        raise SaslFrameError("bytes after the body of a SASL frame")
    frame = _compose(descriptor, fields)
    if not fields.is_at_end or fields.fields_left > 0:
        raise SaslFrameError("a SASL frame with more fields than its type has")
    return frame


def _compose(descriptor: int, fields: "_Cursor") -> SaslFrame:
    match descriptor:
        case 0x40:
            return Mechanisms(names=tuple(_symbol(name) for name in fields.symbols()))
        case 0x41:
            mechanism = fields.variable(_SYMBOL, "the mechanism")
            if mechanism is None:
                raise SaslFrameError("sasl-init without a mechanism")
            response = fields.variable(_BINARY, "the initial response")
            hostname = fields.variable(_STRING, "the hostname")
            return Init(mechanism=_symbol(mechanism), initial_response=response, hostname=_text(hostname))
        case 0x42:
            return Challenge(challenge=fields.binary("the challenge"))
        case 0x43:
            return Response(response=fields.binary("the response"))
        case _:
            code = fields.code()
            return Outcome(code=code, additional_data=fields.variable(_BINARY, "the additional data"))


def _symbol(raw: bytes) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise SaslFrameError("a symbol that is not ASCII") from None


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SaslFrameError("a string that is not UTF-8") from None


class _Cursor:
    """Reads AMQP values from bytes. Every read checks the length first."""

    __slots__ = ("_at", "_data", "fields_left")

    def __init__(self, data: bytes, fields: int = 0) -> None:
        self._data = data
        self._at = 0
        self.fields_left = fields  # of the list that this cursor is in

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise SaslFrameError("a SASL frame ends within a value")
        self._at += size
        return taken

    def number(self, width: int) -> int:
        if width == 1 and self._at < len(self._data):  # nearly all of them
            self._at += 1
            return self._data[self._at - 1]
        return int.from_bytes(self.take(width), "big")

    def descriptor(self) -> int:
        if self.number(1) != 0x00:
            raise SaslFrameError("the body of a SASL frame is not a described list")
        code = self.number(1)
        if code in _SYMBOL:
            value = _DESCRIPTOR_SYMBOLS.get(self.take(self.number(_width(code))), -1)
        elif code in (0x53, 0x80):
            value = self.number(1 if code == 0x53 else 8)
        else:
            value = -1
        if not _MECHANISMS <= value <= _OUTCOME:
            raise SaslFrameError("the body of a SASL frame is none of the five SASL types")
        return value

    def list_fields(self) -> "_Cursor":
        code = self.number(1)
        if code == 0x45:
            return _Cursor(b"")
        if code not in (0xC0, 0xD0):
            raise SaslFrameError("the body of a SASL frame is not a list")
        width = 1 if code == 0xC0 else 4
        content = self.take(self.number(width))
        if len(content) < width:
            raise SaslFrameError("a list shorter than its own count")
        return _Cursor(content[width:], int.from_bytes(content[:width], "big"))

    def variable(self, codes: tuple[int, int], what: str) -> bytes | None:
        """Returns the next field. None if it is null or the list has ended."""
        code = self._field_code()
        if code == _NULL:
            return None
        if code not in codes:
            raise SaslFrameError(f"{what} has type 0x{code:02x}, expected 0x{codes[0]:02x} or 0x{codes[1]:02x}")
        return self.take(self.number(_width(code)))

    def binary(self, what: str) -> bytes:
        value = self.variable(_BINARY, what)
        if value is None:
            raise SaslFrameError(f"{what} is missing")
        return value

    def code(self) -> int:
        if self._field_code() != _UBYTE:
            raise SaslFrameError("the outcome's code is missing or not a ubyte")
        value = self.number(1)
        if value not in _OUTCOME_CODES:
            raise SaslFrameError(f"outcome code {value}, expected 0 to 4")
        return value

    def symbols(self) -> list[bytes]:
        """Returns a field of several symbols: an array, a single symbol, or null for none (AMQP 1.0 §1.4, multiple)."""
        code = self._field_code()
        if code == _NULL:
            return []
        if code in _SYMBOL:
            return [self.take(self.number(_width(code)))]
        if code not in _ARRAY:
            raise SaslFrameError("the mechanisms are not symbols")
        width = 1 if code == _ARRAY[0] else 4
        content = _Cursor(self.take(self.number(width)))
        count = content.number(width)
        if count > MAX_MECHANISMS:
            raise SaslFrameError(f"{count} mechanisms, at most {MAX_MECHANISMS} are accepted")
        item_code = content.number(1)
        if item_code not in _SYMBOL and count > 0:
            raise SaslFrameError("the mechanisms are not symbols")
        names = [content.take(content.number(_width(item_code))) for _ in range(count)]
        if not content.is_at_end:
            raise SaslFrameError("an array longer than its count")
        return names

    def _field_code(self) -> int:
        if self.fields_left == 0:
            return _NULL
        self.fields_left -= 1
        return self.number(1)


def _width(code: int) -> int:
    """Returns the size of a variable-width value's length: 1 byte for 0xA. codes, 4 for 0xB. codes."""
    return 1 if code & 0xF0 == 0xA0 else 4
