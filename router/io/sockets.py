"""The loop's end of a connection: moves its bytes. One event loop, and one read buffer for all sockets.

Source: docs/journeys.md, three journeys.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar, cast

from router.amqp.buffers import READ_BUFFER, READ_BYTES
from router.core.work import FULL_BUFFER_BYTES
from router.io.busy_poll import BusyPoll
from router.io.read_share import ReadShare, next_read_bytes
from router.io.turns import Turns

_READ_BUFFER_VIEW: Final = memoryview(READ_BUFFER)


class Hold:
    """The reasons not to read a socket, as bits. Hot: an enum takes ten times as long."""

    NONE: Final = 0
    PASS: Final = 1  # it has had its share of the present pass
    TURN: Final = 2  # the bytes of the previous read are not handled yet
    ROOM: Final = 4  # the same, and cannot be handled before the peer has read our answers
    PAUSE: Final = 8  # its peer was refused too often
    ARRIVAL: Final = 16  # it is not open, and is read in its host's turn (router.io.arrivals)


class Intake(Protocol):
    """The reader of a connection's frames.

    rest  the beginning of a frame, to which the next read is added
    """

    @property
    def rest(self) -> bytearray | None: ...


class Connection(Protocol):
    """The part of a connection that its socket needs (router.connection.stack)."""

    on_behind: Callable[[], None]
    on_pause: Callable[[], None]

    @property
    def paused_until(self) -> float: ...
    @property
    def intake(self) -> Intake | None: ...
    @property
    def has_more(self) -> bool: ...
    @property
    def waits_for_room(self) -> bool: ...
    def lay(self) -> int: ...
    def receive_read(self, size: int) -> None: ...
    def crash(self, error: Exception, /) -> None: ...
    def resume(self) -> None: ...
    def set_blocked(self, is_blocked: bool, unsent_bytes: Callable[[], int] = ...) -> None: ...


class Pass(Protocol):
    """The work that one read leaves (router.core.work)."""

    def finish(self) -> None: ...


C = TypeVar("C", bound=Connection)
C_contra = TypeVar("C_contra", bound=Connection, contravariant=True)


class SocketOwner(Protocol[C_contra]):
    """The part of the router that a socket needs (router.control.router)."""

    @property
    def work(self) -> Pass: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def reads(self) -> ReadShare: ...
    def clock(self) -> float: ...
    @property
    def busy_poll(self) -> BusyPoll: ...
    @property
    def may_read(self) -> Callable[[], bool] | None:
        """Returns True if there is memory for a read. None: the system never refuses memory."""
        ...

    def lost(self, connection: C_contra) -> None: ...
    def close_soon(self, transport: asyncio.Transport) -> None: ...


def _take_if(may_read: Callable[[], bool], connection: Connection, size: int) -> None:
    if may_read():
        connection.receive_read(size)
    else:
        connection.crash(MemoryError("the system gives no more"))


class Socket(asyncio.BufferedProtocol, Generic[C]):
    """One socket. Subclasses make the connection in `begin`."""

    def __init__(self, router: SocketOwner[C]) -> None:
        self.router = router
        self.connection: C | None = None
        self._transport: asyncio.Transport | None = None
        self._holds = Hold.NONE
        self._alone_bytes = READ_BYTES  # the size of one read while no other socket is busy
        self._offered_bytes = 0  # the size of the next read
        self._pause: asyncio.TimerHandle | None = None
        self._take: Callable[[int], None] = self.discard

    def begin(self, transport: asyncio.Transport) -> None:
        """Makes the connection, because the socket is connected."""
        raise NotImplementedError

    def ended(self) -> None:
        """Handles that the socket is closed and its connection has released everything."""

    def close(self) -> None:
        """Closes the socket after the written bytes have left."""
        if self._transport is not None:
            self.router.close_soon(self._transport)

    def hold(self, why: int) -> None:
        """Stops reading until every reason for that is gone."""
        if not self._holds and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds |= why

    def release(self, why: int) -> None:
        """Removes a reason not to read."""
        if self._holds & why:
            self._holds &= ~why
            if not self._holds and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def attend(self) -> None:
        """Stops reading while earlier data is not handled yet, and makes sure that the connection gets another turn."""
        connection = self.connection
        if connection is None:
            return
        if connection.waits_for_room:
            self.hold(Hold.ROOM)
        elif connection.has_more:
            self.hold(Hold.TURN)
            self.router.turns.add(self)

    def go_on(self) -> bool:
        """Gives the connection its next turn (router.io.turns). Returns True if it needs a further one."""
        connection = self.connection
        if self._holds & Hold.PAUSE:
            return False  # asked again when the pause is over
        if connection is not None:
            connection.resume()
            if connection.has_more:
                return True
            self.attend()
        self.release(Hold.TURN)
        return False

    def pause(self) -> None:
        """Stops reading and handling data until the pause of the connection is over."""
        if self._pause is None and self.connection is not None:
            self.hold(Hold.PAUSE)
            self._go_on_after(self.connection.paused_until - self.router.clock())

    def _go_on_after(self, seconds: float) -> None:
        self._pause = asyncio.get_running_loop().call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        if self.connection is not None and (left := self.connection.paused_until - self.router.clock()) > 0:
            self._go_on_after(left)
            return
        self.release(Hold.PAUSE)
        if self._holds & Hold.TURN:
            self.router.turns.add(self)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is compatible, but no subclass
        self._transport = transport
        transport.set_write_buffer_limits(high=FULL_BUFFER_BYTES)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin(transport)
        if self.connection is not None:
            self.connection.on_behind = self.attend
            self.connection.on_pause = self.pause
            may_read, self._take = self.router.may_read, self.connection.receive_read
            if may_read is not None:
                self._take = partial(_take_if, may_read, self.connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        connection, reads = self.connection, self.router.reads
        size = self._offered_bytes = self._alone_bytes if reads.is_one else reads.size
        if connection is None or (intake := connection.intake) is None or intake.rest is None:
            return _READ_BUFFER_VIEW[:size]
        begin = connection.lay()
        return _READ_BUFFER_VIEW[begin : begin + size]

    def buffer_updated(self, nbytes: int) -> None:
        connection, is_full = self.connection, nbytes >= self._offered_bytes
        begun_at = perf_counter() if is_full else 0.0
        if connection is not None:
            self._take(nbytes)
            self.router.work.finish()
        else:
            self.discard(nbytes)
        if is_full:
            self._alone_bytes = next_read_bytes(nbytes, perf_counter() - begun_at)
            self.hold(Hold.PASS)
            self.router.reads.is_full(self)
        if connection is not None:
            self.router.busy_poll.after_read(nbytes)

    def read_again(self) -> None:
        """Reads again, because the next pass begins."""
        self.release(Hold.PASS)

    def discard(self, size: int) -> None:
        """Ignores `size` bytes that arrived after the connection was over."""

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self.connection is not None and self._transport is not None:
            self.connection.set_blocked(True, self._transport.get_write_buffer_size)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.set_blocked(False)
            self.release(Hold.ROOM)
            self.attend()
            self.router.work.finish()

    def let_go(self) -> None:
        """Ends the connection, although its socket may stay open for a while."""
        connection, self.connection, self._take = self.connection, None, self.discard
        self.router.turns.discard(self)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if connection is not None:
            self.router.lost(connection)

    def connection_lost(self, exc: Exception | None) -> None:
        self.let_go()
        self.ended()
