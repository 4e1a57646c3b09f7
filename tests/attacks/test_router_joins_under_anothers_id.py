"""Attack: a peer with a good certificate of its own joins the network under the router id of another router.

It learns of all addresses, and gets the messages for the other router. 1.20 believes any id that a peer claims.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import audit_events, eventually
from joined_routers import RouterNetwork, nodes, router_network

REFUSED = "this identity may not join the network under this router id"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[RouterNetwork]:
    with router_network(tmp_path, "A", "B") as made:
        made.start("A")
        yield made


def refusals(network: RouterNetwork, name: str) -> list[dict[str, Any]]:
    events = audit_events(network.folder / name / "audit")
    return [event for event in events if event["reason"] == "router_id_not_allowed"]


def test_a_client_that_says_it_is_router_b_does_not_join(network: RouterNetwork) -> None:
    """network 18.1: with a certificate of the same authority. The true B joins all the same."""
    impostor = network.start("B", "A", holder="carol")
    event, *_ = eventually(lambda: refusals(network, "A"))
    assert (event["stage"], event["decision"], event["user"]) == ("open", "deny", "carol")
    assert event["detail"] == "'carol' may not join the network as router 'B'"
    assert event["rule"]["item"] == "routerIds: ${user}"
    assert (event["router"], event["condition"]) == ("A", "amqp:unauthorized-access")
    network.routers["A"].wait_for_log(f"DENY AMQP Open rhost '127.0.0.1': {event['detail']}")
    impostor.wait_for_log(f"failed: amqp:unauthorized-access {REFUSED}")
    with network.routers["A"].client() as client:
        assert [row["id"] for row in nodes(client)] == ["A"]
    network.start("B", "A")
    network.settle("A", "B")
    with network.routers["A"].client() as client:
        assert [row["id"] for row in nodes(client)] == ["A", "B"]
    assert network.routers["A"].log(r"Detected Restart of Router Node") == []


def test_a_router_that_is_connected_to_another_than_was_meant_sends_it_nothing(network: RouterNetwork) -> None:
    """The connector's side: the server has a certificate of the authority, and another name in it."""
    victim = network.start("B", "A", terms="routerIds: elsewhere=${user}")
    event, *_ = eventually(lambda: refusals(network, "B"))
    assert event["detail"].startswith("'A' may not join the network as router 'A'")
    victim.wait_for_log(f"failed: amqp:unauthorized-access {REFUSED}")
    with victim.client() as client:
        assert [row["id"] for row in nodes(client)] == ["B"]


def test_without_the_setting_the_impostor_joins(tmp_path: Path) -> None:
    """network 3.3: as with 1.20, and as the tests above would find it."""
    with router_network(tmp_path, "A", "B") as network:
        network.start("A", router_ids="*")
        network.start("B", "A", holder="carol")
        with network.routers["A"].client() as client:
            assert eventually(lambda: [row["id"] for row in nodes(client)] == ["A", "B"])


def test_a_connector_that_cannot_know_who_answers_is_refused(network: RouterNetwork) -> None:
    """routerIds without TLS would believe whoever has the port."""
    with network.routers["A"].client() as client, pytest.raises(Exception, match="routerIds without sslProfile"):
        client.create(
            {"host": "127.0.0.1", "port": "1", "role": "inter-router", "routerIds": "B"},
            type="org.apache.qpid.dispatch.connector",
            name="blind",
        )
