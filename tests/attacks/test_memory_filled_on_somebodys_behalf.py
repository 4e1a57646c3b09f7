"""Attack: a permitted client makes the router hold what no receiver takes: messages, links, records, message parts.

Twelve senders and a receiver without credit filled 700 MB in four seconds. Now everything that is held is charged to an
account. An account over its budget is held back, then refused, then closed. Other clients do not notice.
"""

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from daemon_process import Daemon, Started, audit_events, eventually
from frames_attacker import GREETING, Attacker, wire

MIB = 1024 * 1024
HONEST = "127.0.0.2"  # where an honest peer comes from
USER_BYTES = 32 * MIB
CONFIGURATION = """
router {{
    id: budgeted
    auditDir: {folder}/audit
    linkByteBudget: 8388608
    connectionByteBudget: 16777216
    userByteBudget: 33554432
    hostByteBudget: 50331648
    routerByteBudget: 67108864
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
# Beside the budget: what the allocators of C and Python keep, and a turn's work.
GROWTH_BYTES = USER_BYTES + USER_BYTES // 4 + 100 * MIB
ATTACK_S = 8.0
PIECE = 15_000  # of a message that does not fit into one of the router's frames


def resident_bytes(router: Daemon) -> int:
    return 4096 * int(Path(f"/proc/{router.process.pid}/statm").read_text().split()[1])


@contextmanager
def peer_of(router: Daemon, host: str = "127.0.0.1") -> Iterator[Attacker]:
    with socket.create_connection(("127.0.0.1", router.port("plain")), 10, (host, 0)) as connected:
        peer = Attacker(connected)
        peer.say(GREETING, wire.frame(wire.open_("greedy", channels=1000)), wire.frame(wire.begin(incoming=1 << 30)))
        peer.wait_for(wire.BEGIN)
        yield peer


def in_parts(handle: int, number: int, size: int, *, is_whole: bool = True) -> bytes:
    """A message in several frames."""
    left, data = size, []
    payload = wire.message(size)
    for at in range(0, len(payload), PIECE):
        is_last = is_whole and at + PIECE >= len(payload)
        data.append(wire.frame(wire.transfer(handle, number, payload[at : at + PIECE], is_last=is_last)))
        left -= PIECE
    return b"".join(data)


def large_messages(_number: int) -> tuple[bytes, Iterator[bytes]]:
    """12 links, 250 messages of 120 kB on each."""
    links = b"".join(
        wire.frame(wire.attach(f"s{handle}", handle, is_receiver=False, address="full")) for handle in range(12)
    )
    numbers = itertools.count()
    return links, (in_parts(number % 12, next(numbers), 120_000) for number in range(3000))


def small_messages(_number: int) -> tuple[bytes, Iterator[bytes]]:
    """Many links, so that there is much credit: each message takes more than its bytes."""
    links = b"".join(
        wire.frame(wire.attach(f"s{handle}", handle, is_receiver=False, address="full")) for handle in range(400)
    )
    return links, (
        b"".join(wire.frame(wire.transfer(handle, 250 * handle + at, wire.message(10))) for at in range(250))
        for handle in range(400)
    )


def unfinished_messages(_number: int) -> tuple[bytes, Iterator[bytes]]:
    """Each just too short to be forwarded while it comes."""
    return b"", (
        wire.frame(wire.attach(f"s{handle}", handle, is_receiver=False, address="full"))
        + in_parts(handle, handle, 120_000, is_whole=False)
        for handle in range(4000)
    )


def links(number: int) -> tuple[bytes, Iterator[bytes]]:
    """With long names."""
    return b"", (
        wire.frame(
            wire.attach(f"{number} {handle} {'n' * 3000}", handle, is_receiver=True, address=f"{handle}{'a' * 3000}")
        )
        for handle in range(20_000)
    )


def sessions(_number: int) -> tuple[bytes, Iterator[bytes]]:
    """As many as there may be, with a message that waits in each."""
    return b"", (
        wire.frame(wire.begin(), channel)
        + wire.frame(wire.attach("s", 0, is_receiver=False, address="full"), channel)
        + wire.frame(wire.transfer(0, 0, bytes(15_000), is_last=False), channel)
        for channel in range(1, 1000)
    )


ATTACKS: dict[str, Callable[[int], tuple[bytes, Iterator[bytes]]]] = {
    each.__name__.replace("_", " "): each
    for each in (large_messages, small_messages, unfinished_messages, links, sessions)
}


def attack(router: Daemon, make: Callable[[int], tuple[bytes, Iterator[bytes]]]) -> int:
    """Six connections say it all, as fast as the router takes it, for ATTACK_S at most. Returns the largest size."""
    largest = 0
    with ExitStack() as stack:
        full = stack.enter_context(peer_of(router))
        full.say(wire.frame(wire.attach("r", 0, is_receiver=True, address="full")))  # no credit
        full.wait_for(wire.ATTACH)
        waiting: dict[Attacker, tuple[bytes, Iterator[bytes]]] = {}
        for number in range(6):
            peer = stack.enter_context(peer_of(router))
            start, frames = make(number)
            waiting[peer] = start, frames
            peer.socket.setblocking(False)
        ends = time.monotonic() + ATTACK_S
        while waiting and time.monotonic() < ends:
            has_moved = False
            for peer, (data, frames) in list(waiting.items()):
                peer.look()
                data = data or next(frames, b"")
                if not data or not peer.is_connected:
                    del waiting[peer]
                    continue
                try:
                    peer.socket.setblocking(False)
                    sent = peer.socket.send(data)
                except BlockingIOError:
                    sent = 0
                except ConnectionError:
                    del waiting[peer]
                    continue
                has_moved |= sent > 0
                waiting[peer] = data[sent:], frames
            largest = max(largest, resident_bytes(router))
            if not has_moved:
                time.sleep(0.01)  # the router reads nothing: that is what holding back looks like
        honest(router)
        return max(largest, resident_bytes(router))


def honest(router: Daemon) -> None:
    """Somebody with a little to send and to receive is served as ever."""
    with peer_of(router, HONEST) as sender, peer_of(router, HONEST) as receiver:
        receiver.say(wire.frame(wire.attach("r", 0, is_receiver=True, address="honest")))
        receiver.wait_for(wire.ATTACH, 20)
        receiver.say(wire.frame(wire.flow(0, credit=100, count=0)))
        sender.say(wire.frame(wire.attach("s", 0, is_receiver=False, address="honest")))
        sender.wait_for(wire.FLOW, 20)
        for number in range(20):
            sender.say(wire.frame(wire.transfer(0, number, wire.message(1000), is_settled=True)))
        deadline = time.monotonic() + 20
        while sum(code == wire.TRANSFER for code, _ in receiver.performatives()) < 20:
            assert receiver.read_some(deadline - time.monotonic())


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_held_stays_within_the_budget(name: str, daemon: Started, tmp_path: Path) -> None:
    router = daemon(CONFIGURATION.format(folder=tmp_path))
    honest(router)
    before = resident_bytes(router)
    largest = attack(router, ATTACKS[name])
    assert largest - before < GROWTH_BYTES, f"{(largest - before) / MIB:.0f} MiB more"

    def held() -> list[int]:
        rows = json.loads(router.tool("qdmanage", "query", "--type", "budget").out)
        return [row["held"] for row in rows if row["kind"] == "router"]

    eventually(lambda: held()[0] < MIB)
    reasons = {event["reason"] for event in audit_events(tmp_path / "audit")}
    # These peers do not wait for the window of their sessions either: the guard closes some of them.
    assert reasons <= {"byte_budget", "malformed_frame"}
    assert ("byte_budget" in reasons) is (name in ("large messages", "links"))
