"""Many connections that only stay open."""

import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import wire
from benchmarks.subjects import HOSTNAME, USER, Subject

# The router closes a connection that sends nothing for 16 s (idleTimeoutSeconds).
HEARTBEAT_S = 5.0
BEATS_AT_ONCE = 10
ANSWER_TIMEOUT_S = 20.0
# For 10,000 connections on each side, and the other files of a process.
ENOUGH_FILES = 32_768
SPARE_FILES = 200


class Crowd:
    """Open connections, whose heartbeats one of our threads sends."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_over = threading.Event()

    @classmethod
    @contextmanager
    def connect(
        cls, subject: Subject, count: int, *, is_encrypted: bool = False, source: str | None = None
    ) -> Iterator["Crowd"]:
        """Logs in `count` clients, one after another, and keeps them until the end of the body.

        source  each also attaches a receiver to this address; `{number}` in it becomes the client's number
        Errors  wire.RefusedError, OSError
        """
        _check_file_limit(count)
        context = unverified_context() if is_encrypted else None
        crowd = cls()
        beating = threading.Thread(target=crowd._beat, daemon=True)
        with ExitStack() as stack:
            beating.start()  # already now: the first would be idle for too long before the last is connected
            try:
                for number in range(count):
                    own = source.replace("{number}", str(number)) if source is not None else None
                    login = wire.login(user=USER, password=subject.password, hostname=HOSTNAME, source=own)
                    port = subject.tls_port if is_encrypted else subject.port
                    connected = stack.enter_context(socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S))
                    if context is not None:
                        connected = stack.enter_context(context.wrap_socket(connected))
                    connected.sendall(login)
                    admission = wire.Admission(has_link=source is not None)
                    while not admission.receive(connected.recv(4096)):
                        pass
                    crowd._sockets.append(connected)
                yield crowd
            finally:
                crowd._is_over.set()
                beating.join()

    def _beat(self) -> None:
        # Spread over the period, as the heartbeats of independent clients are.
        while not self._pause():
            for count, connected in enumerate(self._sockets):
                try:
                    connected.sendall(wire.HEARTBEAT)
                except OSError:
                    return
                if count % BEATS_AT_ONCE == BEATS_AT_ONCE - 1 and self._pause():
                    return

    def _pause(self) -> bool:
        """Waits until the next few are due. Returns True at the end. The crowd may still be growing."""
        return self._is_over.wait(HEARTBEAT_S * BEATS_AT_ONCE / max(len(self._sockets), 100))


def unverified_context() -> ssl.SSLContext:
    """Returns a client's context that accepts any certificate, since the server is measured."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def raise_file_limit() -> None:
    """Permits this process, and those that it starts from now on, the most open files that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _check_file_limit(count: int) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and count + SPARE_FILES > soft:
        raise OSError(
            f"{count} connections need {count + SPARE_FILES} open files and {soft} are allowed: see ulimit -Hn"
        )
