"""Writes audit events to disk, one JSON line for each. Never blocks the event loop, and never loses an event silently.

Events wait in a queue of limited size for one writer thread, which writes each batch with one write() and one fsync().
If the disk fails, they stay queued and are tried again. Events past the limit are counted, and an `events_lost` event
with the count is written in their place. docs/audit.md describes it for operators.
"""

import errno
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from router.audit.chain import Checkpoints, Signer
from router.audit.event import MOST_LOST, DeletedFile
from router.audit.files import Deletion, Files, FileTerms, Fsync, open_new_file
from router.audit.lines import Lines
from router.audit.old_files import Retention
from router.effects import AuditEvent

DEFAULT_MAX_FILE_BYTES = 64 * 1024 * 1024
DEFAULT_MAX_PENDING = 10_000
# Limits the memory while the disk fails: an event with the longest non-ASCII names is a hundred times a usual one.
DEFAULT_MAX_PENDING_BYTES = 32 * 1024 * 1024
# The room that `has_room` keeps for a change by management and its consequences.
RESERVED_EVENTS = 16
RESERVED_BYTES = 1024 * 1024
# One fsync covers at most this number of lines, so that a flood does not delay durability.
MAX_BATCH_LINES = 512
# The time between two batches. Otherwise a flood would make the writer sync each line separately, and take the
# interpreter from the event loop each time.
GATHER_S = 0.005
# The interval of checks for files that have expired, while nothing is recorded.
LOOK_S = 3600.0


class AuditLog:
    """The audit log of one router process.

    directory     made with mode 0700 if missing.
    router_id     part of every event and, in a safe form, of the file names.
    clock         seconds since 1970 UTC.
    max_file_bytes  a file that would become larger is closed and a new one begun.
    max_files, max_bytes, max_age_s  the files of this router id that are kept, as in Retention; None: no limit. The
                                     oldest are deleted first. Each has a `file_deleted` event before it is deleted, and
                                     is reported.
    max_file_s    a file begun this many seconds ago is closed and a new one begun; None: no limit
    fsync, is_compressed  as in FileTerms
    signer        signs checkpoints and the end; None: nothing is signed
    is_refusing_on_failure  True if `is_refusing` may be true
    max_pending, max_pending_bytes  the limits of the queue, in events and in bytes.
    on_trouble    called once when writing begins to fail, once when it works again, and for every file deleted. It runs
                  on the writer thread (or on the thread of `close`, or of a `record` after it), so it must be
                  thread-safe.
    retry_s       first and longest pause between attempts while writing fails, in seconds.
    open_file     makes a new file and returns its descriptor.
    Errors        OSError if the directory cannot be made or written to: a router that must audit must not start.

    Counters, readable at any time: `pending` queued events; `written` lines on disk, including the events_lost and
    log_closed lines; `lost` events that were given up.
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
        max_file_s: float | None = None,
        fsync: Fsync = "each",
        is_compressed: bool = False,
        signer: Signer | None = None,
        is_refusing_on_failure: bool = False,
        max_pending: int = DEFAULT_MAX_PENDING,
        max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
        on_trouble: Callable[[str], None] = lambda _text: None,
        retry_s: tuple[float, float] = (0.1, 10.0),
        open_file: Callable[[Path], int] = open_new_file,
    ) -> None:
        if min(max_file_bytes, max_pending, max_pending_bytes, 1 if max_files is None else max_files) < 1:
            raise ValueError("audit log: max_file_bytes, max_files, max_pending, max_pending_bytes must be 1 or more")
        _prepare(directory)
        self._lines = Lines(router_id, clock, signer)
        self._max_pending = max_pending
        self._max_pending_bytes = max_pending_bytes
        self._on_trouble = on_trouble
        self._retry_s = retry_s
        self._look_s = LOOK_S if max_age_s is not None else None
        self._looked_at = time.monotonic()
        self._signer = signer
        self._checkpoints = Checkpoints()
        self._file = Files(
            directory,
            router_id=router_id,
            now_s=self._lines.now_s,
            terms=FileTerms(
                max_file_bytes=max_file_bytes,
                max_file_s=max_file_s,
                fsync=fsync,
                is_compressed=is_compressed,
                retention=Retention(max_files=max_files, max_bytes=max_bytes, max_age_s=max_age_s),
            ),
            signer=signer,
            open_file=open_file,
            report=self._report,
        )
        # INVARIANT: the lock is never held during I/O; the loop waits for it no longer than queue operations and
        # the log's own lines take.
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._written = 0
        self._lost = 0
        self._is_refusing_on_failure = is_refusing_on_failure
        self._is_failing = False  # the last attempt to write has failed
        self._is_overrun = False  # the queue was full, and is not yet half empty
        self._unmarked = 0  # lost events that no events_lost event covers yet
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

    @property
    def state(self) -> str:
        """`writing`, `failing` or `overrun`."""
        return "failing" if self._is_failing else "overrun" if self._is_overrun else "writing"

    def is_refusing(self) -> bool:
        """Returns True if no peer should be admitted, because denials could not be recorded.

        Attack: a peer fills the disk, or makes it slow, so that its later denials leave no record.
        """
        return self._is_refusing_on_failure and (self._is_failing or self._is_overrun)

    def has_much_to_write(self) -> bool:
        """Returns True if the queue is more than half full. A source that can wait should then wait."""
        return self.pending > self._max_pending // 2

    def has_room(self) -> bool:
        """Returns True if the next events will be kept. False while events are being lost, and shortly before.

        Attack: a flood of denials takes the last room, so that the next action leaves no record.
        """
        with self._changed:
            return not self._is_nearly_full() and not self._unmarked and not self._is_closing

    @property
    def written(self) -> int:
        return self._written

    @property
    def lost(self) -> int:
        return self._lost

    def record(self, event: AuditEvent, time_s: float | None = None) -> None:
        """Queues one event. Never raises and never waits for the disk.

        time_s  the time of the event, seconds since 1970 UTC; None: the clock's time.
        """
        is_late = has_overrun = False
        with self._changed:
            # Inside the lock, because the writer thread numbers the log's own lines. They must not come between a
            # number and its place in the queue.
            line = self._lines.event(event, self._lines.next_number(), time_s)
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
            if not self._is_overrun and not is_late and self._is_nearly_full():
                has_overrun = self._is_overrun = True
        if has_overrun and not self._is_failing:
            self._report(f"audit log: {self._file.directory} is written too slowly{self._consequence}")
        if is_late:
            self._report("audit log: an event came after the log was closed and is lost")

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything recorded so far is on disk. Returns False if that takes longer than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._unmarked, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Writes the pending events and stops. Later events are lost.

        Returns  True if everything reached the disk. Other events are counted in `lost` and reported.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._writer.join(timeout_s)
        with self._changed:
            self._is_closed = True
            # The mark of the end is not counted as lost: without it the end is correctly not recorded.
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

    # --- the queue; all under the lock ---------------------------------------------------------------

    def _is_nearly_full(self) -> bool:
        room = len(self._queue) + RESERVED_EVENTS <= self._max_pending
        return not room or self._queued_bytes + RESERVED_BYTES > self._max_pending_bytes

    def _is_half_empty(self) -> bool:
        return 2 * len(self._queue) <= self._max_pending and 2 * self._queued_bytes <= self._max_pending_bytes

    @property
    def _consequence(self) -> str:
        return ", and no connection is accepted until it works again" if self._is_refusing_on_failure else ""

    def _is_full(self, line: bytes) -> bool:
        # After one lost event all are lost until the writer continues. So one events_lost event marks the one gap.
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
        while self._unmarked:
            lost = min(self._unmarked, MOST_LOST)
            self._unmarked -= lost
            self._append(self._lines.gap(lost))

    def _mark_end(self) -> None:
        """Queues the mark of the end, once and only if there are events: a router without refusals leaves no file."""
        if self._has_recorded and not self._is_end_marked:
            self._is_end_marked = True
            self._append(self._lines.end())

    def _mark_rests(self) -> None:
        """Records the ends of files that are no part of the chain."""
        rests, self._file.rests = self._file.rests, []
        for rest in rests:
            self._append(self._lines.rest(rest))
            self._has_recorded = True

    def _mark_checkpoint(self, *, is_last: bool = False) -> None:
        """Makes a checkpoint for the lines on disk if it is due."""
        if self._signer is not None and self._checkpoints.take(time.monotonic(), is_last=is_last):
            self._append(self._lines.checkpoint())

    def _mark_deletions(self, surplus: Iterable[tuple[Path, DeletedFile]]) -> None:
        """Records the files to delete. Each is deleted when its record is on disk."""
        for path, file in surplus:
            self._append(self._lines.deletion(path, file))
            self._has_recorded = True

    # --- the writer thread --------------------------------------------------------------------------------------------

    def _write_until_closed(self) -> None:
        failures = 0
        self._file.resume()
        while (batch := self._next_batch()) is not None:
            done, error = self._file.write(batch)
            for line in batch[:done]:
                if isinstance(line, Deletion):
                    self._file.old.delete(line.path)
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
                self._checkpoints.note(batch[:done], time.monotonic())
                self._mark_rests()
                self._mark_deletions(surplus)
                if not self._is_end_marked:
                    self._mark_checkpoint()
                pending, lost = len(self._queue), self._lost
                has_caught_up = self._is_overrun and self._is_half_empty()
                self._is_overrun = self._is_overrun and not has_caught_up
                self._changed.notify_all()
            self._is_failing = error is not None
            if error is None:
                if has_caught_up and not failures:
                    self._report(f"audit log: {self._file.directory} is written fast enough again ({lost} lost so far)")
                if failures:
                    self._report(f"audit log: writing works again ({pending} events pending, {lost} lost so far)")
                failures = 0
                time.sleep(GATHER_S)
                continue
            if not failures:
                self._report(
                    f"audit log: cannot write to {self._file.directory}: {error}; up to {self._max_pending} events are "
                    f"kept in memory until it works again{self._consequence}"
                )
            failures += 1
            first_s, longest_s = self._retry_s
            self._pause(min(longest_s, first_s * 2 ** min(failures - 1, 16)))
        self._file.close()

    def _next_batch(self) -> list[bytes] | None:
        """Waits for lines and returns them, or None if no more lines come."""
        surplus: Iterable[tuple[Path, DeletedFile]] = ()
        while True:
            with self._changed:
                self._mark_rests()
                self._mark_deletions(surplus)
                self._mark_checkpoint()
                if self._changed.wait_for(lambda: self._queue or self._unmarked or self._is_closing, self._idle_s()):
                    if not self._queue:
                        self._mark_gap()
                    if not self._queue and self._is_closing:
                        self._mark_end()
                        if not self._queue:  # a file was deleted, so that a file can be begun for the mark
                            self._mark_checkpoint(is_last=True)
                    if not self._queue or self._is_closed:
                        return None
                    # Only this thread removes lines (and close(), after it has given up), so they stay valid without
                    # the lock.
                    return [self._queue[i] for i in range(min(len(self._queue), MAX_BATCH_LINES))]
            self._file.on_time()
            if self._look_s is not None and time.monotonic() >= self._looked_at + self._look_s:
                self._looked_at = time.monotonic()
                self._file.look_again()
            surplus = self._file.take_surplus()

    def _idle_s(self) -> float | None:
        """Returns how long to wait for lines before other work is due; None: no limit."""
        now = time.monotonic()
        waits = [self._file.next_chore_s()]
        if self._look_s is not None:
            waits.append(self._looked_at + self._look_s - now)
        if self._signer is not None:
            waits.append(self._checkpoints.wait_s(now))
        due = [wait for wait in waits if wait is not None]
        return max(0.0, min(due)) if due else None

    def _pause(self, pause_s: float) -> None:
        """Waits before the next attempt.

        Waits less when closing, because the caller of close() has its own time limit.
        """
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
            # A broken log callback must not end the writer thread. The counters still work.
            return


def _prepare(directory: Path) -> None:
    """Makes the directory if it is missing, and checks it.

    Errors  OSError; its strerror says what would be right, its filename is the directory.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_directory(directory)


def check_directory(directory: Path) -> None:
    """Checks that the audit log may use this directory, or that the directory may be made. Errors: as _prepare."""
    place = str(directory)
    if not os.path.lexists(directory):
        above = next(each for each in directory.absolute().parents if each.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
        return
    if not directory.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the router's user must be allowed to make files there", place)
    if stat.S_IMODE(directory.stat().st_mode) & 0o002:
        raise PermissionError(errno.EPERM, "anyone may write there; take that away with chmod o-w", place)
