"""The end of a router under load: a real sender and a real receiver, of python-qpid-proton. Issue 39."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, eventually, run_configuration
from joined_routers import router_network
from process_log import PATIENCE_S
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from router.management.client import BadRequestStatus, ForbiddenStatus, ManagementClient

pytestmark = pytest.mark.interop

DRAINING = "router {\n id: R\n shutdownTimeout: 20\n}\n" + LISTENER
FORCED = "amqp:connection:forced"
HELD = 100  # so many messages wait for the receiver before it accepts any


class Client(MessagingHandler):
    """One reactor client in a thread. `ended` is the condition that its connection was closed with."""

    def __init__(self, port: int, *, container_id: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.url = f"amqp://127.0.0.1:{port}"
        self.ended: str | None = None
        self.injector = EventInjector()
        self.container = Container(self)
        self.container.container_id = container_id or self.container.container_id
        self.container.selectable(self.injector)
        self.thread = threading.Thread(target=self.container.run, daemon=True)
        self.thread.start()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.attach(event.container, connection)

    def attach(self, container: Any, connection: Any) -> None:
        """Open the link."""

    def on_connection_remote_close(self, event: Any) -> None:
        # The reactor's own handlers say nothing of this condition: it means that the client is to connect again.
        condition = event.connection.remote_condition
        self.ended = condition.name if condition is not None else "closed"

    def on_disconnected(self, event: Any) -> None:
        self.on_end(event)

    def on_end(self, event: Any) -> None:
        self.injector.close()
        self.container.stop()

    def end(self) -> None:
        """A client that was writing when the router went does not notice: its reactor waits on."""
        with contextlib.suppress(OSError):  # it has ended
            self.tell("end")
        self.join()

    def tell(self, what: str) -> None:
        self.injector.trigger(ApplicationEvent(what))

    def join(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


class Sender(Client):
    """It sends as much as it may, for as long as it may."""

    def __init__(self, port: int, *, heeds_drain: bool, address: str = "orders") -> None:
        self.address = address
        self.sent, self.acknowledged = 0, set[int]()
        self.refused = 0
        self.heeds_drain = heeds_drain
        self.numbers: dict[str, int] = {}
        super().__init__(port)

    def attach(self, container: Any, connection: Any) -> None:
        container.create_sender(connection, self.address)

    def on_link_flow(self, event: Any) -> None:
        if event.link.is_sender and event.link.drain_mode and self.heeds_drain:
            event.link.drained()

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit > 0:
            delivery = event.sender.send(Message(body=self.sent))
            self.numbers[delivery.tag] = self.sent
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.acknowledged.add(self.numbers[event.delivery.tag])

    def on_released(self, event: Any) -> None:
        self.refused += 1


class Receiver(Client):
    """It accepts nothing until it is told to `go_on`."""

    def __init__(self, port: int, **settings: Any) -> None:
        self.accepted: list[int] = []
        self.held: list[Any] = []
        self.has_leave = False
        super().__init__(port, auto_accept=False, prefetch=HELD, **settings)

    def attach(self, container: Any, connection: Any) -> None:
        container.create_receiver(connection, "orders")

    def on_message(self, event: Any) -> None:
        if self.has_leave:
            self._take(event.delivery, event.message.body)
        else:
            self.held.append((event.delivery, event.message.body))

    def on_go_on(self, event: Any) -> None:
        self.has_leave = True
        for delivery, body in self.held:
            self._take(delivery, body)
        self.held = []

    def _take(self, delivery: Any, body: int) -> None:
        self.accepted.append(body)
        self.accept(delivery)


Loaded = Callable[..., tuple[Sender, Receiver]]


@pytest.fixture
def loaded() -> Iterator[Loaded]:
    """`loaded(router)`: a sender, and a receiver that holds all that it may have; perhaps at another router."""
    made: list[Client] = []

    def load(router: Daemon, of_receiver: Daemon | None = None, *, heeds_drain: bool = True) -> tuple[Sender, Receiver]:
        receiver = Receiver((of_receiver or router).port())
        sender = Sender(router.port(), heeds_drain=heeds_drain)
        made.extend((receiver, sender))
        assert eventually(lambda: len(receiver.held) >= HELD)
        return sender, receiver

    yield load
    for each in made:
        each.end()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("heeds_drain", [True, False], ids=["gives credit up", "uses credit up"])
def test_sigterm_waits_for_what_is_under_way(daemon: Callable[..., Daemon], loaded: Loaded, heeds_drain: bool) -> None:
    """The connections were closed at once: what was under way had no outcome, and its sender did not know."""
    router = daemon(DRAINING)
    port = router.port()
    sender, receiver = loaded(router, heeds_drain=heeds_drain)
    router.signal(signal.SIGTERM)
    router.wait_for_log(r"SERVER \(notice\) Draining, for at most 20 seconds")
    assert eventually(lambda: is_refused(port))
    assert sender.ended is receiver.ended is None
    receiver.tell("go_on")
    assert router.wait() == 0
    sender.join()
    receiver.join()
    assert router.log(r"Drained: 0 deliveries have no outcome")
    assert sender.ended == receiver.ended == FORCED
    assert sender.refused == 0
    assert sender.acknowledged == set(range(sender.sent)) == set(receiver.accepted)
    assert len(receiver.accepted) == sender.sent >= HELD


def test_a_flowing_load_ends_without_a_loss(daemon: Callable[..., Daemon], loaded: Loaded) -> None:
    router = daemon(DRAINING)
    sender, receiver = loaded(router)
    receiver.tell("go_on")
    assert eventually(lambda: len(sender.acknowledged) > 10 * HELD)
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    sender.join()
    receiver.join()
    assert sender.acknowledged == set(range(sender.sent)) == set(receiver.accepted)


def test_a_receiver_that_never_accepts_costs_the_time_and_no_more(
    daemon: Callable[..., Daemon], loaded: Loaded
) -> None:
    router = daemon(DRAINING.replace("20", "1"))
    sender, receiver = loaded(router)
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    sender.join()
    assert router.log(r"SERVER \(warning\) Drained: [1-9]\d* deliveries have no outcome")
    assert sender.ended == FORCED
    assert sender.acknowledged == set()
    assert receiver.accepted == []


def test_a_second_signal_ends_the_drain(daemon: Callable[..., Daemon], loaded: Loaded) -> None:
    router = daemon(DRAINING.replace("20", "3600"))
    loaded(router)
    router.signal(signal.SIGTERM)
    router.wait_for_log("Draining")
    router.signal(signal.SIGTERM)
    assert router.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM])
def test_nothing_is_waited_for_where_nobody_asked(daemon: Callable[..., Daemon], loaded: Loaded, number: int) -> None:
    router = daemon(LISTENER if number == signal.SIGTERM else DRAINING)
    loaded(router)
    router.signal(number)
    assert router.wait() == 0
    assert router.log("Drain") == []


def drain(client: ManagementClient, name: str = "router/R", **properties: Any) -> Any:
    return client.call("DRAIN", type="router", name=name, properties=properties)


def test_management_drains(daemon: Callable[..., Daemon], loaded: Loaded) -> None:
    """SIGTERM follows where a host ends (Kubernetes, systemd); it does not cut the drain short."""
    router = daemon(DRAINING.replace("shutdownTimeout: 20", ""))
    sender, receiver = loaded(router)
    with router.client() as client:
        for wrong in (0, 3601, -1, "5", True):
            with pytest.raises(BadRequestStatus):
                drain(client, timeout=wrong)
        with pytest.raises(BadRequestStatus, match="DRAIN wants 'timeout', else shutdownTimeout"):
            drain(client)
        assert drain(client, timeout=30) == {"timeout": 30}
        router.wait_for_log("Draining, for at most 30 seconds")
        router.signal(signal.SIGTERM)
        assert client.read(type="router", name="router/R")["id"] == "R"  # management goes on
        assert drain(client, timeout=1) == {"timeout": 30}
    receiver.tell("go_on")
    assert router.wait() == 0
    sender.join()
    receiver.join()
    assert sender.acknowledged == set(range(sender.sent)) == set(receiver.accepted)


def test_each_router_of_two_can_drain(tmp_path: Path, loaded: Loaded) -> None:
    """The sender's router, and in another network the receiver's: what is between the routers gets its outcome."""
    for ending in ("A", "B"):
        folder = tmp_path / ending
        folder.mkdir()
        with router_network(folder, "A", "B") as network:
            extra = "address {\n prefix: orders\n distribution: balanced\n}\n"
            a = network.start("A", extra=extra)
            b = network.start("B", "A", extra=extra)
            network.settle("A", "B")
            sender, receiver = loaded(a, b)
            router, other = (a, b) if ending == "A" else (b, a)
            with router.client() as client:
                drain(client, name=f"router/{ending}", timeout=30)
            router.wait_for_log("Draining")
            receiver.tell("go_on")
            assert router.wait() == 0
            assert router.log(r"Drained: 0 deliveries have no outcome")
            assert not other.has_ended
            (sender if ending == "A" else receiver).join()
            other.signal(signal.SIGTERM)
            assert other.wait() == 0
        receiver.end()
        assert sender.acknowledged == set(receiver.accepted)
        assert len(receiver.accepted) >= HELD


@pytest.mark.parametrize("wrong", ["-1", "3601"])
def test_a_time_out_of_range_stops_the_start(tmp_path: Path, wrong: str) -> None:
    found = run_configuration(tmp_path, DRAINING.replace("20", wrong))
    assert found.status == 1
    assert f"shutdownTimeout is a number of seconds from 0 to 3600, not {wrong}" in found.err


class Broker(Receiver):
    """The container of a link route: the router attaches to it what clients attach to `routed.`."""

    def attach(self, container: Any, connection: Any) -> None:
        """The router does."""

    def on_link_opening(self, event: Any) -> None:
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)


def test_a_routed_link_drains(daemon: Callable[..., Daemon]) -> None:
    """Its credit is its receiver's, so that the router cannot give less: it takes nothing more."""
    containers = LISTENER.replace("name: plain", "name: containers\n    role: route-container")
    route = "linkRoute {\n name: r\n prefix: routed\n direction: in\n containerId: broker\n}\n"
    router = daemon(DRAINING + containers + route)
    broker = Broker(router.port("containers"), container_id="broker")
    with router.client() as client:
        query = "router.config.linkRoute"
        assert eventually(lambda: list(client.query(query, ["operStatus"]).rows) == [("active",)])
    sender = Sender(router.port(), heeds_drain=True, address="routed.orders")
    assert eventually(lambda: len(broker.held) >= HELD)
    router.signal(signal.SIGTERM)
    router.wait_for_log("Draining")
    broker.tell("go_on")
    assert router.wait() == 0
    assert router.log(r"Drained: 0 deliveries have no outcome")
    sender.end()
    broker.end()
    assert sender.acknowledged == set(broker.accepted)
    assert len(broker.accepted) >= HELD


def test_draining_takes_a_right_and_leaves_a_record(daemon: Callable[..., Daemon]) -> None:
    """Attack: whoever may look at the router ends it. `read` and `operator` do not reach so far."""
    policy = "policy {\n enableVhostPolicy: yes\n defaultVhost: v\n}\n"
    group = (
        "all: {\n users: *\n remoteHosts: *\n allowDynamicSource: true\n targets: $management\n management: RIGHTS\n}"
    )
    vhost = f"vhost {{\n hostname: v\n groups: {{\n{group}\n}}\n}}\n"
    router = daemon(DRAINING + policy + vhost.replace("RIGHTS", "operator"))
    with router.client() as client, pytest.raises(ForbiddenStatus, match="it takes the right 'update router'"):
        drain(client)
    assert router.log(r"Draining") == []
    router.end()
    router = daemon(DRAINING + policy + vhost.replace("RIGHTS", "update router"))
    with router.client() as client:
        drain(client)
    assert router.wait() == 0
    assert router.log(r"AGENT \(info\) \[C1\] DRAIN of router .*: 200")
