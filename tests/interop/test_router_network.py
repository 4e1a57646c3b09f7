"""Three interior routers as processes: the wire of a start, messages, and what ends when a router is killed."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, BlockingReceiver
from router_network import Node, Processes, processes

from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect

TIMEOUT_S = 20


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Processes]:
    """A - B - C, all of which know each other."""
    with processes(tmp_path) as running:
        running.start("A")
        running.start("B", to=["A"])
        running.start("C", to=["B"])
        for name, other in (("A", "C"), ("C", "A"), ("B", "C")):
            running[name].wait_for_way_to(other)
        yield running


@contextmanager
def client(node: Node) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(f"amqp://127.0.0.1:{node.clients}", timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS")
    try:
        yield connection
    finally:
        connection.close()


def wait(connection: BlockingConnection, claim: Callable[[], bool]) -> None:
    """Work on the connection until another thread has brought something about: its own `wait` would not look at that
    before something comes."""
    deadline = time.monotonic() + TIMEOUT_S
    connection.container.timeout = 0.05
    while not claim():
        assert time.monotonic() < deadline
        connection.container.process()


def is_here(receiver: BlockingReceiver, sent: "Future[Delivery]") -> bool:
    """Has a message come, or its sender an outcome?"""
    assert receiver.fetcher is not None
    return sent.done() or bool(receiver.fetcher.has_message)


def pass_on(near: BlockingConnection, far: BlockingConnection, address: str, bodies: list[str]) -> list[str]:
    """Send each to the address at one router, receive and accept it at another. Returns what came."""
    receiver = far.create_receiver(address, credit=10)
    sender = near.create_sender(address)
    came = []
    with ThreadPoolExecutor(1) as pool:
        for body in bodies:
            sent = pool.submit(sender.send, Message(body=body), TIMEOUT_S)
            wait(far, partial(is_here, receiver, sent))
            if sent.done():
                sent.result()  # nobody has accepted it
            came.append(str(receiver.receive(TIMEOUT_S).body))
            receiver.accept()
            wait(far, sent.done)
            assert sent.result().remote_state == Delivery.ACCEPTED
    return came


def test_messages_pass_two_hops_and_their_outcomes_return(network: Processes) -> None:
    """network 21, 41"""
    with client(network["C"]) as far, client(network["A"]) as near:
        bodies = [f"order {number}" for number in range(10)]
        assert pass_on(near, far, "orders", bodies) == bodies


def test_a_remote_router_is_managed_through_the_network(network: Processes) -> None:
    """network 57"""
    options = ConnectionOptions(
        host="127.0.0.1", port=network["A"].clients, timeout_s=10, address="_topo/0/C/$management"
    )
    with connect(options) as management:
        row = management.read(type="router", identity="router/C")
    assert row["id"] == "C"


def test_a_router_that_is_killed_and_started_again_is_found_again(network: Processes) -> None:
    """network 24, 35, 41"""
    network["C"].kill()
    network["B"].wait_for_log(r"ROUTER_LS \(info\) Link to Neighbor Router Lost - link_tag=\d+")
    since = len(network["A"].lines)
    network.start("C", to=["B"])
    network["A"].wait_for_log(r"Computed costs: .*'C': 2", since=since)
    with client(network["C"]) as far, client(network["A"]) as near:
        assert pass_on(near, far, "after", ["again"]) == ["again"]
