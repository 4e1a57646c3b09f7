"""One connection of a router, by hand, on 127.0.0.1 in a thread: enough for the tools' transport to talk to."""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from auth.credentials import CheckPassword, VerifyResult
from auth.mechanisms import Channel
from auth.negotiation import Rejected, Reply, ServerNegotiation, Verify
from auth.secrets import Secret
from auth.tls import TlsFailure, TlsTunnel
from router.amqp.codec import Message, decode, decode_message, encode, encode_message
from router.values import Described, symbol, uint, ulong, ushort

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
PAYLOAD_BYTES = 60_000
HEADERS = {"sasl": b"AMQP\x03\x01\x00\x00", "amqp": b"AMQP\x00\x01\x00\x00"}


def frame(code: int, fields: list[Any], payload: bytes = b"") -> bytes:
    body = encode(Described(ulong(code), fields)) + payload
    return struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body


def transfers(number: int, message: bytes) -> Iterator[bytes]:
    """A message in frames of the size that the tools take."""
    for start in range(0, len(message), PAYLOAD_BYTES):
        part = message[start : start + PAYLOAD_BYTES]
        has_more = start + len(part) < len(message)
        yield frame(TRANSFER, [uint(0), uint(number), b"t%d" % number, uint(0), True, has_more], part)


class LoopbackRouter:
    """Use as a context manager.

    context   of TLS, None for plain sockets
    users     with SASL: name -> password; None for no SASL
    answer    called with each request, returns the messages to send back
    on_open   what to do when OPEN comes: "serve", "hang up", "close", "refuse links", "say nothing"
    idle_ms   announced in OPEN
    leaves    the connection is closed with an answer, in one write
    """

    def __init__(
        self,
        *,
        context: ssl.SSLContext | None = None,
        users: Mapping[str, str] | None = None,
        offered: tuple[str, ...] = ("PLAIN", "ANONYMOUS"),
        answer: Callable[[Message], Sequence[bytes | float]] | None = None,
        on_open: str = "serve",
        idle_ms: int = 0,
        leaves: bool = False,
    ) -> None:
        self.leaves = leaves
        self.reason = "you are denied"
        self.context, self.users, self.offered = context, users, offered
        self.answer, self.on_open, self.idle_ms = answer or (lambda request: [reply_to(request)]), on_open, idle_ms
        self.empty_frames = 0
        self.requests: list[Message] = []
        self.closed = threading.Event()

    def __enter__(self) -> Self:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Ends an accept() that nobody came to.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass
        self.thread.join(10)
        self.listener.close()
        assert not self.thread.is_alive()

    def run(self) -> None:
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(10)
        self.tunnel = TlsTunnel(self.context, server_side=True) if self.context else None
        with self.socket, contextlib.suppress(TlsFailure, ConnectionError, EOFError):
            self.serve()
        self.closed.set()

    def write(self, data: bytes) -> None:
        if self.tunnel:
            self.tunnel.send(data)
            data = self.tunnel.take_output()
        self.socket.sendall(data)

    def read(self) -> bytes:
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            if not self.tunnel:
                return data
            try:
                data = self.tunnel.receive(data)
            finally:
                self.socket.sendall(self.tunnel.take_output())
            if data:
                return data

    def serve(self) -> None:
        self.input = self.read()
        if self.users is not None:
            self.take(HEADERS["sasl"])
            self.authenticate()
        self.take(HEADERS["amqp"])
        while True:
            while len(self.input) < 8 or len(self.input) < struct.unpack_from(">I", self.input)[0]:
                self.input += self.read()
            size = struct.unpack_from(">I", self.input)[0]
            body, self.input = self.input[8:size], self.input[size:]
            if not body:
                self.empty_frames += 1
            elif not self.on_frame(*decode(body), body):
                return

    def take(self, header: bytes) -> None:
        while len(self.input) < 8:
            self.input += self.read()
        found, self.input = self.input[:8], self.input[8:]
        self.write(header)
        if found != header:
            raise EOFError

    def authenticate(self) -> None:
        assert self.users is not None
        negotiation = ServerNegotiation(offered=self.offered, channel=Channel(external_user="external"))
        effects = negotiation.start() + negotiation.receive(self.input)
        while True:
            pending = list(effects)
            for effect in pending:
                match effect:
                    case Reply(data=data):
                        self.write(data)
                    case Verify(request=CheckPassword() as request):
                        expected = Secret(self.users.get(request.user, "\0"))
                        pending += negotiation.resume(VerifyResult(is_valid=request.password == expected))
                    case Rejected():
                        raise EOFError
                    case _:
                        self.input = negotiation.take_rest()
                        return
            effects = negotiation.receive(self.read())

    def on_frame(self, performative: Described, end: int, body: bytes) -> bool:
        fields = performative.value + [None] * 12
        match performative.descriptor:
            case 0x10:
                if self.on_open == "hang up":
                    return False
                if self.on_open != "say nothing":
                    self.write(frame(OPEN, ["loopback", None, None, None, uint(self.idle_ms)]))
                if self.on_open == "close":
                    error = Described(ulong(0x1D), [symbol("amqp:connection:policy"), self.reason])
                    self.write(frame(CLOSE, [error]))
            case 0x11 if self.on_open in ("serve", "refuse links"):
                self.write(frame(BEGIN, [ushort(0), uint(0), uint(100), uint(100)]))
            case 0x12 if self.on_open == "serve":
                self.attach(fields)
            case 0x12 if self.on_open == "refuse links":
                self.write(frame(ATTACH, [fields[0], fields[1], not fields[2], None, None, None, None]))
                error = Described(ulong(0x1D), [symbol("amqp:unauthorized-access"), "link disallowed"])
                self.write(frame(DETACH, [fields[1], True, error]))
            case 0x14:
                self.transfer(fields, body[end:])
            case 0x18:
                self.write(frame(CLOSE, []))
                return False
        return True

    def attach(self, fields: list[Any]) -> None:
        name, handle, is_receiver = fields[:3]
        source = Described(ulong(0x28), ["reply.1"]) if is_receiver else fields[5]
        count = uint(0) if is_receiver else None
        self.write(frame(ATTACH, [name, handle, not is_receiver, None, None, source, fields[6], None, None, count]))
        if not is_receiver:
            self.write(frame(FLOW, [uint(0), uint(100), uint(0), uint(100), handle, uint(0), uint(1000)]))

    def transfer(self, fields: list[Any], payload: bytes) -> None:
        self.write(frame(DISPOSITION, [True, fields[1], None, True, Described(ulong(0x24), [])]))
        request = decode_message(payload)
        self.requests.append(request)
        for number, message in enumerate(self.answer(request)):
            if isinstance(message, float):
                time.sleep(message)
            else:
                sent = b"".join(transfers(number, message))
                error = Described(ulong(0x1D), [symbol("amqp:connection:forced"), "go away"])
                self.write(sent + (frame(CLOSE, [error]) if self.leaves else b""))


def reply_to(request: Message, body: Any = "pong", **changes: Any) -> bytes:
    fields = {"correlation_id": request.correlation_id, "body": body, **changes}
    properties = {"statusCode": 200, "statusDescription": "OK"}
    return encode_message(to=request.reply_to, application_properties=properties, **fields)
