"""What a client and a broker say of their link passes the router, and what the router says for itself fits the broker.

The router once kept settlement modes, properties and capabilities back: clients that ask for a mode could not attach,
and Artemis refused the mirror of another. It left credit at the broker when the last consumer had gone, and gave back
large messages that were still coming, at which Artemis closed the connection.
"""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from artemis import MIRROR, running
from broker_process import PASSWORD, USER, Broker
from daemon_process import start
from proton import Delivery, Link, Message, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException
from router_text import LINK_ROUTE, LISTENER, link_routes, waypoint
from traffic import PATIENCE_S, taken, wait_until

LARGE = bytes(1_000_000)
COUNT = 7  # fewer than the window of a session holds: Broker-J sends the rest of a message beyond that


class Modes(LinkOption):
    def __init__(self, sender: int, receiver: int) -> None:
        self.sender, self.receiver = sender, receiver

    def apply(self, link: Any) -> None:
        link.snd_settle_mode, link.rcv_settle_mode = self.sender, self.receiver
        link.properties = {symbol("of"): "the client"}


def _direct(broker: Broker) -> BlockingConnection:
    return BlockingConnection(
        f"amqp://127.0.0.1:{broker.port}", timeout=PATIENCE_S, user=USER, password=PASSWORD, allowed_mechs="PLAIN"
    )


def _answer(connection: BlockingConnection, *, is_sender: bool, modes: Modes) -> tuple[object, ...]:
    """What the client learns of its link."""
    make = connection.create_sender if is_sender else connection.create_receiver
    try:
        link = make("parts", options=modes).link
    except LinkDetached as refused:
        return (refused.condition,)
    said = (link.remote_snd_settle_mode, link.remote_rcv_settle_mode, link.remote_properties)
    link.close()
    return said


@pytest.mark.parametrize("is_sender", [True, False])
@pytest.mark.parametrize("modes", [(Link.SND_SETTLED, Link.RCV_FIRST), (Link.SND_UNSETTLED, Link.RCV_FIRST),
                                   (Link.SND_MIXED, Link.RCV_SECOND)])  # fmt: skip
def test_settlement_modes_are_agreed_with_the_broker(
    modes: tuple[int, int], is_sender: bool, broker: Broker, tmp_path: Path
) -> None:
    daemon = start(tmp_path, LISTENER + broker.connector + link_routes("parts"))
    try:
        daemon.wait_for_log("Link Route Activated .* on connection broker")
        with contextlib.closing(_direct(broker)) as direct:
            wanted = _answer(direct, is_sender=is_sender, modes=Modes(*modes))
        with contextlib.closing(
            BlockingConnection(f"amqp://127.0.0.1:{daemon.port('clients')}", timeout=PATIENCE_S)
        ) as routed:
            assert _answer(routed, is_sender=is_sender, modes=Modes(*modes)) == wanted
    finally:
        daemon.end()


def test_one_artemis_mirrors_another(distribution: Path, tmp_path: Path) -> None:
    with running(tmp_path / "target", distribution) as target:
        route = LINK_ROUTE.format(prefix="$ACTIVEMQ_ARTEMIS_MIRROR_router", direction="in", connection="broker")
        daemon = start(tmp_path, LISTENER + target.connector + route)
        try:
            daemon.wait_for_log("Link Route Activated .* on connection broker")
            connections = MIRROR.format(port=daemon.port("clients"))
            with running(tmp_path / "source", distribution, "orders", connections=connections) as source:
                connection = _direct(source)
                sender = connection.create_sender("orders")
                bodies = {f"order {number}" for number in range(20)}
                for body in bodies:
                    sender.send(Message(body=body, durable=True))
                connection.close()
                got: set[str] = set()

                def has_all() -> bool:
                    with contextlib.suppress(LinkDetached):  # the queue is not there yet
                        got.update(taken(target.url, "orders", bodies - got))
                    return got == bodies

                wait_until(has_all, "the mirror has all")
        finally:
            daemon.end()


def test_large_messages_wait_in_the_broker_when_the_last_consumer_has_gone(broker: Broker, tmp_path: Path) -> None:
    daemon = start(tmp_path, LISTENER + broker.connector + waypoint("orders", "broker"))
    try:
        for _ in range(2):
            daemon.wait_for_log("Auto Link Activated .* on connection broker")
        url = f"amqp://127.0.0.1:{daemon.port('clients')}"
        connection = BlockingConnection(url, timeout=PATIENCE_S)
        sender = connection.create_sender("orders")
        sender.send(Message(body="first", durable=True))
        receiver = connection.create_receiver("orders", credit=50)
        assert receiver.receive(PATIENCE_S).body == "first"
        receiver.accept()
        receiver.close()
        states = []
        for _ in range(COUNT):
            with contextlib.suppress(SendException):
                states.append(sender.send(Message(body=LARGE, durable=True)).remote_state)
        assert states == [Delivery.ACCEPTED] * COUNT
        receiver = connection.create_receiver("orders", credit=5)
        for _ in range(COUNT):
            assert receiver.receive(PATIENCE_S).body == LARGE
            receiver.accept()
        connection.close()
        assert not daemon.log("Connection to .* failed|Activation Failed")
    finally:
        daemon.end()
