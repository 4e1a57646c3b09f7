"""Settlement, credit and opaque bytes on the wire of a running daemon, frame by frame: issue 12, points 1 to 3."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from certificates import Certificates
from harness import RunningRouter, eventually, running_router
from raw_peer import AMQP, ATTACH, DETACH, FLOW, SASL, TRANSFER, RawPeer, begin, frame, open_frame, sasl_init

from router.amqp.codec import skip
from router.values import Described, uint, ulong

DISPOSITION = 0x15
ACCEPTED = Described(ulong(0x24), [])
BODY = b"\x00\x53\x77\x40"
VHOST = """
vhost {{
    hostname: {name}
    groups: {{
        all: {{
            users: anonymous
            remoteHosts: 127.0.0.1
            sources: guests.*
            targets: guests.*
            allowUserIdProxy: {may_claim}
        }}
    }}
}}
"""
EXTRA = "".join(
    [
        "address {\n    prefix: guests.news\n    distribution: multicast\n}\n",
        VHOST.format(name="open", may_claim="true"),
        VHOST.format(name="checked", may_claim="false"),
    ]
)


@pytest.fixture
def router(certificates: Certificates, router_python: Path, tmp_path: Path) -> Iterator[RunningRouter]:
    with running_router(tmp_path, certificates, python=router_python, extra=EXTRA) as running:
        yield running


@pytest.fixture
def peers(router: RunningRouter) -> Iterator["Peers"]:
    with ExitStack() as stack:
        yield Peers(router, stack)


class Peers:
    def __init__(self, router: RunningRouter, stack: ExitStack) -> None:
        self.router = router
        self.stack = stack

    def attached(self, attach: bytes, host: str) -> RawPeer:
        peer = self.stack.enter_context(raw_peer.raw_peer(self.router, "clear"))
        peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame(host) + begin() + attach)
        peer.read_until(ATTACH)
        return peer

    def receiver(self, address: str, *, host: str = "open") -> RawPeer:
        peer = self.attached(raw_peer.attach_receiver(address), host)
        peer.send(raw_peer.flow(credit=10))
        return peer

    def sender(self, address: str, *, host: str = "open") -> RawPeer:
        peer = self.attached(raw_peer.attach_sender(address), host)
        peer.read_until(FLOW)
        return peer


def disposition(*, is_receiver: bool, is_settled: bool, state: object = ACCEPTED) -> bytes:
    return frame(DISPOSITION, is_receiver, uint(0), None, is_settled, state)


Update = tuple[bool, bool, int | None]  # it comes from a receiver, it settles, the state


def read_some(peer: RawPeer) -> None:
    peer.socket.settimeout(0.05)
    with suppress(TimeoutError):
        peer.received += peer.socket.recv(1 << 20)


def has(peer: RawPeer, claim: Callable[[], bool]) -> bool:
    """Does the claim come true of what the peer is sent?"""

    def look() -> bool:
        read_some(peer)
        return claim()

    return bool(eventually(look, 10))


def updates(peer: RawPeer) -> list[Update]:
    """The Dispositions so far."""
    found = []
    for code, fields in peer.performatives():
        if code == DISPOSITION:
            role, _, _, is_settled, state = (*fields, *[None] * (5 - len(fields)))[:5]
            found.append((bool(role), bool(is_settled), int(state.descriptor) if state is not None else None))  # type: ignore[attr-defined]
    return found


def updated(peer: RawPeer, count: int) -> list[Update]:
    """The Dispositions, when there are so many."""
    assert has(peer, lambda: len(updates(peer)) >= count)
    return updates(peer)


def has_whole(peer: RawPeer, size: int) -> bool:
    return len(payloads(peer)) == size


def after_a_while(peer: RawPeer) -> list[Update]:
    for _ in range(4):
        read_some(peer)
    return updates(peer)


@pytest.mark.parametrize("size", [0, 300_000])
def test_multicast_is_settled_by_the_sender(peers: Peers, size: int) -> None:
    receivers = [peers.receiver("guests.news") for _ in range(2)]
    sender = peers.sender("guests.news")
    payload = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size) if size else BODY
    pieces = [payload[at : at + 15_000] for at in range(0, len(payload), 15_000)]
    sender.send(b"".join(raw_peer.transfer(piece, is_last=piece is pieces[-1]) for piece in pieces))
    for receiver in receivers:
        assert has(receiver, partial(has_whole, receiver, len(payload)))
    receivers[0].send(disposition(is_receiver=True, is_settled=False))
    assert after_a_while(sender) == []
    receivers[1].send(disposition(is_receiver=True, is_settled=False))
    assert updated(sender, 1) == [(True, False, 0x24)]
    assert after_a_while(receivers[0]) == []
    sender.send(disposition(is_receiver=False, is_settled=True, state=None))
    for receiver in receivers:
        (update,) = updated(receiver, 1)
        assert update[:2] == (False, True)


def payloads(peer: RawPeer) -> bytes:
    """What the Transfers so far carried, of frames that are whole."""
    found, at, received = b"", 0, peer.received
    while len(received) - at >= 8:
        if received[at : at + 4] == b"AMQP":
            at += 8
            continue
        end = at + int.from_bytes(received[at : at + 4], "big")
        if end > len(received):
            break
        if end - at > 8 and received[at + 5] == 0 and received[at + 10] == TRANSFER:
            found += received[skip(received, at + 8) : end]
        at = end
    return found


def test_multicast_is_settled_by_its_receivers(peers: Peers) -> None:
    receivers = [peers.receiver("guests.news") for _ in range(2)]
    sender = peers.sender("guests.news")
    sender.send(raw_peer.transfer(BODY))
    for receiver in receivers:
        receiver.read_until(TRANSFER)
        receiver.send(disposition(is_receiver=True, is_settled=False))
    assert updated(sender, 1) == [(True, False, 0x24)]
    receivers[0].send(disposition(is_receiver=True, is_settled=True))
    assert after_a_while(sender) == [(True, False, 0x24)]
    receivers[1].send(disposition(is_receiver=True, is_settled=True))
    assert updated(sender, 2) == [(True, False, 0x24), (True, True, 0x24)]


def test_a_credit_is_not_lost_when_accept_and_detach_arrive_in_one_read(peers: Peers) -> None:
    receiver, sender = peers.receiver("guests.one"), peers.sender("guests.one")
    sender.send(raw_peer.transfer(BODY))
    receiver.read_until(TRANSFER)
    receiver.send(disposition(is_receiver=True, is_settled=True) + frame(DETACH, uint(0), True))
    assert updated(sender, 1) == [(True, True, 0x24)]
    assert has(sender, lambda: limit(sender) == 1 + 250)
    sender.send(raw_peer.transfer(BODY, number=1))
    assert updated(sender, 2)[1] == (True, True, 0x26)
    assert has(sender, lambda: flows(sender)[-1][8:9] == [True])
    assert limit(sender) - 2 == 249


def flows(peer: RawPeer) -> list[list[Any]]:
    return [list(fields) for code, fields in peer.performatives() if code == FLOW]


def limit(peer: RawPeer) -> int:
    """Up to which delivery-count the router's latest Flow lets its peer send."""
    latest = [fields for fields in flows(peer) if len(fields) > 6 and fields[6] is not None][-1]
    return int(latest[5] or 0) + int(latest[6])


@pytest.mark.parametrize("payload", [b"hello", b"\x00", b"\x00\x53\x6f\x45" + BODY])
@pytest.mark.parametrize("host", ["open", "checked"])
def test_bytes_that_are_no_section(peers: Peers, payload: bytes, host: str) -> None:
    """Forwarded where nothing is checked of a message; refused where its user-id is."""
    receiver, sender = peers.receiver("guests.one", host=host), peers.sender("guests.one", host=host)
    sender.send(raw_peer.transfer(payload))
    if host == "checked":
        assert updated(sender, 1) == [(True, True, 0x25)]
        assert not payloads(receiver)
        return
    assert has(receiver, lambda: payloads(receiver) == payload)
    receiver.send(disposition(is_receiver=True, is_settled=True))
    assert updated(sender, 1) == [(True, True, 0x24)]
