"""The system log: sends one datagram for each entry to the socket of the system's logger.

The C library's syslog() waits if the logger does not read, and every connection would wait too. Here an entry that
cannot be sent at once is lost, and counted. Sources: docs/spec/management.md §3; the format is RFC 3164's, as the C
library writes it.
"""

import contextlib
import os
import socket
import syslog
import time
from collections.abc import Mapping
from typing import Final

from router.effects import LogLevel

ADDRESS: Final = "/dev/log"
IDENTITY: Final = "qdrouterd"
PRIORITIES: Final[Mapping[LogLevel, int]] = {
    "trace": syslog.LOG_DEBUG,
    "debug": syslog.LOG_DEBUG,
    "info": syslog.LOG_INFO,
    "notice": syslog.LOG_NOTICE,
    "warning": syslog.LOG_WARNING,
    "error": syslog.LOG_ERR,
    "critical": syslog.LOG_CRIT,
}


class SystemLog:
    """Sends entries to the system log.

    lost  the number of entries lost since the last successful one
    """

    def __init__(self, address: str = ADDRESS) -> None:
        self.lost = 0
        self._address = address
        self._socket: socket.socket | None = None

    def write(self, level: LogLevel, text: str) -> None:
        """Sends one entry without waiting. Errors: OSError if it is lost."""
        try:
            if self.lost:
                self._send("warning", f"ERROR (warning) {self.lost} log entries did not get to the system log")
                self.lost = 0
            self._send(level, text)
        except OSError:
            self.lost += 1
            raise

    def _send(self, level: LogLevel, text: str) -> None:
        stamp = time.strftime("%b %e %H:%M:%S")
        line = f"<{syslog.LOG_DAEMON | PRIORITIES[level]}>{stamp} {IDENTITY}[{os.getpid()}]: {text}"
        data = line.encode("utf-8", "backslashreplace")
        if self._socket is not None:
            try:
                self._socket.send(data)
            except BlockingIOError:  # the logger exists but does not read: another socket would not help
                raise
            except OSError:
                self.close()  # a restarted logger listens on another socket of the same name
            else:
                return
        self._connect().send(data)

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.connect(self._address)
        except BaseException:
            made.close()
            raise
        self._socket = made
        return made

    def close(self) -> None:
        """Closes the socket. The next entry opens it again."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
