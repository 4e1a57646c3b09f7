"""Attack: a client learns why its connection ends, and continues: it sends, floods, never closes; or a hundred do.

The router used to close the socket with bytes unread, which reset the client's socket: it sent 40 MB against a limit of
30 MB, and never read which limit. Now the router reads on and drops the bytes. These clients try to make that
expensive. They hold at most 16 descriptors for one host and 64 in all, for five seconds each. The router reads at most
32 MiB from each.
"""

import contextlib
import itertools
import os
import socket
import time
from contextlib import ExitStack

import pytest
from frames_attacker import Attacker, attacker, besieged_router, wire
from harness import RunningRouter, eventually
from open_house import port_of
from raw_peer import raw_peer

from router.io.lingering import LINGER_BYTES, LINGER_S, MOST_OF_HOST

pytestmark = pytest.mark.timing

router = besieged_router

EXTRA_CONFIGURATION = """
vhost {
    hostname: sized
    groups: {
        everybody: {
            users: anonymous
            remoteHosts: *
            sources: *
            targets: *
            maxMessageSize: 100000
        }
    }
}
listener {
    name: sized
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    policyVhost: sized
}
listener {
    name: sized-tls
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    policyVhost: sized
}
"""
FORCED = "amqp:connection:forced"
LINKS = (
    wire.frame(wire.open_("large")), wire.frame(wire.begin()),
    wire.frame(wire.attach("r", 1, is_receiver=True, address="sized")), wire.frame(wire.flow(1, credit=1)),
    wire.frame(wire.attach("s", 0, is_receiver=False, address="sized")),
)  # fmt: skip
PIECE = wire.frame(wire.transfer(0, 0, b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + bytes(16_000), is_last=False))
MORE = wire.frame(wire.transfer(0, None, bytes(16_000), is_last=False))
WINDOW_PIECES = 500  # of a session's window


def too_large(peer: Attacker) -> None:
    """Begin a message that is over the limit, and read nothing."""
    peer.say(*LINKS)
    peer.wait_for(wire.ATTACH)
    peer.say(PIECE, *[MORE] * 8)


@pytest.mark.parametrize("listener", ["sized", "sized-tls"])
def test_a_client_that_still_sends_reads_why_it_is_closed(listener: str, router: RunningRouter) -> None:
    """issue 12.6: all that its session's window permits is sent before a byte is read."""
    port_of(router, listener)
    with raw_peer(router, listener, is_encrypted=listener == "sized-tls") as raw:
        peer = Attacker(raw.socket)
        peer.say(b"AMQP\x03\x01\x00\x00", wire.frame(wire.performative(0x41, wire.symbol("ANONYMOUS")), kind=1))
        peer.say(wire.HEADER, *LINKS)
        peer.wait_for(wire.ATTACH)
        raw.socket.settimeout(10)
        for piece in (PIECE, *[MORE] * WINDOW_PIECES):
            raw.socket.sendall(piece)  # a reset would be an error here
            time.sleep(0.0002)
        assert peer.condition_of_close() == FORCED


def test_a_client_that_answers_the_close_is_closed_at_once(router: RunningRouter) -> None:
    with attacker(router, "sized") as peer:
        too_large(peer)
        assert peer.condition_of_close() == FORCED
        peer.say(wire.frame(wire.close()))
        started, before = time.monotonic(), descriptors(router)
        peer.socket.close()
        assert eventually(lambda: descriptors(router) < before, LINGER_S)
        assert time.monotonic() - started < LINGER_S / 2


def test_a_client_that_never_closes_loses_its_socket(router: RunningRouter) -> None:
    before = descriptors(router)
    with attacker(router, "sized") as peer:
        too_large(peer)
        assert peer.condition_of_close() == FORCED
        assert descriptors(router) == before + 1
        assert eventually(lambda: descriptors(router) == before, LINGER_S + 2)


def test_a_client_that_floods_after_our_close_is_reset(router: RunningRouter) -> None:
    with attacker(router, "sized") as peer:
        too_large(peer)
        sent = flood(peer.socket, LINGER_BYTES * 3)
        assert LINGER_BYTES * 0.9 < sent < LINGER_BYTES + 16 * 1024 * 1024


def test_a_hundred_such_clients_hold_few_descriptors(router: RunningRouter) -> None:
    before = descriptors(router)
    with ExitStack() as stack:
        for _ in range(100):
            peer = stack.enter_context(attacker(router, "sized"))
            too_large(peer)
            assert peer.condition_of_close() == FORCED
        assert descriptors(router) <= before + MOST_OF_HOST + 2  # one on its way out, a file of the audit log
        with attacker(router, "free") as honest:
            honest.say(*LINKS)
            honest.wait_for(wire.ATTACH)
        assert eventually(lambda: descriptors(router) == before, LINGER_S + 2)


def test_a_hundred_that_flood_hold_up_nobody(router: RunningRouter) -> None:
    before_kb, waits = router.resident_kb(), []
    with ExitStack() as stack:
        honest = stack.enter_context(attacker(router, "free"))
        honest.say(wire.frame(wire.open_("honest")))
        honest.wait_for(wire.OPEN)
        honest.received = b""
        peers = [stack.enter_context(attacker(router, "sized")) for _ in range(100)]
        for peer in peers:
            too_large(peer)
            peer.socket.setblocking(False)
        for _ in range(40):
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.socket.send(FLOOD)
            started = time.monotonic()
            honest.turn()
            waits.append(time.monotonic() - started)
        assert sorted(waits)[len(waits) // 2] < 0.1
        assert max(waits) < 1
        assert router.resident_kb() - before_kb < 60 * 1024


def test_links_of_one_who_lingers_are_gone_at_once(router: RunningRouter) -> None:
    """What its connection held, counts and credit among it, is given back when it is told, not when it has left."""
    with attacker(router, "sized") as peer, attacker(router, "free") as other:
        too_large(peer)
        assert peer.condition_of_close() == FORCED
        router.wait_for_log(r"\[L\d+\] Link closed due to connection loss")
        other.say(*LINKS[:2], wire.frame(wire.attach("s", 0, is_receiver=False, address="sized")))
        other.wait_for(wire.ATTACH)
        other.read_some_for(0.3)
        credit = [field for code, fields in other.performatives() if code == wire.FLOW for field in fields[6:7]]
        assert not any(credit), "somebody receives there still"


FLOOD = MORE * 16


def flood(connected: socket.socket, at_most: int) -> int:
    """Send until the router resets. Returns bytes."""
    sent = 0
    connected.settimeout(10)
    for _ in itertools.repeat(None):
        try:
            sent += connected.send(FLOOD)
        except OSError:
            break
        if sent > at_most:
            break
    return sent


def descriptors(router: RunningRouter) -> int:
    return len(os.listdir(f"/proc/{router.pid}/fd"))
