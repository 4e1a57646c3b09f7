"""What every connection's stack has, whichever side opened it: the tunnel, the way out, failures and the end.

Sans-IO: bytes come in through `receive` and `receive_read`, leave through `write`; clocks and sockets are the caller's.
An exception anywhere closes this one connection. Sources: docs/spec/routing.md §1.6, §1.7, §1.10.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from auth.identity import Identity
from auth.negotiation import ClientNegotiation, SaslEffect, ServerNegotiation
from auth.tls import RecordsWithoutData, TlsFailure, TlsTunnel
from router.admission.connection_gate import ConnectionGate
from router.amqp import headers
from router.amqp.buffers import READ_BUFFER
from router.amqp.engine import Intake
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition, Violation
from router.connection.peer import KINDS, Peer
from router.connection.peer_open import Opening
from router.connection.surroundings import Surroundings
from router.connection.terms import ConnectionTerms
from router.core.links import Attachment
from router.effects import log
from router.faults import fault_text

_READ_VIEW: Final = memoryview(READ_BUFFER)
FRAMING: Final = "amqp:connection:framing-error"
_INTERNAL: Final = Condition(name="amqp:internal-error", description="Internal error")


class Stage(StrEnum):
    """How far the connection has come."""

    SNIFF = "header"  # nothing understood yet, in the clear or just inside TLS
    TLS = "tls"
    SASL = "sasl"
    HEADER = "header after authentication"
    AMQP = "amqp"
    CLOSED = "closed"


_AMQP: Final = Stage.AMQP  # hot: a global name is found faster than an enum's member


class Stack:
    """One connection, from its first byte to its last. Subclasses know what comes before AMQP."""

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
        self.core = surroundings.core
        self.emit = surroundings.emit
        self.stage = Stage.SNIFF
        self.peer: Peer | None = None
        self.tunnel: TlsTunnel | None = None
        self._write_socket = write
        self._close_socket = close
        self._on_opened = on_opened
        self._deadline = self.core.clock() + handshake_limit_s  # monotonic seconds
        self._is_reported = False
        self.intake: Intake | None = None  # what takes reads as they are: of AMQP in the clear
        self.on_behind: Callable[[], None] = lambda: None  # frames wait: see has_more and waits_for_room
        self.on_peer: Callable[[Stack], None] | None = None  # AMQP begins; before its first frame
        self._early = b""  # the beginning of a protocol header
        self._negotiation: ServerNegotiation | ClientNegotiation | None = None

    # For subclasses

    def _sniff(self, data: bytes) -> bytes:
        """Look at the first bytes of a layer. Returns what is left to handle in the next stage."""
        raise NotImplementedError

    def _carry_out(self, effects: list[SaslEffect]) -> None:
        """Do what the SASL negotiation asks for."""
        raise NotImplementedError

    def _on_tunnel_established(self) -> None:
        """The TLS handshake is done."""
        raise NotImplementedError

    def _on_tls_failure(self, failure: TlsFailure) -> None:
        """The tunnel is broken."""
        reason = "tls_records" if isinstance(failure, RecordsWithoutData) else "tls_handshake_failed"
        self.fail(Condition(name=FRAMING, description=f"SSL Failure: {failure}"), reason)

    def report(self, condition: Condition) -> None:
        """Log a failure in the words of this direction."""
        raise NotImplementedError

    def _record(self, condition: Condition, reason: str) -> None:
        """Audit a failure, where this direction is audited."""

    def _record_lost(self) -> None:
        """The peer has gone; audit it, where this direction is audited."""

    # Bytes in

    def lay(self) -> int:
        """Called before a read into READ_BUFFER: where in it the read may go on. See Intake.lay."""
        return self.intake.lay() if self.intake is not None else 0

    def receive_read(self, size: int) -> None:
        """`size` bytes of the shared read buffer came from the socket. Hot."""
        if self.stage is _AMQP and self.tunnel is None:
            try:
                self.peer.engine.receive_read(size)  # type: ignore[union-attr]
            except Exception as error:
                self.crash(error)
        else:
            self.receive(bytes(_READ_VIEW[:size]))

    @property
    def has_more(self) -> bool:
        """Is there more of what came from the socket than this connection's turn had time for? It is not read then."""
        if self.stage is Stage.CLOSED or self.waits_for_room:
            return False
        is_behind = self.peer is not None and self.peer.engine.has_more
        return is_behind or (self.tunnel is not None and self.tunnel.has_more)

    @property
    def waits_for_room(self) -> bool:
        """Is what came not worked off because the peer does not read our answers? It is not read then, either."""
        return self.stage is Stage.AMQP and self.peer is not None and self.peer.engine.waits_for_room

    def resume(self) -> None:
        """Another turn for what is left of what came from the socket."""
        if not self.has_more:
            return
        peer = self.peer
        if peer is not None and peer.engine.has_more:
            try:
                peer.engine.resume()
            except Exception as error:
                self.crash(error)
        else:
            self.receive(b"")

    def receive(self, data: bytes) -> None:
        """Bytes came from the socket, or there were some left."""
        try:
            if self.tunnel is not None:
                data = self._decrypt(data)
            if data or (self.tunnel is not None and self.tunnel.is_closed):
                self._receive_plain(data)
        except Exception as error:
            self.crash(error)

    def _decrypt(self, data: bytes) -> bytes:
        tunnel = self.tunnel
        assert tunnel is not None
        try:
            plaintext = tunnel.receive(data, self.core.work.begin_turn)
        except TlsFailure as failure:
            self._write_socket(tunnel.take_output())
            self._on_tls_failure(failure)
            return b""
        if output := tunnel.take_output():
            self._write_socket(output)
        if tunnel.has_more:
            self.on_behind()
        if self.stage is Stage.TLS and tunnel.is_established:
            self._on_tunnel_established()
        return plaintext

    def _receive_plain(self, data: bytes) -> None:
        while data and self.stage is not Stage.CLOSED:
            if self.stage is Stage.AMQP:
                assert self.peer is not None
                self.peer.engine.receive(data)
                return
            if self.stage is Stage.SASL:
                assert self._negotiation is not None
                self._carry_out(self._negotiation.receive(data))
                return
            data = self._sniff(data)

    def _protocol_of(self, data: bytes) -> tuple[Protocol | None, bytes]:
        """What `data`, after what came before, announces; None, and the bytes kept, while that is not clear."""
        data = self._early + data
        protocol = headers.sniff(data)
        self._early = data if protocol is None else b""
        return protocol, data

    def _take_sasl_rest(self) -> bytes:
        """The SASL exchange is over: what came after it."""
        assert self._negotiation is not None
        rest, self._negotiation = self._negotiation.take_rest(), None
        return rest

    def _make_peer(self, identity: Identity, opening: Opening) -> None:
        self.gate.identity = identity
        peer = self.peer = KINDS[self.terms.role](
            terms=self.terms,
            identity=identity,
            security=self._security(),
            opening=opening,
            gate=self.gate,
            surroundings=self.surroundings,
            carrier=self,
            write=self._write_socket if self.tunnel is None else self._write,
        )
        peer.engine.on_behind = lambda: self.on_behind()
        if self.tunnel is None:
            self.intake = peer.engine.intake
        if self.on_peer is not None:
            self.on_peer(self)
        peer.begin()

    def opened(self) -> None:
        """The peer's Open was admitted."""
        self._on_opened(self)

    def _security(self) -> Mapping[str, Any]:
        tunnel = self.tunnel
        return {
            "isEncrypted": tunnel is not None,
            "sslProto": tunnel.protocol if tunnel is not None else None,
            "sslCipher": tunnel.cipher if tunnel is not None else None,
            "sslSsf": tunnel.bits if tunnel is not None else 0,
            "ssl": self.terms.has_tls,
        }

    @property
    def is_open(self) -> bool:
        """Its Open was admitted, and it is not on its way out."""
        return self.stage is not Stage.CLOSED and self.peer is not None and self.peer.is_open

    @property
    def is_closed(self) -> bool:
        return self.stage is Stage.CLOSED

    @property
    def attachment(self) -> Attachment | None:
        return self.peer.attachment if self.peer is not None else None

    # Bytes out

    def _write(self, data: bytes) -> None:
        """Plaintext for the peer: through the tunnel where there is one."""
        if self.tunnel is None:
            self._write_socket(data)
            return
        try:
            self.tunnel.send(data)
        except TlsFailure as failure:
            self._on_tls_failure(failure)
            return
        self._write_socket(self.tunnel.take_output())

    def set_blocked(self, is_blocked: bool) -> None:
        """The socket's buffer is full, or has room again."""
        if self.peer is not None:
            self.peer.engine.is_blocked = is_blocked
            self.core.set_blocked(self.peer.attachment, is_blocked=is_blocked)
            if not is_blocked:
                self.core.work.touched.add(self.peer.engine)

    # Time

    def on_timer(self, now: float) -> float | None:
        """Run what is due. Returns when to call again, None when there is nothing to wait for."""
        if self.stage is Stage.CLOSED:
            return None
        peer = self.peer
        if peer is None or not peer.is_open:
            if now < self._deadline:
                return self._deadline
            log(self.emit, "ERROR", "error", "Run Time: Timeout waiting for initial handshake")
            self.fail(
                Condition(name="amqp:not-allowed", description="Timeout waiting for initial handshake"),
                "handshake_timeout",
            )
            return None
        try:
            deadline_ms = peer.engine.tick(int(now * 1000))
        except Exception as error:
            self.crash(error)
            return None
        self.core.work.touched.add(peer.engine)
        # Half way: proton notices traffic only when it is asked, so asking twice per period keeps it punctual.
        return now + max((deadline_ms / 1000 - now) / 2, 0.2) if deadline_ms else None

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

    def fail(self, condition: Condition, reason: str) -> None:
        """Log and audit a failure once, then close after what is written."""
        if self.stage is Stage.CLOSED:
            return
        if not self._is_reported:
            self._is_reported = True
            self.report(condition)
            self._record(condition, reason)
        self.shut()

    def crash(self, error: Exception) -> None:
        """Something below raised: this connection ends, the router lives on."""
        if isinstance(error, Violation):
            condition, reason = error.condition, "malformed_frame"
        else:
            condition, reason = _INTERNAL, "internal_error"
            log(self.emit, "ERROR", "error", f"[C{self.connection_id}] {fault_text(error)}")
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.stop_listening()
            self.peer.engine.close(condition)
        self.fail(condition, reason)

    def shut(self) -> None:
        """Write what is pending at the end of this pass, then close. From now on nobody's messages go to this peer."""
        if self.stage is Stage.CLOSED:
            return
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
        if self.tunnel is not None and self.tunnel.is_established:
            self.tunnel.close()
            self._write_socket(self.tunnel.take_output())

    def _survive(self, step: Callable[[], None]) -> None:
        """One step of the end: what it raises is logged, and stops none of the others."""
        try:
            step()
        except Exception as error:
            log(self.emit, "ERROR", "error", f"[C{self.connection_id}] {fault_text(error)}")

    def expel(self, condition: Condition) -> None:
        """Policy has this peer no longer, and the caller has recorded why: tell the peer and close."""
        self._is_reported = True
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.stop_listening()
            self.peer.close_condition = condition
            self.peer.engine.close(condition)
        self.shut()

    def close_for_shutdown(self) -> None:
        """The router stops: tell the peer and close."""
        self._is_reported = True
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.close()
        self.shut()

    def force_close(self) -> None:
        """Drop the socket without an AMQP Close (management adminStatus=deleted; routing §1.10)."""
        self._is_reported = True
        self.stage = Stage.CLOSED
        self._close_socket()

    def on_lost(self) -> None:
        """The socket is closed, by whomever. Call once; everything the connection held is given back."""
        if self.stage is not Stage.CLOSED and not self._is_reported:
            self.report(Condition(name=FRAMING, description="connection aborted"))
            self._survive(self._record_lost)
        self.stage = Stage.CLOSED
        if self.peer is not None:
            self._survive(self.peer.end)
        if self.tunnel is not None:
            self._survive(self.tunnel.discard)
        self.gate.close()
