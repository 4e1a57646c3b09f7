"""The floor: the cost of moving a message through Python and proton without any routing.

`python -m benchmarks.floor CERTIFICATE KEY [--uvloop] [--to PORT]` accepts AMQP clients on two ports of 127.0.0.1 that
the system chooses. The first is unencrypted, the second uses TLS. It prints `Listening on PORT TLS_PORT` on stderr. It
accepts any SASL mechanism and password. Every message goes from any sender to the newest receiver, and outcomes back.
It has no addresses, policy, management or counters. So a router can be compared with it in one run, on a fast or a slow
machine. With --to all messages go to another floor, on that port: floors in a row.

It also shows why it is cheap:
  * the C functions of python-qpid-proton are called directly (`cproton_ffi.lib`), not through its object wrappers;
  * SASL is handled here, and a bare proton transport gets only the AMQP bytes after it;
  * one pass per read: push everything, drain the collector, then flush each touched connection once.
"""

import asyncio
import ssl
import sys
from typing import Any, cast

from cproton_ffi import ffi, lib

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
OFFER_ANONYMOUS = b"\x00\x53\x40\xc0\x0c\x01\xa3\x09ANONYMOUS"
OUTCOME_OK = b"\x00\x53\x44\xc0\x03\x01\x50\x00"
INIT_ANONYMOUS = b"\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS"

READ_BYTES = 1 << 16
MESSAGE = bytearray(1 << 20)
MESSAGE_C = ffi.from_buffer(MESSAGE)
OUTPUT = bytearray(1 << 18)
OUTPUT_C = ffi.from_buffer(OUTPUT)
OUTPUT_VIEW = memoryview(OUTPUT)

# Of the C library: pn_link_t *, pn_delivery_t * ...
Pointer = Any

tag_number = 0
tag = ffi.new("pn_delivery_tag_t *")
tag.size, tag.start = 8, (tag_bytes := ffi.new("char[8]"))
tag_view = ffi.buffer(tag_bytes, 8)

receivers: "list[tuple[Pointer, Connection]]" = []  # (outgoing link, connection); the newest is used
senders: "list[tuple[Pointer, Connection]]" = []  # (incoming link, connection)
origin: "dict[Pointer, tuple[Pointer, Connection]]" = {}  # outgoing delivery -> (incoming delivery, its connection)
touched: "set[Connection]" = set()


def sasl_frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class Connection(asyncio.BufferedProtocol):
    is_client = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses.
        self.socket = cast(asyncio.Transport, transport)
        self.buffer = bytearray(READ_BYTES)
        self.view = memoryview(self.buffer)
        self.buffer_c = ffi.from_buffer(self.buffer)
        self.handshake = b""
        self.stage = "header"
        self.engine = lib.pn_transport()
        if not self.is_client:
            lib.pn_transport_set_server(self.engine)
        lib.pn_transport_set_max_frame(self.engine, 16384)
        self.amqp = lib.pn_connection()
        self.events = lib.pn_collector()
        lib.pn_connection_collect(self.amqp, self.events)
        lib.pn_transport_bind(self.engine, self.amqp)
        self.open = True
        self.paused = False

    def connection_lost(self, _error: Exception | None) -> None:
        self.open = False
        for links in (receivers, senders):
            links[:] = [entry for entry in links if entry[1] is not self]

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.flush()

    def get_buffer(self, _hint: int) -> memoryview:
        return self.view

    def buffer_updated(self, size: int) -> None:
        if self.stage != "amqp":
            self.handshake += bytes(self.view[:size])
            self.speak_sasl()
            if self.stage != "amqp" or not self.handshake:
                return
            lib.pn_transport_push(self.engine, self.handshake, len(self.handshake))
        else:
            at = 0
            while at < size:
                taken = lib.pn_transport_push(self.engine, self.buffer_c + at, size - at)
                if taken <= 0:
                    break
                at += taken
        self.drain()
        touched.add(self)
        for connection in list(touched):
            connection.flush()
        touched.clear()

    def speak_sasl(self) -> None:
        if self.stage == "header" and len(self.handshake) >= 8:
            assert self.handshake.startswith(SASL_HEADER), "the floor wants a SASL client"
            self.handshake = self.handshake[8:]
            self.socket.write(SASL_HEADER + sasl_frame(OFFER_ANONYMOUS))
            self.stage = "init"
        if self.stage == "init" and len(self.handshake) >= 4:
            size = int.from_bytes(self.handshake[:4], "big")
            if len(self.handshake) >= size:
                self.handshake = self.handshake[size:]
                self.socket.write(sasl_frame(OUTCOME_OK))
                self.enter()

    def enter(self) -> None:
        """Begins AMQP after SASL."""
        self.stage = "amqp"

    def flush(self) -> None:
        while self.open and not self.paused:
            size = min(lib.pn_transport_pending(self.engine), len(OUTPUT))
            if size <= 0:
                if size < 0:
                    self.socket.close()
                break
            lib.pn_transport_peek(self.engine, OUTPUT_C, size)
            self.socket.write(bytes(OUTPUT_VIEW[:size]))
            lib.pn_transport_pop(self.engine, size)
        self.drain()

    def drain(self) -> None:
        peek, pop, kind_of, events = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type, self.events
        while event := peek(events):
            kind = kind_of(event)
            if kind == lib.PN_DELIVERY:
                self.on_delivery(lib.pn_event_delivery(event))
            elif kind == lib.PN_LINK_FLOW:
                self.on_credit(lib.pn_event_link(event))
            elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
                lib.pn_connection_open(self.amqp)
            elif kind == lib.PN_SESSION_REMOTE_OPEN:
                lib.pn_session_open(lib.pn_event_session(event))
            elif kind == lib.PN_LINK_REMOTE_OPEN and not self.is_client:
                self.on_link(lib.pn_event_link(event))
            elif kind == lib.PN_LINK_REMOTE_CLOSE:
                self.on_detach(lib.pn_event_link(event))
            elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
                lib.pn_connection_close(self.amqp)
            pop(events)

    def on_link(self, link: Pointer) -> None:
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_open(link)
        (senders if lib.pn_link_is_receiver(link) else receivers).append((link, self))
        if onward is not None:
            onward.on_credit(receivers[0][0])
        elif receivers:
            for incoming, connection in senders:
                lib.pn_link_flow(incoming, 250)
                touched.add(connection)

    def on_credit(self, link: Pointer) -> None:
        """Does nothing: clients' receivers have enough credit."""

    def on_detach(self, link: Pointer) -> None:
        for links in (receivers, senders):
            links[:] = [entry for entry in links if entry[0] != link]
        lib.pn_link_close(link)
        lib.pn_link_free(link)

    def on_delivery(self, delivery: Pointer) -> None:
        global tag_number
        link = lib.pn_delivery_link(delivery)
        if lib.pn_link_is_receiver(link):
            if not lib.pn_delivery_readable(delivery) or lib.pn_delivery_partial(delivery):
                return
            size = lib.pn_link_recv(link, MESSAGE_C, len(MESSAGE))
            outgoing, connection = receivers[-1]
            lib.pn_link_advance(link)
            tag_number += 1
            tag_view[:] = tag_number.to_bytes(8, "big")
            forwarded = lib.pn_delivery(outgoing, tag[0])
            lib.pn_link_send(outgoing, MESSAGE_C, size)
            lib.pn_link_advance(outgoing)
            if lib.pn_delivery_settled(delivery):
                lib.pn_delivery_settle(forwarded)
                lib.pn_delivery_settle(delivery)
            else:
                origin[forwarded] = delivery, self
            if onward is None:
                lib.pn_link_flow(link, 1)
            touched.add(connection)
        elif lib.pn_delivery_updated(delivery):
            source, connection = origin.pop(delivery)
            lib.pn_delivery_update(source, lib.pn_delivery_remote_state(delivery))
            lib.pn_delivery_settle(source)
            lib.pn_delivery_settle(delivery)
            touched.add(connection)


class Onward(Connection):
    """A connection to another floor, as a sender: all messages go there."""

    is_client = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.socket.write(SASL_HEADER + sasl_frame(INIT_ANONYMOUS))

    def speak_sasl(self) -> None:
        # After the answer to our header: the mechanisms, the outcome.
        sizes = 8
        for _ in range(2):
            if len(self.handshake) < sizes + 4:
                return
            sizes += int.from_bytes(self.handshake[sizes : sizes + 4], "big")
        if len(self.handshake) >= sizes:
            self.handshake = self.handshake[sizes:]
            self.enter()

    def enter(self) -> None:
        global onward
        super().enter()
        lib.pn_connection_open(self.amqp)
        session = lib.pn_session(self.amqp)
        lib.pn_session_open(session)
        link = lib.pn_sender(session, b"onward")
        lib.pn_link_open(link)
        receivers.append((link, self))
        self.flush()
        onward = self

    def on_credit(self, link: Pointer) -> None:
        """Gives senders the credit of the next floor; otherwise messages would collect here, which costs time."""
        for incoming, connection in senders:
            more = lib.pn_link_credit(link) - lib.pn_link_credit(incoming)
            if more > 0:
                lib.pn_link_flow(incoming, more)
                touched.add(connection)


onward: Onward | None = None


async def main() -> None:
    loop = asyncio.get_running_loop()
    if "--to" in sys.argv:
        await loop.create_connection(Onward, "127.0.0.1", int(sys.argv[sys.argv.index("--to") + 1]))
        while onward is None:
            await asyncio.sleep(0.01)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:3])
    servers = [await loop.create_server(Connection, "127.0.0.1", 0, ssl=layer) for layer in (None, context)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print("Listening on", *ports, file=sys.stderr, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if "--uvloop" in sys.argv:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
