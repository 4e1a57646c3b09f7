"""The sockets that are not open yet, in a queue of their own: hosts have turns, and a pass does a bounded time of it.

Attack: 2,500 sockets that speak at the same moment, 1,500 ClientHellos. The event loop serves in one pass each socket
that can be read, whatever that costs. So it does not watch these: a selector of their own does, which is asked for a
few at a time, and whoever has logged in is served before each.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from router.io.host_turns import HostTurns
from router.io.turns import TURN_S, turn

# Sockets that can be read, asked for at once. Asking costs a microsecond for each; with fewer, a host that comes to
# a queue of thousands would wait longer until it is seen at all.
AT_ONCE: Final = 128
_ARMED: Final = select.EPOLLIN | select.EPOLLONESHOT


class Arriving(Protocol):
    """A socket on its way in.

    host        whose turn it takes
    descriptor  of the socket
    serve       reads it, and works off what it has sent; then it is armed or ready again where it waits for more
    """

    def __hash__(self) -> int: ...
    @property
    def host(self) -> Hashable: ...
    @property
    def descriptor(self) -> int: ...
    def serve(self) -> None: ...


class Arrivals:
    """after  called after each turn: writes what the turn left to write"""

    def __init__(self, after: Callable[[], None], *, seconds: float = TURN_S) -> None:
        self._after = after
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._selector = select.epoll()
        self._members: dict[int, Arriving] = {}  # by descriptor
        self._ready: HostTurns[Arriving] = HostTurns()
        self._pass: asyncio.Handle | None = None
        self._has_time: Callable[[], bool] | None = None  # in the turn that asking has begun
        self._loop.add_reader(self._selector.fileno(), self._collect)

    def __len__(self) -> int:
        """How many can be read, or have been."""
        return len(self._ready)

    def add(self, member: Arriving) -> None:
        """A socket has come. It gets a turn as soon as it has said something."""
        if self._selector.closed:
            return
        self._members[member.descriptor] = member
        self._selector.register(member.descriptor, _ARMED)

    def arm(self, member: Arriving) -> None:
        """Its next turn comes when it says more."""
        if self._members.get(member.descriptor) is member and not self._selector.closed:
            self._selector.modify(member.descriptor, _ARMED)

    def ready(self, member: Arriving) -> None:
        """It has more to do than fitted into its turn."""
        if self._members.get(member.descriptor) is member:
            self._ready.add(member.host, member)
            self._go_on_soon()

    def remove(self, member: Arriving) -> None:
        """It is open, or closed. INVARIANT: called before another socket can have its descriptor."""
        if self._members.get(member.descriptor) is not member:
            return
        del self._members[member.descriptor]
        self._ready.discard(member)
        with contextlib.suppress(OSError, ValueError):  # the descriptor is closed, or the selector
            self._selector.unregister(member.descriptor)

    def close(self) -> None:
        """Nobody arrives any more. Any number of times."""
        if self._pass is not None:
            self._pass.cancel()
        if not self._selector.closed:
            self._loop.remove_reader(self._selector.fileno())
            self._selector.close()

    def _collect(self) -> None:
        # Asking takes most of a turn where many have come: beside a whole one, a pass would last for two.
        self._has_time = turn(seconds=self._seconds)
        for descriptor, _ in self._selector.poll(0, AT_ONCE):
            if (member := self._members.get(descriptor)) is not None:
                self._ready.add(member.host, member)
        if len(self._ready) == 1 and self._pass is None:
            self._serve()  # one alone: another pass of the loop would cost as much again
        else:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._pass is None and self._ready:
            self._pass = self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """One turn for all together."""
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
