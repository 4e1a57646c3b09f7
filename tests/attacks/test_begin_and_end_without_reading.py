"""Attack: a client sends frames that must be answered, again and again, and reads none of the answers.

Sessions that were begun and ended stayed in the AMQP engine until their End was written. They took 43 to 3,000 MB in
twelve seconds, even with `maxSessions: 1`, and the memory was never given back. Attached and detached links did the
same. Now the router does not read from a peer that does not read its answers.
"""

import itertools
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from frames_attacker import GREETING, NARROW, Attacker, besieged_router, wire
from harness import RunningRouter, eventually
from open_house import port_of

router = besieged_router

EXTRA_CONFIGURATION = NARROW
ATTACK_S = 6.0  # half of what made 3,000 MB
GROWTH_KB = 50 * 1024
AFTERWARDS_KB = 30 * 1024
OPEN, BEGIN, END = wire.frame(wire.open_("deaf")), wire.frame(wire.begin()), wire.frame(wire.end())
LINK = wire.frame(wire.attach("r", 0, is_receiver=True, address="deaf"))
SENDER = wire.frame(wire.attach("s", 1, is_receiver=False, address="deaf"))
COORDINATOR = wire.performative(0x30)  # the router does no transactions
MANY = 500  # at once


def attaches() -> Iterator[bytes]:
    for number in itertools.count():
        yield wire.frame(wire.attach(f"l{number}", 5, is_receiver=bool(number % 2), address=f"deaf.{number}"))
        yield wire.frame(wire.detach(5))


def dynamic_addresses() -> Iterator[bytes]:
    for number in itertools.count():
        yield wire.frame(wire.attach(f"d{number}", 5, is_receiver=True, address=None, is_dynamic=True))
        yield wire.frame(wire.detach(5))


def refused_links() -> Iterator[bytes]:
    """On handles of their own: the router closes each, and the client never answers."""
    for number in itertools.count():
        names = wire.text(f"x{number}"), wire.uint(10 + number), wire.FALSE, wire.NULL, wire.NULL
        termini = wire.source("x"), COORDINATOR, wire.NULL, wire.NULL, wire.uint(0)
        yield wire.frame(wire.performative(wire.ATTACH, *names, *termini))


def messages() -> Iterator[bytes]:
    """Settled or not, to an address without a receiver: each has an outcome."""
    for number in itertools.count():
        yield wire.frame(wire.transfer(1, number & 0xFFFFFFFF, wire.message(100)))


FLOODS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {
    "begin and end": (OPEN, lambda: itertools.cycle((BEGIN, END))),
    "attach and detach": (OPEN + BEGIN, attaches),
    "dynamic addresses": (OPEN + BEGIN, dynamic_addresses),
    "refused links": (OPEN + BEGIN, refused_links),
    "flows that want an echo": (OPEN + BEGIN + LINK, lambda: itertools.repeat(wire.frame(wire.flow(0, echo=True)))),
    "drained credit": (
        OPEN + BEGIN + LINK,
        lambda: (wire.frame(wire.flow(0, credit=number % 5 + 1, drain=True)) for number in itertools.count()),
    ),
    "drains without credit": (
        OPEN + BEGIN + LINK,
        lambda: itertools.repeat(wire.frame(wire.flow(0, count=0, drain=True))),
    ),
    "dispositions": (
        OPEN + BEGIN + LINK,
        lambda: itertools.repeat(wire.frame(wire.disposition(is_receiver=True, first=0, last=0x7FFFFFFF))),
    ),
    "messages": (OPEN + BEGIN + SENDER, messages),
}


def flood(router: RunningRouter, listener: str, start: bytes, frames: Iterator[bytes]) -> int:
    """Say it all for ATTACK_S, as fast as the router takes it, and read nothing. Returns its largest size, kB."""
    largest = 0
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(10)
        deaf.connect(("127.0.0.1", port_of(router, listener)))
        peer = Attacker(deaf)
        peer.say(GREETING, start)
        peer.wait_for(wire.OPEN)
        deaf.settimeout(0.1)
        ends, waiting = time.monotonic() + ATTACK_S, b""
        while time.monotonic() < ends:
            waiting = waiting or b"".join(itertools.islice(frames, MANY))
            try:
                waiting = waiting[deaf.send(waiting) :]
            except TimeoutError:
                pass
            except OSError:
                break  # closed: that is one way to bound it
            largest = max(largest, router.resident_kb())
    return largest


@pytest.mark.parametrize("listener", ["free", "narrow"])
@pytest.mark.parametrize("name", FLOODS)
def test_unread_answers_do_not_fill_the_memory(name: str, listener: str, router: RunningRouter) -> None:
    port_of(router, listener)
    before = router.resident_kb()
    start, frames = FLOODS[name]
    largest = flood(router, listener, start, frames())
    assert largest - before < GROWTH_KB, f"{before} kB grew to {largest} kB"
    eventually(lambda: router.resident_kb() - before < AFTERWARDS_KB, 10)
    assert router.resident_kb() - before < AFTERWARDS_KB, f"{before} kB before, {router.resident_kb()} kB afterwards"
