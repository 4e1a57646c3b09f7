"""Connectors between routers whose server goes: when they try again, and where. Routers as processes, over mutual TLS.

Sources: docs/spec/network.md §13; docs/spec/routing.md §1.8, §1.9.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from daemon_process import Daemon, eventually
from free_ports import free_port
from joined_routers import CONNECTOR, RouterNetwork, reached, router_network

pytestmark = [pytest.mark.interop, pytest.mark.timing]

TRACE = "log {\n    module: SERVER\n    enable: trace+\n}\nlog {\n    module: ROUTER\n    enable: debug+\n}\n"
# A listener for routers beside that of `joined_routers`.
LISTENER = """
listener {{
    name: {name}
    host: 127.0.0.1
    port: {port}
    role: inter-router
    sslProfile: routers
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    {terms}
}}
"""
TRIES = r"SERVER \(trace\) \[C\d+\] Connecting to "
LOST = r"ROUTER_LS \(info\) Link to Neighbor Router Lost"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[RouterNetwork]:
    with router_network(tmp_path, "A", "B", "C", "X") as made:
        yield made


def connector(port: int, terms: str = "") -> str:
    return CONNECTOR.format(name="out", port=port, terms=terms)


def times(router: Daemon, pattern: str, since: int = 0) -> list[float]:
    """When it wrote the lines with the pattern: seconds."""
    return [datetime.strptime(line[:26], "%Y-%m-%d %H:%M:%S.%f").timestamp() for line in router.log(pattern, since)]


def kill(router: Daemon) -> None:
    """As a power cut would."""
    router.process.kill()
    router.process.wait()


def servers(router: Daemon) -> str:
    with router.client() as client:
        return str(client.read(type="connector", name="out")["failoverUrls"])


def test_a_router_goes_over_to_the_server_that_the_lost_one_named(network: RouterNetwork) -> None:
    """network 109: after a second where it was once more, then to the next, each second one. Attack: one of the list
    is a router that the connector's routerIds do not know; it never joins, and costs its turn.
    """
    backup, stranger = network.start("B").port("network"), network.start("X").port("network")
    urls = f"failoverUrls: 127.0.0.1:{stranger}, 127.0.0.1:{backup}"
    first = network.start("A", extra=LISTENER.format(name="first", port=0, terms=urls)).port("first")
    router = network.start("C", extra=TRACE + connector(first, "routerIds: A, B"))
    network.settle("A", "C")
    since = router.mark()
    assert servers(router) == ", ".join(
        [f"amqps://127.0.0.1:{first}", *(f"amqp://127.0.0.1:{port}" for port in (stranger, backup))]
    )
    for port in (stranger, backup):
        router.wait_for_log(rf"ROUTER \(debug\) Added 127\.0\.0\.1:{port} as backup host$")
    kill(network.routers["A"])
    with router.client() as client:
        assert eventually(lambda: reached(client) == {"B", "C"})
    (lost,) = times(router, LOST, since)
    tried = times(router, TRIES, since)
    # A once more, X twice, B.
    assert len(tried) == 4
    for before, after in zip([lost, *tried], tried, strict=False):
        assert 0.9 < after - before < 4
    assert len(router.log(r"may not join the network as router 'X'", since)) == 2
    assert servers(router).startswith(f"amqp://127.0.0.1:{backup}, ")
    # B names none: what A named stays known.
    assert f"127.0.0.1:{stranger}" in servers(router)


def test_a_lost_server_that_is_the_only_one_is_tried_after_two_seconds_then_every_five(network: RouterNetwork) -> None:
    """network 109"""
    port = free_port()
    network.start("A", extra=LISTENER.format(name="first", port=port, terms=""))
    router = network.start("C", extra=TRACE + connector(port))
    network.settle("A", "C")
    since = router.mark()
    assert servers(router) == f"amqps://127.0.0.1:{port}"
    kill(network.routers["A"])
    router.wait_for_log(LOST, since)
    assert eventually(lambda: len(times(router, TRIES, since)) == 2)
    (lost,), (first, second) = times(router, LOST, since), times(router, TRIES, since)
    assert 1.9 < first - lost < 4
    assert 4.9 < second - first < 8
    refused = rf"SERVER \(info\) \[C\d+\] Connection to 127\.0\.0\.1:{port} failed: proton:io Connection refused"
    assert len(router.log(refused, since)) == 2
    numbers = [int(re.findall(r"\[C(\d+)\]", line)[0]) for line in router.log(TRIES, since)]
    assert numbers[0] < numbers[1], "each attempt has a number of its own"


def test_a_router_that_comes_back_is_a_neighbour_again(network: RouterNetwork, tmp_path: Path) -> None:
    """network 109: two seconds after it was lost"""
    port = free_port()
    listener = LISTENER.format(name="first", port=port, terms="")
    lost = network.start("A", extra=listener)
    router = network.start("C", extra=TRACE + connector(port))
    network.settle("A", "C")
    since = router.mark()
    kill(lost)
    (tmp_path / "A").rename(tmp_path / "lost")
    network.start("A", extra=listener)
    with router.client() as client:
        assert eventually(lambda: "A" in reached(client) and router.log(r"Connection Opened: dir=out ", since))
    (at,), (opened, *_) = times(router, LOST, since), times(router, r"Connection Opened: dir=out ", since)
    assert opened - at > 1.9
