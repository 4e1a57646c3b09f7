"""Send a few messages to an address of a secured router and receive them again, over one connection.

    printf %s "$ALICE_PASSWORD" | python deploy/examples/send_receive.py \\
        -b amqps://127.0.0.1:5671 --ssl-trustfile .run/tls/ca.crt --user alice --address orders.new

With --only send or --only receive it does one of the two: the other may be done at another router of a network.

The password is read from standard input. With --ssl-certificate and --ssl-key instead of --user the certificate is the
identity. TLS is Python's own `ssl`, SASL is this project's, and AMQP python-qpid-proton's, so this also works where pip
had no OpenSSL or Cyrus to build proton against. Exit status 0 when every message was accepted and received, 1 when the
router refused something.
"""

import argparse
import socket
import ssl
import sys
from urllib.parse import urlsplit

from proton import Collector, Connection, Delivery, Endpoint, Event, Message, Receiver, Sender, Transport

from auth.negotiation import Authenticated, ClientNegotiation, Rejected, Reply
from auth.secrets import Secret

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
TIMEOUT_S = 10.0
PATIENCE_S = 120.0  # of a receiver alone, and of a sender alone, which waits for one
MESSAGES = 5


class RefusedError(Exception):
    """The router's refusal and its reason, in the router's words."""


class Exchange:
    """One connection with a sender and a receiver on the same address, or one of them, driven by proton's events."""

    def __init__(self, host: str, address: str, only: str | None = None) -> None:
        """only  `send` or `receive`; None: both"""
        self.address = address
        self.to_accept = MESSAGES if only != "receive" else 0
        self.to_receive = MESSAGES if only != "send" else 0
        self.sent = self.accepted = self.received = 0
        self.collector = Collector()
        self.connection = Connection()
        self.connection.collect(self.collector)
        self.connection.container, self.connection.hostname = "send-receive-example", host
        self.transport = Transport()
        self.transport.bind(self.connection)
        self.connection.open()
        session = self.connection.session()
        session.open()
        self.receiver: Receiver = session.receiver("receiver")
        self.receiver.source.address = address
        self.sender: Sender = session.sender("sender")
        self.sender.target.address = address
        if self.to_receive:
            self.receiver.open()
            self.receiver.flow(MESSAGES)
        if self.to_accept:
            self.sender.open()

    def run(self, stream: ssl.SSLSocket, data: bytes) -> None:
        """Exchange frames until the connection is closed; `data` came after the SASL exchange.

        Errors: RefusedError, OSError (also when nothing happens for TIMEOUT_S).
        """
        while True:
            self.transport.push(data)
            while event := self.collector.peek():
                self.on_event(event)
                self.collector.pop()
            while (pending := self.transport.pending()) > 0:
                stream.sendall(self.transport.peek(pending) or b"")
                self.transport.pop(pending)
            if self.transport.closed:
                return
            data = stream.recv(min(self.transport.capacity(), 65536))
            if not data:
                raise RefusedError("connection: ended by the router without a reason")

    def on_event(self, event: Event) -> None:
        if event.type == Event.LINK_FLOW and event.link == self.sender:
            while self.sender.credit and self.sent < MESSAGES:
                self.sent += 1
                delivery = self.sender.delivery(str(self.sent))
                self.sender.send(Message(body=f"order {self.sent}").encode())
                delivery.update(0)
                self.sender.advance()
        elif isinstance(event.delivery, Delivery) and event.type == Event.DELIVERY:
            self.on_delivery(event.delivery)
        elif event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH, Event.CONNECTION_REMOTE_CLOSE):
            self.on_remote_close(event.link or event.connection or self.connection)
        elif event.type == Event.TRANSPORT_ERROR:
            raise RefusedError(f"connection: {self.transport.condition}")

    def on_delivery(self, delivery: Delivery) -> None:
        if delivery.link == self.receiver and delivery.readable and not delivery.partial:
            message = Message()
            message.decode(self.receiver.recv(delivery.pending) or b"")
            print("received:", message.body)
            self.received += 1
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        elif delivery.link == self.sender and delivery.updated:
            if delivery.remote_state != Delivery.ACCEPTED:
                raise RefusedError(f"message to {self.address}: {delivery.remote_state}")
            self.accepted += 1
            delivery.settle()
        if self.accepted == self.to_accept and self.received == self.to_receive:
            self.connection.close()

    def on_remote_close(self, endpoint: Endpoint) -> None:
        condition = endpoint.remote_condition
        if condition is None and not self.connection.state & Endpoint.LOCAL_CLOSED:
            raise RefusedError(f"{self.address}: closed by the router")
        if condition is not None:
            what = "connection" if endpoint is self.connection else self.address
            raise RefusedError(f"{what}: {condition.name}: {condition.description}")


def authenticate(stream: ssl.SSLSocket, user: str | None, password: str | None) -> bytes:
    """Run the SASL exchange: PLAIN with a user, else EXTERNAL; returns the bytes the router sent after it."""
    negotiation = ClientNegotiation(
        allowed=["PLAIN"] if user else ["EXTERNAL"],
        username=user,
        password=Secret(password) if password is not None else None,
        has_certificate=user is None,
        is_encrypted=True,
    )
    stream.sendall(SASL_HEADER)
    received = b""
    while len(received) < len(SASL_HEADER):
        if not (data := stream.recv(65536)):
            raise RefusedError("connection: ended by the router before SASL")
        received += data
    if not received.startswith(SASL_HEADER):
        raise RefusedError("connection: the router does not offer SASL")
    data = received[len(SASL_HEADER) :]
    while True:
        for effect in negotiation.receive(data):
            match effect:
                case Reply(data=answer):
                    stream.sendall(answer)
                case Authenticated():
                    return negotiation.take_rest()
                case Rejected(condition=condition, description=description):
                    raise RefusedError(f"connection: {condition}: {description}")
        if not (data := stream.recv(65536)):
            raise RefusedError("connection: ended by the router during SASL")


def main() -> int:
    parser = argparse.ArgumentParser(description="Send and receive over TLS, as a user or by certificate.")
    parser.add_argument("-b", "--bus", required=True, help="amqps://host:port")
    parser.add_argument("--ssl-trustfile", required=True, help="PEM file with the CA of the router's certificate")
    parser.add_argument("--user", help="authenticate with this name and a password from standard input")
    parser.add_argument("--ssl-certificate", help="PEM file; without --user it is the identity")
    parser.add_argument("--ssl-key", help="PEM file")
    parser.add_argument("--address", required=True)
    parser.add_argument("--only", choices=("send", "receive"), help=f"wait for the other end, up to {PATIENCE_S:.0f} s")
    options = parser.parse_args()
    bus = urlsplit(options.bus)
    if bus.scheme != "amqps" or not bus.hostname:
        parser.error(f"{options.bus}: expected amqps://host:port")
    if not options.user and not options.ssl_certificate:
        parser.error("who are you? Give --user, or --ssl-certificate and --ssl-key")
    password = sys.stdin.readline().rstrip("\n") if options.user else None
    try:
        context = ssl.create_default_context(cafile=options.ssl_trustfile)
        if options.ssl_certificate:
            context.load_cert_chain(options.ssl_certificate, options.ssl_key)
        exchange = Exchange(bus.hostname, options.address, options.only)
        with (
            socket.create_connection((bus.hostname, bus.port or 5671), timeout=TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=bus.hostname) as stream,
        ):
            rest = authenticate(stream, options.user, password)
            stream.settimeout(PATIENCE_S if options.only else TIMEOUT_S)
            exchange.run(stream, rest)
    except RefusedError as error:
        print(f"denied: {error}")
        return 1
    except OSError as error:
        print(f"{options.bus}: {error}")
        return 1
    print(f"{exchange.accepted} messages to {options.address} accepted, {exchange.received} received")
    return 0


if __name__ == "__main__":
    sys.exit(main())
