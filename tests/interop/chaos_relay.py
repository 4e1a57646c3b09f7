"""A TCP relay between two routers: a network that breaks, stands still, or takes nobody."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST, and drops what was not sent
_READ = 65536


class Relay:
    """Listens on a port of its own and passes bytes on to where the target listens now.

    is_open  new connections are passed on; otherwise they are reset
    """

    def __init__(self, name: str, target: Callable[[], int | None]) -> None:
        """target  the port on 127.0.0.1; None: nobody listens"""
        self.name = name
        self.is_open = True
        self._target = target
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_flowing = threading.Event()
        self._is_flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, whatever is on its way."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RDWR)
        self._is_flowing.set()

    def stall(self) -> None:
        """Nothing passes, and nobody is told, until `resume` or `cut`."""
        self._is_flowing.clear()

    def resume(self) -> None:
        self._is_flowing.set()

    def close(self) -> None:
        self.is_open = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            port = self._target() if self.is_open else None
            far = None
            if port is not None:
                with contextlib.suppress(OSError):
                    far = socket.create_connection(("127.0.0.1", port), 5.0)
            if far is None:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                near.close()
                continue
            far.settimeout(None)
            pair = near, far
            with self._lock:
                self._pairs.append(pair)
            left = _Left(pair)
            for source, sink in (pair, (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink, left), daemon=True).start()
            if not self.is_open:
                self.cut()  # it was closed while this one was being made

    def _pump(self, source: socket.socket, sink: socket.socket, left: "_Left") -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_READ):
                self._is_flowing.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        left.leave()
        with self._lock:
            self._pairs = [pair for pair in self._pairs if not left.is_of(pair)] if left.is_over else self._pairs


class _Left:
    """Closes both sockets of a pair when both directions have ended."""

    def __init__(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pair = pair
        self._lock = threading.Lock()
        self._running = 2

    @property
    def is_over(self) -> bool:
        return not self._running

    def is_of(self, pair: tuple[socket.socket, socket.socket]) -> bool:
        return pair is self._pair

    def leave(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                for end in self._pair:
                    end.close()
