"""Connectors to a server that is python-qpid-proton's own Container (docs/spec/routing.md §1.9)."""

import os
import socket
import threading
from typing import Any

from harness import RunningRouter, eventually
from open_house import OPEN_HOUSE, connector_row, management, port_of
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

EXTRA_CONFIGURATION = OPEN_HOUSE


class Service(MessagingHandler):
    """Takes the router's connection in, then receives from one address over it and sends to another."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.bodies: list[Any] = []
        self.outcomes: list[str] = []
        self.is_closed = False

    def on_start(self, event: Any) -> None:
        self.acceptor = event.container.listen("127.0.0.1:0")
        self.port = port_bound(self.acceptor)

    def on_connection_opened(self, event: Any) -> None:
        self.connection = event.connection
        self.container_of_router = event.connection.remote_container
        event.container.create_receiver(event.connection, "work.in")
        self.sender = event.container.create_sender(event.connection, "work.out")

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.sender.send(Message(body=f"done: {event.message.body}"))

    def on_settled(self, event: Any) -> None:
        self.outcomes.append(str(event.delivery.remote_state))

    def on_connection_closed(self, event: Any) -> None:
        self.is_closed = True
        self.acceptor.close()


def port_bound(acceptor: Any) -> int:
    """proton does not tell the port that the system chose."""
    with socket.socket(fileno=os.dup(acceptor._selectable.fileno())) as listening:
        return int(listening.getsockname()[1])


def test_a_proton_server_works_through_the_routers_connection(router: RunningRouter) -> None:
    """routing 1, 2, 24: it serves clients of the router's, and is told when the connector goes."""
    service = Service()
    thread = threading.Thread(target=Container(service).run, daemon=True)
    thread.start()
    assert eventually(lambda: service.port, 5.0)
    with management(router) as client:
        attributes = {"host": "127.0.0.1", "port": str(service.port), "role": "route-container"}
        client.create(attributes, type="connector", name="to-proton")
        row = connector_row(client, "to-proton", connectionStatus="SUCCESS")
        assert "auth=ANONYMOUS" in str(row["connectionMsg"])
        assert service.container_of_router == "interop"
        connection = BlockingConnection(f"127.0.0.1:{port_of(router, 'free')}", timeout=10, allowed_mechs="ANONYMOUS")
        receiver = connection.create_receiver("work.out", credit=10)
        sender = connection.create_sender("work.in")
        for number in range(5):
            sender.send(Message(body=f"job {number}"))
            assert receiver.receive(timeout=10).body == f"done: job {number}"
            receiver.accept()
        connection.close()
        assert service.bodies == [f"job {number}" for number in range(5)]
        assert eventually(lambda: len(service.outcomes) == 5, 5.0)
        client.delete(type="connector", name="to-proton")
    thread.join(10)
    assert service.is_closed
