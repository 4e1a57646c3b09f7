"""The running router: core, gate, connections and ports on one event loop.

Connections may not use sockets, clocks, threads and files directly; the router does it for them.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from auth.identity import Proof
from router.admission.connection_gate import ConnectionGate, Gate
from router.amqp.engine import message_bytes
from router.connection.accepted import Connection
from router.connection.outgoing import Connector
from router.connection.peer import Peer
from router.connection.stack import Stack
from router.connection.surroundings import ALONE, Place, assemble
from router.connection.terms import Listener
from router.control.accepting import Accepting
from router.control.connecting import Connecting
from router.control.connection_view import connection_row
from router.control.frame_trace import FrameTrace
from router.control.redecision import Expiry, Redecision
from router.control.server import Port, listen
from router.core.addresses import Treatment
from router.core.progress import Progress
from router.core.watch import NORMAL, Thresholds, Watch
from router.core.work import Work
from router.effects import Emit, log
from router.faults import fault_text
from router.io.arrivals import Arrivals
from router.io.busy_poll import BusyPoll
from router.io.random_names import random_name
from router.io.read_share import ReadShare
from router.io.shaking import Shaking
from router.io.timers import Timers
from router.io.turns import Slices, Turns
from router.values import Condition

# Time in which a closed connection may write the rest for its peer before the socket is dropped. A peer that does not
# read would otherwise hold it forever.
LINGER_S: Final = 5.0

# Time that a stopping router waits for its peers to read their Close.
SHUTDOWN_S: Final = 2.0


class Router:
    """One running router. All methods are called on its event loop."""

    def __init__(
        self,
        *,
        router_id: str,
        version: str,
        gate: Gate,
        emit: Emit,
        treatment_of: Callable[[str], Treatment],
        trace: FrameTrace,
        thresholds: Thresholds = NORMAL,
        place: Place = ALONE,
    ) -> None:
        """place  the router's place in a network"""
        self.router_id = router_id
        self.gate = gate
        self.emit = emit
        self.trace = trace
        self.turns = Turns(self.clock, lambda: self.work.finish())
        self.arrivals = Arrivals(lambda: self.work.finish())
        self.shaking = Shaking()
        call_soon = asyncio.get_running_loop().call_soon
        self.busy_poll = BusyPoll(call_soon)
        self.may_read: Callable[[], bool] | None = None
        self.reads = ReadShare(call_soon)
        self.work = Work(message_bytes, self.turns.begin, lambda: call_soon(self.work.finish), self.turns.later)
        self._timers = Timers(self.clock, self.work.finish)
        self.surroundings = assemble(
            router_id=router_id,
            version=version,
            work=self.work,
            treatment_of=treatment_of,
            random_name=random_name,
            clock=self.clock,
            wall_clock=self.wall_clock,
            set_timer=self._timers.set,
            emit=emit,
            place=place,
        )
        self.core = self.surroundings.core
        self.connections: dict[int, Stack] = {}
        self._opened: dict[int, Stack] = {}  # connections whose Open was admitted: management shows them
        self.accepting = Accepting(self)
        self.ports: dict[str, Port] = {}
        self._opening: dict[str, Listener] = {}  # by name; removed when no longer wanted
        self.connectors: dict[str, Connecting] = {}
        self.started_at_s = int(self.clock())
        self._last_connection_id = 0
        self.watch = Watch(self.core, emit, thresholds)
        self.progress = Progress(self.core.links, self.clock)
        self._watching: Slices | None = None
        self.redecision = Redecision(gate, self.connections, self.work.finish, emit, self.wall_clock)
        self.expiry = Expiry(gate, self.redecision, self.wall_clock)
        # Returns True if a proof is no longer valid. None: proofs are not checked again.
        self.is_revoked: Callable[[Proof], bool] | None = None
        self.on_second: list[Callable[[float], None]] = []  # more tasks of each second; they receive the time
        self._tick()

    # Connections

    def next_connection_id(self) -> int:
        """Counts accepted and outgoing connections together, from 1 (routing §1.3)."""
        self._last_connection_id += 1
        return self._last_connection_id

    def connector_gate(self, connection_id: int, remote_name: str) -> ConnectionGate:
        """Returns the gate of an outgoing connection: restricted only by its connector's policyVhost."""
        return ConnectionGate(
            self.gate,
            connection_id=connection_id,
            connection_name=remote_name,
            remote_host="",
            listener=remote_name,
            is_governed=False,
            is_accepted=False,
        )

    def adopt(self, connection: Stack) -> None:
        """Watches a new connection until it is lost."""
        self.connections[connection.connection_id] = connection
        connection.on_peer = self.trace.on_peer
        if isinstance(connection, Connection) and self.is_revoked is not None:
            connection.tenure.is_revoked = self.is_revoked
        self._timers.set(connection, connection.on_timer(self.clock()))

    # Called about thirty times at each login.
    clock = staticmethod(time.monotonic)
    wall_clock = staticmethod(time.time)  # seconds since 1970 UTC

    def on_opened(self, connection: Stack) -> None:
        """Replaces the handshake's deadline by the idle timers."""
        self._opened[connection.connection_id] = connection
        self.accepting.over(connection.connection_id)
        self._timers.set(connection, self.clock())

    def lost(self, connection: Stack) -> None:
        """Called when the socket is closed."""
        self._timers.discard(connection)
        self.connections.pop(connection.connection_id, None)
        self._opened.pop(connection.connection_id, None)
        self.accepting.over(connection.connection_id)
        self.trace.forget(connection.connection_id)
        connection.on_lost()
        self.work.finish()

    def close_soon(self, transport: asyncio.Transport) -> None:
        """Closes after the pending bytes have left; drops the socket when that takes too long."""
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def close_connection(self, connection_id: int) -> bool:
        """Drops a connection as management asks. Returns False if the number is unknown."""
        connection = self.connections.get(connection_id)
        if connection is None:
            return False
        connection.force_close()
        return True

    def pause(self, connection_id: int, seconds: float) -> None:
        """Stops reading a connection for some seconds, except connections that carry other peers' messages."""
        connection = self.connections.get(connection_id)
        if connection is not None and connection.terms.role == "normal":
            connection.paused_until = self.clock() + seconds
            connection.on_pause()

    def peer_of(self, connection_id: int) -> Peer | None:
        """Returns the peer of a connection; None before AMQP begins."""
        connection = self.connections.get(connection_id)
        return connection.peer if connection is not None else None

    # Ports

    def open_port(self, listener: Listener, **family: Any) -> Coroutine[Any, Any, Port]:
        """Returns a coroutine that listens, unless `close_port` comes first. Errors: OSError."""
        self._opening[listener.name] = listener
        return self._open_port(listener, **family)

    async def _open_port(self, listener: Listener, **family: Any) -> Port:
        try:
            port = await listen(self.accepting, listener, **family)
            is_wanted = self._opening.get(listener.name) is listener
        finally:
            if self._opening.get(listener.name) is listener:
                del self._opening[listener.name]
        if not is_wanted:
            port.close()
            return port
        self.ports[listener.name] = port
        module, what = ("SERVER", "") if listener.site is None else ("HTTP", "for HTTP ")
        if listener.port == "0":
            shown = ", ".join(f"{host}:{number}" for host, number in port.addresses)
            log(self.emit, module, "notice", f"Listening {what}on {shown} ({listener.name})")
        else:
            log(self.emit, module, "notice", f"Listening {what}on {listener.place}")
        return port

    def close_port(self, name: str) -> None:
        """Stops listening, even if it has not begun yet; established connections stay."""
        self._opening.pop(name, None)
        port = self.ports.pop(name, None)
        if port is not None:
            port.close()
            if port.listener.site is not None:
                log(self.emit, "HTTP", "notice", f"Stopped listening for HTTP on {port.listener.place}")

    # Connectors

    def add_connector(self, connector: Connector) -> None:
        """Connects, and continues to try until `remove_connector`."""
        connecting = self.connectors[connector.name] = Connecting(self, connector, self.emit)
        connecting.start()

    def remove_connector(self, name: str) -> None:
        connecting = self.connectors.pop(name, None)
        if connecting is not None:
            connecting.delete()

    # Time

    def _tick(self) -> None:
        """Runs once a second: updates the clock of deliveries and calls the tasks of each second.

        An exception of one task stops neither the other tasks nor the clock; otherwise groups and bans would never end.
        """
        self._ticker = asyncio.get_running_loop().call_later(1.0, self._tick)
        now = self.clock()
        self.work.now_s = int(now)
        for each in (lambda _now: self.expiry.on_second(), *self.on_second):
            try:
                each(now)
            except Exception as error:
                self._log_fault(error)
        if self._watching is None or self._watching.is_over:
            self._watching = Slices(self._every_second(), self.work.finish, on_fault=self._log_fault)

    def _log_fault(self, error: Exception) -> None:
        log(self.emit, "ERROR", "error", f"Once a second: {fault_text(error)}")

    def _every_second(self) -> Iterator[None]:
        """Yields so that messages may be routed in between: thousands of connections may have been busy."""
        yield from self.work.looking_back()
        yield from self.progress.on_second()
        yield from self.watch.on_second()

    # Views

    def connection_rows(self, offset: int = 0) -> Iterator[Mapping[str, Any]]:
        """Returns the rows of the open connections, from number `offset` on.

        Leaves out connections that close before their row.
        """
        return (
            connection_row(connection, self.work.now_s, is_traced=self.trace.is_on(connection.connection_id))
            for connection in list(islice(self._opened.values(), offset, None))
            if connection.connection_id in self._opened
        )

    def find_connection_row(self, identity: str) -> Mapping[str, Any] | None:
        number = int(identity) if identity.isascii() and identity.isdecimal() and len(identity) < 20 else -1
        found = self._opened.get(number)
        if found is None or str(number) != identity:
            return None
        return connection_row(found, self.work.now_s, is_traced=self.trace.is_on(number))

    @property
    def open_count(self) -> int:
        return len(self._opened)

    # The end

    def close_ports(self) -> None:
        for name in (*self.ports, *self._opening):
            self.close_port(name)

    async def stop(self, why: Condition | None = None) -> None:
        """Closes every connection with an AMQP Close, with the error `why` if there is one, and every port.

        It takes at most SHUTDOWN_S.
        """
        self.close_ports()
        self.accepting.stop()
        for connection in list(self.connections.values()):
            log(self.emit, "SERVER", "info", f"[C{connection.connection_id}] Closing connection on shutdown")
            connection.close_for_shutdown(why)
        for name in list(self.connectors):
            self.remove_connector(name)
        self.work.finish()
        deadline = self.clock() + SHUTDOWN_S
        while self.connections and self.clock() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.connections.values()):
            connection.force_close()
        self.turns.stop()
        self.arrivals.close()
        self.shaking.close()
        self._ticker.cancel()
        if self._watching is not None:
            self._watching.cancel()
