"""Send a few messages to an address of a secured router and receive them again, over one connection.

    printf %s "$ALICE_PASSWORD" | python deploy/examples/send_receive.py \\
        -b amqps://127.0.0.1:5671 --ssl-trustfile .run/tls/ca.crt --user alice --address orders.new

The password is read from standard input. TLS is Python's own `ssl` and SASL PLAIN is built into every
python-qpid-proton, so this also works where pip had no OpenSSL or Cyrus to build against. Exit status 0 when every
message was accepted and received, 1 when the router refused something.
"""

import argparse
import socket
import ssl
import sys
from urllib.parse import urlsplit

from proton import Collector, Connection, Delivery, Endpoint, Event, Message, Receiver, Sender, Transport

TIMEOUT_S = 10.0
MESSAGES = 5


class RefusedError(Exception):
    """What the router refused and why, in its own words."""


class Exchange:
    """One connection with a sender and a receiver on the same address, driven by proton's events."""

    def __init__(self, host: str, user: str, password: str, address: str) -> None:
        self.address = address
        self.sent = self.accepted = self.received = 0
        self.collector = Collector()
        self.connection = Connection()
        self.connection.collect(self.collector)
        self.connection.container, self.connection.hostname = "send-receive-example", host
        self.connection.user, self.connection.password = user, password
        self.transport = Transport()
        sasl = self.transport.sasl()
        sasl.allowed_mechs("PLAIN")
        # proton does not see the TLS around it; without it this password would travel in the clear.
        sasl.allow_insecure_mechs = True
        self.transport.bind(self.connection)
        self.connection.open()
        session = self.connection.session()
        session.open()
        self.receiver: Receiver = session.receiver("receiver")
        self.receiver.source.address = address
        self.sender: Sender = session.sender("sender")
        self.sender.target.address = address
        self.receiver.open()
        self.receiver.flow(MESSAGES)
        self.sender.open()

    def run(self, stream: ssl.SSLSocket) -> None:
        """Errors: RefusedError, OSError (also when nothing happens for TIMEOUT_S)."""
        while not self.transport.closed:
            while event := self.collector.peek():
                self.on_event(event)
                self.collector.pop()
            while (pending := self.transport.pending()) > 0:
                stream.sendall(self.transport.peek(pending) or b"")
                self.transport.pop(pending)
            if self.transport.capacity() > 0:
                data = stream.recv(min(self.transport.capacity(), 65536))
                if data:
                    self.transport.push(data)
                else:
                    self.transport.close_tail()

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
        if self.accepted == self.received == MESSAGES:
            self.connection.close()

    def on_remote_close(self, endpoint: Endpoint) -> None:
        condition = endpoint.remote_condition
        if condition is None and not self.connection.state & Endpoint.LOCAL_CLOSED:
            raise RefusedError(f"{self.address}: closed by the router")
        if condition is not None:
            what = "connection" if endpoint is self.connection else self.address
            raise RefusedError(f"{what}: {condition.name}: {condition.description}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Send and receive over TLS with a password from standard input.")
    parser.add_argument("-b", "--bus", required=True, help="amqps://host:port")
    parser.add_argument("--ssl-trustfile", required=True, help="PEM file with the CA of the router's certificate")
    parser.add_argument("--user", required=True)
    parser.add_argument("--address", required=True)
    options = parser.parse_args()
    bus = urlsplit(options.bus)
    if bus.scheme != "amqps" or not bus.hostname:
        parser.error(f"{options.bus}: expected amqps://host:port")
    password = sys.stdin.readline().rstrip("\n")
    context = ssl.create_default_context(cafile=options.ssl_trustfile)
    exchange = Exchange(bus.hostname, options.user, password, options.address)
    try:
        with (
            socket.create_connection((bus.hostname, bus.port or 5671), timeout=TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=bus.hostname) as stream,
        ):
            exchange.run(stream)
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
