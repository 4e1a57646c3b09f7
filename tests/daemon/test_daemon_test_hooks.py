"""What `--test-hooks` does not bring: nodes and a client that 1.20 has for the tests of its authors.

Source: docs/spec/network.md §15.2.
"""

from collections.abc import Callable, Iterator

import pytest
from daemon_process import LISTENER, Daemon
from proton.reactor import Container
from proton.utils import BlockingConnection

pytestmark = pytest.mark.interop

NODES = "org.apache.qpid.dispatch.router/test/"
TEST_CLIENT = "org.apache.qpid.dispatch.test_core_client"


@pytest.fixture
def router(daemon: Callable[..., Daemon]) -> Daemon:
    return daemon(LISTENER, "--test-hooks")


@pytest.fixture
def connection(router: Daemon) -> Iterator[BlockingConnection]:
    container = Container()
    container.container_id = TEST_CLIENT
    made = BlockingConnection(f"127.0.0.1:{router.port()}", timeout=20.0, container=container)
    yield made
    made.close()


def test_the_addresses_of_test_nodes_are_like_any_others(router: Daemon, connection: BlockingConnection) -> None:
    """network 110: nothing refuses links, gives messages without end, takes them or attaches links of its own."""
    nodes = ["deny", "discard", "echo", "sink", "source", "source_ps"]
    receivers = [connection.create_receiver(NODES + node, credit=10) for node in nodes]
    for node in nodes:
        connection.create_sender(NODES + node)
    with router.client() as client:
        addresses = [row for row in client.query("router.address").entities() if NODES in row["name"]]
        links = client.query("router.link", ["owningAddr", "linkDir"]).rows
    assert sorted((row["name"], row["inProcess"], row["subscriberCount"]) for row in addresses) == [
        (f"M0{NODES}{node}", 0, 1) for node in nodes
    ]
    assert sorted((address, way) for address, way in links if NODES in (address or "")) == [
        (f"M0{NODES}{node}", way) for node in nodes for way in ("in", "out")
    ]
    assert not any(receiver.fetcher.incoming for receiver in receivers if receiver.fetcher is not None)


def test_a_client_with_the_name_of_the_test_client_gets_no_links(
    router: Daemon, connection: BlockingConnection
) -> None:
    """network 110: a container-id, which anybody may have, makes the router send nobody requests."""
    receiver = connection.create_receiver("orders")
    with router.client() as client:
        (own,) = [row["identity"] for row in client.query("connection").entities() if row["container"] == TEST_CLIENT]
        links = [row["linkDir"] for row in client.query("router.link").entities() if row["connectionId"] == own]
    assert links == ["out"]
    assert receiver.link.source.address == "orders"
