"""Attack: another router of the network passes on requests that change this router, which does not know their user.

That router was taken over, or its administrator attacks, or it has another policy or none. This router knows neither
the user nor his group.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import audit_events, eventually
from joined_routers import RouterNetwork, router_network

from router.management.client import ForbiddenStatus

GROUP = {
    "users": "anonymous",
    "remoteHosts": "127.0.0.1",
    "sources": "*",
    "targets": "*",
    "allowDynamicSource": True,
    "allowAnonymousSender": True,
    "management": "administrator",
}
TYPE = "org.apache.qpid.dispatch.router.config.address"


def policy(terms: str = "") -> str:
    vhost = f"vhost {{\n    hostname: $default\n    groups: {json.dumps({'masters': GROUP})}\n}}\n"
    return f"policy {{\n    enableVhostPolicy: yes\n    {terms}\n}}\n{vhost}"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[RouterNetwork]:
    with router_network(tmp_path, "A", "B") as made:
        yield made


def test_the_administrator_of_one_router_changes_nothing_on_another(network: RouterNetwork) -> None:
    network.start("B", extra=policy())
    network.start("A", "B", extra=policy())
    network.settle("A", "B")
    with network.routers["A"].client() as client:
        remote = client.at("_topo/0/B/$management")
        assert remote.query("org.apache.qpid.dispatch.router", ["id"]).rows == (("B",),)
        with pytest.raises(ForbiddenStatus):
            remote.create({"prefix": "taken", "distribution": "multicast"}, type=TYPE, name="taken")
        assert not [row for row in remote.query(TYPE, ["name"]).rows if row[0] == "taken"]
    events = eventually(
        lambda: [
            event
            for event in audit_events(network.folder / "B" / "audit")
            if event["reason"] == "management_not_allowed"
        ]
    )
    assert events[0]["rule"]["item"] == "policy, networkManagement: observer"
    assert events[0]["user"] == "A"  # the router that passed the request on


def test_rights_of_the_network_are_a_setting(network: RouterNetwork) -> None:
    network.start("A", extra=policy())
    network.start("B", "A", extra=policy("networkManagement: administrator"))
    network.settle("A", "B")
    with network.routers["A"].client() as client:
        remote = client.at("_topo/0/B/$management")
        remote.create({"prefix": "given"}, type=TYPE, name="given")
        assert ("given",) in remote.query(TYPE, ["name"]).rows
