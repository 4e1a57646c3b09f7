"""Many connections that do nothing but stay."""

import resource
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks import wire
from benchmarks.subjects import HOSTNAME, USER, Subject

# The router closes a connection of which it hears nothing for 16 s (idleTimeoutSeconds).
HEARTBEAT_S = 5.0
ANSWER_TIMEOUT_S = 20.0
# For 10,000 connections on each side, and for what a process opens besides.
ENOUGH_FILES = 32_768
SPARE_FILES = 200


class Crowd:
    """Open connections whose heartbeats a thread of ours sends."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self._is_over = threading.Event()

    @classmethod
    @contextmanager
    def connect(
        cls, subject: Subject, count: int, *, is_encrypted: bool = False, source: str | None = None
    ) -> Iterator["Crowd"]:
        """Log `count` clients in, one after the other, and keep them until the end of the body.

        source  each also attaches a receiver to this address
        Errors  wire.RefusedError, OSError
        """
        _check_file_limit(count)
        context = unverified_context() if is_encrypted else None
        login = wire.login(user=USER, password=subject.password, hostname=HOSTNAME, source=source)
        with ExitStack() as stack:
            sockets = []
            for _ in range(count):
                port = subject.tls_port if is_encrypted else subject.port
                connected = stack.enter_context(socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S))
                if context is not None:
                    connected = stack.enter_context(context.wrap_socket(connected))
                connected.sendall(login)
                admission = wire.Admission(has_link=source is not None)
                while not admission.receive(connected.recv(4096)):
                    pass
                sockets.append(connected)
            crowd = cls(sockets)
            beating = threading.Thread(target=crowd._beat, daemon=True)
            beating.start()
            try:
                yield crowd
            finally:
                crowd._is_over.set()
                beating.join()

    def _beat(self) -> None:
        # Spread over the period, as the heartbeats of strangers are.
        pause = HEARTBEAT_S / max(len(self._sockets), 1)
        while True:
            for count, connected in enumerate(self._sockets):
                try:
                    connected.sendall(wire.HEARTBEAT)
                except OSError:
                    return
                if count % 10 == 9 and self._is_over.wait(pause * 10):
                    return
            if self._is_over.wait(pause * 10):
                return


def unverified_context() -> ssl.SSLContext:
    """A client's context that takes any certificate: what is measured is the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def raise_file_limit() -> None:
    """Let this process, and those it starts from now on, have as many open files as the system allows them."""
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
