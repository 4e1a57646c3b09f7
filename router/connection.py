"""One accepted connection's stack: first bytes, TLS, SASL, the AMQP header, then its Peer.

Sans-IO: bytes come in through `receive` and `receive_read`, leave through `write`; verification, clocks and sockets are
the caller's. Everything before the Open is bounded in bytes and in time. An exception anywhere closes this one
connection and is audited. Sources: docs/spec/policy-and-auth.md §6, §8; docs/spec/routing.md §1.6, §1.7.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from auth.credentials import VerifyRequest, VerifyResult
from auth.identity import Identity
from auth.negotiation import Authenticated, Rejected, Reply, SaslEffect, ServerNegotiation, Verify
from auth.tls import TlsFailure, TlsProfileError, TlsTunnel
from router.amqp import headers
from router.amqp.engine import READ_BUFFER, EngineError
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition
from router.core.links import Attachment
from router.core.router import Core
from router.effects import Audit, Emit, log
from router.gate import ConnectionGate
from router.listener import Listener
from router.peer import Peer

_FRAMING: Final = "amqp:connection:framing-error"
_POLICY: Final = "amqp:connection:policy-error"
_INTERNAL: Final = Condition(name="amqp:internal-error", description="Internal error")


class Stage(StrEnum):
    """How far the connection has come."""

    SNIFF = "header"  # nothing understood yet, in the clear or just inside TLS
    TLS = "tls"
    SASL = "sasl"
    HEADER = "header after authentication"
    AMQP = "amqp"
    CLOSED = "closed"


# The stage of an audit event.
_AUDIT_STAGE: Final = {Stage.HEADER: "header", Stage.AMQP: "engine", Stage.CLOSED: "engine"}

Verifier = Callable[[VerifyRequest, Callable[[VerifyResult], None]], None]


class Connection:
    """One accepted connection, from its first byte to its last."""

    def __init__(
        self,
        *,
        connection_id: int,
        remote_name: str,
        listener: Listener,
        gate: ConnectionGate,
        core: Core,
        version: str,
        verify: Verifier,
        emit: Emit,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        on_opened: "Callable[[Connection], None]",
        now: float,
    ) -> None:
        """remote_name  "ip:port" of the peer
        verify       runs a verifier off the loop and calls back on it
        write        hands bytes to the socket
        close        closes the socket after what was written
        on_opened    the Open was admitted
        """
        self.connection_id = connection_id
        self.remote_name = remote_name
        self.listener = listener
        self.gate = gate
        self.core = core
        self.version = version
        self.emit = emit
        self.stage = Stage.SNIFF
        self.peer: Peer | None = None
        self.tunnel: TlsTunnel | None = None
        self._write_socket = write
        self._close_socket = close
        self._verify = verify
        self._on_opened = on_opened
        self._early = b""
        self._negotiation: ServerNegotiation | None = None
        self._identity: Identity | None = None
        self._claimed_user: str | None = None
        self._handshake_deadline = now + listener.handshake_timeout_s
        self._is_reported = False

    # Bytes in

    def receive_read(self, size: int) -> None:
        """`size` bytes of the shared read buffer came from the socket. Hot."""
        if self.stage is Stage.AMQP and self.tunnel is None:
            assert self.peer is not None
            try:
                self.peer.engine.receive_read(size)
            except Exception as error:
                self.crash(error)
        else:
            self.receive(bytes(READ_BUFFER[:size]))

    def receive(self, data: bytes) -> None:
        """Bytes came from the socket."""
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
            plaintext = tunnel.receive(data)
        except TlsFailure as failure:
            self._write_socket(tunnel.take_output())
            self._fail(Condition(name=_FRAMING, description=f"SSL Failure: {failure}"), "tls_handshake_failed")
            return b""
        if output := tunnel.take_output():
            self._write_socket(output)
        if self.stage is Stage.TLS and tunnel.is_established:
            self.stage = Stage.SNIFF
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

    def _sniff(self, data: bytes) -> bytes:
        """Look at the first bytes of a layer. Returns what is left to handle in the next stage."""
        data = self._early + data
        self._early = b""
        protocol = headers.sniff(data)
        if protocol is None:
            self._early = data
            return b""
        if protocol is Protocol.AMQP and (self.stage is Stage.HEADER or self._may_skip_sasl()):
            return data if self._start_amqp() else b""
        if self.stage is Stage.SNIFF:
            if protocol in (Protocol.TLS_RECORD, Protocol.AMQP_TLS) and self.tunnel is None:
                return self._start_tls(data, protocol)
            if protocol is Protocol.SASL:
                return self._start_sasl(data)
        if self.stage is not Stage.CLOSED:
            self._refuse_header(protocol)
        return b""

    def _refuse_header(self, protocol: Protocol) -> None:
        """Tell the peer what we would have taken, as AMQP 1.0 §2.2 asks, and close."""
        wanted = headers.SASL if self.stage is Stage.SNIFF and self.listener.authenticates_peer else headers.AMQP
        self._write(wanted)
        what = "after authentication " if self.stage is Stage.HEADER else ""
        description = f"Expected AMQP protocol header {what}but found: {protocol.value}"
        self._fail(Condition(name=_FRAMING, description=description), "unexpected_header")

    # TLS

    def _start_tls(self, data: bytes, protocol: Protocol) -> bytes:
        if self.listener.tls is None:
            self._fail(Condition(name=_FRAMING, description="TLS on a listener without sslProfile"), "unexpected_header")
            return b""
        if protocol is Protocol.AMQP_TLS:
            self._write_socket(headers.TLS)
            data = data[headers.HEADER_BYTES :]
        try:
            self.tunnel = self.listener.tls.tunnel()
        except TlsProfileError as error:
            log(self.emit, "ERROR", "error", f"Run Time: {error}")
            description = f"{error} on {self.listener.place}"
            self._fail(Condition(name="amqp:internal-error", description=description), "tls_configuration")
            return b""
        self.stage = Stage.TLS
        return self._decrypt(data)

    # SASL

    def _start_sasl(self, data: bytes) -> bytes:
        if not self._is_encrypted_enough():
            return b""
        self._write(headers.SASL)
        certificate = self.tunnel.peer_certificate if self.tunnel is not None else None
        tls = self.listener.tls
        external_user = tls.user_of(certificate) if tls is not None and certificate is not None else None
        self._negotiation = ServerNegotiation(
            offered=self.listener.mechanisms(certificate is not None), external_user=external_user
        )
        self.stage = Stage.SASL
        self._carry_out(self._negotiation.start())
        return data[headers.HEADER_BYTES :]

    def _carry_out(self, effects: list[SaslEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(data=data):
                    self._write(data)
                case Verify(request=request):
                    self._claimed_user = request.user
                    self._verify(request, self._on_verified)
                case Authenticated(identity=identity):
                    self._identity = identity
                    self.stage = Stage.HEADER
                    assert self._negotiation is not None
                    rest, self._negotiation = self._negotiation.take_rest(), None
                    self._receive_plain(rest)
                case Rejected(condition=condition, description=description, mechanism=mechanism):
                    # Not authenticated: who the peer claimed to be, for the audit event.
                    self.gate.identity = Identity(user=self._claimed_user, mechanism=mechanism)
                    reason = "sasl_malformed" if condition == _FRAMING else "sasl_failed"
                    self._fail(Condition(name=condition, description=description), reason)

    def _on_verified(self, result: VerifyResult) -> None:
        """The verifier answered, perhaps after the connection went away."""
        if self.stage is Stage.SASL and self._negotiation is not None:
            try:
                self._carry_out(self._negotiation.resume(result))
            except Exception as error:
                self.crash(error)
            self.core.work.finish()

    # AMQP

    def _is_encrypted_enough(self) -> bool:
        if self.tunnel is None and self.listener.requires_encryption:
            self._fail(
                Condition(name=_POLICY, description="Client connection unencrypted - forbidden"), "encryption_required"
            )
            return False
        return True

    def _may_skip_sasl(self) -> bool:
        """An AMQP header without SASL before it: the checks of policy §8.3, in their order."""
        if self.listener.authenticates_peer:
            self._fail(
                Condition(name=_POLICY, description="Client skipped authentication - forbidden"),
                "authentication_required",
            )
            return False
        return self._is_encrypted_enough()

    def _start_amqp(self) -> bool:
        if not self._is_encrypted_enough():
            return False
        self.peer = Peer(
            connection_id=self.connection_id,
            connection_name=self.remote_name,
            listener=self.listener,
            identity=self._identity or self._identity_without_sasl(),
            security=self._security(),
            gate=self.gate,
            core=self.core,
            version=self.version,
            emit=self.emit,
            write=self._write_socket if self.tunnel is None else self._write,
            fail=self._fail,
            shut=self._shut,
            crash=self.crash,
            opened=lambda: self._on_opened(self),
        )
        self.gate.identity = self.peer.identity
        self.stage = Stage.AMQP
        return True

    def _identity_without_sasl(self) -> Identity:
        if self.tunnel is None:
            return Identity(user="anonymous")
        certificate, tls = self.tunnel.peer_certificate, self.listener.tls
        if certificate is None or tls is None:
            return Identity(user=None)
        return Identity(user=tls.subject_of(certificate))

    def _security(self) -> Mapping[str, Any]:
        tunnel = self.tunnel
        return {
            "isEncrypted": tunnel is not None,
            "sslProto": tunnel.protocol if tunnel is not None else None,
            "sslCipher": tunnel.cipher if tunnel is not None else None,
            "sslSsf": tunnel.bits if tunnel is not None else 0,
            "ssl": self.listener.tls is not None,
        }

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
            self._fail(Condition(name=_FRAMING, description=f"SSL Failure: {failure}"), "tls_handshake_failed")
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
            if now < self._handshake_deadline:
                return self._handshake_deadline
            log(self.emit, "ERROR", "error", "Run Time: Timeout waiting for initial handshake")
            self._fail(
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

    # The end

    def _fail(self, condition: Condition, reason: str) -> None:
        """Log and audit a failure once, then close after what is written."""
        if self.stage is Stage.CLOSED:
            return
        if not self._is_reported:
            self._is_reported = True
            self._report(condition)
            facts = {**self.gate.facts(), "is_encrypted": self.tunnel is not None}
            event = {"decision": "deny", "stage": _AUDIT_STAGE.get(self.stage, self.stage.value), "reason": reason,
                     "condition": condition.name, "detail": condition.description, **facts}  # fmt: skip
            self.emit(Audit(event=event))
        self._shut()

    def _report(self, condition: Condition) -> None:
        log(
            self.emit,
            "SERVER",
            "info",
            f"[C{self.connection_id}] Connection from {self.remote_name} (to {self.listener.place}) failed: {condition}",
        )

    def crash(self, error: Exception) -> None:
        """Something below raised: this connection ends, the router lives on."""
        if isinstance(error, EngineError):
            condition, reason = error.condition, "malformed_frame"
        else:
            condition, reason = _INTERNAL, "internal_error"
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "unknown"
            # The error's text may hold what the peer sent, secrets included: only its class and place are logged.
            log(self.emit, "ERROR", "error", f"[C{self.connection_id}] {type(error).__name__} at {where}")
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.close(condition)
        self._fail(condition, reason)

    def _shut(self) -> None:
        """Write what is pending at the end of this pass, then close."""
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        self.core.work.closing.append(self._finish_shut)

    def _finish_shut(self) -> None:
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.flush()
        if self.tunnel is not None and self.tunnel.is_established:
            self.tunnel.close()
            self._write_socket(self.tunnel.take_output())
        self._close_socket()

    def close_for_shutdown(self) -> None:
        """The router stops: tell the peer and close."""
        self._is_reported = True
        if self.peer is not None and not self.peer.engine.is_freed:
            self.peer.engine.close()
        self._shut()

    def force_close(self) -> None:
        """Drop the socket without an AMQP Close (management adminStatus=deleted; routing §1.10)."""
        self._is_reported = True
        self.stage = Stage.CLOSED
        self._close_socket()

    def on_lost(self) -> None:
        """The socket is closed, by whomever. Call once; everything the connection held is given back."""
        if self.stage is not Stage.CLOSED and not self._is_reported:
            self._report(Condition(name=_FRAMING, description="connection aborted"))
        self.stage = Stage.CLOSED
        if self.peer is not None:
            self.peer.end()
        self.gate.close()
