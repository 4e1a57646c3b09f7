"""Tells systemd how the service is; the event loop feeds its watchdog. Source: sd_notify(3), systemd.service(5).

Nothing is told where NOTIFY_SOCKET is not set.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Final

# What the end takes beside the drain: closing connections, and writing the audit events that are queued.
_END_S: Final = 15.0


class ServiceManager:
    def __init__(self, environment: MutableMapping[str, str], warn: Callable[[str], None]) -> None:
        """environment  the variables are taken out of it: a process that the router starts must not speak for it
        warn         gets a line when the service manager cannot be told
        """
        self._warn = warn
        path = environment.pop("NOTIFY_SOCKET", "")
        period_us = environment.pop("WATCHDOG_USEC", "")
        watched = environment.pop("WATCHDOG_PID", "") or str(os.getpid())
        self._address = "\0" + path[1:] if path.startswith("@") else path
        is_watched = period_us.isdecimal() and watched == str(os.getpid())
        self._every_s = int(period_us) / 2e6 if is_watched else 0.0

    def ready(self) -> None:
        """The router serves. From now on the watchdog is fed, as long as the event loop runs."""
        self._tell("READY=1", "STATUS=Operational")
        if self._address and self._every_s:
            self._feed()

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=Reloading")

    def reloaded(self) -> None:
        self._tell("READY=1", "STATUS=Operational")

    def stopping(self, drain_s: float = 0.0) -> None:
        """drain_s  how long the drain may take: systemd is to wait so much longer"""
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((drain_s + _END_S) * 1e6)}", "STATUS=Stopping")

    def _feed(self) -> None:
        self._tell("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._every_s, self._feed)

    def _tell(self, *assignments: str) -> None:
        """Without waiting: a service manager that does not read must not stop the router."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            self._warn(f"NOTIFY_SOCKET: {assignments[0]} could not be sent: {error.strerror or 'no usable path'}")
