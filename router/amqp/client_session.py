"""The AMQP 1.0 client of the tools: one connection, one session, at most one receiver, and senders. Sans-IO.

`peer_sessions` answers sessions and links that the router begins by itself.

Bytes go in with `receive` and come out with `take_output`. Nothing here blocks or uses a clock. It uses only the codec,
so that qdstat and qdmanage start without an AMQP engine. Source: AMQP 1.0 part 2.
"""

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from router.amqp.codec import CodecError, decode, encode
from router.amqp.peer_sessions import MAX_SESSIONS, PeerSessions, TooMany
from router.values import Described, symbol, uint, ulong, ushort

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
MIN_MAX_FRAME_BYTES = 512

# The bytes that a router may send us in one frame, and in one whole reply. Attack: a hostile or broken router fills our
# memory. A page of 500 rows and the whole schema are well under a megabyte.
MAX_FRAME_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
INCOMING_WINDOW_FRAMES = 1024
LINK_CREDIT = 64

_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _DETACH, _END, _CLOSE = range(0x10, 0x19)
_RECEIVED, _ACCEPTED, _REJECTED, _RELEASED, _MODIFIED = range(0x23, 0x28)
_SOURCE, _TARGET, _ERROR = 0x28, 0x29, 0x1D
_OUTCOMES = {_REJECTED: "rejected", _RELEASED: "released", _MODIFIED: "modified"}
_REPLY_HANDLE = 0
_REPLY_LINK = "replies"
_REPLIES = "the reply receiver"
_FRAME = struct.Struct(">IBBH")


EndKind = Literal["connection", "session", "link", "delivery"]


class ProtocolError(Exception):
    """The peer's bytes are not AMQP that this client can handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The reason why nothing more can be done. `what` names the link for kind "link" and "delivery".

    condition, description  as the peer gave them, "" if it gave none
    """

    kind: EndKind
    what: str = ""
    condition: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The receiver that a session attaches.

    address  to receive from; None: an address that the router makes, for replies
    limit    the total number of messages to request; None: no limit
    """

    address: str | None = None
    limit: int | None = None

    @property
    def title(self) -> str:
        return _REPLIES if self.address is None else f"the receiver of {self.address}"


_OF_REPLIES = Receiver()


@dataclass(slots=True, kw_only=True)
class _Sender:
    address: str
    credit: int = 0
    delivery_count: int = 0


@dataclass(slots=True)
class _Waiting:
    """A message that is being sent. `sent` is the number of payload bytes that are already in frames."""

    handle: int
    payload: bytes
    sent: int = 0
    delivery_id: int = 0


@dataclass(slots=True)
class _Arriving:
    """A message of which more frames must arrive."""

    delivery_id: int | None = None
    is_settled: bool = False
    parts: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class ClientSession:
    """Sends header, OPEN, BEGIN and the receiver's ATTACH at once, without waiting for answers.

    reply_to        the address that the peer gave our receiver, None until then
    is_ready        True if the receiver is attached; if none is wanted, True if the session is begun
    accepted        the number of our messages that the peer has accepted
    remote_idle_s   the peer wants a frame at least this often; None if it has no limit
    ended           set once, if the peer ended the connection, the session or one of our links, or did not accept a
                    request
    is_open         True if the peer's OPEN has arrived
    is_closed       True if the CLOSE handshake is complete (or the peer closed first)
    """

    def __init__(self, *, container_id: str, hostname: str, receiver: Receiver | None = _OF_REPLIES) -> None:
        """Begins the session.

        receiver  None: the session only sends
        """
        self._receiver = receiver
        self.reply_to: str | None = None
        self.accepted = 0
        self.remote_idle_s: float | None = None
        self.ended: Ended | None = None
        self.is_open = False
        self.is_closed = False
        self._input = bytearray()
        self._is_header_seen = False
        self._output = bytearray(AMQP_HEADER)
        self._is_close_sent = False
        self._messages: deque[bytes] = deque()
        self._arriving: _Arriving | None = None
        self._senders: dict[int, _Sender] = {}
        self._waiting: deque[_Waiting] = deque()
        self._unsettled: dict[int, str] = {}  # delivery id -> address
        self._handles_by_name = {_REPLY_LINK: _REPLY_HANDLE}
        # The peer chooses its own handles for the links.
        self._handles_by_remote: dict[int, int] = {}
        self._received_count = 0
        self._next_delivery_id = 0
        self._max_frame_bytes = MIN_MAX_FRAME_BYTES
        self._remote_channel: int | None = None
        self._remote_window = 0
        self._next_outgoing_id = 0
        self._next_incoming_id: int | None = None
        self._incoming_window = INCOMING_WINDOW_FRAMES
        self._handlers: dict[int, Callable[[list[Any], bytes], None]] = {
            _OPEN: self._on_open,
            _BEGIN: self._on_begin,
            _ATTACH: self._on_attach,
            _FLOW: self._on_flow,
            _TRANSFER: self._on_transfer,
            _DISPOSITION: self._on_disposition,
            _DETACH: self._on_detach,
            _END: self._on_end,
            _CLOSE: self._on_close,
        }
        self._peers = PeerSessions(
            lambda performative, fields, channel: self._send(performative, fields, channel=channel)
        )
        self._send(_OPEN, [container_id, hostname, uint(MAX_FRAME_BYTES), ushort(MAX_SESSIONS)])
        window = uint(INCOMING_WINDOW_FRAMES)
        self._send(_BEGIN, [None, uint(0), window, window, uint(2**31 - 1)])
        if receiver is None:
            return
        # A dynamic source: the router makes an address, and sends the replies to it.
        terms = [None, None, None, None, True] if receiver.address is None else [receiver.address]
        source = Described(ulong(_SOURCE), terms)
        target = Described(ulong(_TARGET), [])
        self._send(_ATTACH, [_REPLY_LINK, uint(_REPLY_HANDLE), True, None, None, source, target])

    def take_output(self) -> bytes:
        """Returns the bytes for the peer since the last call."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def take_message(self) -> bytes | None:
        """Returns the oldest complete message that the receiver got, or None."""
        return self._messages.popleft() if self._messages else None

    @property
    def has_message(self) -> bool:
        return bool(self._messages)

    @property
    def is_ready(self) -> bool:
        return self._remote_channel is not None if self._receiver is None else self.reply_to is not None

    @property
    def unanswered(self) -> int:
        """The number of our messages that are not sent, or have no outcome yet."""
        return len(self._waiting) + len(self._unsettled)

    def send_message(self, address: str, payload: bytes) -> None:
        """Sends one encoded message to `address` as soon as the peer gives credit. Each address keeps its own link."""
        handle = next((known for known, sender in self._senders.items() if sender.address == address), None)
        if handle is None:
            handle = len(self._senders) + 1
            self._senders[handle] = _Sender(address=address)
            source = Described(ulong(_SOURCE), [])
            target = Described(ulong(_TARGET), [address])
            name = f"requests-{handle}"
            self._handles_by_name[name] = handle
            self._send(_ATTACH, [name, uint(handle), False, None, None, source, target, None, None, uint(0)])
        self._waiting.append(_Waiting(handle, payload))
        self._pump()

    def send_heartbeat(self) -> None:
        """Sends an empty frame, so that the peer's idle timeout does not expire."""
        self._output += _FRAME.pack(8, 2, 0, 0)

    def close(self) -> None:
        if not self._is_close_sent:
            self._is_close_sent = True
            self._send(_CLOSE, [])

    def receive(self, data: bytes) -> None:
        """Handles bytes from the peer. Errors: ProtocolError. After it the session must not be used."""
        self._input += data
        if not self._is_header_seen:
            if len(self._input) < len(AMQP_HEADER):
                return
            header = bytes(self._input[: len(AMQP_HEADER)])
            if header != AMQP_HEADER:
                raise ProtocolError(_describe_header(header))
            self._is_header_seen = True
            del self._input[: len(AMQP_HEADER)]
        while len(self._input) >= _FRAME.size:
            size, offset, kind, channel = _FRAME.unpack_from(self._input)
            if not 8 <= size <= MAX_FRAME_BYTES or not 8 <= offset * 4 <= size or kind != 0:
                raise ProtocolError(f"the router sent a frame of {size} bytes, type {kind}, which is not valid here")
            if len(self._input) < size:
                return
            body = bytes(self._input[offset * 4 : size])
            del self._input[:size]
            if body:
                self._on_frame(channel, body)

    # --- frames from the peer -----------------------------------------------------------------------------------------

    def _on_frame(self, channel: int, body: bytes) -> None:
        try:
            performative, end = decode(body)
        except CodecError as error:
            raise ProtocolError(f"the router sent a malformed frame: {error}") from None
        code = performative.descriptor if isinstance(performative, Described) else None
        handler = self._handlers.get(code) if isinstance(code, int) else None
        if handler is None or not isinstance(performative.value, list):
            raise ProtocolError("the router sent a frame that holds no AMQP performative")
        # The peer may leave out trailing fields. The added fields let the handlers use indexes.
        fields = performative.value + [None] * 14
        try:
            if code == _BEGIN and fields[0] is None:
                self._peers.begin(channel)
                return
            if channel in self._peers and code not in (_OPEN, _CLOSE):
                assert isinstance(code, int)  # it has a handler
                self._peers.on_frame(channel, code, fields)
                return
        except TooMany:
            raise ProtocolError("the router began more sessions or links than this client lets it") from None
        if code == _BEGIN:
            self._remote_channel = channel
        elif code not in (_OPEN, _CLOSE) and channel != self._remote_channel:
            raise ProtocolError("the router sent a frame on a channel that has no session")
        handler(fields, body[end:])

    def _on_open(self, fields: list[Any], _payload: bytes) -> None:
        self.is_open = True
        self._max_frame_bytes = max(MIN_MAX_FRAME_BYTES, min(_number(fields[2], 2**32 - 1), MAX_FRAME_BYTES))
        idle_ms = _number(fields[4], 0)
        self.remote_idle_s = idle_ms / 1000 if idle_ms else None

    def _on_begin(self, fields: list[Any], _payload: bytes) -> None:
        self._next_incoming_id = _number(fields[1], 0)
        self._remote_window = _number(fields[2], 0)
        self._pump()

    def _on_attach(self, fields: list[Any], _payload: bytes) -> None:
        name, remote_handle, source = fields[0], _number(fields[1], 0), fields[5]
        handle = self._handles_by_name.get(name) if isinstance(name, str) else None
        if handle is None:
            raise ProtocolError("the router attached a link this client did not ask for")
        self._handles_by_remote[remote_handle] = handle
        if handle != _REPLY_HANDLE or not isinstance(source, Described) or not isinstance(source.value, list):
            return  # a sender's ATTACH, or a refusal: its DETACH follows
        address = source.value[0] if source.value else None
        if not isinstance(address, str):
            raise ProtocolError(f"the router gave {self._title} no address")
        self.reply_to = address
        self._send_flow(with_credit=True)

    def _on_flow(self, fields: list[Any], _payload: bytes) -> None:
        # The peer may not have seen our latest frames: frames in flight still use its window (AMQP 1.0 2.5.6).
        self._remote_window = _number(fields[0], 0) + _number(fields[1], 0) - self._next_outgoing_id
        if fields[4] is not None:
            handle = self._handles_by_remote.get(_number(fields[4], 0))
            sender = self._senders.get(handle) if handle is not None else None
            if sender is not None and fields[6] is not None:
                sender.credit = _number(fields[5], 0) + _number(fields[6], 0) - sender.delivery_count
        self._pump()
        if fields[9]:
            self._send_flow()

    def _on_transfer(self, fields: list[Any], payload: bytes) -> None:
        if self._handles_by_remote.get(_number(fields[0], -1)) != _REPLY_HANDLE:
            raise ProtocolError(f"the router sent a message on a link that is not {self._title}")
        if self._next_incoming_id is not None:
            self._next_incoming_id = (self._next_incoming_id + 1) % 2**32
        self._incoming_window -= 1
        message = self._arriving = self._arriving or _Arriving()
        if fields[1] is not None:
            message.delivery_id = _number(fields[1], 0)
        message.is_settled = message.is_settled or fields[4] is True
        message.parts.append(payload)
        message.size_bytes += len(payload)
        if message.size_bytes > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of the router is larger than {MAX_MESSAGE_BYTES // 2**20} MiB")
        if fields[9] is True:  # aborted
            self._arriving = None
        elif fields[5] is not True:  # no more frames
            self._arriving = None
            self._received_count += 1
            self._messages.append(b"".join(message.parts))
            if not message.is_settled and message.delivery_id is not None:
                accepted = Described(ulong(_ACCEPTED), [])
                self._send(_DISPOSITION, [True, uint(message.delivery_id), None, True, accepted])
            if self._received_count % (LINK_CREDIT // 2) == 0:
                self._send_flow(with_credit=True)
        if self._incoming_window < INCOMING_WINDOW_FRAMES // 2:
            self._send_flow()

    def _on_disposition(self, fields: list[Any], _payload: bytes) -> None:
        if fields[0] is not True:
            return
        first = _number(fields[1], 0)
        last = _number(fields[2], first)
        state = fields[4]
        for delivery_id in [known for known in self._unsettled if first <= known <= last]:
            code = state.descriptor if isinstance(state, Described) else None
            if code == _RECEIVED or (code is None and fields[3] is not True):
                continue
            address = self._unsettled.pop(delivery_id)
            if fields[3] is not True:
                self._send(_DISPOSITION, [False, uint(delivery_id), None, True, state])
            self.accepted += code == _ACCEPTED
            outcome = _OUTCOMES.get(code) if isinstance(code, int) else None
            if outcome is not None:
                reason = state.value[0] if code == _REJECTED and isinstance(state.value, list) and state.value else None
                condition, description = _error(reason)
                self._end("delivery", address, f"{outcome}: {condition}" if condition else outcome, description)

    def _on_detach(self, fields: list[Any], _payload: bytes) -> None:
        handle = self._handles_by_remote.get(_number(fields[0], -1))
        sender = self._senders.get(handle) if handle is not None else None
        what = self._title if sender is None else f"the sender to {sender.address}"
        self._end("link", what, *_error(fields[2]))

    def _on_end(self, fields: list[Any], _payload: bytes) -> None:
        self._end("session", "", *_error(fields[0]))

    def _on_close(self, fields: list[Any], _payload: bytes) -> None:
        self.is_closed = True
        if not self._is_close_sent:
            self._end("connection", "", *_error(fields[0]))
            self.close()

    # --- frames to the peer -------------------------------------------------------------------------------------------

    def _end(self, kind: EndKind, what: str, condition: str, description: str) -> None:
        # The end of the connection says more than the end of the link or session before it.
        if self.ended is None or (kind == "connection" and condition):
            self.ended = Ended(kind=kind, what=what, condition=condition, description=description)

    def _send(self, performative: int, fields: list[Any], payload: bytes = b"", channel: int = 0) -> None:
        body = encode(Described(ulong(performative), fields))
        self._output += _FRAME.pack(_FRAME.size + len(body) + len(payload), 2, 0, channel) + body + payload

    def _send_flow(self, *, with_credit: bool = False) -> None:
        self._incoming_window = INCOMING_WINDOW_FRAMES
        next_incoming = None if self._next_incoming_id is None else uint(self._next_incoming_id)
        window = [
            next_incoming,
            uint(self._incoming_window),
            uint(self._next_outgoing_id),
            uint(INCOMING_WINDOW_FRAMES),
        ]
        link = [uint(_REPLY_HANDLE), uint(self._received_count), uint(self._credit())] if with_credit else []
        self._send(_FLOW, window + link)

    def _credit(self) -> int:
        limit = None if self._receiver is None else self._receiver.limit
        return LINK_CREDIT if limit is None else max(0, min(LINK_CREDIT, limit - self._received_count))

    @property
    def _title(self) -> str:
        return _REPLIES if self._receiver is None else self._receiver.title

    def _pump(self) -> None:
        """Sends as much as credit and the peer's window allow, oldest message first."""
        while self._waiting and self._remote_window > 0:
            message = self._waiting[0]
            sender = self._senders[message.handle]
            if not message.sent:
                if sender.credit <= 0:
                    return
                sender.credit -= 1
                sender.delivery_count += 1
                message.delivery_id = self._next_delivery_id
                self._next_delivery_id += 1
                self._unsettled[message.delivery_id] = sender.address
            # 64 bytes are enough for the frame header and the performative.
            end = min(len(message.payload), message.sent + self._max_frame_bytes - 64)
            is_last = end == len(message.payload)
            tag = b"%d" % message.delivery_id
            fields = [uint(message.handle), uint(message.delivery_id), tag, uint(0), False, not is_last]
            self._send(_TRANSFER, fields, message.payload[message.sent : end])
            message.sent = end
            self._next_outgoing_id += 1
            self._remote_window -= 1
            if is_last:
                self._waiting.popleft()


def _number(value: Any, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int):
        raise ProtocolError("the router sent a frame with text where a number belongs")
    return int(value)


def _error(value: Any) -> tuple[str, str]:
    """Returns condition and description of an AMQP error, "" if absent."""
    if not isinstance(value, Described) or value.descriptor != _ERROR or not isinstance(value.value, list):
        return "", ""
    condition, description, *_ = [*value.value, None, None]
    return (
        str(condition) if isinstance(condition, symbol) else "",
        description if isinstance(description, str) else "",
    )


def _describe_header(header: bytes) -> str:
    if header[:5] == b"AMQP\x03":
        return "the router requires SASL: give a user name, or the mechanism ANONYMOUS"
    if header[:5] == b"AMQP\x02":
        return "the router requires TLS: use an amqps: address or give a trust file"
    if header[:4] == b"AMQP":
        return "the router speaks another version of AMQP"
    return "the peer does not speak AMQP; is this the port of a router?"
