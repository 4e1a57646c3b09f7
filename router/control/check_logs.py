"""The log of `qdrouterd --check`: shows warnings and errors before a start, each once, and makes no file."""

import os
import re
import sys
from pathlib import Path
from typing import Final

from router.control.logs import LogFileError, Logs
from router.effects import LogLevel
from router.management.host_values import STREAMS
from router.management.logrules import LogRules, visible_text

_SHOWN: Final = ("warning", "error", "critical")
# The beginning of log lines about an entity of the file that the router leaves out.
_LEFT_OUT: Final = "Error performing CREATE of "
_PLACE: Final = re.compile(r" \(.*:\d+\)$")


class CheckLogs(Logs):
    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def use(self, rules: LogRules) -> None:
        """Checks that the log files could be opened. Errors: LogFileError."""
        for name in rules.sinks() - STREAMS:
            if (reason := _why_not_writable(name)) is not None:
                raise LogFileError(name, reason)

    def _write(self, module: str, level: LogLevel, text: str, *, is_forced: bool = False) -> None:
        if text.startswith(_LEFT_OUT) and not _PLACE.search(text):
            return  # the same text comes again, with its place
        line = f"{'warning' if level == 'warning' else 'error'}: {visible_text(text)}"
        if level in _SHOWN and line not in self._said:
            self._said.add(line)
            print(line, file=sys.stderr)


def _why_not_writable(name: str) -> str | None:
    path = Path(name)
    if path.is_dir():
        return "Is a directory"
    if path.exists():
        return None if os.access(path, os.W_OK) else "Permission denied"
    if not path.absolute().parent.is_dir():
        return "No such file or directory"
    return None if os.access(path.absolute().parent, os.W_OK | os.X_OK) else "Permission denied"
