"""Audit events to disk: one JSON line per event, never blocking the loop, never losing one silently.

Events wait in a bounded queue for one writer thread, which writes each line with one write() and each batch with one
fsync(). While the disk refuses, they stay queued and are tried again; past the bound they are counted, and the count
is written as an `events_lost` event at the place where they are missing. docs/audit.md is the operator's view.
"""

import errno
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from uuid import uuid4

from router.audit import event as audit_event
from router.audit.files import Deletion, Files, Retention, open_new_file
from router.effects import AuditEvent

DEFAULT_MAX_FILE_BYTES = 64 * 1024 * 1024
DEFAULT_MAX_PENDING = 10_000
# Caps memory while the disk refuses: one event of longest non-ASCII names is a hundred times a usual one.
DEFAULT_MAX_PENDING_BYTES = 32 * 1024 * 1024
# The room that `has_room` keeps for a change by management and its consequences.
RESERVED_EVENTS = 16
RESERVED_BYTES = 1024 * 1024
# One fsync covers at most this many lines, so that a flood cannot put off durability.
MAX_BATCH_LINES = 512
# How often files are looked at that are kept for a time, while nothing is recorded.
LOOK_S = 3600.0


class AuditLog:
    """The audit log of one router process.

    directory     made with mode 0700 when missing.
    router_id     stands in every event and, made safe, in the file names.
    clock         seconds since 1970 UTC.
    max_file_bytes  a file that would grow past this is left and a new one begun.
    max_files, max_bytes, max_age_s  what of the files of this router id is kept, as Retention; None: all. The oldest
                  go first. Each has a `file_deleted` event before it is deleted, and is reported.
    max_pending, max_pending_bytes  what the queue holds at most, in events and in bytes.
    on_trouble    called once when writing begins to fail, once when it works again, for every file deleted. It runs on
                  the writer thread (from `close` and from a `record` after it, on theirs): it must be thread-safe.
    retry_s       first and longest pause between attempts while writing fails, in seconds.
    open_file     makes a new file and returns its descriptor.
    Errors        OSError when the directory cannot be made or written to: a router that must audit must not start.

    Counters, readable at any time: `pending` queued events; `written` lines that are on disk, events_lost lines and
    the log_closed line included; `lost` events that were given up.
    """

    def __init__(
        self,
        directory: Path,
        *,
        router_id: str,
        clock: Callable[[], float],
        max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_age_s: float | None = None,
        max_pending: int = DEFAULT_MAX_PENDING,
        max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
        on_trouble: Callable[[str], None] = lambda _text: None,
        retry_s: tuple[float, float] = (0.1, 10.0),
        open_file: Callable[[Path], int] = open_new_file,
    ) -> None:
        if min(max_file_bytes, max_pending, max_pending_bytes, 1 if max_files is None else max_files) < 1:
            raise ValueError("audit log: max_file_bytes, max_files, max_pending, max_pending_bytes must be 1 or more")
        _prepare(directory)
        self._router_id = router_id
        self._start = uuid4().hex
        self._sequence = count()
        self._clock = clock
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._on_trouble = on_trouble
        self._retry_s = retry_s
        self._look_s = LOOK_S if max_age_s is not None else None
        self._file = Files(
            directory,
            router_id=router_id,
            now_s=self._now_s,
            max_file_bytes=max_file_bytes,
            retention=Retention(max_files=max_files, max_bytes=max_bytes, max_age_s=max_age_s),
            open_file=open_file,
            report=self._report,
        )
        # INVARIANT: the lock is never held during I/O; the loop waits for it no longer than a queue operation takes.
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._written = 0
        self._lost = 0
        self._unmarked = 0  # of the lost, those no events_lost event speaks of yet
        self._has_recorded = False
        self._is_end_marked = False
        self._is_closing = False
        self._is_closed = False
        self._left_at_close = 0
        self._writer = threading.Thread(target=self._write_until_closed, name="audit-log", daemon=True)
        self._writer.start()

    @property
    def pending(self) -> int:
        return len(self._queue)

    def has_much_to_write(self) -> bool:
        """Is the queue more than half full? A source that can wait with more should."""
        return self.pending > self._max_pending // 2

    def has_room(self) -> bool:
        """Will the next events be kept? Not while some are being lost, nor shortly before.

        Attack: a flood of denials takes the last room, so that the next action leaves no record.
        """
        with self._changed:
            room = len(self._queue) + RESERVED_EVENTS <= self._max_pending
            room_bytes = self._queued_bytes + RESERVED_BYTES <= self._max_pending_bytes
            return room and room_bytes and not self._unmarked and not self._is_closing

    @property
    def written(self) -> int:
        return self._written

    @property
    def lost(self) -> int:
        return self._lost

    def record(self, event: AuditEvent, time_s: float | None = None) -> None:
        """Queue one event. Never raises and never waits for the disk.

        time_s  its time, seconds since 1970 UTC; the clock's when None.
        """
        is_late = False
        with self._changed:
            # Under the lock, so that lines stand in the order of their numbers: the writer numbers its own as well, and
            # a file's first and last line are taken for its range when it is deleted.
            line = self._encoded(event, next(self._sequence), time_s)
            if self._is_closing:
                self._lost += 1
                is_late = True
            elif line is None or self._is_full(line):
                self._lost += 1
                self._unmarked += 1
                self._changed.notify_all()
            else:
                self._append(line)
            self._has_recorded = True
        if is_late:
            self._report("audit log: an event came after the log was closed and is lost")

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything recorded so far is on disk; false when it is not after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._unmarked, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Write the pending events and stop. Takes no further events.

        Returns  whether everything reached the disk. Events that did not are counted in `lost` and reported.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._writer.join(timeout_s)
        with self._changed:
            self._is_closed = True
            # The mark of the end is no event that could be missed: without it the end is not on record, which is so.
            left, unmarked = len(self._queue) - (self._is_end_marked and bool(self._queue)), self._unmarked
            self._lost += left
            self._left_at_close += left + unmarked
            self._queue.clear()
            self._queued_bytes = self._unmarked = 0
            self._changed.notify_all()
        if left or unmarked:
            self._report(
                f"audit log: closed with {left} events not written to {self._file.directory}; "
                f"{unmarked} lost before are not on record there either"
            )
        return not self._left_at_close

    # --- the queue; all under the lock --------------------------------------------------------------------------------

    def _encoded(self, event: AuditEvent, sequence: int, time_s: float | None) -> bytes | None:
        try:
            return audit_event.encode(audit_event.complete(event, self._stamp(sequence, time_s)))
        except Exception as error:  # an emitter's mistake must not become an exception in the event loop
            try:
                found = {"detail": f"an audit event could not be read: {type(error).__name__}"}
                return audit_event.encode(audit_event.complete(found, self._stamp(sequence)))
            except Exception:
                return None

    def _stamp(self, sequence: int, time_s: float | None = None) -> audit_event.Stamp:
        return audit_event.Stamp(
            event_id=uuid4().hex,
            start=self._start,
            sequence=sequence,
            time_s=self._now_s() if time_s is None else time_s,
            router_id=self._router_id,
        )

    def _now_s(self) -> float:
        try:
            now_s = self._clock()
            datetime.fromtimestamp(now_s, UTC)
        except Exception:  # an event with the machine's own time is worth more than no event
            return time.time()
        return now_s

    def _is_full(self, line: bytes) -> bool:
        # Once one is lost all are, until the writer gets on: then one events_lost event marks the one gap.
        return (
            self._unmarked > 0
            or len(self._queue) >= self._max_pending
            or self._queued_bytes + len(line) > self._max_pending_bytes
        )

    def _append(self, line: bytes) -> None:
        self._queue.append(line)
        self._queued_bytes += len(line)
        self._changed.notify_all()

    def _mark_gap(self) -> None:
        if not self._unmarked:
            return
        marker = audit_event.lost_marker(self._unmarked, self._stamp(next(self._sequence)))
        self._unmarked = 0
        self._append(audit_event.encode(marker))

    def _mark_end(self) -> None:
        """Once, and only where there is something to end: a router that refused nobody leaves no file."""
        if self._has_recorded and not self._is_end_marked:
            self._is_end_marked = True
            self._append(audit_event.encode(audit_event.end_marker(self._stamp(next(self._sequence)))))

    def _mark_deletions(self, surplus: Iterable[tuple[Path, audit_event.DeletedFile]]) -> None:
        """Record the files that are to be deleted; they are deleted once that is on disk."""
        for path, file in surplus:
            marker = audit_event.deleted_marker(file, self._stamp(next(self._sequence)))
            line = Deletion(audit_event.encode(marker))
            line.path = path
            self._append(line)
            self._has_recorded = True

    # --- the writer thread --------------------------------------------------------------------------------------------

    def _write_until_closed(self) -> None:
        failures = 0
        while (batch := self._next_batch()) is not None:
            done, error = self._file.write(batch)
            for line in batch[:done]:
                if isinstance(line, Deletion):
                    self._file.delete(line.path)
            surplus = self._file.take_surplus() if error is None else ()
            with self._changed:
                if self._is_closed:
                    break
                for line in batch[:done]:
                    self._queue.popleft()
                    self._queued_bytes -= len(line)
                self._written += done
                if done:
                    self._mark_gap()
                self._mark_deletions(surplus)
                pending, lost = len(self._queue), self._lost
                self._changed.notify_all()
            if error is None:
                if failures:
                    self._report(f"audit log: writing works again ({pending} events pending, {lost} lost so far)")
                failures = 0
                continue
            if not failures:
                self._report(
                    f"audit log: cannot write to {self._file.directory}: {error}; up to {self._max_pending} events are "
                    "kept in memory until it works again"
                )
            failures += 1
            first_s, longest_s = self._retry_s
            self._pause(min(longest_s, first_s * 2 ** min(failures - 1, 16)))
        self._file.close()

    def _next_batch(self) -> list[bytes] | None:
        """Wait for lines. None: no more come."""
        surplus: Iterable[tuple[Path, audit_event.DeletedFile]] = ()
        while True:
            with self._changed:
                self._mark_deletions(surplus)
                if self._changed.wait_for(lambda: self._queue or self._unmarked or self._is_closing, self._look_s):
                    if not self._queue:
                        self._mark_gap()
                    if not self._queue and self._is_closing:
                        self._mark_end()
                    if not self._queue or self._is_closed:
                        return None
                    # Only this thread removes lines (close() does, once it has given up): they stay valid unlocked.
                    return [self._queue[i] for i in range(min(len(self._queue), MAX_BATCH_LINES))]
            self._file.look_again()
            surplus = self._file.take_surplus()

    def _pause(self, pause_s: float) -> None:
        """Wait before the next attempt; shorter when closing, whose caller has its own time limit."""
        until = time.monotonic() + pause_s
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, pause_s)
            if self._is_closing:
                left_s = min(until - time.monotonic(), self._retry_s[0])
                self._changed.wait_for(lambda: self._is_closed, max(0.0, left_s))

    def _report(self, text: str) -> None:
        try:
            self._on_trouble(text)
        except Exception:
            # A broken log callback must not end the writer thread; the counters still tell.
            return


def _prepare(directory: Path) -> None:
    """Errors  OSError; its strerror says what would be right, its filename is the directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = str(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the router's user must be allowed to make files there", place)
    if stat.S_IMODE(directory.stat().st_mode) & 0o002:
        raise PermissionError(errno.EPERM, "anyone may write there; take that away with chmod o-w", place)
