"""Audit events reach the disk, or their loss does (issue 2, part 8: Audit)."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

import schemas
from router.audit.files import MAX_WRITE_BYTES, open_new_file
from router.audit.trail import RESERVED_EVENTS, AuditLog
from router.effects import AuditEvent

VALIDATOR = jsonschema.Draft202012Validator(schemas.load("audit_event"))
# Not complete: the log keeps whatever it is given.
DENIAL = cast(AuditEvent, {"stage": "open", "reason": "no_vhost", "user": "eve"})
NOW_S = 1_700_000_000.0
WAIT_S = 10.0


class Told:
    """Collects what on_trouble is told, and lets a test wait for a text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._changed:
            self.texts.append(text)
            self._changed.notify_all()

    def wait_for(self, part: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: any(part in text for text in self.texts), WAIT_S), self.texts


class Disk:
    """`os.write` and `os.fsync` of the audit log, with faults to order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write_fault: Callable[[int, bytes], int] | None = None
        self.fsync_errors = 0
        self.writes: list[bytes] = []
        self._write, self._fsync = os.write, os.fsync
        monkeypatch.setattr("router.audit.trail.os.write", self.write)
        monkeypatch.setattr("router.audit.trail.os.fsync", self.fsync)

    def write(self, fd: int, data: bytes) -> int:
        self.writes.append(data)
        return self.write_fault(fd, data) if self.write_fault else self._write(fd, data)

    def fsync(self, fd: int) -> None:
        if self.fsync_errors:
            self.fsync_errors -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(fd)

    def full(self, _fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_in_the_middle(self, fd: int, data: bytes) -> int:
        return self._write(fd, data[:10])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def start(tmp_path: Path, told: Told) -> Iterator[Callable[..., AuditLog]]:
    started: list[AuditLog] = []

    def begin(**options: Any) -> AuditLog:
        usual: dict[str, Any] = {"clock": lambda: NOW_S, "on_trouble": told, "retry_s": (0.001, 0.001)}
        started.append(AuditLog(tmp_path / "audit", **{"router_id": "R1"} | usual | options))
        return started[-1]

    yield begin
    for log in started:
        log.close(WAIT_S)


def all_lines_of(folder: Path, pattern: str = "*") -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob(pattern)) for line in path.read_bytes().splitlines()]


def lines_of(folder: Path, pattern: str = "*") -> list[dict[str, Any]]:
    """Without the mark of the end."""
    return [line for line in all_lines_of(folder, pattern) if line["reason"] != "log_closed"]


def test_each_denial_is_one_valid_line(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    log = start()
    for n in range(3):
        log.record({**DENIAL, "connection": n})
    assert log.close(WAIT_S)
    events = lines_of(tmp_path / "audit")
    for event in events:
        VALIDATOR.validate(event)
    assert [event["connection"] for event in events] == [0, 1, 2]
    assert len({event["event_id"] for event in events}) == 3
    assert [event["sequence"] for event in events] == [0, 1, 2]
    assert len({event["start"] for event in events}) == 1
    assert (log.written, log.pending, log.lost) == (4, 0, 0)


def test_an_event_may_have_a_time_of_its_own(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    log = start()
    log.record(DENIAL, 1_800_000_000.5)
    assert log.close(WAIT_S)
    (event,) = lines_of(tmp_path / "audit")
    VALIDATOR.validate(event)
    assert event["time"] == "2027-01-15T08:00:00.500000Z"


def test_only_the_routers_user_may_read_the_files(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    log = start(router_id="../east/R 1")
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    folder = tmp_path / "audit"
    (path,) = folder.iterdir()
    assert path.name == f"denials-20231114T221320.000000Z-.._east_R_1-{os.getpid()}.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_no_file_is_made_before_there_is_a_denial(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    assert start().close(WAIT_S)
    assert list((tmp_path / "audit").iterdir()) == []


def test_a_start_that_ends_as_it_should_says_so_and_only_once(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    """What a killed process had not written yet shows by the mark that is missing."""
    log = start()
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    assert [line["reason"] for line in all_lines_of(tmp_path / "audit")] == ["no_vhost"]
    assert log.close(WAIT_S)
    assert log.close(WAIT_S)
    first, last = all_lines_of(tmp_path / "audit")
    VALIDATOR.validate(last)
    assert (last["stage"], last["reason"], last["sequence"]) == ("audit", "log_closed", 1)
    assert last["start"] == first["start"]


def test_a_start_that_refused_nobody_leaves_nothing(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    assert start().close(WAIT_S)
    assert all_lines_of(tmp_path / "audit") == []


def test_each_start_has_a_name_of_its_own(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    for _ in range(2):
        log = start()
        log.record(DENIAL)
        assert log.close(WAIT_S)
    assert len({line["start"] for line in all_lines_of(tmp_path / "audit")}) == 2


def test_a_disk_that_refuses_to_the_end_has_no_end_on_record_and_loses_no_more_than_there_was(
    start: Callable[..., AuditLog], told: Told, disk: Disk
) -> None:
    log = start()
    disk.write_fault = disk.full
    log.record(DENIAL)
    told.wait_for("cannot write")
    assert not log.close(0.05)
    assert log.lost == 1


def test_a_batch_is_whole_lines_of_one_write(start: Callable[..., AuditLog], disk: Disk) -> None:
    """A process that is killed while it writes leaves one torn line at most, and that at the end."""
    log = start()
    for _ in range(5):
        log.record(DENIAL)
    assert log.close(WAIT_S)
    assert len(disk.writes) < 6  # the last is the mark of the end
    assert all(data.endswith(b"}\n") for data in disk.writes)
    assert sum(data.count(b"\n") for data in disk.writes) == 6


def test_a_batch_that_is_longer_than_one_write_takes_several(start: Callable[..., AuditLog], disk: Disk) -> None:
    log = start(max_pending=1000)
    with log._changed:  # so that the writer finds them all at once
        for _ in range(400):
            log._append(log._lines.event(DENIAL, log._lines.next_number(), None) or b"")
    assert log.close(WAIT_S)
    assert max(map(len, disk.writes)) <= MAX_WRITE_BYTES
    assert sum(map(len, disk.writes)) > MAX_WRITE_BYTES


@pytest.mark.parametrize("more", [0, 1, 300])
def test_of_a_batch_that_a_full_disk_cuts_whole_lines_stay(
    start: Callable[..., AuditLog], disk: Disk, tmp_path: Path, told: Told, more: int
) -> None:
    """The chain goes on after the last whole line, and each event is there once."""
    log = start()
    real = os.write

    def take_two_lines(fd: int, data: bytes) -> int:
        disk.write_fault = disk.full
        return real(fd, data[: data.index(b"\n", data.index(b"\n") + 1) + 1 + more])

    disk.write_fault = take_two_lines
    with log._changed:
        for number in range(5):
            event = log._lines.event({**DENIAL, "connection": number}, log._lines.next_number(), None)
            log._append(event or b"")
    told.wait_for("cannot write")
    disk.write_fault = None
    told.wait_for("works again")
    assert log.close(WAIT_S)
    assert [event["connection"] for event in lines_of(tmp_path / "audit")] == list(range(5))


def test_files_are_rotated_by_size_and_none_is_deleted(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told
) -> None:
    log = start(max_file_bytes=2000)
    for n in range(10):
        log.record({**DENIAL, "connection": n})
    assert log.close(WAIT_S)
    folder = tmp_path / "audit"
    assert len(list(folder.iterdir())) > 2
    assert all(path.stat().st_size <= 2000 for path in folder.iterdir())
    assert [event["connection"] for event in lines_of(folder)] == list(range(10))
    assert told.texts == []


def test_an_event_longer_than_a_file_still_is_written(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    log = start(max_file_bytes=10)
    log.record(DENIAL)
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    assert len(list((tmp_path / "audit").iterdir())) == 2


def test_old_files_go_only_when_asked_and_are_reported(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told
) -> None:
    folder = tmp_path / "audit"
    folder.mkdir(mode=0o700)
    earlier = folder / "denials-20200101T000000.000000Z-R1-77.jsonl"
    others = [folder / "denials-20200101T000000.000000Z-R2-77.jsonl", folder / "denials-notes.jsonl"]
    for path in [earlier, *others]:
        path.write_text("")
    log = start(max_file_bytes=10, max_files=2)
    for n in range(4):
        log.record({**DENIAL, "connection": n})
    assert log.flush(WAIT_S)
    assert all(path.exists() for path in others)
    assert not earlier.exists()
    ours = [line for line in lines_of(folder, "denials-2023*") if line["reason"] != "file_deleted"]
    assert [line["connection"] for line in ours] == [2, 3]
    assert len(list(folder.glob("denials-2023*"))) == 2
    assert sum("deleted" in text for text in told.texts) == 3


def test_a_failing_disk_never_costs_an_old_file(start: Callable[..., AuditLog], tmp_path: Path, told: Told) -> None:
    folder = tmp_path / "audit"
    folder.mkdir(mode=0o700)
    earlier = folder / "denials-20200101T000000.000000Z-R1-77.jsonl"
    earlier.write_text("")
    log = start(max_files=1, open_file=lambda _path: os.open("/dev/full", os.O_WRONLY))
    log.record(DENIAL)
    told.wait_for("cannot write")
    assert not log.close(0.05)
    assert earlier.exists()


def test_a_full_disk_keeps_events_and_is_reported_once(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told
) -> None:
    is_full = threading.Event()
    is_full.set()
    attempts = threading.Semaphore(0)

    def open_file(path: Path) -> int:
        attempts.release()
        return os.open("/dev/full", os.O_WRONLY) if is_full.is_set() else open_new_file(path)

    log = start(open_file=open_file)
    log.record({**DENIAL, "connection": 1})
    for _ in range(3):  # it keeps trying
        assert attempts.acquire(timeout=WAIT_S)
    log.record({**DENIAL, "connection": 2})
    assert (log.pending, log.written, log.lost) == (2, 0, 0)
    is_full.clear()
    assert log.flush(WAIT_S)
    told.wait_for("writing works again")
    assert [event["connection"] for event in lines_of(tmp_path / "audit")] == [1, 2]
    assert len(told.texts) == 2
    assert "No space left on device" in told.texts[0]
    assert (log.pending, log.written, log.lost) == (0, 2, 0)


def test_events_past_the_bound_are_counted_and_the_count_is_written(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told, disk: Disk
) -> None:
    disk.write_fault = disk.full
    log = start(max_pending=3)
    log.record({**DENIAL, "connection": 0})
    told.wait_for("cannot write")
    for n in range(1, 8):
        log.record({**DENIAL, "connection": n})
    assert (log.pending, log.lost) == (3, 5)
    disk.write_fault = None
    assert log.flush(WAIT_S)
    log.record({**DENIAL, "connection": 8})
    assert log.close(WAIT_S)
    events = lines_of(tmp_path / "audit")
    for event in events:
        VALIDATOR.validate(event)
    assert [(event["connection"], event.get("lost")) for event in events] == [
        (0, None), (1, None), (2, None), (None, 5), (8, None),
    ]  # fmt: skip
    assert (log.written, log.lost) == (6, 5)
    # What was lost had numbers too: those that are missing here.
    assert [event["sequence"] for event in events] == [0, 1, 2, 8, 9]


def test_who_can_wait_is_told_of_much_to_write(start: Callable[..., AuditLog], told: Told, disk: Disk) -> None:
    disk.write_fault = disk.full
    log = start(max_pending=4)
    seen = []
    for _ in range(4):
        log.record(DENIAL)
        seen.append(log.has_much_to_write())
    assert seen == [False, False, True, True]
    disk.write_fault = None
    assert log.flush(WAIT_S)
    assert not log.has_much_to_write()


def test_attack_a_flood_of_denials_leaves_no_room_unsaid(
    start: Callable[..., AuditLog], told: Told, disk: Disk
) -> None:
    """Whoever would change something asks first, and some room is left for the record of it."""
    disk.write_fault = disk.full
    log = start(max_pending=RESERVED_EVENTS + 2)
    assert log.has_room()
    for _ in range(3):
        log.record(DENIAL)
    assert not log.has_room()
    for _ in range(RESERVED_EVENTS):
        log.record(DENIAL)
    assert log.lost == 1
    assert not log.has_room()
    disk.write_fault = None
    assert log.flush(WAIT_S)
    assert log.has_room()
    log.close(WAIT_S)
    assert not log.has_room()


def test_attack_long_names_while_the_disk_is_full_cannot_take_the_memory(
    start: Callable[..., AuditLog], told: Told, disk: Disk
) -> None:
    disk.write_fault = disk.full
    log = start(max_pending_bytes=20_000)
    for _ in range(20):
        log.record({**DENIAL, "address": "\U0001f600" * 100_000})
    assert log.pending == 1
    assert log.lost == 19
    disk.write_fault = None


def test_a_line_torn_by_a_full_disk_is_taken_back(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told, disk: Disk
) -> None:
    log = start()
    log.record({**DENIAL, "connection": 0})
    assert log.flush(WAIT_S)
    disk.write_fault = disk.full_in_the_middle
    log.record({**DENIAL, "connection": 1})
    told.wait_for("cannot write")
    disk.write_fault = None
    assert log.close(WAIT_S)
    assert [event["connection"] for event in lines_of(tmp_path / "audit")] == [0, 1]
    assert len(list((tmp_path / "audit").iterdir())) == 1


def test_after_a_failed_fsync_the_batch_is_written_to_a_new_file(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told, disk: Disk
) -> None:
    log = start()
    log.record({**DENIAL, "connection": 0})
    assert log.flush(WAIT_S)
    disk.fsync_errors = 1
    log.record({**DENIAL, "connection": 1})
    told.wait_for("writing works again")
    assert log.close(WAIT_S)
    files = sorted((tmp_path / "audit").iterdir())
    assert [json.loads(path.read_text().splitlines()[0])["connection"] for path in files] == [0, 1]


def test_a_file_removed_under_the_router_is_noticed(start: Callable[..., AuditLog], tmp_path: Path, told: Told) -> None:
    log = start()
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    (path,) = (tmp_path / "audit").iterdir()
    path.unlink()
    log.record({**DENIAL, "connection": 9})
    assert log.close(WAIT_S)
    assert [event["connection"] for event in lines_of(tmp_path / "audit")] == [9]
    assert "was removed while it was being written" in told.texts[0]


def test_an_existing_file_or_link_of_the_name_is_never_followed(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    folder, victim = tmp_path / "audit", tmp_path / "victim"
    folder.mkdir(mode=0o700)
    victim.write_text("precious")
    (folder / f"denials-20231114T221320.000000Z-R1-{os.getpid()}.jsonl").symlink_to(victim)
    log = start()
    log.record(DENIAL)
    assert log.close(WAIT_S)
    assert victim.read_text() == "precious"
    assert len(list(folder.iterdir())) == 2


def test_close_says_what_it_could_not_write(start: Callable[..., AuditLog], told: Told, disk: Disk) -> None:
    disk.write_fault = disk.full
    log = start()
    log.record(DENIAL)
    log.record(DENIAL)
    assert not log.close(0.05)
    assert not log.close(0.05)
    assert log.lost == 2
    assert "closed with 2 events not written" in told.texts[-1]


def test_a_disk_that_hangs_does_not_hang_close(start: Callable[..., AuditLog], disk: Disk, told: Told) -> None:
    release = threading.Event()

    def hang(_fd: int, data: bytes) -> int:
        release.wait(WAIT_S)
        return len(data)

    disk.write_fault = hang
    log = start()
    log.record(DENIAL)
    assert not log.close(0.05)
    release.set()
    assert log.lost == 1


def test_an_event_after_close_is_counted_and_reported(start: Callable[..., AuditLog], told: Told) -> None:
    log = start()
    assert log.close(WAIT_S)
    log.record(DENIAL)
    assert log.lost == 1
    assert "after the log was closed" in told.texts[0]


def test_record_never_raises(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    class Hostile(dict[str, Any]):
        def get(self, *_: object) -> Any:
            raise RuntimeError("no")

    log = start(clock=lambda: float("nan"))
    hostile: Any = Hostile()
    log.record(hostile)
    assert log.close(WAIT_S)
    (event,) = lines_of(tmp_path / "audit")
    VALIDATOR.validate(event)
    assert "could not be read: RuntimeError" in event["detail"]


def test_a_broken_callback_does_not_stop_the_writer(start: Callable[..., AuditLog], disk: Disk) -> None:
    def broken(_text: str) -> None:
        raise RuntimeError("no log today")

    disk.fsync_errors = 2
    log = start(on_trouble=broken)
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    assert log.written == 1


def test_a_directory_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError) as refused:
        AuditLog(folder, router_id="R1", clock=lambda: NOW_S)
    assert refused.value.strerror == "anyone may write there; take that away with chmod o-w"
    assert refused.value.filename == str(folder)


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(FileExistsError, match="File exists"):
        AuditLog(path, router_id="R1", clock=lambda: NOW_S)


RECORDER = """
import sys, time
from pathlib import Path
from router.audit.trail import AuditLog
log = AuditLog(Path(sys.argv[1]), router_id="R1", clock=time.time)
n = 0
while True:
    log.record({"stage": "attach", "reason": "target_not_allowed", "connection": n, "address": "x" * 1000})
    if log.flush(5.0):
        print(n, flush=True)
    n += 1
"""


def test_kill_9_leaves_every_flushed_line_whole_and_at_most_one_torn(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", RECORDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(50):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    flushed = 49 + len(child.stdout.read().splitlines())
    child.wait()
    child.stdout.close()
    (path,) = tmp_path.iterdir()
    *whole, tail = path.read_bytes().split(b"\n")
    events = [json.loads(line) for line in whole]
    assert [event["connection"] for event in events] == list(range(len(events)))
    assert len(events) > flushed
    assert not tail.endswith(b"}")


QUOTA = """
import resource, sys, threading, time
from pathlib import Path
from router.audit.trail import AuditLog
refused, recovered = threading.Event(), threading.Event()
def told(text):
    (recovered if "writing works again" in text else refused).set()
log = AuditLog(Path(sys.argv[1]), router_id="R1", clock=time.time, on_trouble=told, retry_s=(0.001, 0.001))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
for n in range(20):
    log.record({"stage": "attach", "reason": "target_not_allowed", "connection": n})
assert refused.wait(10)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert log.close(10) and recovered.is_set() and log.written == 21
"""


def test_a_quota_that_cuts_a_write_short_leaves_no_torn_line(tmp_path: Path) -> None:
    """The kernel itself takes part of a line, then refuses (RLIMIT_FSIZE); the file must come out whole."""
    subprocess.run([sys.executable, "-c", QUOTA, str(tmp_path)], check=True, timeout=60)
    assert [event["connection"] for event in lines_of(tmp_path)] == list(range(20))


def numbered(folder: Path) -> list[tuple[int, int]]:
    """The numbers of the events of a folder with one start that are on disk or said to be deleted, as ranges."""
    there = [(line["sequence"], line["sequence"]) for line in all_lines_of(folder)]
    gone = [line["deleted"] for line in all_lines_of(folder) if line["reason"] == "file_deleted"]
    return sorted([*there, *((each["first"], each["last"]) for each in gone)])


def assert_without_gap(folder: Path) -> None:
    """What was deleted is on record; where the record itself was deleted, its own deletion is."""
    ranges = numbered(folder)
    at = ranges[0][0]
    for first, last in ranges:
        assert first <= at, f"events {at} to {first - 1} went without a word"
        at = max(at, last + 1)


def test_lines_stand_in_the_order_of_their_numbers(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    """A file's first and last line are its range when it is deleted; the writer numbers events of its own meanwhile."""
    others: list[threading.Thread] = []

    def clock() -> float:
        """While the first event gets its time, after its number, another thread records the second."""
        if not others:
            others.append(threading.Thread(target=log.record, args=(DENIAL,)))
            others[0].start()
            others[0].join(0.2)  # all of it where the second does not wait for the first
        return NOW_S

    log = start(clock=clock)
    log.record(DENIAL)
    others[0].join(WAIT_S)
    assert log.close(WAIT_S)
    assert [line["sequence"] for line in all_lines_of(tmp_path / "audit")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"max_files": 3}, "auditMaxFiles"),
        ({"max_bytes": 12_000}, "auditMaxBytes"),
        ({"max_files": 3, "max_bytes": 10**9, "max_age_s": 3600}, "auditMaxFiles"),
    ],
)
def test_what_retention_deletes_is_an_event_first(
    limits: dict[str, Any], limit: str, start: Callable[..., AuditLog], tmp_path: Path
) -> None:
    log = start(max_file_bytes=4000, clock=time.time, **limits)
    for n in range(100):
        log.record({**DENIAL, "connection": n})
    assert log.close(WAIT_S)
    folder = tmp_path / "audit"
    assert len(list(folder.iterdir())) <= 3
    for line in all_lines_of(folder):
        VALIDATOR.validate(line)
    deleted = [line for line in all_lines_of(folder) if line["reason"] == "file_deleted"]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 12_000 + 1000 * len(deleted)
    assert {line["deleted"]["limit"] for line in deleted} == {limit}
    assert {line["deleted"]["start"] for line in deleted} == {all_lines_of(folder)[0]["start"]}
    assert not any((folder / line["deleted"]["file"]).exists() for line in deleted)
    assert_without_gap(folder)


def test_old_files_are_deleted_with_the_first_event(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    """By their last event, whatever they hold: a torn line, nothing, or no audit events at all."""
    folder = tmp_path / "audit"
    folder.mkdir(mode=0o700)
    names = [f"denials-2020010{n}T000000.000000Z-R1-77.jsonl" for n in range(1, 6)]
    texts = ['{"start":"' + "a" * 32 + '","sequence":4}\n{"torn', "", "[1]\n", "\xff\n{}\n"]
    for name, text in zip(names, texts, strict=False):
        (folder / name).write_text(text)
        os.utime(folder / name, (NOW_S - 7200, NOW_S - 7200))
    (folder / names[4]).symlink_to("/dev/zero")
    os.utime(folder / names[4], (NOW_S - 7200, NOW_S - 7200), follow_symlinks=False)
    young = folder / "denials-20200107T000000.000000Z-R1-77.jsonl"
    young.write_text("")
    os.utime(young, (NOW_S - 60, NOW_S - 60))
    log = start(max_age_s=3600)
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    assert not any(os.path.lexists(folder / name) for name in names)
    assert young.exists()
    deleted = [line["deleted"] for line in lines_of(folder) if line["reason"] == "file_deleted"]
    assert [each["file"] for each in deleted] == names
    assert {each["limit"] for each in deleted} == {"auditMaxAgeDays"}
    assert (deleted[0]["start"], deleted[0]["first"], deleted[0]["last"]) == ("a" * 32, 4, 4)
    assert all(each["first"] is None for each in deleted[1:])


def test_files_come_of_age_while_nothing_is_recorded(
    start: Callable[..., AuditLog], tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.audit.trail.LOOK_S", 0.001)
    folder = tmp_path / "audit"
    folder.mkdir(mode=0o700)
    old = folder / "denials-20200101T000000.000000Z-R1-77.jsonl"
    old.write_text("")
    os.utime(old, (NOW_S - 7200, NOW_S - 7200))
    log = start(max_age_s=3600)
    told.wait_for("deleted")
    assert log.close(WAIT_S)
    assert not old.exists()
    assert [line["reason"] for line in all_lines_of(folder)] == ["file_deleted", "log_closed"]


def test_a_file_is_left_after_a_day_where_age_counts(start: Callable[..., AuditLog], tmp_path: Path) -> None:
    now = [NOW_S]
    log = start(max_age_s=10 * 86400, clock=lambda: now[0])
    for _ in range(3):
        log.record(DENIAL)
        assert log.flush(WAIT_S)
        now[0] += 90_000
    assert len(list((tmp_path / "audit").iterdir())) == 3


def test_a_full_disk_costs_no_file(start: Callable[..., AuditLog], tmp_path: Path, told: Told, disk: Disk) -> None:
    """A deletion that cannot be recorded is none."""
    folder = tmp_path / "audit"
    log = start(max_file_bytes=2000, max_files=2)
    for n in range(4):
        log.record({**DENIAL, "connection": n})
    assert log.flush(WAIT_S)
    before = sorted(folder.iterdir())

    def only_denials(fd: int, data: bytes) -> int:
        if b"file_deleted" in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return disk._write(fd, data)

    disk.write_fault = only_denials
    for n in range(4, 8):
        log.record({**DENIAL, "connection": n})
    told.wait_for("cannot write")
    assert all(path.exists() for path in before)
    disk.write_fault = None
    assert log.close(WAIT_S)
    assert len(list(folder.iterdir())) == 2
    assert_without_gap(folder)


DELETER = RECORDER.replace("clock=time.time)", "clock=time.time, max_file_bytes=8000, max_files=3)")


def test_kill_9_while_files_are_deleted_leaves_no_gap(tmp_path: Path) -> None:
    for round_ in range(5):
        folder = tmp_path / str(round_)
        child = subprocess.Popen([sys.executable, "-c", DELETER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(40 + round_):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.stdout.read()
        child.wait()
        child.stdout.close()
        for path in folder.iterdir():  # at most the last line is torn
            path.write_bytes(b"".join(path.read_bytes().rpartition(b"\n")[:2]))
        assert any(line["reason"] == "file_deleted" for line in all_lines_of(folder))
        assert_without_gap(folder)


def test_while_the_disk_is_full_it_asks_to_refuse_where_told_so(
    start: Callable[..., AuditLog], told: Told, disk: Disk
) -> None:
    for is_refusing in (True, False):
        told.texts.clear()
        log = start(is_refusing_on_failure=is_refusing)
        assert (log.is_refusing(), log.state) == (False, "writing")
        disk.write_fault = disk.full
        log.record(DENIAL)
        told.wait_for("cannot write")
        assert (log.is_refusing(), log.state) == (is_refusing, "failing")
        assert ("no connection is accepted until it works again" in told.texts[0]) == is_refusing
        disk.write_fault = None
        assert log.flush(WAIT_S)
        told.wait_for("works again (")
        assert (log.is_refusing(), log.state) == (False, "writing")


def test_attack_a_slow_disk_is_as_good_as_a_full_one(
    start: Callable[..., AuditLog], told: Told, disk: Disk, tmp_path: Path
) -> None:
    """The queue is full: nobody comes in before it is half empty."""
    may_write = threading.Event()

    def slow(fd: int, data: bytes) -> int:
        may_write.wait(WAIT_S)
        return disk._write(fd, data)

    disk.write_fault = slow
    log = start(is_refusing_on_failure=True, max_pending=40)
    for n in range(60):
        assert log.is_refusing() == (n > 40 - RESERVED_EVENTS)
        log.record(DENIAL)
    assert (log.state, log.lost) == ("overrun", 20)
    assert "written too slowly, and no connection is accepted" in told.texts[0]
    may_write.set()
    assert log.flush(WAIT_S)
    told.wait_for("fast enough again (20 lost so far)")
    assert (log.is_refusing(), log.state) == (False, "writing")
    assert [line["lost"] for line in lines_of(tmp_path / "audit") if line["reason"] == "events_lost"] == [20]


def test_a_loss_larger_than_an_event_can_tell_is_told_by_several(
    start: Callable[..., AuditLog], disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.audit.trail.MOST_LOST", 8)
    may_write = threading.Event()

    def slow(fd: int, data: bytes) -> int:
        may_write.wait(WAIT_S)
        return disk._write(fd, data)

    disk.write_fault = slow
    log = start(max_pending=40)
    for _ in range(60):
        log.record(DENIAL)
    may_write.set()
    assert log.flush(WAIT_S)
    assert [line["lost"] for line in lines_of(tmp_path / "audit") if line["reason"] == "events_lost"] == [8, 8, 4]


@pytest.mark.parametrize(("fsync", "expected"), [("each", True), ("interval", True), ("none", False)])
def test_when_a_line_is_on_the_disk_is_a_setting(
    fsync: str, expected: bool, start: Callable[..., AuditLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def seen(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            synced.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr("router.audit.files.os.fsync", seen)
    monkeypatch.setattr("router.audit.files.SYNC_S", 0.001)
    log = start(fsync=fsync)
    log.record(DENIAL)
    assert log.flush(WAIT_S)
    assert log.close(WAIT_S)
    assert bool(synced) == expected
