"""The log of interior routers: the lines of the network that operators and the peers' tests look for (network §17)."""

import re
from collections.abc import Iterator

import pytest
from daemon_process import eventually
from joined_routers import RouterNetwork, nodes, router_network
from proton.utils import BlockingConnection

pytestmark = pytest.mark.interop

TRACE = "".join(
    f"log {{\n    module: {module}\n    enable: trace+\n}}\n"
    for module in ("ROUTER", "ROUTER_HELLO", "ROUTER_LS", "ROUTER_MA", "PROTOCOL")
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterNetwork]:
    with router_network(tmp_path_factory.mktemp("network"), "A", "B") as made:
        made.start("A", extra=TRACE)
        made.start("B", "A", extra=TRACE)
        made.settle("A", "B")
        yield made


@pytest.mark.parametrize(
    "line",
    [
        r"ROUTER \(info\) Router started in Interior mode, area=0 id=A$",
        r"ROUTER \(info\) Version: \S+",
        r"ROUTER \(info\) Router Engine Instantiated: id=A instance=\d+ max_routers=128$",
        r"ROUTER_CORE \(info\) Router Core thread running\. 0/A$",
        r"ROUTER_CORE \(info\) In-process subscription L/qdhello$",
        r"ROUTER_CORE \(info\) In-process subscription L/qdrouter$",
        r"ROUTER_CORE \(info\) In-process subscription T/qdrouter$",
        r"ROUTER_CORE \(info\) In-process subscription L/qdrouter\.ma$",
        r"ROUTER_CORE \(info\) In-process subscription T/qdrouter\.ma$",
        r"ROUTER_CORE \(info\) \[C\d+\] Connection Opened: dir=in host=127\.0\.0\.1:\d+ .* container_id=B props=",
        r"ROUTER_CORE \(info\) \[C\d+\]\[L\d+\] Link attached: dir=in ",
        r"ROUTER \(debug\) Remote router annotations version: 1$",
        r"ROUTER_HELLO \(trace\) SENT: HELLO\(id=A pv=1 area=0 inst=\d+ seen=\[\]\)$",
        r"ROUTER_HELLO \(trace\) SENT: HELLO\(id=A pv=1 area=0 inst=\d+ seen=\['B'\]\)$",
        r"ROUTER_HELLO \(trace\) RCVD: HELLO\(id=B pv=1 area=0 inst=\d+ seen=\['A'\]\)$",
        r"ROUTER_LS \(trace\) SENT: RA\(id=A pv=1 area=0 inst=\d+ ls_seq=\d+ mobile_seq=\d+\)$",
        r"ROUTER_LS \(trace\) RCVD: RA\(id=B pv=1 area=0 inst=\d+ ls_seq=\d+ mobile_seq=\d+\)$",
        r"ROUTER_LS \(trace\) SENT: LSR\(id=A pv=1 area=0\) to: \S+$",
        r"ROUTER_LS \(trace\) RCVD: LSR\(id=B pv=1 area=0\)$",
        r"ROUTER_LS \(trace\) SENT: LSU\(id=A pv=1 area=0 inst=\d+ ls_seq=\d+ ls=LS\(id=A area=0 ls_seq=\d+ peers=",
        r"ROUTER_LS \(trace\) Local Link State: LS\(id=A area=0 ls_seq=1 peers=\{'B': 1\}\)$",
        r"ROUTER_LS \(info\) Computed next hops: \{'B': 'B'\}$",
        r"ROUTER_LS \(info\) Computed costs: \{'B': 1\}$",
        r"ROUTER_LS \(info\) Computed valid origins: \{'B': \[\]\}$",
        r"ROUTER_LS \(info\) Computed radius: 1$",
        r"ROUTER \(trace\) Entered Router Flux Mode$",
        r"ROUTER \(trace\) Node B created: maskbit=1$",
        r"ROUTER \(trace\) Node B link set: link_id=0",
        r"ROUTER \(trace\) Node B valid origins: \[\]$",
        r"ROUTER \(trace\) Node B cost: 1$",
    ],
)
def test_two_routers_that_find_each_other(network: RouterNetwork, line: str) -> None:
    assert eventually(lambda: network.routers["A"].log(line))


def test_subscriptions_are_named_once(network: RouterNetwork) -> None:
    """network §17"""
    texts = [
        re.findall(r"ROUTER_CORE \(info\) In-process subscription (\S+)$", line) for line in network.routers["A"].lines
    ]
    named = [text for found in texts for text in found]
    control = ["L/qdhello", "L/qdrouter", "T/qdrouter", "L/qdrouter.ma", "T/qdrouter.ma"]
    assert named == [*control, "M/$management", "L/$management"]


def test_an_interior_router_lists_its_own_addresses(network: RouterNetwork) -> None:
    """network §15, §16.2: those of the protocol, and of the services for edges."""
    with network.routers["A"].client() as client:
        shown = {
            row[0]: tuple(row[1:])
            for row in client.query("router.address", ["key", "distribution", "remoteCount"]).rows
        }
    services = {f"M0_$qd.{name}": ("balanced", 0) for name in ("addr_lookup", "edge_addr_tracking", "edge_heartbeat")}
    control = {"Lqdhello": ("flood", 0), "Tqdrouter": ("flood", 1), "Tqdrouter.ma": ("multicast", 1)}
    assert {key: shown[key] for key in services | control} == services | control


@pytest.mark.parametrize(("router", "other"), [("A", "B"), ("B", "A")])
def test_an_open_has_the_number_of_its_connection(network: RouterNetwork, router: str, other: str) -> None:
    """network 5: in the log of the router that wrote it, and in what the other's management shows of the connection."""
    text = r'PROTOCOL \(trace\) \[C(\d+)\].* -> @open\(16\) .*"qd\.annotations-version"=1\b'
    line = network.routers[router].wait_for_log(text)
    assert re.findall(r'"qd\.conn-id"=(\d+)', line.string) == [line[1]]
    network.routers[router].wait_for_log(rf"\[C{line[1]}\] Connection Opened: .* container_id={other} props=")
    with network.routers[other].client() as client:
        rows = client.query("connection", ["container", "properties"]).rows
    shown = [properties for container, properties in rows if container == router]
    assert [properties["qd.conn-id"] for properties in shown] == [int(line[1])]


def test_an_address_that_appears_and_goes(network: RouterNetwork) -> None:
    """network 45, 46"""
    near, far = network.routers["B"], network.routers["A"]
    connection = BlockingConnection(f"127.0.0.1:{near.port()}", timeout=20.0)
    try:
        connection.create_receiver("logged")
        near.wait_for_log(r"ROUTER_MA \(debug\) Became Local Dest: M0logged$")
        sent = near.wait_for_log(r"New mobile sequence: mobile_seq=(\d+), addrs_added=1, addrs_deleted=0, fanout=1$")
        text = rf"ROUTER_MA \(debug\) Received MAU \(\w+\) from B, mobile_seq={sent[1]}$"
        assert eventually(lambda: far.log(text))
    finally:
        connection.close()
    near.wait_for_log(r"ROUTER_MA \(debug\) No Longer Local Dest: M0logged$")
    near.wait_for_log(r"New mobile sequence: mobile_seq=\d+, addrs_added=0, addrs_deleted=1, fanout=1$")


def test_a_neighbour_that_is_gone(network: RouterNetwork) -> None:
    """network 24: last, for it ends B."""
    network.routers["B"].end()
    router = network.routers["A"]
    router.wait_for_log(r"ROUTER_LS \(info\) Link to Neighbor Router Lost - link_tag=0$")
    router.wait_for_log(r"ROUTER \(trace\) Node B link removed$")
    router.wait_for_log(r"ROUTER_LS \(info\) Computed radius: 0$")
    lost = eventually(lambda: router.tool("qdstat", "-n").out.splitlines())
    with router.client() as client:
        row = next(row for row in nodes(client) if row["id"] == "B")
    assert (row["routerLink"], row["nextHop"]) == (None, None)
    assert [line.split() for line in lost if re.match(r"  B ", line)] == [["B", "-", "None"]]
