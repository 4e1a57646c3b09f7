"""Cuts the bytes that arrive on one connection into frames, has the guard admit them, and gives them to proton.

A frame that creates or ends something is acted on before the next frame is looked at. A connection may have only a
limited number of such frames acted on, for a limited time, before other connections have their turn.
"""

from collections.abc import Callable
from typing import Final, Protocol

from router.amqp.buffers import READ_BUFFER, READ_BYTES
from router.amqp.engine.library import Pointer, ffi, lib
from router.amqp.engine.links import Account
from router.amqp.guard import Guard, Refused
from router.values import Condition

# Control frames (and equally expensive ones) that are acted on before other connections have their turn. Attack: one
# peer delays all others with thousands of Attaches in one read. Each takes about 0.1 ms. If they take longer, because
# an Attach searches the links of its session, `begin_turn` allows fewer.
FRAMES_PER_TURN: Final = 16

# The beginning of a larger frame is charged as if it were complete. Attack: on a listener that accepts frames of many
# megabytes, many connections begin one each.
FREE_FRAME_BYTES: Final = 64 * 1024

_push = lib.pn_transport_push


class Acting(Protocol):
    """The engine, which acts on the bytes that its transport gets."""

    on_behind: Callable[[], None]
    has_details: bool
    account: Account

    @property
    def transport(self) -> Pointer: ...
    @property
    def is_deaf(self) -> bool: ...
    @property
    def is_late(self) -> bool: ...
    @property
    def is_blocked(self) -> bool: ...
    def drain(self, has_time: Callable[[], bool] | None = None) -> None: ...
    def catch_up(self, has_time: Callable[[], bool]) -> None: ...
    def flush(self) -> None: ...
    def refuse(self, condition: Condition, /) -> None: ...


def _endless() -> Callable[[], bool]:
    """Returns a turn that always has time left."""
    return lambda: True


class Intake:
    """Takes the bytes of one connection.

    rest           the beginning of a frame, or bytes that wait
    laid           bytes of `rest` that are in READ_BUFFER, before the bytes being read
    is_waiting     True if events or frames wait for the connection's next turn, `go_on`
    waits_for_room  True if they wait until the peer has read some of our answers
    begin_turn     begins a turn. Its result tells whether the turn has time left
    """

    __slots__ = (
        *("begin_turn", "charged", "engine", "guard", "is_waiting", "laid", "left", "needed", "rest", "waits_for_room"),
    )

    def __init__(self, engine: Acting, guard: Guard) -> None:
        self.engine = engine
        self.guard = guard
        self.is_waiting = False
        self.waits_for_room = False
        self.left = FRAMES_PER_TURN
        self.begin_turn: Callable[[], Callable[[], bool]] = _endless
        self.rest: bytearray | None = None
        self.laid = 0
        self.needed = 0  # bytes of the frame that begins in `rest`
        self.charged = 0  # the part of `needed` that is charged

    def lay(self) -> int:
        """Puts the beginning of a frame into READ_BUFFER before a read. Returns the offset for the read.

        So a frame that arrives in two reads is complete without copying it together.
        """
        rest = self.rest
        size = 0 if rest is None or self.is_waiting else len(rest)
        if 0 < size <= READ_BYTES:
            READ_BUFFER[:size] = rest  # type: ignore[assignment]
        else:
            size = 0
        self.laid = size
        return size

    def take_laid(self) -> int:
        """Makes the laid bytes a part of the read. Returns their number."""
        size, self.laid, self.rest = self.laid, 0, None
        if self.charged:
            self._charge(0)
        return size

    def take(self, data: bytes | bytearray, start: int, size: int) -> None:
        """Handles data[start:size], which has arrived. Errors: whatever a handler of the engine's owner raises."""
        while (rest := self.rest) is not None:
            if self.is_waiting:
                # INVARIANT: the socket is not read while something waits. One or two reads may already be under way.
                rest += memoryview(data)[start:size]
                return
            end = min(start + self.needed - len(rest), size)
            rest += memoryview(data)[start:end]
            start = end
            if len(rest) < self.needed:
                return
            self.rest = None
            if self.charged:
                self._charge(0)
            self._judge(rest, 0, len(rest))
        self._judge(data, start, size)

    def go_on(self) -> None:
        """Continues, because the connection has another turn."""
        self.left = FRAMES_PER_TURN
        if self.engine.is_late:
            self.engine.catch_up(self.begin_turn())
            if self.engine.is_late:
                return
            self.guard.acted()
        rest = self.rest
        self._forget()
        if rest is not None:
            self.take(rest, 0, len(rest))

    def _judge(self, data: bytes | bytearray, at: int, end: int) -> None:
        try:
            self._admit(data, at, end)
        except Refused as refused:
            self.engine.refuse(refused.condition)

    def _admit(self, data: bytes | bytearray, at: int, end: int) -> None:
        engine, guard = self.engine, self.guard
        pointer = ffi.from_buffer(data)
        has_time: Callable[[], bool] | None = None
        while True:
            if not engine.is_late and (stop := guard.scan(data, at, end)) > at:
                self._push(pointer + at, stop - at)
                engine.drain()
                at = stop
            if engine.is_late:
                self._wait(data, at, end)
                return
            if at == end or engine.is_deaf or guard.is_over:
                return
            size = guard.measure(data, at, end)
            if size > end - at:
                self.rest, self.needed = bytearray(memoryview(data)[at:end]), size
                if size > FREE_FRAME_BYTES:
                    self._charge(size)
                return
            performative = guard.read(memoryview(data)[at : at + size])
            is_crowded = guard.is_crowded(performative)
            if is_crowded or guard.is_answered_alone(performative):
                engine.flush()
            if is_crowded and not engine.is_blocked:
                guard.written()
            self.waits_for_room = engine.is_blocked and guard.is_answered(performative)
            if has_time is None:
                has_time = self.begin_turn()
            elif not has_time():
                self.left = 0
            if self.left <= 0 or self.waits_for_room:
                self._wait(data, at, end)
                return
            self.left -= guard.cost(performative)
            if guard.admit(performative):
                if guard.details:
                    engine.has_details = True
                if (replaced := guard.replaced) is None:
                    self._push(pointer + at, size)
                else:
                    self._push(ffi.from_buffer(replaced), len(replaced))
                engine.drain(has_time)
            if not engine.is_late:
                guard.acted()
            at += size

    def _wait(self, data: bytes | bytearray, at: int, end: int) -> None:
        """Keeps data[at:end], which may be empty, for the connection's next turn."""
        self.rest, self.is_waiting = bytearray(memoryview(data)[at:end]), True
        self.engine.on_behind()

    def _push(self, pointer: Pointer, size: int) -> None:
        transport = self.engine.transport
        while size > 0:
            taken = _push(transport, pointer, size)
            if taken <= 0:
                return  # the engine has found an error itself and reports it by an event
            pointer += taken
            size -= taken

    def end(self) -> None:
        """Takes nothing more."""
        self.guard.close()
        self._forget()

    def _charge(self, size: int) -> None:
        more, self.charged = size - self.charged, size
        self.engine.account.charge(more)

    def _forget(self) -> None:
        self.rest, self.laid = None, 0
        if self.charged:
            self._charge(0)
        self.is_waiting = self.waits_for_room = False
