"""The stack of a connection, whichever side made it: layers over the socket, one end above them, failures, the close.

Sans-IO: bytes come in through `receive` and `receive_read`, leave through `write`; clocks and sockets are the caller's.
An exception anywhere closes this one connection. Sources: docs/spec/routing.md §1.6, §1.7, §1.10.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from auth.identity import Identity
from auth.negotiation import ClientNegotiation, Order, ServerNegotiation
from auth.tls import NotTls, RecordsWithoutData, TlsFailure, TlsTunnel
from router.admission.connection_gate import ConnectionGate
from router.amqp.buffers import READ_BUFFER
from router.amqp.engine import Intake
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition, Violation
from router.connection.ends import End, HeaderEnd, NoEnd, SaslEnd
from router.connection.layers import Layers
from router.connection.peer import Peer
from router.connection.peer_kinds import KINDS
from router.connection.peer_open import Opening
from router.connection.surroundings import Surroundings
from router.connection.terms import ConnectionTerms
from router.effects import Log, RouterReason, log
from router.faults import fault_text

_READ_VIEW: Final = memoryview(READ_BUFFER)
FRAMING: Final = "amqp:connection:framing-error"
ABORTED: Final = Condition(name=FRAMING, description="connection aborted")
_TIMEOUT: Final = Condition(name="amqp:not-allowed", description="Timeout waiting for initial handshake")
_INTERNAL: Final = Condition(name="amqp:internal-error", description="Internal error")


class Stage(StrEnum):
    """How far the connection has come."""

    SNIFF = "header"  # nothing understood yet, in the clear or just inside TLS
    TLS = "tls"
    SASL = "sasl"
    HEADER = "header after authentication"
    AMQP = "amqp"
    CLOSED = "closed"


# Hot: a global name is found faster than an enum's member.
_AMQP: Final = Stage.AMQP
_CLOSED: Final = Stage.CLOSED


class Stack:
    """One connection, from its first byte to its last. Subclasses know the layers before AMQP."""

    def __init__(
        self,
        *,
        terms: ConnectionTerms,
        gate: ConnectionGate,
        surroundings: Surroundings,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        on_opened: "Callable[[Stack], None]",
        handshake_limit_s: float,
    ) -> None:
        """write              hands bytes to the socket
        close              closes the socket after what was written
        on_opened          the peer's Open was admitted
        handshake_limit_s  how long that may take from now
        """
        self.connection_id = gate.connection_id
        self.remote_name = gate.connection_name  # "ip:port" of an accepted peer, "host:port" of one we connect to
        self.terms = terms
        self.gate = gate
        self.surroundings = surroundings
        self.core, self.emit = surroundings.core, surroundings.emit
        self.stage = Stage.SNIFF
        self.peer: Peer | None = None
        self.tunnel: TlsTunnel | None = None
        self.layers = Layers(write, self.core.work.begin_turn, lambda: self.on_behind(), self._on_tls_failure)
        self._close_socket = close
        self._on_opened: Callable[[Stack], None] = on_opened
        self._deadline = self.core.clock() + handshake_limit_s  # monotonic seconds
        self._is_reported = False
        self.intake: Intake | None = None  # what takes reads as they are: of AMQP in the clear
        self.on_early: Callable[[bytes], None] | None = None  # gets what is read before the connection's turn
        self.on_behind: Callable[[], None] = _nothing  # frames wait: see has_more and waits_for_room
        self.paused_until = 0.0  # monotonic seconds: it is not to be read before
        self.on_pause: Callable[[], None] = _nothing  # that has changed
        self.on_peer: Callable[[Stack], None] | None = None  # AMQP begins; before its first frame
        self._end: End = self._first_end()  # changes with the stage

    # For subclasses

    def _first_end(self) -> End:
        """Returns what takes the first bytes of the peer."""
        return HeaderEnd(self._begin)

    def opened(self) -> None:
        """Tells the owner that the peer's Open was admitted."""
        self._on_opened(self)

    def _begin(self, protocol: Protocol, data: bytes) -> bytes:
        """Begin what the protocol header in front of `data` announces. Returns what is left for it."""
        raise NotImplementedError

    def _on_sasl(self, effect: Order) -> None:
        """Carry out what the SASL negotiation asks for."""
        raise NotImplementedError

    def _on_tunnel_established(self) -> None:
        """The TLS handshake is done."""
        self.stage = Stage.SNIFF

    def _hold(self, pending: int = 0) -> None:
        """More of a login has come; `pending` bytes of SASL wait."""

    def _on_tls_failure(self, failure: TlsFailure) -> None:
        """The tunnel is broken."""
        self.fail(Condition(name=FRAMING, description=f"SSL Failure: {failure}"), _reason_of(failure))

    def report(self, condition: Condition) -> None:
        """Log a failure in the words of this direction."""
        raise NotImplementedError

    def _record(self, condition: Condition, reason: RouterReason, lines: tuple[Log, ...]) -> None:
        """Log a failure, after `lines`; audit it where this direction is audited."""
        for line in lines:
            self.emit(line)
        self.report(condition)

    def _record_lost(self) -> None:
        """The peer has gone: log it; audit it where this direction is audited."""
        self.report(ABORTED)

    # Bytes in

    def lay(self) -> int:
        """Called before a read into READ_BUFFER: where in it the read may go on. See Intake.lay."""
        return self.intake.lay() if self.intake is not None else 0

    def receive_read(self, size: int) -> None:
        """`size` bytes of the shared read buffer came from the socket. Hot."""
        if self.stage is _AMQP and self.intake is not None:
            try:
                self.peer.engine.receive_read(size)  # type: ignore[union-attr]
            except Exception as error:
                self.crash(error)
        elif self.on_early is None:
            self.receive(bytes(_READ_VIEW[:size]))
        else:
            self.on_early(bytes(_READ_VIEW[:size]))

    def take_reads(self) -> None:
        """It needs no turn any more: what is read from the socket goes to the layers, or to the engine, at once."""
        self.on_early = None
        if self.peer is not None and not self.layers:
            self.intake = self.peer.engine.intake

    @property
    def has_more(self) -> bool:
        """Is there more of what came from the socket than this connection's turn had time for? It is not read then."""
        if self.stage is Stage.CLOSED or self.waits_for_room:
            return False
        return self.layers.has_more or (self.peer is not None and self.peer.engine.has_more)

    @property
    def waits_for_room(self) -> bool:
        """Is what came not worked off because the peer does not read our answers? It is not read then, either."""
        return self.stage is Stage.AMQP and self.peer is not None and self.peer.engine.waits_for_room

    def resume(self) -> None:
        """Another turn for what is left of what came from the socket."""
        if self.has_more:
            try:
                if self.peer is not None and self.peer.engine.has_more:
                    self.peer.engine.resume()
                else:
                    self.receive(b"")
            except Exception as error:
                self.crash(error)

    def receive(self, data: bytes) -> None:
        """Bytes came from the socket, or there were some left."""
        if self.stage is not _CLOSED:
            try:
                self._pass_up(self.layers.receive(data))
            except Exception as error:
                self.crash(error)

    def _pass_up(self, data: bytes | None) -> None:
        """Bytes came out above the layers."""
        while data and self.stage is not _CLOSED:
            data = self._end.receive(data)

    # Towards AMQP

    def _start_tls(self, tunnel: TlsTunnel, data: bytes = b"") -> bytes:
        """Lay TLS over the socket. Returns the plaintext of `data`, the ciphertext that has come already."""
        self.tunnel = tunnel
        self.stage = Stage.TLS
        self.layers.add(tunnel, self._on_tunnel_established, self._hold)
        return self.layers.receive(data)

    def _start_sasl(self, negotiation: ServerNegotiation | ClientNegotiation, header: bytes = b"") -> None:
        end = self._end = SaslEnd(negotiation, self.layers.write, self._on_sasl, self._hold)
        self.stage = Stage.SASL
        end.start(header)

    def _await_header(self) -> None:
        """The SASL exchange has succeeded."""
        self.stage = Stage.HEADER
        self._end = HeaderEnd(self._begin)

    def _start_amqp(self) -> None:
        assert self.peer is not None
        self.stage = Stage.AMQP
        self._end = self.peer.engine

    def _make_peer(self, identity: Identity, opening: Opening) -> None:
        self.gate.identity = identity
        peer = self.peer = KINDS[self.terms.role](
            terms=self.terms,
            identity=identity,
            security=_security_of(self.tunnel, is_configured=self.terms.has_tls),
            opening=opening,
            gate=self.gate,
            surroundings=self.surroundings,
            carrier=self,
            write=self.layers.write,
        )
        peer.engine.on_behind = lambda: self.on_behind()
        if not self.layers and self.on_early is None:
            self.intake = peer.engine.intake
        if self.on_peer is not None:
            self.on_peer(self)
        peer.begin()

    @property
    def is_open(self) -> bool:
        """Its Open was admitted, and it is not on its way out."""
        return self.stage is not Stage.CLOSED and self.peer is not None and self.peer.is_open

    @property
    def is_closed(self) -> bool:
        return self.stage is Stage.CLOSED

    def set_blocked(self, is_blocked: bool, unsent_bytes: Callable[[], int] = lambda: 0) -> None:
        """The socket's buffer is full, or has room again. unsent_bytes() wait in it."""
        if self.peer is not None:
            self.peer.set_blocked(is_blocked, unsent_bytes)

    # Time

    def on_timer(self, now: float) -> float | None:
        """Run the due timers. Returns when to call again, None when there is nothing to wait for."""
        if self.stage is Stage.CLOSED:
            return None
        peer = self.peer
        if peer is None or not peer.is_open:
            if now < self._deadline:
                return self._deadline
            self.fail(_TIMEOUT, "handshake_timeout", _error(f"Run Time: {_TIMEOUT.description}"))
            return None
        try:
            return peer.tick(now)
        except Exception as error:
            self.crash(error)
            return None

    # Policy

    def redecide(self) -> Iterator[None]:
        """Judge an open connection, and all on it, by the rules in force. The caller may pause at every step."""
        if self.stage is Stage.AMQP and self.peer is not None:
            try:
                yield from self.peer.redecide()
            except Exception as error:
                self.crash(error)

    def ask_candidate(self, now: float) -> Iterator[None]:
        """Ask a new candidate policy about an open connection and all on it, as Peer.ask_candidate."""
        if self.stage is Stage.AMQP and self.peer is not None:
            yield from self.peer.ask_candidate(now)

    def keep_within_limits(self) -> None:
        """Once all are redecided, from the newest to the oldest: close the connection where there are too many."""
        if self.stage is Stage.AMQP and self.peer is not None:
            try:
                self.peer.keep_within_limits()
            except Exception as error:
                self.crash(error)

    # The end

    def fail(self, condition: Condition, reason: RouterReason, *lines: Log) -> None:
        """Log a failure once, after `lines`, and audit it; then close after what is written."""
        if self.stage is Stage.CLOSED:
            return
        if not self._is_reported:
            self._is_reported = True
            self._record(condition, reason, lines)
        self.shut()

    def crash(self, error: Exception) -> None:
        """Something below raised: this connection ends, the router lives on."""
        condition, reason = _fault_of(error)
        if self.peer is not None:
            self.peer.break_off(condition)
        lines = (_error(f"[C{self.connection_id}] {fault_text(error)}"),) if condition is _INTERNAL else ()
        self.fail(condition, reason, *lines)

    def shut(self) -> None:
        """Write what is pending at the end of this pass, then close. From now on nobody's messages go to this peer."""
        if self.stage is not Stage.CLOSED:
            self.stage = Stage.CLOSED
            if self.peer is not None:
                self._survive(self.peer.retire)
            self.core.work.closing.append(self._finish_shut)

    def _finish_shut(self) -> None:
        self._survive(self._write_last)
        self._close_socket()

    def _write_last(self) -> None:
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.flush()
        self.layers.close()

    def _survive(self, step: Callable[[], None]) -> None:
        """One step of the end: its exception is logged, and stops none of the others."""
        try:
            step()
        except Exception as error:
            log(self.emit, "ERROR", "error", f"[C{self.connection_id}] {fault_text(error)}")

    def expel(self, condition: Condition) -> None:
        """Policy has this peer no longer, and the caller has recorded why: tell the peer and close."""
        self._is_reported = True
        if self.peer is not None:
            self.peer.break_off(condition)
        self.shut()

    def close_for_shutdown(self, condition: Condition | None = None) -> None:
        """The router stops: tell the peer, with an error where there is one, and close."""
        self._is_reported = True
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.close(condition)
        self.shut()

    def force_close(self) -> None:
        """Drop the socket without an AMQP Close (management adminStatus=deleted; routing §1.10)."""
        self._is_reported, self.stage = True, Stage.CLOSED
        self._close_socket()

    def on_lost(self) -> None:
        """The socket is closed, by whomever. Call once; everything the connection held is given back."""
        if self.stage is not Stage.CLOSED and not self._is_reported:
            self._survive(self._record_lost)
        self.stage = Stage.CLOSED
        if self.peer is not None:
            self._survive(self.peer.end)
        self._survive(self.layers.discard)
        self.gate.close()
        # What refers back to the connection would stay until cycles are looked for.
        self.peer = self.intake = self.on_peer = None
        self._end = NoEnd()
        self._on_opened = _ignore
        self.on_behind = self.on_pause = self._close_socket = _nothing
        self.on_early = None


def _ignore(_connection: Stack) -> None:
    """Does nothing: the owner hears no more of the connection."""


def _nothing() -> None:
    """Does nothing: the default of a callback."""


def _reason_of(failure: TlsFailure) -> RouterReason:
    if isinstance(failure, NotTls):
        return "not_tls"
    return "tls_records" if isinstance(failure, RecordsWithoutData) else "tls_handshake_failed"


def _fault_of(error: Exception) -> tuple[Condition, RouterReason]:
    """The peer's, or one of ours."""
    if isinstance(error, Violation):
        return error.condition, "malformed_frame"
    return _INTERNAL, "internal_error"


def _error(text: str) -> Log:
    return Log(module="ERROR", level="error", text=text)


def _security_of(tunnel: TlsTunnel | None, *, is_configured: bool) -> Mapping[str, Any]:
    """The attributes of a connection entity that speak of TLS.

    is_configured  there is an sslProfile
    """
    return {
        "isEncrypted": tunnel is not None,
        "sslProto": tunnel.protocol if tunnel is not None else None,
        "sslCipher": tunnel.cipher if tunnel is not None else None,
        "sslSsf": tunnel.bits if tunnel is not None else 0,
        "ssl": is_configured,
    }
