"""HTTP, and after an upgrade WebSocket, as a layer between TLS or the socket and AMQP. Sans-IO, pure.

A connection answers requests one after the other. Requests that arrive meanwhile wait, up to a limit. After the upgrade
the layer passes the payload of frames up, and puts data from above into frames. `is_established` is then true. Source:
docs/spec/routing.md §2.
"""

from collections.abc import Callable
from typing import Final, Literal, Protocol

import h11

from router.web.answers import PROTECTION, SERVER, STRICT_TRANSPORT, Answer, text_answer
from router.web.limits import HEAD_S, KEEP_ALIVE_S, MAX_EARLY_BYTES, MAX_HEAD_BYTES, MAX_REQUESTS, STALL_S
from router.web.requests import END_OF_HEAD, BadRequest, Request, new_reader, read_request
from router.web.websocket import BeginTurn, Broken, Frames, binary_frame, close_frame

NORMAL: Final = 1000
FAILED: Final = 1011
_METHODS: Final = ("GET", "HEAD")

WebReason = Literal["http_malformed", "websocket_malformed"]


class Host(Protocol):
    """The connection that the layer belongs to.

    answer        answers a request by WebLayer.respond, at once or later; or by WebLayer.upgrade
    go_on         writes what the layer has ready, between two reads, and reads on
    broken        the peer broke the protocol. The response to it is already written
    ended         the connection is over, as HTTP or WebSocket ends one
    dated         the time of day, as in RFC 9110 §5.6.7
    """

    def answer(self, request: Request, /) -> None: ...
    def go_on(self) -> None: ...
    def broken(self, reason: WebReason, why: str, /) -> None: ...
    def ended(self) -> None: ...
    def dated(self) -> str: ...


class WebLayer:
    """The HTTP and WebSocket state of one connection.

    has_more     as in router.connection.layers.Layer
    deadline      monotonic seconds: for the head, the next request or the reading of a response; None after the upgrade
    closes_with   code and text of the Close frame, if the end is no failure of WebSocket
    """

    def __init__(self, host: Host, clock: Callable[[], float], *, is_secure: bool) -> None:
        """Starts with HTTP.

        is_secure  True if the layer is inside TLS
        """
        self._host: Host | None = host
        self._clock = clock
        self._protection = (*PROTECTION, STRICT_TRANSPORT) if is_secure else PROTECTION
        self._reader = new_reader()
        self._head = bytearray()  # bytes that arrived and are not read
        self._looked = 0  # the first bytes of it, in which no head ends
        self._out: list[bytes] = []
        self._request: Request | None = None  # the request that is being answered
        self._answer: Answer | None = None  # the answer whose body comes in pieces
        self._left = 0  # its remaining bytes
        self._is_reading = False  # a piece of it is being read
        self._count = 0
        self._is_blocked = self._is_over = False
        self._frames: Frames | None = None
        self.has_more = False
        self.deadline: float | None = clock() + HEAD_S
        self.closes_with = (NORMAL, "")

    @property
    def is_established(self) -> bool:
        """True if the peer has a WebSocket."""
        return self._frames is not None

    @property
    def is_idle(self) -> bool:
        """True if the peer has answers to all its requests, and is sending none."""
        return self._count > 0 and not self._head and self._request is None

    @property
    def held_bytes(self) -> int:
        """The bytes that arrived and are kept."""
        return len(self._head) + (self._frames.held_bytes if self._frames is not None else 0)

    def know(self) -> None:
        """Notes that the peer's Open was admitted."""
        if self._frames is not None:
            self._frames.is_known = True

    # Layer

    def receive(self, data: bytes, begin_turn: BeginTurn) -> bytes:
        if self._frames is None:
            self._take(data, begin_turn())
            if self._frames is None or not self._head:
                return b""
            data = bytes(self._head)
            self._head.clear()
        return self._receive_frames(self._frames, data, begin_turn)

    def send(self, data: bytes) -> None:
        if self._frames is not None and not self._is_over:
            self._out.append(binary_frame(data))

    def take_output(self) -> bytes:
        if not self._out:
            return b""
        output = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return output

    def close(self) -> None:
        """Sends the Close of a WebSocket."""
        if self._frames is not None and not self._is_over:
            self._is_over = True
            self._out.append(close_frame(*self.closes_with))

    def discard(self) -> None:
        self._end_body()
        self._host = self._request = None
        self._is_over, self.has_more = True, False
        self._head.clear()
        self._out.clear()

    # Requests

    def _take(self, data: bytes, has_time: Callable[[], bool]) -> None:
        if self._is_over:
            return
        if data:
            if not self._head and self._request is None:
                self.deadline = self._clock() + HEAD_S
            self._head += data
        self._read_on(has_time)

    def _read_on(self, has_time: Callable[[], bool]) -> None:
        """Answers complete requests while there is time and the previous one has its answer."""
        self.has_more = False
        is_first = True
        try:
            while self._may_read():
                end = self._head.find(END_OF_HEAD, max(self._looked - len(END_OF_HEAD), 0))
                if end < 0:
                    self._looked = len(self._head)
                    if self._looked > MAX_HEAD_BYTES:
                        raise BadRequest(431, f"a header section of more than {MAX_HEAD_BYTES} bytes")
                    return
                if not is_first and not has_time():
                    self.has_more = True
                    return
                is_first, self._looked = False, 0
                self._read_one(end + len(END_OF_HEAD))
            if self._frames is None and len(self._head) > MAX_EARLY_BYTES:
                raise BadRequest(400, "requests before the answer to the last one")
        except BadRequest as error:
            self._refuse(error)

    def _may_read(self) -> bool:
        return (
            self._request is None
            and not self._is_blocked
            and not self._is_over
            and self._frames is None
            and bool(self._head)
        )

    def _read_one(self, size: int) -> None:
        if size > MAX_HEAD_BYTES:
            raise BadRequest(431, f"a header section of more than {MAX_HEAD_BYTES} bytes")
        head = bytes(self._head[:size])
        del self._head[:size]
        self._request = request = read_request(self._reader, head)
        self._count += 1
        self.deadline = self._clock() + STALL_S
        if request.method not in _METHODS:
            self.respond(text_answer(405, "only GET and HEAD", ("allow", ", ".join(_METHODS)), closes=True))
        elif self._host is not None:
            self._host.answer(request)

    def _refuse(self, error: BadRequest) -> None:
        """Refuses a bad request and ends the connection, because the begin of the next request is unknown."""
        self._is_over = True
        self._end_body()
        self._respond_blindly(text_answer(error.status, str(error)))
        if self._host is not None:
            self._host.broken("http_malformed", str(error))

    def time_out(self) -> None:
        """Handles that the deadline is over: the peer did not finish its request."""
        if self._head and self._request is None:
            self._respond_blindly(text_answer(408, "the request took too long"))
        self._is_over = True

    def _respond_blindly(self, answer: Answer) -> None:
        """Answers a request that could not be read, unless another answer is under way."""
        if self._answer is None and self._frames is None:
            headers = (*self._headers_of(answer), ("connection", "close"))
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
            self._out.append(f"HTTP/1.1 {answer.status} {answer.reason}\r\n{lines}\r\n".encode() + answer.body)

    # Answers

    def _headers_of(self, answer: Answer) -> tuple[tuple[str, str], ...]:
        date = (("date", self._host.dated()),) if self._host is not None else ()
        length = () if answer.status == 304 else (("content-length", str(answer.length)),)
        return (*answer.headers, *length, ("server", SERVER), *date, *self._protection)

    def respond(self, answer: Answer) -> None:
        """Answers the request under way. Ignores all answers after the first."""
        request = self._request
        if request is None or self._answer is not None or self._is_over:
            if answer.source is not None:
                answer.source.close()
            return
        closes = answer.closes or self._count >= MAX_REQUESTS
        headers = self._headers_of(answer) + ((("connection", "close"),) if closes else ())
        has_body = request.method != "HEAD" and answer.status != 304
        self._emit(h11.Response(status_code=answer.status, reason=answer.reason.encode(), headers=_encoded(headers)))
        if has_body and answer.source is not None and answer.size:
            self._answer, self._left = answer, answer.size
            self._go_on_with_body()
            return
        if answer.source is not None:
            answer.source.close()
        elif has_body and answer.body:
            self._emit(h11.Data(data=answer.body))
        self._conclude()

    def _emit(self, event: h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage) -> None:
        if data := self._reader.send(event):
            self._out.append(data)

    def _on_piece(self, piece: bytes) -> None:
        self._is_reading = False
        answer = self._answer
        if answer is None or answer.source is None or self._host is None:
            return
        if not piece or len(piece) > self._left:
            # The file differs from the announced one. The peer sees that the body was cut off.
            self._end_body()
            self._is_over = True
            self._host.ended()
            self._host.go_on()
            return
        self._left -= len(piece)
        self.deadline = self._clock() + STALL_S
        self._emit(h11.Data(data=piece))
        if not self._left:
            self._end_body()
            self._conclude()
        self._host.go_on()
        self._go_on_with_body()

    def _go_on_with_body(self) -> None:
        answer = self._answer
        if answer is not None and answer.source is not None and not self._is_blocked and not self._is_reading:
            self._is_reading = True
            answer.source.read(self._on_piece)

    def _end_body(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and answer.source is not None:
            answer.source.close()

    def _conclude(self) -> None:
        """Ends the request, which has its whole answer."""
        self._emit(h11.EndOfMessage())
        self._request = None
        self.deadline = self._clock() + KEEP_ALIVE_S
        if self._reader.our_state is h11.DONE and self._reader.their_state is h11.DONE:
            self._reader.start_next_cycle()
            return
        self._is_over = True
        if self._host is not None:
            self._host.ended()

    def go_on(self, has_time: Callable[[], bool]) -> None:
        """Continues with waiting requests, because the last answer came after its read."""
        if self._frames is None and not self._is_over:
            self._read_on(has_time)

    def set_blocked(self, is_blocked: bool) -> None:
        """Notes that the socket's buffer is full, or has room again. Then the body continues."""
        self._is_blocked = is_blocked
        if not is_blocked and self._request is not None and self._answer is not None:
            self.deadline = self._clock() + STALL_S
            self._go_on_with_body()

    # WebSocket

    def upgrade(self, protocol: str, key: str) -> None:
        """Makes a WebSocket of the request under way.

        key  of the answer
        """
        headers = (
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-accept", key),
            ("sec-websocket-protocol", protocol),
            ("server", SERVER),
        )
        self._emit(h11.InformationalResponse(status_code=101, reason=b"Switching Protocols", headers=_encoded(headers)))
        self._request, self.deadline = None, None
        self._frames = Frames(self._clock)

    def _receive_frames(self, frames: Frames, data: bytes, begin_turn: BeginTurn) -> bytes:
        if self._is_over:
            return b""
        try:
            payload = frames.receive(data, begin_turn)
        except Broken as error:
            payload, self._is_over = b"", True
            self._out += (*frames.output, close_frame(error.code, str(error)))
            frames.output.clear()
            if self._host is not None:
                self._host.broken("websocket_malformed", str(error))
        self.has_more = frames.has_more and not self._is_over
        if frames.output:
            self._out += frames.output
            frames.output.clear()
        if frames.is_closed and not self._is_over:
            self._is_over = True
            if self._host is not None:
                self._host.ended()
        return payload


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
