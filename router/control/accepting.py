"""Sockets that arrive at the ports: judged at once, before they get a transport or a connection.

Sources: docs/spec/routing.md §1.7; docs/spec/policy-and-auth.md §3.2, §3.15, §8.9.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sized
from functools import partial
from typing import Any, Final, Protocol

from router.admission.connection_gate import ConnectionGate, Gate
from router.admission.handshakes import Excess
from router.connection.accepted import Connection
from router.connection.stack import Stack
from router.connection.surroundings import Surroundings
from router.connection.terms import Listener
from router.effects import ConnectionMembers, Emit, Log, Refused, RouterReason, log
from router.faults import fault_text
from router.io.arrivals import Arrivals
from router.io.descriptors import Descriptors
from router.io.lingering import Lingering
from router.io.shaking import Shaking, Step
from router.io.sockets import Hold, Socket, SocketOwner

# Bytes read in one turn of a connection that is not open. Most peers send no more before their Open. A chain of
# certificates takes a few turns.
EARLY_READ_BYTES: Final = 4 * 1024

_NO_HEADER: Final = "amqp:connection:framing-error No protocol header found (connection aborted)"


class Home(SocketOwner[Stack], Protocol):
    """The part of the router that this module needs (router.control.router)."""

    gate: Gate
    emit: Emit
    surroundings: Surroundings
    connections: dict[int, Stack]
    arrivals: Arrivals
    shaking: Shaking

    accepting: "Accepting"

    @property
    def connectors(self) -> Sized: ...
    def clock(self) -> float: ...
    def next_connection_id(self) -> int: ...
    def adopt(self, connection: Stack) -> None: ...
    def on_opened(self, connection: Stack) -> None: ...


def _line(text: str) -> Log:
    return Log(module="SERVER", level="info", text=text)


class _Accepted(Socket[Connection]):
    """The asyncio protocol of one accepted socket.

    It is read only in the turn of its host until its connection is open.
    """

    def __init__(
        self,
        router: Home,
        begin: Callable[["_Accepted", asyncio.Transport], Connection | None],
        host: str,
    ) -> None:
        """host  the host in whose turn it is read"""
        super().__init__(router)
        self.host = host
        self.descriptor = -1
        self._home = router
        self._begin = begin
        self._arriving: Connection | None = None  # None: the connection is open, or closed
        self._early = b""  # read by the loop before it heard that it is not to read
        self._step: Step | None = None  # a step of its TLS handshake that runs in a thread

    def begin(self, transport: asyncio.Transport) -> None:
        self.connection = self._arriving = self._begin(self, transport)
        if self._arriving is None:
            transport.abort()
            return
        self.descriptor = transport.get_extra_info("socket").fileno()
        self._arriving.on_early = self._take_early
        self._arriving.elsewhere = self._shake
        self._home.arrivals.add(self)
        # uvloop begins to read after this call, so the hold is set again later.
        asyncio.get_running_loop().call_soon(self._stay_away)

    # Before the Open

    def serve(self) -> None:
        """Reads a little and handles it, in its host's turn."""
        connection, transport = self._arriving, self._transport
        if connection is None or transport is None or transport.is_closing() or self._is_held:
            return
        if not connection.begins_turn():
            return
        if connection.has_more:
            connection.resume()
        else:
            data, self._early = self._early or self._read(), b""
            if data is None:
                self._leave()  # the loop sees that there is nothing left to read, and why
                return
            self._home.accepting.handshakes.hear(connection.connection_id)
            connection.receive(data)
        self._wait()

    def opened(self, connection: Stack) -> None:
        """Called when the connection's Open was admitted."""
        connection.take_reads()
        self._leave()
        self._home.on_opened(connection)

    def _read(self) -> bytes | None:
        """Reads from the socket. Returns None if the socket has ended."""
        try:
            return os.read(self.descriptor, EARLY_READ_BYTES) or None
        except (BlockingIOError, InterruptedError):
            return b""
        except OSError:
            return None

    def _take_early(self, data: bytes) -> None:
        self._early += data
        self._stay_away()
        self._home.arrivals.ready(self)

    def _stay_away(self) -> None:
        if self._arriving is not None:
            self.hold(Hold.ARRIVAL)

    @property
    def _is_held(self) -> bool:
        return bool(self._holds & (Hold.ROOM | Hold.PAUSE))

    def _wait(self) -> None:
        """Asks for its next turn."""
        connection = self._arriving
        if connection is None or connection.is_closed or connection.is_waiting or self._is_held:
            return
        if self._early or connection.has_more:
            self._home.arrivals.ready(self)
        else:
            self._home.arrivals.arm(self)

    def _leave(self) -> None:
        """Leaves its host's queue for good."""
        if self._arriving is None:
            return
        self._arriving = None
        self._home.arrivals.remove(self)
        if self._step is not None:
            self._home.shaking.discard(self._step)
        self.release(Hold.ARRIVAL)
        self.attend()

    def _shake(self, run: Callable[[], None], done: Callable[[], None]) -> None:
        """Runs a step of the TLS handshake in a thread."""
        connection = self._arriving

        def end() -> None:
            self._step = None
            done()
            self._wait()

        if connection is not None:
            self._step = Step(self.host, connection.begins_turn, run, end)
            self._home.shaking.submit(self._step)

    # Socket

    def attend(self) -> None:
        if self._arriving is None:
            super().attend()
        elif self._arriving.waits_for_room:
            self.hold(Hold.ROOM)
        else:
            self._wait()

    def release(self, why: int) -> None:
        super().release(why)
        if self._arriving is not None:
            self._wait()

    def close(self) -> None:
        """Closes after the last bytes have left; a peer that was told a reason first gets time to read it."""
        connection, transport = self.connection, self._transport
        self._leave()
        if connection is None or transport is None or transport.is_closing() or not connection.tells_why:
            super().close()
            return
        self.release(Hold.TURN | Hold.ROOM | Hold.PAUSE)
        self._home.accepting.lingering.add(self, transport, connection.gate.counted_host, self.let_go)

    def let_go(self) -> None:
        self._leave()
        super().let_go()

    def discard(self, size: int) -> None:
        self._home.accepting.lingering.discard(self, size)

    def ended(self) -> None:
        self._home.accepting.lingering.forget(self)


def _kind_of(listener: Listener) -> type[Connection]:
    if listener.site is None:
        return Connection
    # Most routers have no HTTP listener, and load no HTTP.
    from router.connection.over_http import WebConnection

    return WebConnection


class Accepting:
    """Accepts sockets for the router.

    descriptors  of the process
    lingering    the sockets of connections that were told why they end
    handshakes   the connections before their Open
    """

    def __init__(self, router: Home) -> None:
        self.descriptors = Descriptors()
        self.lingering = Lingering()
        self.kept_descriptors = 0  # for logins at remote services
        self.is_unrecorded: Callable[[], bool] = lambda: False  # True if what a peer does could not be recorded
        self._router = router
        self._gate = router.gate
        self._entrance = router.gate.entrance
        self.handshakes = self._entrance.handshakes
        self._emit = router.emit
        self._arriving: dict[int, tuple[ConnectionGate, asyncio.Task[object]]] = {}  # not yet with a transport

    def arrived(self, listener: Listener, accepted: socket.socket, peer: tuple[Any, ...]) -> None:
        """Handles an accepted socket. A socket that may not stay is closed without a byte."""
        gate = self._admitted(listener, accepted.fileno(), peer)
        if gate is None:
            accepted.close()
            return

        def begin(end: _Accepted, transport: asyncio.Transport) -> Connection | None:
            return self._begin(listener, gate, transport, end)

        def make() -> _Accepted:
            return _Accepted(self._router, begin, gate.counted_host)

        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(make, accepted))
        self._arriving[gate.connection_id] = gate, task
        task.add_done_callback(partial(self._settle, gate.connection_id))

    def failed(self, listener: Listener, error: OSError) -> None:
        """Logs that the system cannot accept another socket."""
        log(self._emit, "SERVER", "error", f"Accepting at {listener.place}: {error.strerror}")

    def over(self, connection_id: int) -> None:
        """Ends the handshake of a connection that is open, or lost."""
        self.handshakes.leave(connection_id)

    def _begin(
        self, listener: Listener, gate: ConnectionGate, transport: asyncio.Transport, end: _Accepted
    ) -> Connection | None:
        """Makes the connection when the socket has its transport. None if it had to go in the meantime."""
        connection_id, router = gate.connection_id, self._router
        if connection_id not in self.handshakes:
            return None
        del self._arriving[connection_id]
        connection = _kind_of(listener)(
            listener=listener,
            gate=gate,
            surroundings=router.surroundings,
            write=transport.write,
            close=end.close,
            on_opened=end.opened,
        )
        connection.unsent_bytes = transport.get_write_buffer_size
        connection.on_held = partial(self._hold, connection_id)
        router.adopt(connection)
        return connection

    def _settle(self, connection_id: int, task: asyncio.Task[object]) -> None:
        """Called when the socket has a transport, or can no longer get one."""
        error = task.exception() if not task.cancelled() else None
        if (arriving := self._arriving.pop(connection_id, None)) is None:
            return
        self.handshakes.leave(connection_id)
        gate, _ = arriving
        gate.close()
        if error is not None:
            what = f"Connection from {gate.connection_name} (to {gate.listener}) failed: {fault_text(error)}"
            log(self._emit, "SERVER", "info", f"[C{connection_id}] {what}")

    def stop(self) -> None:
        """Stops: sockets that have no transport yet get no connection."""
        for connection_id in self._arriving:
            self.handshakes.leave(connection_id)
        self.lingering.drop_all()

    def _admitted(self, listener: Listener, descriptor: int, peer: tuple[Any, ...]) -> ConnectionGate | None:
        """Returns the gate of a socket that may stay, and counts it; else None."""
        router, gate = self._router, self._gate
        connection_id = router.next_connection_id()
        host, port = peer[0], peer[1]
        remote_host = host.removeprefix("::ffff:") if "." in host else host
        remote_name = f"{host}:{port}"
        ban = gate.bans.ban_of(remote_host)
        if ban is not None:
            gate.bans.record_accept(
                ban,
                connection_id=connection_id,
                remote_host=remote_host,
                connection_name=remote_name,
                listener=listener.place,
            )
            return None
        whose: ConnectionMembers = {
            "connection": connection_id,
            "connection_name": remote_name,
            "listener": listener.place,
            "remote_host": remote_host,
        }
        if self.is_unrecorded():
            self._entrance.refuse_unrecorded(whose)
            return None
        if not self._has_room(descriptor, whose):
            return None
        where = f"(to {listener.place})"
        # A request of HTTP alone is not an AMQP connection: it counts when it becomes a WebSocket (policy §3.1).
        if listener.site is None and not gate.accept(
            connection_id=connection_id,
            remote_host=remote_host,
            connection_name=remote_name,
            listener=listener.place,
        ):
            self.handshakes.leave(connection_id)
            line = _line(f"[C{connection_id}] Connection from {remote_name} {where} failed: {_NO_HEADER}")
            self._emit(Refused(stage="accept", facts=whose, lines=(line,), what="more connections closed at accept"))
            return None
        line = _line(f"[C{connection_id}] Accepted connection to {listener.place} from {remote_name}")
        gate.folding.report_accepted(line, whose)
        return ConnectionGate(
            gate,
            connection_id=connection_id,
            connection_name=remote_name,
            remote_host=remote_host,
            listener=listener.place,
            is_governed=listener.is_governed,
            is_counted=listener.site is None,
        )

    def _has_room(self, descriptor: int, whose: ConnectionMembers) -> bool:
        """Returns True if a descriptor is free for the peer, and if its host may have one more connection before its
        Open.
        """
        router, entrance = self._router, self._entrance
        for_peers = self.descriptors.for_peers(len(router.connectors) + self.kept_descriptors)
        if descriptor >= for_peers:
            self.lingering.drop_all()
            entrance.refuse_for_descriptors(whose, for_peers)
            return False
        connection_id = whose["connection"]
        # Attack: silent sockets that use up the policy's maxConnections, which also counts them.
        room = min(for_peers, self._gate.ruleset.max_connections) - self._count_open()
        excess = self.handshakes.enter(connection_id, whose["remote_host"] or "", room)
        if excess is None:
            return True
        if excess.connection_id != connection_id:
            self._end(excess, "too_many_handshakes")
            return True
        entrance.record(excess, "accept", "too_many_handshakes", whose)
        return False

    def _count_open(self) -> int:
        return max(len(self._router.connections) + len(self._arriving) - self.handshakes.count, 0)

    def _hold(self, connection_id: int, size: int) -> None:
        """Reports how many bytes are held for a connection that is not open."""
        excess = self.handshakes.hold(connection_id, size)
        if excess is not None:
            self._end(excess, "preauth_buffer_exceeded")

    def _end(self, excess: Excess, reason: RouterReason) -> None:
        """Drops a connection that is not open."""
        connection_id = excess.connection_id
        if (arriving := self._arriving.get(connection_id)) is not None:
            self._entrance.record(excess, "header", reason, arriving[0].facts())  # closed when it gets a transport
            return
        connection = self._router.connections.get(connection_id)
        if isinstance(connection, Connection):
            self._entrance.record(excess, connection.audit_stage, reason, connection.facts())
            connection.force_close()
