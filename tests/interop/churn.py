"""Other people's connections: they come, do a little, and go, some without a word."""

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import raw_peer
from harness import RunningRouter
from raw_peer import RawPeer

PAUSE_S = 0.01
MESSAGE = b"\x00\x53\x75\xa0\x05other"
ADDRESS = "guests.churn"


def reset(peer: RawPeer) -> None:
    """Have the socket closed by RST, as a client does that dies with data unread."""
    with contextlib.suppress(OSError):
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def send_some(peer: RawPeer) -> None:
    peer.send(raw_peer.IN_SESSION + raw_peer.attach_sender(ADDRESS))
    peer.read_until(raw_peer.ATTACH)
    for number in range(5):
        peer.send(raw_peer.transfer(MESSAGE, number=number))


def receive_some(peer: RawPeer) -> None:
    peer.send(raw_peer.IN_SESSION + raw_peer.attach_receiver(ADDRESS) + raw_peer.flow(credit=10))
    peer.read_until(raw_peer.ATTACH)


def leave_half_a_message(peer: RawPeer) -> None:
    peer.send(raw_peer.IN_SESSION + raw_peer.attach_sender(ADDRESS))
    peer.read_until(raw_peer.ATTACH)
    peer.send(raw_peer.transfer(MESSAGE + bytes(2000), is_last=False))


def be_refused_a_link(peer: RawPeer) -> None:
    peer.send(raw_peer.IN_SESSION + raw_peer.attach_sender("secret"))
    peer.read_until(raw_peer.DETACH)


def be_refused_altogether(peer: RawPeer) -> None:
    peer.send(raw_peer.IN_SESSION.replace(raw_peer.open_frame(), raw_peer.open_frame("elsewhere.example")))
    peer.read_until(raw_peer.CLOSE)


def break_off_the_login(peer: RawPeer) -> None:
    peer.send(raw_peer.IN_SESSION[: len(raw_peer.IN_SESSION) // 2])


VISITS: tuple[Callable[[RawPeer], None], ...] = (
    *(send_some, receive_some, leave_half_a_message),
    *(be_refused_a_link, be_refused_altogether, break_off_the_login),
)


@contextmanager
def churn(router: RunningRouter, *, seed: int) -> Iterator[Counter[str]]:
    """Visitors one after another until the end of the body; counted by what they did and how they left."""
    visits: Counter[str] = Counter()
    is_over = threading.Event()
    failures: list[BaseException] = []

    def visit() -> None:
        chance = random.Random(seed)
        while not is_over.wait(PAUSE_S):
            what, is_rude = chance.choice(VISITS), chance.random() < 0.5
            try:
                with raw_peer.raw_peer(router, "clear") as peer:
                    what(peer)
                    if is_rude:
                        reset(peer)
                visits[f"{what.__name__}, {'reset' if is_rude else 'closed'}"] += 1
            except OSError:
                visits["could not"] += 1  # the router is gone, as some tests want it
            except BaseException as failure:
                if router.is_killed:
                    continue  # its sockets end without a word
                failures.append(failure)
                return

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    try:
        yield visits
    finally:
        is_over.set()
        thread.join(30)
    assert not thread.is_alive()
    assert failures == [], failures
