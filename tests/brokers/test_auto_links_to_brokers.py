"""Auto links to real brokers: clients use its queues through the router (routing 107, 109, 110, 111)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from artemis import PEER, running
from broker_process import KINDS, PASSWORD, START_LIMIT_S, USER, Broker, MakeBroker
from daemon_process import Daemon, start
from harness import eventually
from proton import Message, Timeout
from proton.utils import BlockingConnection
from router_text import LISTENER

from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

ADDRESSES = """
address {
    prefix: orders
    waypoint: yes
}
autoLink {
    name: orders-out
    address: orders
    direction: out
    connection: broker
}
autoLink {
    name: orders-in
    address: orders
    direction: in
    connection: broker
}
autoLink {
    name: near
    address: near
    externalAddress: far.away
    direction: out
    connection: broker
}
autoLink {
    name: missing
    address: missing
    direction: out
    connection: broker
}
"""
PATIENCE_S = 30.0


@contextmanager
def router_before(broker: Broker, folder: Path) -> Iterator[tuple[Daemon, str]]:
    """The daemon and the URL for clients."""
    text = LISTENER + broker.connector + ADDRESSES
    daemon = start(folder, text)
    try:
        port = daemon.port("clients")
        yield daemon, f"amqp://127.0.0.1:{port}"
    finally:
        daemon.end()
    assert daemon.process.returncode == 0


def entities(url: str, type_: str) -> dict[str, dict[str, Any]]:
    """By name."""
    port = int(url.rpartition(":")[2])
    options = ConnectionOptions(host="127.0.0.1", port=port, timeout_s=PATIENCE_S)
    with ManagementClient(SocketTransport(options)) as client:
        rows = client.query(f"org.apache.qpid.dispatch.{type_}")
        return {str(row["name"]): row for row in rows.entities()}


def auto_links(url: str) -> dict[str, dict[str, Any]]:
    return entities(url, "router.config.autoLink")


def test_a_queue_is_used_through_the_router(broker: Broker, tmp_path: Path) -> None:
    """routing 107, 111: what is sent waits in the broker, whether or not anybody receives."""
    with router_before(broker, tmp_path) as (daemon, url):
        daemon.wait_for_log("Auto Link Activated 'orders-in' on connection broker")
        connection = BlockingConnection(url, timeout=PATIENCE_S)
        sender = connection.create_sender("orders")
        for number in range(100):
            sender.send(Message(body=number, durable=True))
        sender.close()
        receiver = connection.create_receiver("orders", credit=10)
        got = []
        for _ in range(100):
            got.append(receiver.receive(PATIENCE_S).body)
            receiver.accept()
        assert got == list(range(100))
        rows = auto_links(url)
        assert rows["orders-out"]["operStatus"] == rows["orders-in"]["operStatus"] == "active"
        assert rows["orders-out"]["linkRef"]
        connection.close()


def test_the_broker_sees_the_external_address(broker: Broker, tmp_path: Path) -> None:
    """routing 108"""
    with router_before(broker, tmp_path) as (daemon, url):
        daemon.wait_for_log("Auto Link Activated 'near' on connection broker")
        connection = BlockingConnection(url, timeout=PATIENCE_S)
        connection.create_sender("near").send(Message(body="far", durable=True))
        direct = BlockingConnection(
            f"amqp://127.0.0.1:{broker.port}", timeout=PATIENCE_S, user=USER, password=PASSWORD, allowed_mechs="PLAIN"
        )
        assert direct.create_receiver("far.away").receive(PATIENCE_S).body == "far"
        direct.close()
        connection.close()


def test_a_queue_that_the_broker_lacks_is_told(broker: Broker, tmp_path: Path) -> None:
    """routing 109"""
    with router_before(broker, tmp_path) as (daemon, url):
        daemon.wait_for_log(r"Auto Link Activation Failed\. .*'missing' on connection broker")
        row = auto_links(url)["missing"]
        assert row["operStatus"] in ("failed", "attaching")
        assert row["lastError"]


@pytest.mark.parametrize("kind", KINDS)
def test_senders_lose_nothing_when_the_broker_is_killed(kind: str, make_broker: MakeBroker, tmp_path: Path) -> None:
    """routing 110: what was accepted is in the broker when it is back, and links come back by themselves."""
    with make_broker(kind, tmp_path / "broker").running() as broker, router_before(broker, tmp_path) as (daemon, url):
        daemon.wait_for_log("Auto Link Activated 'orders-out' on connection broker")
        connection = BlockingConnection(url, timeout=PATIENCE_S)
        sender = connection.create_sender("orders")
        accepted = []
        for number in range(50):
            sender.send(Message(body=number, durable=True))
            accepted.append(number)
        mark = daemon.mark()
        broker.kill()
        daemon.wait_for_log("Auto Link Deactivated 'orders-out' on connection broker", since=mark)
        assert auto_links(url)["orders-out"]["operStatus"] == "inactive"
        broker.start()
        eventually(lambda: auto_links(url)["orders-out"]["operStatus"] == "active", PATIENCE_S)
        for number in range(50, 100):
            sender.send(Message(body=number, durable=True))
            accepted.append(number)
        receiver = connection.create_receiver("orders", credit=10)
        got = []
        for _ in accepted:
            got.append(receiver.receive(PATIENCE_S).body)
            receiver.accept()
        assert set(got) == set(accepted)
        connection.close()


@pytest.mark.parametrize("waypoint", ["yes", "no"])
def test_a_broker_that_makes_itself_a_waypoint_gets_no_message_twice(
    waypoint: str, distribution: Path, tmp_path: Path
) -> None:
    """An Artemis `peer` takes an address from its senders and gives it to its receivers. Where the address has no
    phases, both are the same to clients: then they pass the broker by, or their messages wait in it; none goes round.
    """
    listener = LISTENER
    address = f"address {{\n    prefix: orders\n    waypoint: {waypoint}\n}}\n"
    daemon = start(tmp_path, listener + address)
    try:
        port = daemon.port("clients")
        url = f"amqp://127.0.0.1:{port}"
        connections = PEER.format(port=port, address="orders")
        with running(tmp_path / "broker", distribution, "orders", connections=connections):
            daemon.wait_for_log(r"Link attached: dir=out source=\{orders .*qd.waypoint", timeout_s=START_LIMIT_S)
            connection = BlockingConnection(url, timeout=PATIENCE_S)
            sender = connection.create_sender("orders")
            for number in range(20):
                sender.send(Message(body=number, durable=True))
            receiver = connection.create_receiver("orders", credit=100)
            if waypoint == "yes":
                got = [receiver.receive(PATIENCE_S).body for _ in range(20)]
                assert got == list(range(20))
            with pytest.raises(Timeout):
                receiver.receive(1.0)
            connection.close()
            (router,) = entities(url, "router").values()
            assert router["deliveriesIngress"] < 100
    finally:
        daemon.end()
