"""Frames in the log: which connections are traced, and the lines.

A traced connection costs a call and a line per frame; one that is not costs nothing. SASL is a layer of its own below,
so that no credentials pass here, and what messages say is left out. Sources: docs/spec/management.md §2.6, §4.4, §8.8.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from router.connection.stack import Stack

# Ends the fields of a frame: `… more=false] (129) "…`. A field that contains the like is cut there, to be safe.
_PAYLOAD: Final = re.compile(r"\] \(\d+\)(?= )")

# (text, is it written whatever the levels of PROTOCOL are)
WriteFrame = Callable[[str, bool], None]


class FrameTrace:
    """Traces all connections, as the level of PROTOCOL says, but for those that management has switched by itself."""

    def __init__(self, write: WriteFrame) -> None:
        self._write = write
        self._is_on = False
        self._switched: dict[int, bool] = {}  # connection id -> traced or not, whatever the level

    def set_level(self, is_on: bool, connections: Iterable[Stack]) -> None:
        """Trace is enabled or disabled for PROTOCOL, for connections that exist and those to come."""
        if is_on != self._is_on:
            self._is_on = is_on
            for connection in connections:
                self._apply(connection)

    def switch(self, connection: Stack, is_on: bool) -> None:
        """UPDATE of a connection's enableProtocolTrace."""
        self._switched[connection.connection_id] = is_on
        self._apply(connection)

    def is_on(self, connection_id: int) -> bool:
        return self._switched.get(connection_id, self._is_on)

    def on_peer(self, connection: Stack) -> None:
        """The connection is about to speak AMQP."""
        if self._is_on:
            self._apply(connection)

    def forget(self, connection_id: int) -> None:
        """The connection is gone."""
        self._switched.pop(connection_id, None)

    def _apply(self, connection: Stack) -> None:
        if connection.peer is None or connection.peer.engine.is_freed:
            return
        connection_id, write = connection.connection_id, self._write
        if not self.is_on(connection_id):
            connection.peer.engine.trace(None)
            return
        is_forced = connection_id in self._switched
        connection.peer.engine.trace(lambda frame: write(f"[C{connection_id}]:{without_payload(frame)}", is_forced))


def without_payload(frame: str) -> str:
    """The frame's text up to the size of its payload.

    A payload may be anybody's business, or a request to management that brings a password: not the log's.
    """
    found = _PAYLOAD.search(frame)
    return frame[: found.end()] if found is not None else frame
