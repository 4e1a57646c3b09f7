"""The management of a network: three interior routers in a line, A - B - C, as processes and over mutual TLS."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from daemon_process import Daemon, eventually
from joined_routers import RouterNetwork, nodes, router_network

from router.management.client import ForbiddenStatus, NotFoundStatus

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterNetwork]:
    with router_network(tmp_path_factory.mktemp("network"), "A", "B", "C") as made:
        made.start("A")
        made.start("B", "A", terms="routerIds: ${user}")
        made.start("C", "B", terms="routerIds: ${user}")
        made.settle("A", "B", "C")
        yield made


def test_a_router_shows_itself_its_neighbour_and_the_router_behind(network: RouterNetwork) -> None:
    """network 101, 102, management 65: names and identities too."""
    began = time.time()
    with network.routers["A"].client() as client:
        # What a router shows of the paths of others comes with their link states. A router names its neighbours in the
        # order in which it met them.
        assert eventually(lambda: [sorted(row["linkState"]) for row in nodes(client)][1:] == [["A", "C"], ["B"]])
        own, neighbour, far = nodes(client)
    assert (own["id"], own["index"], own["nextHop"], own["linkState"]) == ("A", 0, "(self)", ["B"])
    assert (own["protocolVersion"], own["validOrigins"], own["address"]) == (1, [], "amqp:/_topo/0/A")
    assert (own["routerLink"], own["cost"]) == (None, None)
    assert began - 60 < own["lastTopoChange"] <= time.time()
    assert began - 60 < own["instance"] <= time.time()
    assert (neighbour["id"], neighbour["nextHop"], neighbour["cost"]) == ("B", None, 1)
    assert isinstance(neighbour["routerLink"], int)
    assert (far["id"], far["nextHop"], far["routerLink"], far["cost"]) == ("C", "B", None, 2)
    for row in (own, neighbour, far):
        assert row["name"] == row["identity"] == f"router.node/{row['id']}"
        assert row["type"] == "org.apache.qpid.dispatch.router.node"


def test_one_node_is_read_by_its_name_and_an_unknown_one_is_not_found(network: RouterNetwork) -> None:
    """network 103"""
    with network.routers["A"].client() as client:
        assert client.read(type="org.apache.qpid.dispatch.router.node", name="router.node/C")["id"] == "C"
        with pytest.raises(NotFoundStatus):
            client.read(type="org.apache.qpid.dispatch.router.node", name="router.node/D")


@pytest.mark.parametrize("router_id", ["A", "B", "C"])
def test_every_router_names_the_management_of_all(network: RouterNetwork, router_id: str) -> None:
    """network 104, management 64"""
    with network.routers[router_id].client() as client:
        found = client.management_nodes()
    assert found[0] == f"amqp:/_topo/0/{router_id}/$management"
    assert sorted(found) == [f"amqp:/_topo/0/{each}/$management" for each in "ABC"]


def test_the_count_of_nodes_is_of_the_others(network: RouterNetwork) -> None:
    """network 16.1"""
    with network.routers["B"].client() as client:
        assert client.read(type="org.apache.qpid.dispatch.router", identity="1")["nodeCount"] == 2


@pytest.mark.parametrize("asked", ["A", "B", "C"])
def test_a_router_two_hops_away_answers_requests(network: RouterNetwork, asked: str) -> None:
    """management 66: the own one by that address, too."""
    with network.routers["A"].client() as client:
        remote = client.at(f"_topo/0/{asked}/$management")
        found = remote.query("org.apache.qpid.dispatch.router", ["id"])
        assert found.rows == ((asked,),)


def test_a_change_on_a_router_two_hops_away(network: RouterNetwork) -> None:
    """As with 1.20 where no policy is in force."""
    with network.routers["A"].client() as client:
        remote = client.at("_topo/0/C/$management")
        remote.create({"prefix": "far"}, type="org.apache.qpid.dispatch.router.config.address", name="far")
    with network.routers["C"].client() as client:
        assert client.read(type="org.apache.qpid.dispatch.router.config.address", name="far")["prefix"] == "far"


def test_a_long_reply_crosses_two_hops(network: RouterNetwork) -> None:
    """The schema is many frames."""
    with network.routers["A"].client() as client:
        schema = client.at("_topo/0/C/$management").node("GET-SCHEMA")
    assert "router.node" in schema["entityTypes"]


def test_qdstat_shows_the_network(network: RouterNetwork) -> None:
    """management 78"""
    lines = network.routers["A"].tool("qdstat", "-n").out.splitlines()[3:]
    with network.routers["A"].client() as client:
        link = next(row["routerLink"] for row in nodes(client) if row["id"] == "B")
    assert lines[0] == "Routers in the Network"
    assert lines[1].startswith("Last Topology Change: ")
    assert [line.split() for line in lines[2:] if not line.strip().startswith("=")] == [
        ["router-id", "next-hop", "link"],
        ["A", "(self)", "-"],
        ["B", "-", str(link)],
        ["C", "B", "-"],
    ]


def test_qdstat_asks_another_router_and_all(network: RouterNetwork) -> None:
    """management 78, 81"""
    router = network.routers["A"]
    general = router.tool("qdstat", "-r", "C", "-g").out
    assert [line.split() for line in general.splitlines() if "Router Id" in line] == [["Router", "Id", "C"]]
    every = router.tool("qdstat", "--all-routers", "-nv").out
    assert every.count("Routers in the Network") == 3
    assert [line.split()[-1] for line in every.splitlines() if line.startswith("Router ")] == ["A", "B", "C"]
    links = router.tool("qdstat", "-l", "--all-routers").out
    assert links.count("router-control") == 8  # two on each side of each connection
    assert router.tool("qdstat", "--all-entities").status == 0


def test_qdmanage_asks_another_router(network: RouterNetwork) -> None:
    router = network.routers["A"]
    found = json.loads(router.tool("qdmanage", "-r", "C", "query", "--type", "router", "id").out)
    assert [row["id"] for row in found] == ["C"]
    listed = json.loads(router.tool("qdmanage", "get-mgmt-nodes").out)
    assert listed[0] == "amqp:/_topo/0/A/$management"
    assert len(listed) == 3


def test_no_request_closes_a_connection_between_routers(network: RouterNetwork) -> None:
    """network 16"""
    with network.routers["B"].client() as client:
        found = client.query("org.apache.qpid.dispatch.connection", ["identity", "role"])
        routers = [identity for identity, role in found.rows if role == "inter-router"]
        assert len(routers) == 2
        for identity in routers:
            with pytest.raises(ForbiddenStatus, match="You are not allowed to perform this operation"):
                client.update(
                    {"adminStatus": "deleted"}, type="org.apache.qpid.dispatch.connection", identity=str(identity)
                )


def test_an_unknown_router_is_told(network: RouterNetwork) -> None:
    ran = network.routers["A"].tool("qdstat", "-t", "1", "-r", "D", "-g")
    assert ran.status == 1
    assert "is there a router of this name?" in ran.out + ran.err


@pytest.mark.parametrize("mode", ["interior", "edge"])
def test_an_interior_router_says_that_its_connector_of_role_edge_serves_nothing(
    daemon: Callable[[str], Daemon], mode: str
) -> None:
    made = daemon(
        f"router {{\n    mode: {mode}\n    id: A\n}}\n"
        "listener {\n    name: plain\n    host: 127.0.0.1\n    port: 0\n    authenticatePeer: no\n}\n"
        "connector {\n    name: up\n    host: 127.0.0.1\n    port: 1\n    role: edge\n}\n"
    )
    assert made.port()
    assert made.log(r"CONN_MGR \(info\) Configured Connector: 127\.0\.0\.1:1 proto=any, role=edge")
    warning = r"CONN_MGR \(warning\) Connector 127\.0\.0\.1:1 has role=edge and serves nothing: this router is"
    assert bool(made.log(warning)) is (mode == "interior")
