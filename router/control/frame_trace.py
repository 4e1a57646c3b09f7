"""Frames in the log: chooses the traced connections and writes the lines.

A traced connection costs a call and a line for each frame; an untraced one costs nothing. SASL is a layer below, so no
credentials pass here, and the content of messages is left out. Sources: docs/spec/management.md §2.6, §4.4, §8.8.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from router.connection.stack import Stack

# Ends the fields of a frame: `… more=false] (129) "…`. A field with similar text is cut there, to be safe.
_PAYLOAD: Final = re.compile(r"\] \(\d+\)(?= )")

# (text, is it written whatever the level of PROTOCOL is)
WriteFrame = Callable[[str, bool], None]


class FrameTrace:
    """Traces all connections if the level of PROTOCOL says so, except those that management
    has switched individually.
    """

    def __init__(self, write: WriteFrame) -> None:
        self._write = write
        self._is_on = False
        self._switched: dict[int, bool] = {}  # connection id -> traced or not, whatever the level

    def set_level(self, is_on: bool, connections: Iterable[Stack]) -> None:
        """Enables or disables the trace level of PROTOCOL, for existing and new connections."""
        if is_on != self._is_on:
            self._is_on = is_on
            for connection in connections:
                self._apply(connection)

    def switch(self, connection: Stack, is_on: bool) -> None:
        """Applies an UPDATE of a connection's enableProtocolTrace."""
        self._switched[connection.connection_id] = is_on
        self._apply(connection)

    def is_on(self, connection_id: int) -> bool:
        return self._switched.get(connection_id, self._is_on)

    def on_peer(self, connection: Stack) -> None:
        """Called before the connection speaks AMQP."""
        if self._is_on:
            self._apply(connection)

    def forget(self, connection_id: int) -> None:
        """Forgets a connection that is gone."""
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
    """Returns the frame's text up to the size of its payload.

    A payload may be private, or a management request with a password: it must not be in the log.
    """
    found = _PAYLOAD.search(frame)
    return frame[: found.end()] if found is not None else frame
