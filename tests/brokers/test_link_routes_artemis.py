"""Link routes to real Artemis: what a broker can do beyond queues passes through the router (routing 113, 116)."""

from collections.abc import Iterator
from typing import Any

import pytest
from artemis import LISTENER, Artemis
from daemon_process import Daemon, start
from proton import Message, Timeout
from proton.handlers import TransactionalClientHandler
from proton.reactor import Container as Reactor
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, LinkDetached

ROUTES = "".join(
    f"linkRoute {{\n    prefix: {prefix}\n    direction: {direction}\n    connection: artemis\n}}\n"
    for prefix, direction in (
        ("parts", "in"),
        ("parts", "out"),
        ("news", "in"),
        ("news", "out"),
        ("$coordinator", "in"),
    )
)
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def url(artemis: Artemis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = LISTENER + artemis.connector + ROUTES
    daemon: Daemon = start(tmp_path_factory.mktemp("router"), text)
    try:
        daemon.wait_for_log("Link Route Activated .* on connection artemis")
        yield f"amqp://127.0.0.1:{daemon.port('clients')}"
    finally:
        daemon.end()


@pytest.fixture
def connection(url: str) -> Iterator[BlockingConnection]:
    made = BlockingConnection(url, timeout=PATIENCE_S)
    yield made
    made.close()


def fill(connection: BlockingConnection, *colours: str) -> None:
    sender = connection.create_sender("parts")
    for colour in colours:
        sender.send(Message(body=colour, durable=True, properties={"colour": colour}))
    sender.close()


def taken(connection: BlockingConnection, count: int, **terms: Any) -> list[Any]:
    receiver = connection.create_receiver("parts", credit=count, **terms)
    got = []
    for _ in range(count):
        got.append(receiver.receive(PATIENCE_S).body)
        receiver.accept()
    receiver.close()
    return got


def test_a_queue_is_used_directly(connection: BlockingConnection) -> None:
    fill(connection, "red", "green")
    assert taken(connection, 2) == ["red", "green"]


def test_browsing_takes_nothing_away(connection: BlockingConnection) -> None:
    fill(connection, "red", "green")
    browser = connection.create_receiver("parts", credit=10, options=Copy())
    assert [browser.receive(PATIENCE_S).body for _ in range(2)] == ["red", "green"]
    browser.close()
    assert taken(connection, 2) == ["red", "green"]


def test_a_selector_selects(connection: BlockingConnection) -> None:
    fill(connection, "red", "green", "red")
    assert taken(connection, 1, options=Selector("colour = 'green'")) == ["green"]
    assert taken(connection, 2) == ["red", "red"]


def test_a_released_message_comes_again(connection: BlockingConnection) -> None:
    fill(connection, "red")
    receiver = connection.create_receiver("parts", credit=1)
    receiver.receive(PATIENCE_S)
    receiver.release(delivered=False)
    receiver.close()
    assert taken(connection, 1) == ["red"]


def test_the_brokers_refusal_is_the_clients(connection: BlockingConnection) -> None:
    """The route has the address; the broker has no such queue."""
    with pytest.raises(LinkDetached) as refused:
        connection.create_receiver("parts.none")
    assert refused.value.condition == "amqp:not-found"


def test_a_large_message_goes_both_ways(connection: BlockingConnection) -> None:
    body = bytes(range(256)) * 40_000
    connection.create_sender("parts").send(Message(body=body, durable=True))
    assert taken(connection, 1) == [body]


class Trade(TransactionalClientHandler):
    """Sends two messages in a transaction, and ends it as it is told."""

    def __init__(self, url: str, *, commits: bool) -> None:
        super().__init__()
        self.url = url
        self.commits = commits
        self.ended = ""

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        self.sender = event.container.create_sender(self.connection, "parts")
        event.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        for colour in ("one", "two"):
            event.transaction.send(self.sender, Message(body=colour, durable=True))
        if self.commits:
            event.transaction.commit()
        else:
            event.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.ended = "committed"
        self.connection.close()

    def on_transaction_aborted(self, event: Any) -> None:
        self.ended = "aborted"
        self.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.ended = str(event.transport.condition)


def test_a_transaction_is_committed(url: str, connection: BlockingConnection) -> None:
    trade = Trade(url, commits=True)
    Reactor(trade).run()
    assert trade.ended == "committed"
    assert taken(connection, 2) == ["one", "two"]


def test_a_transaction_is_rolled_back(url: str, connection: BlockingConnection) -> None:
    trade = Trade(url, commits=False)
    Reactor(trade).run()
    assert trade.ended == "aborted"
    receiver = connection.create_receiver("parts", credit=1)
    with pytest.raises(Timeout):
        receiver.receive(1.0)
    receiver.close()
