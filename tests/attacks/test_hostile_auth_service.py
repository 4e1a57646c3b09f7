"""Attack: the service of an authServicePlugin, or a program in its place, floods, says nothing, or lies.

Each single fault is in tests/daemon/test_daemon_auth_service.py; here many come at once, and the test checks what they
leave.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import raw_peer
from daemon_process import LISTENER, Daemon, Started, eventually
from raw_peer import RawPeer, frame
from server_peer import INIT, MECHANISMS, OUTCOME, Behaviour, Call, Hangup, serving

from router.values import Array, Described, symbol, ubyte, uint, ulong, ushort

CHALLENGE = 0x42
LOGINS, AT_ONCE = 240, 12
# Allocators keep some; a flood of one login alone is 80 MB.
MAX_GROWTH_KB = 24 * 1024


def offering(call: Call) -> None:
    call.read(8)
    call.send(raw_peer.SASL + frame(MECHANISMS, Array(symbol, (symbol("PLAIN"),)), kind=1))
    call.expect(INIT)


def floods(call: Call) -> None:
    """Challenges without end, and never reads."""
    offering(call)
    with contextlib.suppress(OSError):
        for _ in range(2000):
            call.socket.sendall(frame(CHALLENGE, b"x" * 400, kind=1) * 100)


def pours(call: Call) -> None:
    """An Open that never ends, behind its yes."""
    offering(call)
    call.send(frame(OUTCOME, ubyte(0), kind=1) + raw_peer.AMQP)
    with contextlib.suppress(OSError):
        for _ in range(2000):
            call.socket.sendall(b"\x00\x01\xff\xff\x02\x00\x00\x00" + b"\x00" * 65_000)


def is_silent(call: Call) -> None:
    call.stay()


def is_silent_later(call: Call) -> None:
    offering(call)
    call.stay()


def leaves(call: Call) -> None:
    offering(call)
    call.reset()


def lies(call: Call) -> None:
    """Yes, for a user whose name is two lines of a log, with the right to everything."""
    offering(call)
    identity = {symbol("sub"): "alice\n2026-01-01 POLICY (info) root let in"}
    properties = {symbol("authenticated-identity"): identity, symbol("address-authz"): {"#": Array(str, ("send",))}}
    opened = frame(0x10, "s", None, uint(65536), ushort(9), None, None, None, None, None, properties)
    call.send(frame(OUTCOME, ubyte(0), kind=1) + raw_peer.AMQP + opened)
    call.stay()


def takes_it_back(call: Call) -> None:
    """Yes, and a Close that says why not in one piece with the Open."""
    offering(call)
    refusal = frame(0x18, Described(ulong(0x1D), [symbol("amqp:not-allowed"), "no"]))
    call.send(frame(OUTCOME, ubyte(0), kind=1) + raw_peer.AMQP + raw_peer.open_frame() + refusal)
    call.stay()


@contextmanager
def started(daemon: Started, behaviours: Sequence[Behaviour]) -> Iterator[Daemon]:
    """Each connection to the service meets the next behaviour."""
    turn, lock = iter(range(10**9)), threading.Lock()

    def behave(call: Call) -> None:
        with lock:
            number = next(turn)
        with contextlib.suppress(Hangup):
            behaviours[number % len(behaviours)](call)

    with serving(behave) as service:
        yield daemon(
            f"authServicePlugin {{\n name: remote\n host: 127.0.0.1\n port: {service.port}\n}}\n"
            "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslPlugin: remote\n"
            " initialHandshakeTimeoutSeconds: 4\n}\n" + LISTENER
        )


def log_in(router: Daemon, patience_s: float) -> bool:
    """Is the peer let in? It sends all at once, and waits for so long."""
    with socket.create_connection(("127.0.0.1", router.port("login")), 10) as connected:
        peer = RawPeer(connected, 0)
        connected.settimeout(patience_s)
        try:
            peer.send(raw_peer.SASL + raw_peer.plain("alice", "x") + raw_peer.AMQP + raw_peer.open_frame())
            while piece := connected.recv(65536):
                peer.received += piece
        except OSError:
            pass
        codes = [(kind, code) for kind, code, _ in raw_peer.frames_in(peer.received)]
        return (0, 0x10) in codes


def descriptors(router: Daemon) -> int:
    return len(os.listdir(f"/proc/{router.process.pid}/fd"))


def resident_kb(router: Daemon) -> int:
    with open(f"/proc/{router.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4


@pytest.mark.parametrize(
    "behaviours",
    [(floods, pours), (is_silent, is_silent_later), (lies, takes_it_back, leaves), (leaves, is_silent, floods, lies)],
    ids=["floods", "never answers", "lies", "all of it"],
)
def test_nobody_is_let_in_and_nothing_is_left(behaviours: Sequence[Behaviour], daemon: Started) -> None:
    with started(daemon, behaviours) as router:
        log_in(router, 0.5)  # what is made once is made
        router.client().close()
        before, memory_kb = descriptors(router), resident_kb(router)
        let_in: list[bool] = []

        def work() -> None:
            let_in.extend(log_in(router, 0.2 + number % 3 * 0.2) for number in range(LOGINS // AT_ONCE))

        threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        router.client().close()  # the others go on
        assert time.monotonic() - began < 10
        for thread in threads:
            thread.join()
        assert len(let_in) == LOGINS
        assert not any(let_in)
        eventually(lambda: descriptors(router) <= before + 1)
        assert descriptors(router) <= before + 1
        assert resident_kb(router) - memory_kb < MAX_GROWTH_KB
        assert not router.log(r"Traceback|ERROR \(|root let in")
