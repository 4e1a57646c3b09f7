"""Nothing that counts as written is lost: kills, a full disk, rotation and signals at full speed (issue 15).

PALISADE_AUDIT_EVENTS says how many events; 1,000,000 take some minutes. A small tmpfs is the disk that runs full.
"""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_chain import assert_whole, make_key

from spark.verify import read_key, verify

pytestmark = [pytest.mark.slow, pytest.mark.interop]

EVENTS = int(os.environ.get("PALISADE_AUDIT_EVENTS", "20000"))
KILLS = 5
ROUND_LIMIT_S = 60.0 + EVENTS / 500  # a child that writes nothing any more ends the test

# Records as fast as the queue takes it, until SIGTERM, and says after each thousand up to where all is written.
FLOOD = """
import itertools, signal, sys, time
from pathlib import Path
from router.audit.chain import read_signer
from router.audit.trail import AuditLog
folder, key, first = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
told = []
signal.signal(signal.SIGHUP, lambda *_: None)
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
log = AuditLog(folder, router_id="R1", clock=time.time, signer=read_signer(key), max_file_bytes=MAX, max_file_s=5,
               on_trouble=lambda text: print(text, file=sys.stderr), is_compressed=True,
               is_refusing_on_failure=True, retry_s=(0.005, 0.05))
for n in itertools.count(first):
    if told:
        break
    while log.has_much_to_write():
        time.sleep(0.001)
    log.record({"stage": "attach", "decision": "deny", "reason": "source_not_allowed", "connection": n, "user": "eve",
                "remote_host": "192.0.2.1", "address": "orders.secret"})
    if n % 1000 == 999:
        while not log.flush(1.0):
            pass
        print(n, log.lost, flush=True)
assert log.close(60)
print(n - 1, log.lost, flush=True)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own. A child that is killed late has written more than it was to: there is room for that."""
    place = tmp_path / "disk"
    place.mkdir()
    size = max(64, EVENTS // 1000 * 1200 // 1024)  # MiB
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=0700", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> Path:
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return filler


def wait_until(troubles: Path, text: str, count: int) -> None:
    """Until the children have said it so many times."""
    deadline = time.monotonic() + 30
    while (told := troubles.read_text()).count(text) < count:
        assert time.monotonic() < deadline, f"{text!r} was said {told.count(text)} times, not {count}: {told[-500:]}"
        time.sleep(0.01)


def numbers(folder: Path) -> Iterator[int]:
    for path in sorted(folder.iterdir(), key=lambda path: path.name.removesuffix(".gz")):
        if path.name.startswith("denials"):
            with path.open("rb") as plain, gzip.open(plain) if path.suffix == ".gz" else plain as file:
                for line in file:
                    if line.endswith(b"\n") and b'"source_not_allowed"' in line:
                        yield json.loads(line)["connection"]


def test_what_counts_as_written_is_there_once_and_in_order(disk: Path, tmp_path: Path) -> None:
    private, public = make_key(tmp_path)
    folder = disk / "audit"
    share = EVENTS // KILLS // 1000 * 1000
    code = FLOOD.replace("MAX", str(max(65536, EVENTS * 40)))
    acknowledged: list[range] = []
    troubles = tmp_path / "troubles"
    told_to = os.open(troubles, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    began = time.monotonic()
    for round_ in range(KILLS):
        is_last = round_ == KILLS - 1
        first = round_ * EVENTS
        command = [sys.executable, "-c", code, str(folder), str(private), str(first)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told_to, text=True)
        assert child.stdout is not None
        done = -1
        overdue = threading.Timer(ROUND_LIMIT_S, child.kill)
        overdue.start()
        for count in itertools.count(1):
            text = child.stdout.readline()
            if not text:
                break
            done, lost = map(int, text.split())
            assert lost == 0
            if count == share // 2000:
                filler = fill(disk)
                child.send_signal(signal.SIGHUP)
                wait_until(troubles, "cannot write to", round_ + 1)
                filler.unlink()
                wait_until(troubles, "writing works again", round_ + 1)
            if count == share // 1000:
                child.send_signal(signal.SIGTERM if is_last else signal.SIGKILL)
        overdue.cancel()
        assert child.wait() == (0 if is_last else -signal.SIGKILL)
        child.stdout.close()
        acknowledged.append(range(first, done + 1))
    os.close(told_to)
    took_s = time.monotonic() - began
    found = list(numbers(folder))
    assert found == sorted(set(found))
    assert set().union(*acknowledged) <= set(found)
    keys = dict([read_key(public)])
    began = time.monotonic()
    verdict = verify(folder, keys)
    assert_whole(verdict)
    count = sum(map(len, acknowledged))
    assert count >= KILLS * share
    print(f"{count} acknowledged events in {took_s:.0f} s, {len(found)} found, {verdict.files} files, verified in "
          f"{time.monotonic() - began:.1f} s")  # fmt: skip
