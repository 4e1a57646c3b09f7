"""A separate queue for the sockets of connections that are not open yet. Hosts take turns, in limited time per pass.

Attack: 2,500 sockets that send at the same moment, 1,500 of them ClientHellos. In one pass the event loop serves each
readable socket, at any cost. So the event loop does not watch these sockets. A separate selector does, which is asked
for a few at a time. Peers that have logged in are served before each of these turns.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from router.io.host_turns import HostTurns
from router.io.turns import TURN_S, turn

# The number of readable sockets asked for at once. Each costs a microsecond: with 128, a pass that asks takes twice as
# long. With fewer, a new host would wait longer to be noticed if thousands of sockets are queued.
AT_ONCE: Final = 40
_ARMED: Final = select.EPOLLIN | select.EPOLLONESHOT


class Arriving(Protocol):
    """A socket whose connection is not open yet.

    host        the host whose turn it uses
    descriptor  of the socket
    serve       reads it and handles the data. After that it is armed again if it waits for more, or ready if it has
                more to do
    """

    def __hash__(self) -> int: ...
    @property
    def host(self) -> Hashable: ...
    @property
    def descriptor(self) -> int: ...
    def serve(self) -> None: ...


class Arrivals:
    """The queue.

    after  called after each turn: writes what the turn left to write
    """

    def __init__(self, after: Callable[[], None], *, seconds: float = TURN_S) -> None:
        self._after = after
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._selector = select.epoll()
        self._members: dict[int, Arriving] = {}  # by descriptor
        self._ready: HostTurns[Arriving] = HostTurns()
        self._pass: asyncio.Handle | None = None
        self._has_time: Callable[[], bool] | None = None  # of the turn in which the sockets were asked for
        self._loop.add_reader(self._selector.fileno(), self._collect)

    def __len__(self) -> int:
        """The number of sockets that wait for a turn."""
        return len(self._ready)

    def add(self, member: Arriving) -> None:
        """Adds a new socket. It gets a turn when it has sent something."""
        if self._selector.closed:
            return
        self._members[member.descriptor] = member
        self._selector.register(member.descriptor, _ARMED)

    def arm(self, member: Arriving) -> None:
        """Gives it its next turn when it sends more."""
        if self._members.get(member.descriptor) is member and not self._selector.closed:
            self._selector.modify(member.descriptor, _ARMED)

    def ready(self, member: Arriving) -> None:
        """Gives it another turn: it has more to do than fitted into the last one."""
        if self._members.get(member.descriptor) is member:
            self._ready.add(member.host, member)
            self._go_on_soon()

    def remove(self, member: Arriving) -> None:
        """Removes a socket that is open, or closed. INVARIANT: called before another socket can have its descriptor."""
        if self._members.get(member.descriptor) is not member:
            return
        del self._members[member.descriptor]
        self._ready.discard(member)
        with contextlib.suppress(OSError, ValueError):  # the descriptor or the selector is closed
            self._selector.unregister(member.descriptor)

    def close(self) -> None:
        """Stops. May be called any number of times."""
        if self._pass is not None:
            self._pass.cancel()
        if not self._selector.closed:
            self._loop.remove_reader(self._selector.fileno())
            self._selector.close()

    def _collect(self) -> None:
        # With many new sockets, asking takes most of a turn. In addition to a whole turn, a pass would last twice as
        # long.
        self._has_time = turn(seconds=self._seconds)
        for descriptor, _ in self._selector.poll(0, AT_ONCE):
            if (member := self._members.get(descriptor)) is not None:
                self._ready.add(member.host, member)
        if len(self._ready) == 1 and self._pass is None:
            self._serve()  # only one socket: another pass of the loop would cost as much again
        else:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._pass is None and self._ready:
            self._pass = self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Serves one turn for all sockets together."""
        self._pass = None
        has_time, self._has_time = self._has_time or turn(seconds=self._seconds), None
        try:
            while (member := self._ready.take()) is not None:
                member.serve()
                self._after()
                if not has_time():
                    break
        finally:
            self._go_on_soon()
