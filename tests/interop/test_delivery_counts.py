"""What the router counts of messages and of management's own traffic (docs/spec/routing.md §19)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from harness import RunningRouter, running_router
from proton import Delivery, Message
from proton.utils import BlockingConnection

VHOST = """
vhost {
    hostname: counts
    groups: {
        all: {
            users: anonymous
            remoteHosts: *
            targets: *
            sources: *
            allowDynamicSource: true
        }
    }
}
"""


class Querier:
    """Management requests on one connection."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.replies = connection.create_receiver(None, dynamic=True, credit=10)
        self.requests = connection.create_sender("$management")

    def query(self, entity_type: str) -> list[dict[str, Any]]:
        properties = {
            "operation": "QUERY",
            "type": "org.amqp.management",
            "entityType": f"org.apache.qpid.dispatch.{entity_type}",
            "name": "self",
        }
        reply_to = self.replies.link.remote_source.address
        self.requests.send(Message(reply_to=reply_to, correlation_id=1, properties=properties, body={}))
        body: Any = self.replies.receive(timeout=10).body
        return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]


@pytest.fixture
def connection(certificates: Certificates, router_python: Path, tmp_path: Path) -> Iterator[BlockingConnection]:
    with running_router(tmp_path, certificates, python=router_python, extra=VHOST) as router:
        made = connected(router)
        yield made
        made.close()


def connected(router: RunningRouter) -> BlockingConnection:
    url = f"127.0.0.1:{router.ports['clear']}"
    return BlockingConnection(url, timeout=10, virtual_host="counts", allowed_mechs="ANONYMOUS")


def settle(connection: BlockingConnection, delivery: Delivery) -> None:
    """Settle it once the router has."""
    connection.wait(lambda: delivery.settled, timeout=10)
    delivery.settle()


def test_messages_and_management_requests_are_counted_alike(connection: BlockingConnection) -> None:
    """routing 125: ten messages and three requests are thirteen in and, once answered, thirteen out."""
    receiver = connection.create_receiver("counted", credit=20)
    sender = connection.create_sender("counted")
    for number in range(10):
        delivery = sender.link.send(Message(body=number))
        assert isinstance(delivery, Delivery)
        receiver.receive(timeout=10)
        receiver.accept()
        settle(connection, delivery)
    querier = Querier(connection)
    querier.query("router")
    querier.query("router")
    third = querier.query("router")[0]
    # The third reply is made while two replies are out.
    assert (third["deliveriesIngress"], third["deliveriesEgress"]) == (13, 12)
    fourth = querier.query("router")[0]
    assert (fourth["deliveriesIngress"], fourth["deliveriesEgress"]) == (14, 13)
    assert fourth["acceptedDeliveries"] == 14


def test_management_traffic_is_counted_at_its_addresses(connection: BlockingConnection) -> None:
    """routing 130: to the in-process consumer of `$management`, from it at the reply address."""
    querier = Querier(connection)
    querier.query("router")
    addresses = {row["key"]: row for row in querier.query("router.address")}
    assert addresses["M0$management"]["deliveriesToContainer"] == 2
    assert addresses["M0$management"]["inProcess"] == 1
    replies = next(row for key, row in addresses.items() if key.startswith("Ltemp."))
    assert replies["deliveriesFromContainer"] == 1
