"""The stack of one connection, incoming or outgoing: layers over the socket and one end above them.

Also handles failures and the close. Sans-IO: bytes come in through `receive` and `receive_read` and leave through
`write`; the caller owns clocks and sockets. An exception closes only this connection. Sources: docs/spec/routing.md
§1.6, §1.7, §1.10.
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
    """The progress of a connection."""

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
    """One connection, from its first byte to its last. Subclasses implement the layers before AMQP."""

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
        on_opened          called after the peer's Open was admitted
        handshake_limit_s  seconds from now until the peer's Open must be admitted
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
        self.intake: Intake | None = None  # takes reads without a copy: for AMQP without TLS
        self.on_early: Callable[[bytes], None] | None = None  # receives data that is read before the connection's turn
        self.on_behind: Callable[[], None] = _nothing  # called when frames wait: see has_more and waits_for_room
        self.paused_until = 0.0  # monotonic seconds: no reads before this time
        self.on_pause: Callable[[], None] = _nothing  # called when paused_until changes
        self.on_peer: Callable[[Stack], None] | None = None  # called when AMQP begins, before its first frame
        self._end: End = self._first_end()  # changes with the stage

    # Methods for subclasses

    def _first_end(self) -> End:
        """Returns the end that takes the first bytes of the peer."""
        return HeaderEnd(self._begin)

    def opened(self) -> None:
        """Tells the owner that the peer's Open was admitted."""
        self._on_opened(self)

    def _begin(self, protocol: Protocol, data: bytes) -> bytes:
        """Begins what the protocol header at the front of `data` announces. Returns the bytes that remain for it."""
        raise NotImplementedError

    def _on_sasl(self, effect: Order) -> None:
        """Carries out what the SASL negotiation asks for."""
        raise NotImplementedError

    def _on_tunnel_established(self) -> None:
        """Called when the TLS handshake is complete."""
        self.stage = Stage.SNIFF

    def _hold(self, pending: int = 0) -> None:
        """Called when more data of a login has come; `pending` bytes of SASL wait."""

    def _on_tls_failure(self, failure: TlsFailure) -> None:
        """Ends the connection because its TLS tunnel is broken."""
        self.fail(Condition(name=FRAMING, description=f"SSL Failure: {failure}"), _reason_of(failure))

    def report(self, condition: Condition) -> None:
        """Logs a failure in the words for this direction."""
        raise NotImplementedError

    def _record(self, condition: Condition, reason: RouterReason, lines: tuple[Log, ...]) -> None:
        """Logs a failure, after `lines`; audits it if this direction is audited."""
        for line in lines:
            self.emit(line)
        self.report(condition)

    def _record_lost(self) -> None:
        """Logs that the peer has left; audits it if this direction is audited."""
        self.report(ABORTED)

    # Bytes in

    def lay(self) -> int:
        """Called before a read into READ_BUFFER. Returns the position where the read may begin: see Intake.lay."""
        return self.intake.lay() if self.intake is not None else 0

    def receive_read(self, size: int) -> None:
        """Handles `size` bytes that came from the socket into the shared read buffer. Hot."""
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
        """Passes reads directly to the layers or the engine from now on, without waiting for a turn."""
        self.on_early = None
        if self.peer is not None and not self.layers:
            self.intake = self.peer.engine.intake

    @property
    def has_more(self) -> bool:
        """Returns True if data from the socket is left over from this turn. Then the socket is not read."""
        if self.stage is Stage.CLOSED or self.waits_for_room:
            return False
        return self.layers.has_more or (self.peer is not None and self.peer.engine.has_more)

    @property
    def waits_for_room(self) -> bool:
        """Returns True if data waits because the peer does not read our answers.

        Then the socket is not read, either.
        """
        return self.stage is Stage.AMQP and self.peer is not None and self.peer.engine.waits_for_room

    def resume(self) -> None:
        """Gives the connection another turn for left-over data from the socket."""
        if self.has_more:
            try:
                if self.peer is not None and self.peer.engine.has_more:
                    self.peer.engine.resume()
                else:
                    self.receive(b"")
            except Exception as error:
                self.crash(error)

    def receive(self, data: bytes) -> None:
        """Handles bytes from the socket; b"" continues with left-over bytes."""
        if self.stage is not _CLOSED:
            try:
                self._pass_up(self.layers.receive(data))
            except Exception as error:
                self.crash(error)

    def _pass_up(self, data: bytes | None) -> None:
        """Passes bytes from the layers to the end above them."""
        while data and self.stage is not _CLOSED:
            data = self._end.receive(data)

    # From the first byte to AMQP

    def _start_tls(self, tunnel: TlsTunnel, data: bytes = b"") -> bytes:
        """Starts TLS on the socket. Returns the plaintext of `data`, the ciphertext that has already come."""
        self.tunnel = tunnel
        self.stage = Stage.TLS
        self.layers.add(tunnel, self._on_tunnel_established, self._hold)
        return self.layers.receive(data)

    def _start_sasl(self, negotiation: ServerNegotiation | ClientNegotiation, header: bytes = b"") -> None:
        end = self._end = SaslEnd(negotiation, self.layers.write, self._on_sasl, self._hold)
        self.stage = Stage.SASL
        end.start(header)

    def _await_header(self) -> None:
        """Expects the AMQP header after a successful SASL exchange."""
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
        """Returns True if the peer's Open was admitted and the connection is not closing."""
        return self.stage is not Stage.CLOSED and self.peer is not None and self.peer.is_open

    @property
    def is_closed(self) -> bool:
        return self.stage is Stage.CLOSED

    def set_blocked(self, is_blocked: bool, unsent_bytes: Callable[[], int] = lambda: 0) -> None:
        """Called when the socket's buffer becomes full, or has room again. unsent_bytes() wait in it."""
        if self.peer is not None:
            self.peer.set_blocked(is_blocked, unsent_bytes)

    # Time

    def on_timer(self, now: float) -> float | None:
        """Runs the due timers. Returns the time of the next call; None if no timer is set."""
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
        """Judges an open connection, with all its sessions and links, by the rules in force. Pauses at every step."""
        if self.stage is Stage.AMQP and self.peer is not None:
            try:
                yield from self.peer.redecide()
            except Exception as error:
                self.crash(error)

    def ask_candidate(self, now: float) -> Iterator[None]:
        """Asks a new candidate policy about an open connection and all its links; see Peer.ask_candidate."""
        if self.stage is Stage.AMQP and self.peer is not None:
            yield from self.peer.ask_candidate(now)

    def keep_within_limits(self) -> None:
        """Closes the connection if there are too many.

        Called after `redecide` of all, from the newest to the oldest.
        """
        if self.stage is Stage.AMQP and self.peer is not None:
            try:
                self.peer.keep_within_limits()
            except Exception as error:
                self.crash(error)

    # The end

    def fail(self, condition: Condition, reason: RouterReason, *lines: Log) -> None:
        """Logs a failure once, after `lines`, and audits it; then closes after the pending bytes are written."""
        if self.stage is Stage.CLOSED:
            return
        if not self._is_reported:
            self._is_reported = True
            self._record(condition, reason, lines)
        self.shut()

    def crash(self, error: Exception) -> None:
        """Ends this connection after an exception; the router continues."""
        condition, reason = _fault_of(error)
        if self.peer is not None:
            self.peer.break_off(condition)
        lines = (_error(f"[C{self.connection_id}] {fault_text(error)}"),) if condition is _INTERNAL else ()
        self.fail(condition, reason, *lines)

    def shut(self) -> None:
        """Writes pending data at the end of this pass, then closes. From now on this peer gets no more messages."""
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
        """Runs one step of the end. Logs its exception, so that the other steps still run."""
        try:
            step()
        except Exception as error:
            log(self.emit, "ERROR", "error", f"[C{self.connection_id}] {fault_text(error)}")

    def expel(self, condition: Condition) -> None:
        """Tells a peer that policy no longer admits, and closes. The caller has recorded the reason."""
        self._is_reported = True
        if self.peer is not None:
            self.peer.break_off(condition)
        self.shut()

    def close_for_shutdown(self, condition: Condition | None = None) -> None:
        """Tells the peer that the router stops, with `condition` if there is one, and closes."""
        self._is_reported = True
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.close(condition)
        self.shut()

    def force_close(self) -> None:
        """Drops the socket without an AMQP Close (management adminStatus=deleted; routing §1.10)."""
        self._is_reported, self.stage = True, Stage.CLOSED
        self._close_socket()

    def on_lost(self) -> None:
        """Called once, when the socket is closed by either side. Releases everything that the connection held."""
        if self.stage is not Stage.CLOSED and not self._is_reported:
            self._survive(self._record_lost)
        self.stage = Stage.CLOSED
        if self.peer is not None:
            self._survive(self.peer.end)
        self._survive(self.layers.discard)
        self.gate.close()
        # References back to the connection would keep it in memory until the next garbage collection.
        self.peer = self.intake = self.on_peer = None
        self._end = NoEnd()
        self._on_opened = _ignore
        self.on_behind = self.on_pause = self._close_socket = _nothing
        self.on_early = None


def _ignore(_connection: Stack) -> None:
    """Does nothing: the owner of a closed connection hears no more of it."""


def _nothing() -> None:
    """Does nothing: the default of a callback."""


def _reason_of(failure: TlsFailure) -> RouterReason:
    if isinstance(failure, NotTls):
        return "not_tls"
    return "tls_records" if isinstance(failure, RecordsWithoutData) else "tls_handshake_failed"


def _fault_of(error: Exception) -> tuple[Condition, RouterReason]:
    """Returns the condition and reason for a fault of the peer, or for an internal error."""
    if isinstance(error, Violation):
        return error.condition, "malformed_frame"
    return _INTERNAL, "internal_error"


def _error(text: str) -> Log:
    return Log(module="ERROR", level="error", text=text)


def _security_of(tunnel: TlsTunnel | None, *, is_configured: bool) -> Mapping[str, Any]:
    """Returns the attributes of a connection entity that describe TLS.

    is_configured  there is an sslProfile
    """
    return {
        "isEncrypted": tunnel is not None,
        "sslProto": tunnel.protocol if tunnel is not None else None,
        "sslCipher": tunnel.cipher if tunnel is not None else None,
        "sslSsf": tunnel.bits if tunnel is not None else 0,
        "ssl": is_configured,
    }
