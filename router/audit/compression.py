"""Compresses the closed files of an audit log on a separate thread, so that writing does not wait for it."""

import gzip
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".gz"
_PART: Final = ".part"
_LEVEL: Final = 6
_BLOCK_BYTES: Final = 256 * 1024
# The maximum is 19. The processor is mainly for messages.
_NICENESS: Final = 10


class Compressor:
    """Compresses closed files.

    report  called on its thread if a file cannot be compressed. The file then stays unchanged
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        # INVARIANT: held while a file is renamed or deleted, so that no deleted file appears again in compressed form.
        self._changed = threading.Condition()
        self._waiting: list[Path] = []
        self._failed: set[Path] = set()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def add(self, path: Path) -> None:
        with self._changed:
            if path in self._waiting or path in self._failed or self._is_closing:
                return
            self._waiting.append(path)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="audit-compression", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def delete(self, path: Path) -> None:
        """Deletes a file under its current name. Errors: OSError."""
        packed = path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)
        with self._changed:
            found = [each for each in (path, packed) if os.path.lexists(each)]
            for each in found or [path]:
                os.unlink(each)

    def naming(self) -> AbstractContextManager[object]:
        """Returns a context in which no file is renamed."""
        return self._changed

    def wait(self, timeout_s: float) -> bool:
        """Returns True if all added files are done within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def close(self) -> None:
        """Renames no more files. Files that are not done are compressed after the next start."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def _run(self) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # Linux: only this thread
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closing)
                if self._is_closing:
                    return
                path = self._waiting[0]
            try:
                self._compress(path)
            except Exception as error:  # the file stays unchanged, and the thread must continue with the next one
                self._failed.add(path)
                self._report(f"audit log: cannot compress {path}: {error}")
            with self._changed:
                self._waiting.remove(path)
                self._changed.notify_all()

    def _compress(self, path: Path) -> None:
        part = path.with_name(f".{path.name}{SUFFIX}{_PART}")
        with suppress(FileNotFoundError):
            os.unlink(part)
        try:
            source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # deleted meanwhile
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(source, "rb") as plain, open(os.open(part, flags, 0o600), "wb") as packed:
                with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as stream:
                    shutil.copyfileobj(plain, stream, _BLOCK_BYTES)
                packed.flush()
                os.fsync(packed.fileno())
                state = os.fstat(source)
                os.utime(packed.fileno(), ns=(state.st_atime_ns, state.st_mtime_ns))  # auditMaxAgeDays uses this time
            with self._changed:
                if os.path.lexists(path) and not self._is_closing:
                    os.rename(part, path.with_name(path.name + SUFFIX))
                    os.unlink(path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)
