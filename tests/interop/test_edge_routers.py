"""Edge routers and interior routers as processes: messages between edges, management, the loss of an uplink."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from edge_network import TIMEOUT_S, client, edge, interior
from proton import Delivery, Message
from router_network import Node, Processes, processes

from router.management.client import ManagementError
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect

pytestmark = pytest.mark.interop


@pytest.fixture
def star(tmp_path: Path) -> Iterator[Processes]:
    """One interior, INT, with two edges."""
    with processes(tmp_path) as running:
        port = interior(running, "INT")
        for name in ("E1", "E2"):
            edge(running, name, port)
        yield running


class Consumer(threading.Thread):
    """Receives and accepts on one address of a router until it is stopped.

    accepted  bodies, each as often as it came
    """

    def __init__(self, node: Node, address: str) -> None:
        super().__init__(daemon=True)
        self.accepted: Counter[str] = Counter()
        self.is_attached = threading.Event()
        self._node = node
        self._address = address
        self._is_over = threading.Event()

    def run(self) -> None:
        with client(self._node) as connection:
            receiver = connection.create_receiver(self._address, credit=10)
            self.is_attached.set()
            while not self._is_over.is_set():
                try:
                    message = receiver.receive(timeout=0.2)
                except Exception:
                    continue
                self.accepted[str(message.body)] += 1
                receiver.accept()

    def stop(self) -> None:
        self._is_over.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()


def test_a_client_of_one_edge_reaches_a_client_of_another(star: Processes) -> None:
    """network 84, 85"""
    consumer = Consumer(star["E2"], "orders")
    consumer.start()
    assert consumer.is_attached.wait(TIMEOUT_S)
    bodies = [f"order {number}" for number in range(50)]
    try:
        with client(star["E1"]) as near:
            sender = near.create_sender("orders")
            assert [sender.send(Message(body=body)).remote_state for body in bodies] == [Delivery.ACCEPTED] * 50
    finally:
        consumer.stop()
    assert consumer.accepted == Counter(bodies)


@pytest.mark.parametrize(
    ("asked", "address", "identifier"),
    [
        ("INT", "_edge/E1/$management", "E1"),
        ("E1", "_edge/E2/$management", "E2"),
        ("E1", "_topo/0/INT/$management", "INT"),
        ("E1", "$management", "E1"),
    ],
)
def test_routers_are_managed_through_others(star: Processes, asked: str, address: str, identifier: str) -> None:
    """network 91"""
    options = ConnectionOptions(host="127.0.0.1", port=star[asked].clients, timeout_s=TIMEOUT_S)
    with connect(options) as manager:
        (row,) = manager.at(address).query("org.apache.qpid.dispatch.router", ["id", "mode"]).rows
        if (asked, identifier) == ("INT", "E1"):  # what comes by its uplink reads, and changes nothing
            star.expected_error = "Forbidden"
            with pytest.raises(ManagementError) as refused:
                manager.at(address).create({"prefix": "a"}, type="address", name="a")
            assert refused.value.status == 403
    assert row == (identifier, "interior" if identifier == "INT" else "edge")


def test_management_shows_which_uplink_is_active(tmp_path: Path) -> None:
    """network 83"""
    with processes(tmp_path) as running:
        ports = [interior(running, "A"), interior(running, "B")]
        node = edge(running, "E1", *ports)

        def shown(which: Node) -> list[tuple[object, ...]]:
            options = ConnectionOptions(host="127.0.0.1", port=which.clients, timeout_s=TIMEOUT_S)
            with connect(options) as manager:
                rows = manager.query("org.apache.qpid.dispatch.connection", ["role", "container", "active"]).rows
            return sorted(row for row in rows if row[0] == "edge")

        running["A"].wait_for_log(r"Connection Opened: .*container_id=E1")
        running["B"].wait_for_log(r"Connection Opened: .*container_id=E1")
        rows = shown(node)
        assert [row[1] for row in rows] == ["A", "B"]
        assert sorted(map(str, (row[2] for row in rows))) == ["False", "True"]
        assert shown(running["A"]) == shown(running["B"]) == [("edge", "E1", True)]


def test_the_stand_by_takes_over_when_the_uplink_is_killed(tmp_path: Path) -> None:
    """network 74, 76, 81: every message that is accepted was accepted by a receiver; every other has an outcome."""
    with processes(tmp_path) as running:
        third = interior(running, "C")
        ports = [interior(running, name, to=("C",)) for name in ("A", "B")]
        for name in ("A", "B"):
            running[name].wait_for_way_to("C")
        near, far = edge(running, "E1", *ports), edge(running, "E2", third)
        for name in ("A", "B"):
            running[name].wait_for_log(r"Connection Opened: .*container_id=E1")
        number = near.wait_for_log(r"Edge connection \(id=(\d+)\) to interior established")[1]
        active = near.wait_for_log(rf"\[C{number}\] Connection Opened: .*container_id=(A|B) ")[1]
        consumer = Consumer(far, "orders")
        consumer.start()
        assert consumer.is_attached.wait(TIMEOUT_S)
        outcomes: dict[str, object] = {}
        try:
            with client(near) as connection:
                sender = connection.create_sender("orders")
                for number in range(600):
                    if number == 200:
                        running[active].kill()
                    body = f"order {number}"
                    state: object = Delivery.MODIFIED
                    try:
                        state = sender.send(Message(body=body)).remote_state
                    except Exception as error:
                        state = getattr(error, "state", state)
                    outcomes[body] = state
        finally:
            consumer.stop()
        near.wait_for_log(r"Edge connection \(id=\d+\) to interior lost, activating alternate id=\d+")
        accepted = {body for body, state in outcomes.items() if state == Delivery.ACCEPTED}
        assert len(outcomes) == 600
        assert accepted <= consumer.accepted.keys()
        assert {body for body, count in consumer.accepted.items() if count > 1} == set()
        assert {f"order {number}" for number in (100, 599)} <= accepted
