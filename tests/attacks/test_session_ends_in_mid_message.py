"""Attack: a peer ends a session during a large message that it receives.

proton released the session through one of its links, which it then used once more. The router read memory that already
belonged to another object, freed it again, and sometimes crashed. Only the sanitizer sees it each time: tests/asan runs
this file with it.
"""

import gc
from typing import Any

import pytest
from memory_net import Client, Fleet, Net, Receiver, Sender, encoded
from test_streaming import MEGABYTE

from router.core.budget import Limits
from router.core.trunk_links import DataInLink

PIECE = 64 * 1024
LARGE = encoded(bytes(MEGABYTE))
MANY = 80  # more links than end with their session in one go


class Scene:
    """A client whose receivers have a session of their own, and another that sends to them."""

    def __init__(self, links: int, *, window: int, credit: int) -> None:
        self.net = Net(limits=Limits())
        self.client = self.net.client()
        self.session: Any = self.client.connection.session()
        self.session.incoming_capacity = window
        self.session.open()
        names = [f"to {number}" for number in range(links)]
        for name in names:
            link = self.session.receiver(name)
            link.source.address = name
            link.open()
            link.flow(credit)
        self.net.pump()
        self.sending = self.net.client()
        self.senders = [self.sending.sender(name) for name in names]
        self.net.pump()

    def begin(self, size: int) -> None:
        """A message to each receiver, of which so many bytes come."""
        for sender in self.senders:
            sender.start()
            append(self.net, sender, LARGE[:size])

    def end_session(self) -> None:
        self.session.close()
        self.net.pump()

    def is_well(self) -> None:
        """Everybody else is served, and nothing of the session is kept."""
        gc.collect()
        for sender in self.senders:
            append(self.net, sender, LARGE[-PIECE:])
            sender.finish()
        self.net.pump()
        receiver = self.client.receiver("good", credit=10, accepts=True)
        good = self.sending.sender("good")
        self.net.pump()
        good.send(b"hello")
        self.net.pump()
        assert receiver.bodies == [b"hello"]
        assert not self.client.is_closed_by_router
        assert self.client.router.peer is not None
        assert len(self.client.router.peer.engine.ended) == 0


def append(net: Net, sender: Sender, data: bytes) -> None:
    for at in range(0, len(data), PIECE):
        sender.append(data[at : at + PIECE])
        net.pump()


@pytest.mark.parametrize("links", [1, 3, MANY])
@pytest.mark.parametrize("window", [PIECE, 10 * MEGABYTE])
@pytest.mark.parametrize("credit", [0, 10])
def test_a_client_ends_it(links: int, window: int, credit: int) -> None:
    scene = Scene(links, window=window, credit=credit)
    scene.begin(3 * PIECE if links > 3 else 8 * PIECE)
    scene.end_session()
    scene.is_well()


@pytest.mark.parametrize("is_settled", [True, False])
def test_messages_wait_behind_it(is_settled: bool) -> None:
    scene = Scene(1, window=PIECE, credit=100)
    (sender,) = scene.senders
    for _ in range(20):
        sender.send(bytes(10_000), is_settled=is_settled)
    scene.net.pump()
    scene.begin(4 * PIECE)
    scene.end_session()
    scene.is_well()


def test_the_message_goes_on_in_the_same_read_as_the_end() -> None:
    scene = Scene(1, window=10 * MEGABYTE, credit=10)
    scene.begin(4 * PIECE)
    (sender,) = scene.senders
    sender.append(LARGE[:PIECE])
    scene.session.close()
    scene.net.pump()
    scene.is_well()


def test_time_and_again() -> None:
    scene = Scene(1, window=PIECE, credit=10)
    for number in range(30):
        scene.begin(4 * PIECE)
        scene.end_session()
        scene.senders[0].sent[-1].abort()
        scene.net.pump()
        scene.session = scene.client.connection.session()
        scene.session.incoming_capacity = PIECE
        scene.session.open()
        link = scene.session.receiver(f"again {number}")
        link.source.address = "to 0"
        link.open()
        link.flow(10)
        scene.net.pump()
    scene.begin(PIECE)
    scene.is_well()


def test_the_connection_is_lost_right_after() -> None:
    scene = Scene(MANY, window=PIECE, credit=10)
    scene.begin(3 * PIECE)
    scene.session.close()
    scene.client.push_to_router()
    scene.client.kill()
    scene.net.pump()
    scene.client = scene.net.client()
    scene.net.pump()
    scene.is_well()


@pytest.mark.parametrize("links", [1, 12])
def test_a_neighbour_ends_it(links: int) -> None:
    fleet = Fleet("A", "B", limits=Limits())
    fleet.connect("A", "B")
    fleet.settle()
    fleet["B"].client().receiver("slow")
    fleet.tick(2)
    clients: list[tuple[Client, Sender]] = []
    for _ in range(links):
        client = fleet["A"].client()
        clients.append((client, client.sender("slow")))
    fleet.pump()
    for _, sender in clients:
        sender.start()
        sender.append(LARGE)
        fleet.pump()
    peer = fleet["B"].peer(fleet["B"].ends[0])
    lanes = [each for each in peer.attachment.in_links if isinstance(each, DataInLink) and each.slot is None]
    assert lanes
    for session in {each.wire.session for each in lanes}:  # type: ignore[attr-defined]
        session.close()
    fleet["B"].work.touched.add(peer.engine)
    fleet["B"].work.finish()
    fleet.pump()
    receiver: Receiver = fleet["B"].client().receiver("good", credit=10, accepts=True)
    fleet.tick(2)
    good = fleet["A"].client().sender("good")
    fleet.pump()
    good.send(b"hello")
    fleet.pump()
    assert receiver.bodies == [b"hello"]
    for router in "AB":
        assert len(fleet[router].peer(fleet[router].ends[0]).engine.ended) == 0
    fleet.no_errors()


def test_what_it_holds_is_paid_for_until_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(MANY // 2, window=PIECE, credit=10)
    peer = scene.client.router.peer
    assert peer is not None
    account, ended = peer.attachment.account, peer.engine.ended
    scene.begin(4 * PIECE)
    scene.net.advance(2.0)
    held_by_the_engine = peer.engine.sessions[next(reversed(peer.engine.sessions))].outgoing
    assert held_by_the_engine > MEGABYTE // 4
    with monkeypatch.context() as patched:
        patched.setattr("router.amqp.engine.ended._AT_ONCE", 0)
        scene.end_session()
        assert len(ended) == 1
        assert account.held >= held_by_the_engine
    peer.engine.touch()
    scene.net.work.finish()
    assert len(ended) == 0
    assert account.held < PIECE
