"""The destinations of log lines: stderr, stdout, files, the system log.

`management.logrules` selects and formats lines.

Sources: docs/spec/management.md §3, §4.3.
"""

import os
import sys
import time
from types import FrameType
from typing import Final, TextIO

from router.effects import Log, LogLevel
from router.io.system_log import SystemLog
from router.management.logrules import MAX_TEXT_BYTES, LogEntry, LogRing, LogRules, LogSettings

# Functions that only pass an entry on: the source of the entry is their caller.
_PASSERS: Final = frozenset({"write", "write_effect", "write_frame", "emit", "log", "log_link", "warn"})
_ROOT: Final = f"{os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}/"


def _caller() -> tuple[str | None, int | None]:
    """Returns file and line of the code that made the entry; the file relative to the package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name.lstrip("_") in _PASSERS:
        frame = frame.f_back
    if frame is None:
        return None, None
    return frame.f_code.co_filename.removeprefix(_ROOT), frame.f_lineno


class LogFileError(Exception):
    """A log file cannot be opened. The text names the file; `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Failed to open log file '{name}'")
        self.name, self.reason = name, reason


class Logs:
    """The rules in force, the open destinations and the entries for GET-LOG."""

    def __init__(self, system_log: SystemLog | None = None) -> None:
        self.rules = LogRules()
        self.ring = LogRing()
        self._files: dict[str, TextIO] = {}
        self._failing: set[str] = set()  # destinations whose last entry was lost
        self._system_log = system_log or SystemLog()

    def use(self, rules: LogRules) -> None:
        """Changes the rules. Opens the files they need first, so that a bad file name changes nothing.

        Errors  LogFileError.
        """
        for name in rules.sinks():
            self._open(name)
        self.rules = rules

    def configure(self, module: str, settings: LogSettings) -> None:
        """Changes one module's settings. Errors: LogFileError."""
        self.use(self.rules.with_module(module, settings))

    def _open(self, name: str) -> None:
        if name in ("stderr", "stdout", "syslog") or name in self._files:
            return
        try:
            self._files[name] = open(name, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise LogFileError(name, getattr(error, "strerror", None) or str(error)) from None

    def reopen(self) -> None:
        """Opens the files again by their names, for log rotation (SIGHUP). If that fails, the old file stays in use."""
        self._system_log.close()
        for name, old in list(self._files.items()):
            del self._files[name]
            try:
                self._open(name)
            except LogFileError as error:
                self._files[name] = old
                self.write("ERROR", "error", f"Configuration: {error}: {error.reason}")
            else:
                old.close()

    def write(self, module: str, level: LogLevel, text: str) -> None:
        """Writes one entry if its module and level are enabled."""
        self._write(module, level, text)

    def _write(self, module: str, level: LogLevel, text: str, *, is_forced: bool = False) -> None:
        rules = self.rules
        if not is_forced and not rules.is_enabled(module, level):
            return
        file, line = _caller()
        # Attack: the entries for GET-LOG name a thousand addresses of 64 KB each.
        text = text[:MAX_TEXT_BYTES]
        entry = LogEntry(module=module, level=level, text=text, time_s=time.time(), file=file, line=line)
        self.ring.append(entry)
        sink = rules.sink(module)
        try:
            if sink == "syslog":
                self._system_log.write(level, rules.line(entry).rstrip("\n"))
            else:
                stream = self._stream(sink)
                stream.write(rules.line(entry))
                stream.flush()
            self._failing.discard(sink)
        except (OSError, ValueError) as error:
            self._report(sink, error)

    def write_frame(self, text: str, is_forced: bool) -> None:
        """Writes one traced frame. is_forced: management traces the connection, whatever the level of PROTOCOL."""
        self._write("PROTOCOL", "trace", text, is_forced=is_forced)

    def write_effect(self, effect: Log) -> None:
        if self.rules.is_enabled(effect.module, effect.level):  # half of the entries of a login are not enabled
            self._write(effect.module, effect.level, effect.text, is_forced=True)

    def _stream(self, sink: str) -> TextIO:
        if sink == "stderr":
            return sys.stderr
        if sink == "stdout":
            return sys.stdout
        return self._files[sink]

    def _report(self, sink: str, error: Exception) -> None:
        """Reports a failing destination once on stderr.

        A full disk must not stop messages; GET-LOG still has the entries.
        """
        if sink not in self._failing and sink != "stderr":
            self._failing.add(sink)
            print(f"Cannot write log output to '{sink}': {error}", file=sys.stderr, flush=True)
