"""A peer of an HTTP listener that ignores all rules: raw requests, and raw frames of WebSocket."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon_process import Daemon, start
from process_log import PATIENCE_S

sys.path.append(str(Path(__file__).parent.parent / "core"))

CONFIGURATION = """
router {{
    id: web
    auditDir: {folder}/audit
}}
listener {{
    name: web
    host: 127.0.0.1
    port: 0
    http: yes
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    {attributes}
}}
"""
LISTENING = r"HTTP \(notice\) Listening for HTTP on 127\.0\.0\.1:(\d+) \(web\)"


def start_web(folder: Path, attributes: str = "") -> tuple[Daemon, int]:
    """A daemon with one HTTP listener. Returns it and its port."""
    router = start(folder, CONFIGURATION.format(folder=folder, attributes=attributes))
    return router, int(router.wait_for_log(LISTENING)[1])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:
        yield peer


def read_to_end(peer: socket.socket) -> bytes:
    """What the router says until it closes."""
    read = b""
    try:
        while piece := peer.recv(65536):
            read += piece
    except ConnectionResetError:
        pass
    return read


def say(port: int, data: bytes) -> bytes:
    """Send all, and read until the router closes."""
    with connected(port) as peer:
        peer.sendall(data)
        return read_to_end(peer)


def status(response: bytes) -> int:
    return int(response.split()[1]) if response.startswith(b"HTTP/1.1 ") else 0


def lives(port: int) -> bool:
    return say(port, b"GET /healthz HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n").endswith(b"\r\n\r\nOK\n")
