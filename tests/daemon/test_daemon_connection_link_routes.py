"""`router.connection.linkRoute` over the wire: who may make one, and who sees it. Routing §16, management §8.9."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, start
from joined_routers import router_network
from management_peer import PREFIX, Raw, raw_peer

from router.amqp.codec import Message
from router.values import int_

pytestmark = pytest.mark.interop

TYPE = f"{PREFIX}router.connection.linkRoute"


def ask(peer: Raw, operation: str, body: Any = None, *, address: str = "$management", **named: str) -> Message:
    properties = {"operation": operation, "type": TYPE, **named}
    return peer.ask(address=address, application_properties=properties, body=body)


def status(message: Message) -> int:
    return int(message.application_properties["statusCode"])


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made = start(tmp_path_factory.mktemp("router"), LISTENER)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def peer(router: Daemon) -> Iterator[Raw]:
    with raw_peer(router) as made:
        yield made


def results(message: Message) -> list[list[Any]]:
    return list(message.body["results"])


def test_only_its_connection_sees_it(router: Daemon, peer: Raw) -> None:
    """management 61"""
    made = ask(peer, "CREATE", {"pattern": "a.b.#", "direction": "in"}, name="mine")
    assert status(made) == 201
    row = made.body
    assert list(row) == ["name", "identity", "type", "pattern", "direction", "containerId"]
    assert (row["name"], row["type"], row["pattern"], row["direction"]) == ("mine", TYPE, "a.b.#", "in")
    assert row["containerId"]
    found = ask(peer, "QUERY", {"attributeNames": []}, entityType=TYPE)
    assert results(found) == [list(row.values())]
    assert ask(peer, "READ", name="mine").body == row
    with raw_peer(router) as other:
        assert results(ask(other, "QUERY", {"attributeNames": []}, entityType=TYPE)) == []
        for operation in ("READ", "DELETE"):
            for named in ({"name": "mine"}, {"identity": str(row["identity"])}):
                assert status(ask(other, operation, **named)) == 404
        assert status(ask(other, "CREATE", {"pattern": "a.b.#", "direction": "in"}, name="mine")) == 201
    gone = ask(peer, "DELETE", identity=str(row["identity"]))
    assert (status(gone), gone.body) == (204, {})
    assert results(ask(peer, "QUERY", {"attributeNames": []}, entityType=TYPE)) == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (["a"], "Body of request must be a map"),
        ({"direction": "in"}, "Pattern field is required"),
        ({"pattern": "", "direction": "in"}, "Pattern must be a non-empty string type"),
        ({"pattern": "./.", "direction": "in"}, "Pattern invalid - no tokens"),
        ({"pattern": "a"}, "Missing value for 'direction'"),
        ({"pattern": "a", "direction": "up"}, "Invalid value for 'direction'"),
        ({"pattern": "a", "direction": "in", "name": int_(3)}, "'name' must be text, not 3"),
        ({"pattern": "taken", "direction": "in"}, "creation failed: the connection has a link route of this pattern"),
    ],
)
def test_what_is_wrong_with_a_create(peer: Raw, body: Any, text: str) -> None:
    """management 61"""
    assert status(ask(peer, "CREATE", {"pattern": "taken", "direction": "in"})) == 201
    answer = ask(peer, "CREATE", body)
    assert status(answer) == 400
    assert answer.application_properties["statusDescription"].startswith(text)
    assert answer.body is None


def test_a_selection_needs_a_name_or_an_identity(peer: Raw) -> None:
    """management 61"""
    for operation in ("READ", "DELETE"):
        answer = ask(peer, operation)
        assert (status(answer), answer.application_properties["statusDescription"]) == (
            400, "No name or identity provided",
        )  # fmt: skip
    assert status(ask(peer, "UPDATE", {}, name="x")) == 501


POLICY = (
    LISTENER
    + """
policy {
    enableVhostPolicy: true
    defaultVhost: v
}
vhost {
    hostname: v
    allowUnknownUser: true
    groups: {
        $default: {
            remoteHosts: *
            sources: mine
            targets: $management
            allowDynamicSource: true
            allowDynamicLinkRoutes: %s
        }
    }
}
"""
)


def test_policy_refuses_link_routes(daemon: Callable[..., Daemon]) -> None:
    """routing 119, policy 43"""
    with raw_peer(daemon(POLICY % "false")) as peer:
        answer = ask(peer, "CREATE", {"pattern": "mine", "direction": "in"})
        assert (status(answer), answer.application_properties["statusDescription"]) == (403, "Forbidden")


def test_policy_refuses_link_routes_for_what_the_peer_may_not_have_itself(daemon: Callable[..., Daemon]) -> None:
    """Ours, decided in routing §16"""
    router = daemon(POLICY % "true")
    with raw_peer(router) as peer:
        for pattern, direction in (("#", "in"), ("mine.#", "in"), ("mine", "out")):
            answer = ask(peer, "CREATE", {"pattern": pattern, "direction": direction})
            assert status(answer) == 403
            assert "Forbidden: it takes addresses that this user may not" in str(answer.application_properties)
        assert status(ask(peer, "CREATE", {"pattern": "mine", "direction": "in"})) == 201
    router.wait_for_log("Link Route Activated .* on container")


def test_a_request_that_a_router_passed_on_makes_none(tmp_path: Path) -> None:
    """Attack: a client far away has two routers send each other's links to and fro."""
    with router_network(tmp_path, "A", "B") as network:
        network.start("A")
        network.start("B", "A", terms="routerIds: ${user}")
        network.settle("A", "B")
        with raw_peer(network.routers["B"]) as peer:
            far = "_topo/0/A/$management"
            answer = ask(peer, "CREATE", {"pattern": "#", "direction": "in"}, address=far)
            assert status(answer) == 403
            assert results(ask(peer, "QUERY", {"attributeNames": []}, address=far, entityType=TYPE)) == []


EDGE = "router {\n    mode: edge\n    id: E1\n}\n" + LISTENER


def test_an_edge_shows_no_routers_and_its_link_routes(daemon: Callable[..., Daemon]) -> None:
    """network 99"""
    route = "linkRoute {\n    name: elr\n    prefix: elr\n    direction: in\n    containerId: broker\n}\n"
    router = daemon(EDGE + route)
    assert "Router is Standalone - No Router List" in router.tool("qdstat", "-n").out
    with router.client() as client:
        assert not client.query("router.node").rows
        addresses = client.query("router.address", ("key", "distribution", "containerCount"))
    assert ["Celr", "linkBalanced", 0] in [list(row) for row in addresses.rows]
    shown = router.tool("qdstat", "--linkroutes").out
    assert "elr" in shown
    assert "inactive" in shown
