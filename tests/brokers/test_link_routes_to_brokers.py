"""Link routes to real brokers: what a broker can do beyond queues passes through the routers (routing 113, 116).

Through one router, two interior ones, and edges: network §11, §14.6, §14.7.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import Broker
from daemon_process import Daemon, eventually, start
from proton import Message, Timeout
from proton.handlers import TransactionalClientHandler
from proton.reactor import Container as Reactor
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, LinkDetached
from router_text import LISTENER, link_routes
from subscribing import subscribe

PATIENCE_S = 30.0


ROUTER = "router {{\n    mode: {mode}\n    id: {name}\n}}\n"
LISTENS = """listener {{
    name: {role}
    host: 127.0.0.1
    port: 0
    role: {role}
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
CONNECTS = """connector {{
    name: to-{port}
    host: 127.0.0.1
    port: {port}
    role: {role}
    saslMechanisms: ANONYMOUS
}}
"""


class Way:
    """Routers between a client and the broker, by where each stands: `A` is the broker's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.routers: dict[str, Daemon] = {}

    def start(self, name: str, text: str, mode: str, *ways: tuple[str, str]) -> Daemon:
        """ways  (role, router that it connects to)"""
        text = ROUTER.format(mode=mode, name=name) + LISTENER + text
        for role in ("inter-router", "edge") if mode == "interior" else ():
            text += LISTENS.format(role=role)
        for role, to in ways:
            text += CONNECTS.format(role=role, port=self.routers[to].port(role))
        (self._folder / name).mkdir()
        router = self.routers[name] = start(self._folder / name, text)
        return router

    def url(self, name: str) -> str:
        return f"amqp://127.0.0.1:{self.routers[name].port('clients')}"

    def knows(self, name: str, key: str) -> bool:
        """Does the router know of the address?"""
        with self.routers[name].client("clients") as client:
            found = client.query("router.address", ("key",))
            return any(row[0] == key for row in found.rows)


@pytest.fixture(scope="module", params=["one router", "two routers", "an edge", "two edges", "Broker-J"])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """Named by what is between the client and Artemis, or by the broker behind one router; the client is at `C`."""
    made = Way(tmp_path_factory.mktemp("way"))
    broker: Broker = request.getfixturevalue("broker_j" if request.param == "Broker-J" else "artemis")
    served = broker.connector + link_routes("parts", "news")
    try:
        match request.param:
            case "one router" | "Broker-J":
                made.start("C", served, "standalone")
            case "two routers":
                made.start("A", served, "interior")
                made.start("C", "", "interior", ("inter-router", "A"))
            case "an edge":
                made.start("A", served, "interior")
                made.start("C", "", "edge", ("edge", "A"))
            case "two edges":
                made.start("I", "", "interior")
                made.start("A", served, "edge", ("edge", "I"))
                made.start("C", "", "edge", ("edge", "I"))
        last = next(iter(reversed([name for name in made.routers if name != "C"])), "C")
        made.routers[last].wait_for_log("Link Route Activated .* on connection broker", timeout_s=60)
        asked = {"two routers": "C", "an edge": "A", "two edges": "I"}.get(request.param)
        if asked is not None:
            assert eventually(lambda: all(made.knows(asked, key) for key in ("Cparts", "Dparts", "C$coordinator")))
        if "edge" in request.param:
            made.routers["C"].wait_for_log("Edge connection .* to interior established")
        yield made
    finally:
        for router in made.routers.values():
            router.end()


@pytest.fixture
def url(way: Way) -> str:
    return way.url("C")


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


class Thief(TransactionalClientHandler):
    """Two clients declare a transaction each, and the second sends into the first's."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.first: Any = None
        self.state = ""

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False)
        event.container.declare_transaction(connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        if self.first is None:
            self.first = event.transaction
            self.connection = event.container.connect(self.url, reconnect=False)
            self.sender = event.container.create_sender(self.connection, "parts")
            event.container.declare_transaction(self.connection, handler=self)
        else:
            event.transaction.id = self.first.id
            event.transaction.send(self.sender, Message(body="stolen", durable=True))

    def on_delivery(self, event: Any) -> None:
        if event.link == self.sender and event.delivery.updated:
            remote = event.delivery.remote
            self.state = remote.condition.name if remote.condition else str(event.delivery.remote_state)
            self.connection.close()
            self.first.txn_ctrl.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.state = str(event.transport.condition)


def test_nobody_sends_into_the_transaction_of_another(url: str) -> None:
    thief = Thief(url)
    Reactor(thief).run()
    assert thief.state == "amqp:transaction:unknown-id"


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


SUBSCRIBE = """
import sys
from subscribing import subscribe
connection, receiver = subscribe(sys.argv[1])
print("subscribed", flush=True)
sys.stdin.read()
"""


def test_a_durable_subscription_survives_the_connection_of_its_client(way: Way) -> None:
    """§15.4: its loss detaches the link at the broker, and does not close it."""
    url = way.url("C")
    with subprocess.Popen(
        [sys.executable, "-c", SUBSCRIBE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    ) as client:
        assert client.stdout is not None
        try:
            assert client.stdout.readline() == "subscribed\n"
        finally:
            client.kill()
    way.routers["C"].wait_for_log("Link closed due to connection loss|Connection Closed")
    other = BlockingConnection(url, timeout=PATIENCE_S)
    other.create_sender("news").send(Message(body="while away", durable=True))
    other.close()
    again, receiver = subscribe(url)
    try:
        assert receiver.receive(PATIENCE_S).body == "while away"
        receiver.accept()
        receiver.close()  # and ends the subscription
    finally:
        again.close()
