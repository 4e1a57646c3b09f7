"""A well-behaved client that sends messages to itself and measures each round trip while other clients attack."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import raw_peer
from harness import RunningRouter
from raw_peer import ATTACH, FLOW, TRANSFER, RawPeer, frame

from router.values import Described, ubyte, uint, ulong

ADDRESS = "guests.bystander"
_PAYLOAD = b"\x00\x53\x75\xa0\x04fine"  # one data section
_WINDOW = 2048
_CREDIT = 1 << 30


def _flow(received: int, *, credit: int | None = None) -> bytes:
    """The receiver's window is open again, `received` transfers on; with the link's credit where given."""
    link = (uint(1), uint(0), uint(credit)) if credit is not None else ()
    return frame(FLOW, uint(received), uint(_WINDOW), uint(0), uint(_WINDOW), *link)


class Bystander:
    """One connection with a sender and a receiver on the same address.

    seconds  how long each round trip took
    """

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.seconds: list[float] = []
        self.error: Exception | None = None
        source, target = Described(ulong(0x28), [ADDRESS]), Described(ulong(0x29), [ADDRESS])
        peer.send(raw_peer.IN_SESSION)
        peer.send(frame(ATTACH, "s", uint(0), False, ubyte(1), None, Described(ulong(0x28), []), target, None, None,
                        uint(0)))  # fmt: skip
        peer.send(frame(ATTACH, "r", uint(1), True, ubyte(1), None, source, Described(ulong(0x29), [])))
        peer.send(_flow(0, credit=_CREDIT))
        peer.read_until(FLOW)  # the router's credit
        peer.received = b""
        self._count = 0

    def round_trip(self) -> None:
        """One message, there and back. What follows it (credit) is read with the next."""
        number, peer = self._count, self.peer
        self._count += 1
        started = time.monotonic()
        peer.send(frame(TRANSFER, uint(0), uint(number), number.to_bytes(4, "big"), uint(0), True, payload=_PAYLOAD))
        peer.socket.settimeout(30)
        while _PAYLOAD not in peer.received:
            data = peer.socket.recv(65536)
            assert data, "the router has closed the bystander's connection"
            peer.received += data
        self.seconds.append(time.monotonic() - started)
        peer.received = b""
        if self._count % (_WINDOW // 2) == 0:
            peer.send(_flow(self._count))

    def percentile_s(self, share: float) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * share)]


@contextmanager
def bystander(router: RunningRouter, listener: str = "clear", pause_s: float = 0.001) -> Iterator[Bystander]:
    """Exchanges messages on a thread of its own until the end of the body; what went wrong is raised there."""
    with raw_peer.raw_peer(router, listener) as peer:
        one = Bystander(peer)
        is_over = threading.Event()

        def play() -> None:
            try:
                while not is_over.wait(pause_s):
                    one.round_trip()
            except Exception as error:
                one.error = error

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        try:
            yield one
        finally:
            is_over.set()
            thread.join(60)
        if one.error is not None:
            raise one.error
