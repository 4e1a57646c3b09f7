"""The frames of a WebSocket, server side: the handshake's answer, bytes in, bytes out. Pure.

wsproto checks all frames except plain ones. A plain frame is a whole, masked, final binary frame. Nearly all frames are
plain, and are read here in a fraction of the time. AMQP is a stream to this layer: its frames need not be the WebSocket
frames. Sources: RFC 6455; AMQP WebSocket Binding 1.0 §2; docs/spec/routing.md §2.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable
from typing import Final

from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, MessageDecoder, Opcode, ParseFailed
from wsproto.utilities import generate_accept_token

from router.web.limits import (
    EMPTY_FRAMES_BURST,
    EMPTY_FRAMES_PER_S,
    FRAMES_AT_ONCE,
    MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES_BEFORE_OPEN,
)

BeginTurn = Callable[[], Callable[[], bool]]

VERSION: Final = "13"
PROTOCOLS: Final = ("amqp", "binary")
_PLAIN: Final = 0x82  # final, binary, no reserved bit
_MASKED: Final = 0x80
_SHORT, _LONG = 126, 127  # these lengths announce that the length follows in two or eight bytes
_KEY_BYTES: Final = 16
_MOST_REASON_BYTES: Final = 123


class Broken(Exception):
    """The peer has broken the protocol.

    code  of the Close frame
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def accept_key(key: str) -> str | None:
    """Returns the answer to a Sec-WebSocket-Key, or None if it is no valid key."""
    try:
        is_key = len(b64decode(key.encode("ascii"), validate=True)) == _KEY_BYTES
    except (binascii.Error, UnicodeEncodeError):
        return None
    return generate_accept_token(key.encode("ascii")).decode("ascii") if is_key else None


def frame(opcode: int, payload: bytes) -> bytes:
    """Returns one final frame of the server, which is not masked."""
    size = len(payload)
    if size < _SHORT:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, _SHORT)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, _LONG)) + size.to_bytes(8, "big") + payload


def binary_frame(payload: bytes) -> bytes:
    return frame(Opcode.BINARY, payload)


def close_frame(code: int, why: str = "") -> bytes:
    reason = why.encode()[:_MOST_REASON_BYTES].decode("utf-8", "ignore").encode()
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason)


class Frames:
    """The frames that the peer sends.

    has_more    True if some bytes wait for the connection's next turn
    output      frames for the peer: answers to Pings, the answer to a Close
    is_closed   True if the peer has sent its Close
    is_known    True if the peer's Open was admitted. From then on it may send large frames
    """

    __slots__ = (
        *("_allowance", "_clock", "_decoder", "_is_inside", "_looked_at", "_message", "_message_bytes", "_waiting"),
        *("has_more", "is_closed", "is_known", "output"),
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        """Starts before the first frame.

        clock  monotonic seconds
        """
        self._clock = clock
        self._decoder = FrameDecoder(client=False)
        self._message = MessageDecoder()
        self._is_inside = False  # wsproto has begun a frame, or a message in fragments
        self._message_bytes = 0  # of the message under way
        self._waiting = b""
        self._allowance = float(EMPTY_FRAMES_BURST)
        self._looked_at = clock()
        self.has_more = self.is_closed = self.is_known = False
        self.output: list[bytes] = []

    @property
    def held_bytes(self) -> int:
        return len(self._waiting) + len(self._decoder.buffer)

    def receive(self, data: bytes, begin_turn: BeginTurn) -> bytes:
        """Takes bytes, and waiting ones first. Returns the payload of data frames. Errors: Broken. Hot.

        begin_turn  as in Work; called if there are more frames than FRAMES_AT_ONCE
        """
        if self.is_closed:
            return b""
        if self._waiting:
            data, self._waiting = self._waiting + data, b""
        self.has_more = False
        found: list[bytes] = []
        at = 0 if self._is_inside else self._read_plain(data, found, begin_turn)
        if not self.has_more and (at < len(data) or self._is_inside):
            self._decoder.receive_bytes(data[at:] if at else data)
            self._parse(found, begin_turn)
        return found[0] if len(found) == 1 else b"".join(found)

    def _read_plain(self, data: bytes, found: list[bytes], begin_turn: BeginTurn) -> int:
        """Reads plain frames while they are complete. Returns the offset of the first other or incomplete frame."""
        at, end, count, has_time = 0, len(data), 0, None
        while at + 6 < end and data[at] == _PLAIN and data[at + 1] > _MASKED:
            size, start = data[at + 1] - _MASKED, at + 2
            if size == _SHORT:
                size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
                if size < _SHORT:
                    break
            elif size == _LONG:
                break
            stop = start + 4 + size
            if stop > end:
                break
            if not self.is_known and size > MAX_MESSAGE_BYTES_BEFORE_OPEN:
                break
            if count == FRAMES_AT_ONCE:
                has_time = has_time or begin_turn()
                if not has_time():
                    self._waiting, self.has_more = data[at:], True
                    break
                count = 0
            count += 1
            found.append(_unmasked(data[start + 4 : stop], data[start : start + 4]))
            at = stop
        return at

    def _parse(self, found: list[bytes], begin_turn: BeginTurn) -> None:
        """Reads frames of any kind with wsproto."""
        decoder, count, has_time = self._decoder, 0, None
        try:
            while not self.is_closed:
                if count == FRAMES_AT_ONCE:
                    has_time = has_time or begin_turn()
                    if not has_time():
                        self.has_more = True
                        break
                    count = 0
                count += 1
                read = decoder.process_buffer()
                if (header := decoder.header) is not None:
                    self._limit(header.payload_len)
                if read is None:
                    break
                if read.opcode.iscontrol():
                    self._control(read.opcode, read.payload)  # type: ignore[arg-type]  # bytes, of a control frame
                else:
                    self._data(self._message.process_frame(read), found)
        except ParseFailed as error:
            raise Broken(int(error.code), str(error)) from None
        self._is_inside = decoder.header is not None or len(decoder.buffer) > 0 or self._message.opcode is not None

    def _limit(self, size: int) -> None:
        most = MAX_FRAME_BYTES if self.is_known else MAX_MESSAGE_BYTES_BEFORE_OPEN
        if size > most:
            raise Broken(CloseReason.MESSAGE_TOO_BIG, f"a frame of {size} bytes, more than {most}")

    def _data(self, read: Frame, found: list[bytes]) -> None:
        if read.opcode is not Opcode.BINARY:
            raise Broken(CloseReason.UNSUPPORTED_DATA, "a text frame: AMQP comes in binary ones")
        payload = read.payload
        assert isinstance(payload, bytes)
        if not payload:
            self._charge("frames without data")
        self._message_bytes = 0 if read.message_finished else self._message_bytes + len(payload)
        if not self.is_known:
            self._limit(self._message_bytes)
        found.append(payload)

    def _control(self, opcode: Opcode, payload: bytes) -> None:
        if opcode is Opcode.CLOSE:
            self.is_closed = True
            code = int.from_bytes(payload[:2], "big") if len(payload) > 1 else int(CloseReason.NORMAL_CLOSURE)
            is_valid = len(payload) != 1 and (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999)
            self.output.append(close_frame(code if is_valid else int(CloseReason.PROTOCOL_ERROR)))
            return
        self._charge("control frames")
        if opcode is Opcode.PING:
            self.output.append(frame(Opcode.PONG, payload))

    def _charge(self, what: str) -> None:
        now = self._clock()
        refilled = self._allowance + (now - self._looked_at) * EMPTY_FRAMES_PER_S
        self._allowance, self._looked_at = min(refilled, EMPTY_FRAMES_BURST) - 1, now
        if self._allowance < 0:
            raise Broken(CloseReason.POLICY_VIOLATION, f"too many {what}")


def _unmasked(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(payload, "little") ^ mask).to_bytes(size, "little")
