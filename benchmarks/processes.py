"""A child process that reports on stderr when it is ready, and its cost while it runs."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
STOP_TIMEOUT_S = 15.0
# Lines kept for error messages and for `wait_for`; a router that logs every connection writes many more.
MAX_LINES = 5000


class ProcessError(Exception):
    """A child failed. The text ends with the last lines that it printed."""


class Process:
    """A running child. Its stderr is read continuously, so that it never blocks."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.started_at = time.monotonic()
        self._child = subprocess.Popen(
            command,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._lines: list[tuple[float, str]] = []
        self._grew = threading.Condition()
        self._is_over = False
        assert self._child.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._child.stderr,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._grew:
                if len(self._lines) < MAX_LINES:
                    self._lines.append((time.monotonic(), line))
                self._grew.notify_all()
        with self._grew:
            self._is_over = True
            self._grew.notify_all()

    def wait_for(self, pattern: str, timeout_s: float = 30.0) -> tuple[float, re.Match[str]]:
        """Returns (seconds since the start, match) of the first line that has the pattern.

        Errors  ProcessError if the child ends, or `timeout_s` passes, before.
        """
        compiled = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        seen = 0
        with self._grew:
            while True:
                for at, line in self._lines[seen:]:
                    if found := compiled.search(line):
                        return at - self.started_at, found
                seen = len(self._lines)
                if self._is_over:
                    raise ProcessError(f"{self.command[0]} ended before it was ready:\n{self.tail()}")
                if not self._grew.wait(deadline - time.monotonic()):
                    missing = f"no line like '{pattern}' in {timeout_s:g} s"
                    raise ProcessError(f"{missing} from {self.command[0]}:\n{self.tail()}")

    def tail(self) -> str:
        return "".join(line for _, line in self._lines[-20:])

    def cpu_seconds(self) -> float:
        """Returns user and system time of the child so far, in all its threads; steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def resident_kb(self) -> int:
        """Returns the memory in use, without reserved memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_KB

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def stop(self) -> int:
        """Sends SIGTERM, and SIGKILL if that is not enough. Returns the exit status."""
        self._child.terminate()
        try:
            status = self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            status = self._child.wait()
        self._reader.join()
        return status
