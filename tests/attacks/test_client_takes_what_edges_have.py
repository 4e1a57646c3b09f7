"""Attack: a client with every right of a client takes what belongs to edge routers.

It tries their services, and the link by which another edge gets its messages. It also tries the uplink's address on an
edge, which would give it the messages that other clients send into the network.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_network import client, edge, interior
from proton import Terminus
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached
from router_network import Processes, processes

SERVICES = ("_$qd.edge_addr_tracking", "_$qd.addr_lookup", "_$qd.edge_heartbeat")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Processes]:
    """One interior, INT, and an edge, E1."""
    with processes(tmp_path) as running:
        running.expected_error = " server rejected (container="
        edge(running, "E1", interior(running, "INT"))
        yield running


class Capability(LinkOption):
    def apply(self, link: object) -> None:
        source: Terminus = link.source  # type: ignore[attr-defined]
        source.capabilities.put_symbol("qd.router-edge-downlink")


def refused(attach: object, *arguments: object, **options: object) -> bool:
    try:
        attach(*arguments, **options)  # type: ignore[operator]
    except LinkDetached:
        return True
    return False


def tries(connection: BlockingConnection) -> dict[str, bool]:
    """What is tried, and whether it is refused."""
    found = {}
    for service in SERVICES:
        found[f"receive {service}"] = refused(connection.create_receiver, f"amqp:/{service}")
        found[f"send {service}"] = refused(connection.create_sender, service)
    for text in ("_local/_edge", "_topo/0/OTHER/x", "_edge/OTHER/x"):
        found[text] = refused(connection.create_receiver, text)
    found["downlink"] = refused(connection.create_receiver, "E1", options=Capability())
    return found


@pytest.mark.parametrize("name", ["INT", "E1"])
def test_a_client_takes_nothing_of_edges(network: Processes, name: str) -> None:
    expected = {"_local/_edge"} if name == "INT" else set()  # an address as any other, where there is no uplink
    with client(network[name]) as connection:
        assert {what for what, is_refused in tries(connection).items() if not is_refused} == expected
