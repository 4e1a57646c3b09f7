"""RabbitMQ 3 behind a router: what it ends a session for stops no other client, and it is told no outcome that it
does not know."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rabbitmq as rabbitmq_of
from broker_process import Broker
from daemon_process import Daemon, eventually, start
from proton import Message
from proton.utils import BlockingConnection, LinkDetached
from router_text import LISTENER, WAYPOINT

PATIENCE_S = 20.0
ROUTES = """
autoLink {
    address: work
    direction: out
    connection: rabbit
    externalAddress: /queue/work
}
autoLink {
    address: work
    direction: in
    connection: rabbit
    externalAddress: /queue/work
}
linkRoute {
    prefix: queue
    direction: in
    connection: rabbit
    addExternalPrefix: /
}
linkRoute {
    prefix: queue
    direction: out
    connection: rabbit
    addExternalPrefix: /
}
linkRoute {
    prefix: exchange
    direction: out
    connection: rabbit
    addExternalPrefix: /
}
"""


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if not rabbitmq_of.SERVER.exists():
        pytest.skip("RabbitMQ is not installed")
    with rabbitmq_of.RabbitMQ(tmp_path_factory.mktemp("rabbitmq") / "broker").running() as made:
        yield made


@pytest.fixture
def router(rabbit: Broker, tmp_path: Path) -> Iterator[Daemon]:
    made = start(tmp_path, LISTENER + rabbit.connector + WAYPOINT.format(address="work") + ROUTES)
    try:
        assert eventually(lambda: len(made.log("Link Route Activated")) == 3)
        yield made
    finally:
        made.end()


def client(router: Daemon) -> BlockingConnection:
    return BlockingConnection(f"amqp://127.0.0.1:{router.port('clients')}", timeout=PATIENCE_S)


def round_trip(router: Daemon) -> None:
    """A message by the auto links."""
    connection = client(router)
    connection.create_sender("work").send(Message(body="work", durable=True))
    receiver = connection.create_receiver("work", credit=1)
    receiver.receive(PATIENCE_S)
    receiver.accept()
    connection.close()


def test_a_consumer_that_leaves_with_messages_interrupts_nobody(router: Daemon) -> None:
    round_trip(router)
    other = client(router)
    sender = other.create_sender("queue/other")
    sender.send(Message(body="before", durable=True))
    consumer = client(router)
    consumer.create_sender("work").send(Message(body="left", durable=True))
    consumer.create_receiver("work", credit=1).receive(PATIENCE_S)
    consumer.close()
    again = client(router)
    receiver = again.create_receiver("work", credit=1)
    assert receiver.receive(PATIENCE_S).body == "left"
    receiver.accept()
    again.close()
    sender.send(Message(body="after", durable=True))
    other.close()
    assert not router.log("Activation Failed")


def test_an_exchange_that_is_not_there_is_one_clients_matter(router: Daemon) -> None:
    round_trip(router)
    other = client(router)
    sender = other.create_sender("queue/other")
    started = time.monotonic()
    with pytest.raises(LinkDetached):
        client(router).create_receiver("exchange/nosuch")
    assert time.monotonic() - started < PATIENCE_S / 2
    sender.send(Message(body="after", durable=True))
    other.close()
    round_trip(router)
    assert not router.log("Activation Failed")
