"""The log of a started router, line by line as it comes."""

import re
import subprocess
import threading
import time
from dataclasses import dataclass, field

PATIENCE_S = 60.0


@dataclass(slots=True, kw_only=True)
class ProcessLog:
    """The stderr of `process`.

    lines      what came so far, without line ends; grows
    has_ended  the process has closed its stderr
    """

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    grew: threading.Condition = field(default_factory=threading.Condition)
    has_ended: bool = False

    def read_log(self) -> None:
        """Runs on a thread of its own until the process closes its stderr."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.grew:
                self.lines.append(line.rstrip("\n"))
                self.grew.notify_all()
        with self.grew:
            self.has_ended = True
            self.grew.notify_all()

    def wait_for_log(self, pattern: str, since: int = 0, *, timeout_s: float = PATIENCE_S) -> "re.Match[str]":
        """The first line from number `since` on that has the pattern; fails with the log when none comes in time."""
        deadline = time.monotonic() + timeout_s
        with self.grew:
            while True:
                for line in self.lines[since:]:
                    if found := re.search(pattern, line):
                        return found
                since = max(since, len(self.lines))
                left = deadline - time.monotonic()
                if self.has_ended or left <= 0:
                    log = "\n".join(self.lines[-60:])
                    raise AssertionError(f"no line like /{pattern}/ in the log within {timeout_s:g} s:\n{log}")
                self.grew.wait(left)
