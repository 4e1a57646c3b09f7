"""Measures the audit log: its cost per event, a round trip beside 5,000 denials a second, and verifying it.

    python -m benchmarks.audit_speed [--events 100000] [--seconds 3]

One event: processor time of the thread that records it. A round trip: a few bytes between the loop and another process,
while the loop denies 5,000 requests a second of one connection, as a router does. The denials are folded like floods,
and, for comparison, each is written. Shown is the median, as a ratio to that without denials. Verifying: lines a second
and core, of plain and compressed files, beside the bare SHA-256 of the same bytes, which is the upper limit.
"""

import argparse
import asyncio
import gzip
import hashlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from router.admission.folding import Folding
from router.audit.chain import Signer
from router.audit.trail import AuditLog
from router.effects import Audit, AuditEvent, ConnectionMembers, Effect, Refused
from spark.verify import verify

DENIALS_PER_S: Final = 5_000
TICK_S: Final = 0.002
ECHO: Final = "import os\nwhile data := os.read(0, 64):\n os.write(1, data)"
FACTS: Final[ConnectionMembers] = {
    "connection": 2, "connection_name": "127.0.0.1:49084", "listener": "127.0.0.1:5671", "remote_host": "127.0.0.1",
    "user": "alice", "mechanism": "PLAIN", "is_encrypted": True, "requested_vhost": "127.0.0.1", "vhost": "$default",
    "group": "apps", "ruleset_digest": "6a" * 32,
}  # fmt: skip
_MEMBERS: Final = {
    **FACTS, "stage": "attach", "decision": "deny", "reason": "source_not_allowed", "direction": "receive",
    "address": "secret", "link_name": "receiver", "detail": "link disallowed by local policy",
    "rule": {"vhost": "$default", "group": "apps", "item": "sources", "file": "/etc/policy.json", "line": 42},
    "usage": {"open_links": 0}, "condition": "amqp:unauthorized-access",
}  # fmt: skip
DENIAL: Final = cast(AuditEvent, _MEMBERS)


def opened(folder: Path, key: Ed25519PrivateKey) -> AuditLog:
    return AuditLog(folder, router_id="bench", clock=time.time, signer=Signer(key))


def microseconds_an_event(folder: Path, key: Ed25519PrivateKey) -> float:
    """Returns the least of several rounds."""
    log = opened(folder, key)
    rounds = []
    for _ in range(8):
        began = time.thread_time()
        for _ in range(1000):
            log.record(DENIAL)
        rounds.append((time.thread_time() - began) * 1000)
        log.flush(30)
    log.close(30)
    return min(rounds)


async def round_trip_s(deny: Callable[[], None] | None, seconds: float) -> float:
    """Returns the median round trip while `deny` is called at the rate."""
    pipe = asyncio.subprocess.PIPE
    echo = await asyncio.create_subprocess_exec(sys.executable, "-c", ECHO, stdin=pipe, stdout=pipe)
    assert echo.stdin is not None
    assert echo.stdout is not None
    loop = asyncio.get_running_loop()
    until, trips = loop.time() + seconds, []

    def tick(at: float) -> None:
        if deny is not None and at < until:
            loop.call_at(at + TICK_S, tick, at + TICK_S)
            for _ in range(int(DENIALS_PER_S * TICK_S)):
                deny()

    tick(loop.time())
    while loop.time() < until:
        began = loop.time()
        echo.stdin.write(b"x" * 32)
        await echo.stdout.readexactly(32)
        trips.append(loop.time() - began)
    echo.stdin.close()
    await echo.wait()
    return statistics.median(trips)


def round_trips(folder: Path, key: Ed25519PrivateKey, seconds: float) -> None:
    log = opened(folder, key)

    def emit(effect: Effect) -> None:
        if isinstance(effect, Audit):
            log.record(effect.event)

    folding = Folding(emit, time.monotonic, time.time)
    kinds: dict[str, Callable[[], None] | None] = {
        "no denial": None,
        "folded": lambda: folding.record(Refused(stage="attach", facts=FACTS, event=DENIAL)),
        "each written": lambda: log.record(DENIAL),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(3):
        for name, deny in kinds.items():
            found[name].append(asyncio.run(round_trip_s(deny, seconds)))
    usual = min(found["no denial"])
    for name, trips in found.items():
        ratio = min(trips) / usual
        print(f"round trip, {DENIALS_PER_S} denials/s, {name}: {min(trips) * 1e6:.0f} us, ratio {ratio:.2f}")
    log.close(30)


def verifying(folder: Path, key: Ed25519PrivateKey, events: int) -> None:
    log = opened(folder, key)
    for _ in range(events):
        while log.has_much_to_write():
            time.sleep(0.001)
        log.record(DENIAL)
    log.close(60)
    public = key.public_key()
    keys = {hashlib.sha256(public.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]: public}
    files = list(folder.iterdir())
    data = b"".join(path.read_bytes() for path in files)
    for what in ("plain", "gzip"):
        if what == "gzip":
            for path in files:
                with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb", 6) as packed:
                    shutil.copyfileobj(plain, packed)
                path.unlink()
        began = time.process_time()
        verdict = verify(folder, keys, jobs=1)
        took_s = time.process_time() - began
        assert verdict.findings == []
        print(f"verify, {what}: {verdict.events / took_s:,.0f} events/s and core")
    began = time.process_time()
    hashlib.sha256(data).digest()
    took_s = time.process_time() - began
    print(
        f"bare SHA-256 of them: {verdict.events / took_s:,.0f} events/s and core, {len(data) / took_s / 1e6:.0f} MB/s"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=100_000, help="that are verified (100000)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of round trips of each kind (3)")
    arguments = parser.parse_args(argv)
    key = Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"one event: {microseconds_an_event(folder / '1', key):.1f} us of the loop")
        round_trips(folder / "2", key, arguments.seconds)
        verifying(folder / "3", key, arguments.events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
