"""Many messages while other connections come and go, and a router that is killed.

PALISADE_SOAK_MESSAGES says how many messages (default 50,000, some ten seconds; the figure to show is 1,000,000).
"""

import json
import os
import threading
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from churn import churn
from companion import Complainer, companion_of
from harness import HANDSHAKE_TIMEOUT, RunningRouter, Timeouts, eventually, running_router
from proton import Message
from proton.reactor import Container

MESSAGES = int(os.environ.get("PALISADE_SOAK_MESSAGES", "50000"))
# The slowest that is still no hang.
MIN_RATE = 300
# What allocators and caches may add after the first fifth of the run, whatever the number of messages. A leak of one
# byte a message shows at 1,000,000; one of 200 at the default.
GROWTH_KB = 8 * 1024
TIMEOUTS = Timeouts(handshake_s=1, idle_s=4)
KILLS = 3


class Ledger(Complainer):
    """Sends numbered messages on one connection, receives them on another, and counts both ends of each.

    received, accepted  by number, how often it came and how often its sender was told accepted
    others              outcomes that were not accepted
    """

    def __init__(self, url: str, count: int) -> None:
        super().__init__(prefetch=200)
        self.url, self.count = url, count
        self.received = array("B", bytes(count))
        self.accepted = array("B", bytes(count))
        self.others: Counter[str] = Counter()
        self.sent = self.settled = 0
        self.numbers: dict[str, int] = {}
        self.last_received = -1
        self.is_out_of_order = False

    def on_start(self, event: Any) -> None:
        receiving, sending = (
            event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS", heartbeat=1) for _ in range(2)
        )
        event.container.create_receiver(receiving, "guests.ledger")
        event.container.create_sender(sending, "guests.ledger")
        self.connections = (receiving, sending)

    def on_sendable(self, event: Any) -> None:
        for _ in range(min(event.sender.credit, self.count - self.sent, 100)):
            self.numbers[event.sender.send(Message(id=self.sent, body=b"x" * 100)).tag] = self.sent
            self.sent += 1

    def on_message(self, event: Any) -> None:
        number = event.message.id
        self.received[number] += 1
        self.is_out_of_order |= number != self.last_received + 1
        self.last_received = number

    def on_settled(self, event: Any) -> None:
        number = self.numbers.pop(event.delivery.tag)
        state = event.delivery.remote_state.name
        if state == "ACCEPTED":
            self.accepted[number] += 1
        else:
            self.others[state] += 1
        self.settled += 1
        if self.settled == self.count:
            for connection in self.connections:
                connection.close()


@pytest.mark.slow
def test_every_message_is_accepted_exactly_once_and_memory_stays_flat(
    certificates: Certificates, router_python: Path, tmp_path: Path
) -> None:
    with running_router(
        tmp_path / "router",
        certificates,
        python=router_python,
        timeouts=TIMEOUTS,
        expected_errors=[HANDSHAKE_TIMEOUT],
    ) as router:
        ledger = Ledger(f"amqp://127.0.0.1:{router.ports['clear']}", MESSAGES)
        exchange = threading.Thread(target=Container(ledger).run, daemon=True)
        deadline = time.monotonic() + 30 + MESSAGES / MIN_RATE
        with churn(router, seed=MESSAGES) as visits:
            exchange.start()
            eventually(lambda: ledger.settled > MESSAGES // 5 or not exchange.is_alive(), deadline - time.monotonic())
            warm_kb = router.resident_kb()
            exchange.join(max(deadline - time.monotonic(), 0))
            end_kb = router.resident_kb()
        assert not exchange.is_alive(), f"{ledger.settled} of {MESSAGES} messages settled, then nothing"
        assert (ledger.errors, dict(ledger.others)) == ([], {})
        assert Counter(ledger.received) == {1: MESSAGES}, "lost or duplicated"
        assert Counter(ledger.accepted) == {1: MESSAGES}, "accepted never or twice"
        assert not ledger.is_out_of_order
        assert end_kb - warm_kb < GROWTH_KB, f"{warm_kb} kB after a fifth of the run, {end_kb} kB at its end"
        assert sum(visits.values()) > 20, f"too little coming and going to count: {visits}"
        print(f"{MESSAGES} messages, {visits.total()} visits, {warm_kb} kB then {end_kb} kB")


@pytest.mark.slow
def test_a_killed_router_leaves_whole_audit_lines_and_starts_again(
    certificates: Certificates, router_python: Path, tmp_path: Path
) -> None:
    """kill -9 in the middle of denials: of each file only the last line may be torn; what was there stays there."""
    folder, before = tmp_path / "router", 0
    for round_number in range(KILLS):
        with running_router(
            folder, certificates, python=router_python, timeouts=TIMEOUTS, expected_errors=[HANDSHAKE_TIMEOUT]
        ) as router:
            with churn(router, seed=round_number) as visits:
                assert eventually(lambda: has_denials(router, before + 20), 20.0), visits  # noqa: B023
                router.kill()
            assert router.process.returncode == -9
        kept = whole_lines(router)
        assert len({event["event_id"] for event in kept}) == len(kept) >= before + 20
        before = len(kept)
    with (
        running_router(
            folder, certificates, python=router_python, timeouts=TIMEOUTS, expected_errors=[HANDSHAKE_TIMEOUT]
        ) as router,
        companion_of(router),
    ):
        assert len(whole_lines(router)) >= before


def has_denials(router: RunningRouter, count: int) -> bool:
    return sum(path.read_bytes().count(b"\n") for path in router.audit_files()) >= count


def whole_lines(router: RunningRouter) -> list[dict[str, Any]]:
    """Every line that ends, of all files; one that is no JSON fails. What stands behind a file's last line end is what
    the kill tore.
    """
    return [json.loads(line) for path in router.audit_files() for line in path.read_bytes().split(b"\n")[:-1]]
