"""One accepted connection before AMQP: first bytes, TLS, SASL, the AMQP header.

Everything before the Open is limited in bytes and in time. Every failure is logged and audited. Sources:
docs/spec/policy-and-auth.md §6, §8; docs/spec/routing.md §1.7.
"""

from collections.abc import Callable, Mapping
from typing import Final

from auth.client_scram import Derive
from auth.credentials import Answer
from auth.identity import Identity
from auth.mechanisms import Channel
from auth.negotiation import NOT_OFFERED, TOO_MUCH, Authenticated, Order, Rejected, ServerNegotiation, Verify
from auth.tls import Elsewhere, NotTls, TlsFailure, TlsProfileError, UnusableProfile
from router.admission.connection_gate import ConnectionGate
from router.admission.handshakes import ENGINE_BYTES, TLS_BYTES
from router.admission.logins import Result
from router.amqp import headers
from router.amqp.buffers import MAX_OPEN_BYTES
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition
from router.connection.ends import SaslEnd
from router.connection.pace import TOO_MANY_GUESSES, Pace, is_wrong
from router.connection.peer_open import PeerOpens
from router.connection.relaying import Relaying
from router.connection.stack import ABORTED, FRAMING, Stack, Stage
from router.connection.surroundings import Surroundings
from router.connection.tenure import CERTIFICATE_REVOKED, REVOKED, Ending, Tenure
from router.connection.terms import Listener
from router.effects import (
    Audit,
    Log,
    Refused,
    RouterReason,
    log,
)

__all__ = ["Connection", "Stage"]

_POLICY: Final = "amqp:connection:policy-error"


class Connection(Relaying):
    """One accepted connection."""

    def __init__(
        self,
        *,
        listener: Listener,
        gate: ConnectionGate,
        surroundings: Surroundings,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        on_opened: Callable[[Stack], None],
    ) -> None:
        super().__init__(
            terms=listener,
            gate=gate,
            surroundings=surroundings,
            write=write,
            close=close,
            on_opened=on_opened,
            handshake_limit_s=listener.handshake_timeout_s,
        )
        self.listener = listener
        self._identity: Identity | None = None
        self._pace = Pace(gate, self.core, self._deadline)
        # Called with the number of bytes held before the Open, without those that every connection holds. Its owner may
        # close the connection.
        self.on_held: Callable[[int], None] = lambda _size: None
        self._held = 0  # the number that on_held received last
        self.elsewhere: Elsewhere | None = None  # runs the steps of the TLS handshake; None: they run here
        self.tenure = Tenure(self.connection_id, self.core.clock(), listener.max_connection_age_s)

    # Time

    def on_timer(self, now: float) -> float | None:
        following = super().on_timer(now)
        if not self.is_open or self.end_if_over(now):
            return following
        limits = (following, self.tenure.look_at(now, self.surroundings.wall_clock()))
        return min((limit for limit in limits if limit is not None), default=None)

    def end_if_over(self, now: float = 0.0) -> bool:
        """Ends an open connection whose credentials are no longer valid, or that is too old.

        Returns True if it has ended.

        now  monotonic seconds; without it the age is not checked
        """
        ending = self.tenure.ending(now, self.surroundings.wall_clock()) if self.is_open else None
        if ending is not None:
            self._end_for(ending)
        return ending is not None

    def revoke(self) -> None:
        """Ends the connection because the verifier no longer accepts the user."""
        if self.is_open:
            self._end_for(REVOKED)

    def end_for_revoked_certificate(self) -> None:
        """Ends the connection, open or not, because its certificate is revoked."""
        if self.is_open:
            self._end_for(CERTIFICATE_REVOKED)
        else:
            self.fail(*CERTIFICATE_REVOKED)

    def _end_for(self, ending: Ending) -> None:
        condition, reason = ending
        self.report(condition)
        self.emit(Audit(event=self._failure(condition, reason)))
        self.expel(condition)

    def _begin(self, protocol: Protocol, data: bytes) -> bytes:
        if protocol is Protocol.AMQP and (self.stage is Stage.HEADER or self._may_skip_sasl()):
            return data if self._begin_amqp() else b""
        if self.stage is Stage.SNIFF:
            if protocol in (Protocol.TLS_RECORD, Protocol.AMQP_TLS) and self.tunnel is None:
                return self._begin_tls(data, protocol)
            if protocol is Protocol.SASL:
                return self._begin_sasl(data)
        if self.stage is not Stage.CLOSED:
            self._refuse_header(protocol)
        return b""

    def _refuse_header(self, protocol: Protocol) -> None:
        """Names the header that the router expected, as AMQP 1.0 §2.2 asks, and closes."""
        wanted = headers.SASL if self.stage is Stage.SNIFF and self.listener.authenticates_peer else headers.AMQP
        self.layers.write(wanted)
        what = "after authentication " if self.stage is Stage.HEADER else ""
        description = f"Expected AMQP protocol header {what}but found: {protocol.value}"
        self.fail(Condition(name=FRAMING, description=description), "unexpected_header")

    # TLS

    def _on_tunnel_established(self) -> None:
        super()._on_tunnel_established()
        self._hold()
        if self.tunnel is not None:
            self.tenure.certificate_ends_at_s = self.tunnel.peer_expires_at_s

    def _hold(self, pending: int = 0) -> None:
        """Reports how many bytes are held.

        pending  bytes of SASL that wait for the verifier
        """
        if self.tunnel is not None:
            pending += TLS_BYTES + self.tunnel.handshake_bytes
        if self.stage is Stage.AMQP:
            pending += ENGINE_BYTES + min(self.listener.max_frame_bytes, MAX_OPEN_BYTES)
        if pending != self._held:
            self._held = pending
            self.on_held(pending)

    def _begin_tls(self, data: bytes, protocol: Protocol) -> bytes:
        if self.listener.tls is None:
            self.fail(Condition(name=FRAMING, description="TLS on a listener without sslProfile"), "unexpected_header")
            return b""
        if protocol is Protocol.AMQP_TLS:
            self.layers.write(headers.TLS)
            data = data[headers.HEADER_BYTES :]
        try:
            tunnel = self.listener.tls.tunnel()
        except TlsProfileError as error:
            self._fail_for_profile(error)
            return b""
        tunnel.elsewhere, tunnel.on_step = self.elsewhere, self._on_step
        return self._start_tls(tunnel, data)

    def _on_step(self) -> None:
        """Continues after a step of the handshake has run elsewhere."""
        self.receive(b"")
        self.core.work.finish()

    @property
    def is_waiting(self) -> bool:
        """Returns True while a step of the handshake runs elsewhere. The socket is not read during that time."""
        return self.tunnel is not None and self.tunnel.is_waiting

    def _fail_for_profile(self, error: Exception) -> None:
        log(self.emit, "ERROR", "error", f"Run Time: {error}")
        description = f"{error} on {self.listener.place}"
        self.fail(Condition(name="amqp:internal-error", description=description), "tls_configuration")

    def _on_tls_failure(self, failure: TlsFailure) -> None:
        if isinstance(failure, UnusableProfile):
            self._fail_for_profile(failure)
            return
        if not isinstance(failure, NotTls):
            self._count_handshake()
        super()._on_tls_failure(failure)

    def _count_handshake(self) -> None:
        """Counts an unfinished TLS handshake towards a ban.

        Attack: a peer sends ClientHello after ClientHello; each one costs the router a signature.
        """
        if self.stage is Stage.TLS and not self.is_waiting:
            self.gate.count_failure()

    # SASL

    def _begin_sasl(self, data: bytes) -> bytes:
        if not self._is_encrypted_enough():
            return b""
        if self.listener.relay is not None:
            self.layers.write(headers.SASL)
            self._start_relay(self.listener.relay)
            return data[headers.HEADER_BYTES :]
        channel = self._channel()
        negotiation = ServerNegotiation(offered=self.listener.mechanisms(channel), channel=channel)
        self._start_sasl(negotiation, headers.SASL)
        return data[headers.HEADER_BYTES :]

    def _channel(self) -> Channel:
        if self.listener.is_auth_service:
            # The certificate and the binding belong to the router that asks. They would make its client this router's
            # user.
            return Channel(is_encrypted=self.tunnel is not None)
        certificate = self.tunnel.peer_certificate if self.tunnel is not None else None
        tls = self.listener.tls
        user = None
        if tls is not None and self.tunnel is not None and certificate is not None:
            user = tls.user_of(certificate, self.tunnel.chosen)
        return Channel(
            external_user=user,
            has_certificate=certificate is not None,
            is_encrypted=self.tunnel is not None,
            asks_groups=self.listener.asks_groups,
            binding=self.tunnel.binding if self.tunnel is not None else lambda _kind: None,
        )

    def _on_sasl(self, effect: Order) -> None:
        match effect:
            case Verify(request=request):
                self._claimed_user = request.user or None
                self._pace.begin(request)
                if not self._expel_where_banned():
                    verify, host = self.listener.verify, self.gate.remote_host
                    self._give_up = verify(request, host, self._begins_verification, self._on_verified)
            case Authenticated(identity=identity):
                self._identity = self.tenure.identity = identity
                self._pace.succeed(identity.mechanism)
                self._await_header()
            case Rejected(condition=condition, description=description, mechanism=mechanism):
                # Not authenticated: the audit event has the name that the peer claimed.
                self.gate.identity = Identity(user=self._claimed_user, mechanism=mechanism)
                reason = _reason_of(effect)
                if reason == "sasl_failed":
                    self._pace.fail()
                self._pace.conclude(mechanism, _RESULTS.get(reason, "refused"))
                self.fail(Condition(name=condition, description=description), reason)
            case Derive():
                raise AssertionError("only a client derives a key")

    def _begins_verification(self) -> bool:
        """Called when the connection's turn has come. Returns True if the verifier is to be asked."""
        if not self.begins_turn():
            return False
        if self._pace.may_ask():
            return True
        self._give_up = self._pace.decline(self._hand_on)
        return False

    def _break_off(self) -> None:
        """Counts a wrong password if the peer leaves, or commits a fault, before the answer to its password.

        Attack: a peer tries passwords, or uses up processor time, and avoids a ban by not waiting for the answer.
        """
        give_up, self._give_up = self._give_up, None
        if give_up is not None:
            give_up()
            self._pace.fail()

    def _on_verified(self, result: Answer) -> None:
        """Takes the verifier's answer, perhaps after the router has closed the connection."""
        has_left, self._give_up = self._give_up is None, None
        if has_left or self.stage is not Stage.SASL:
            # Attack: a peer sends passwords just before the deadline of the login, so that the router closes first.
            if is_wrong(result) and not has_left:
                self._pace.fail()
            self._pace.leave()
            return
        try:
            if not self._expel_where_banned():
                if is_wrong(result):
                    self._pace.fail()
                if (give_up := self._pace.hold(result, self._hand_on)) is not None:
                    self._give_up = give_up
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    def _hand_on(self, answer: Answer) -> None:
        """Passes the verifier's answer on when its delay has passed."""
        was_held, self._give_up = self._give_up is not None, None
        try:
            # A wrong password has been counted and may have caused the ban. The records still say that it was wrong.
            if isinstance(self._end, SaslEnd) and not (
                was_held and not is_wrong(answer) and self._expel_where_banned()
            ):
                self._pass_up(self._end.resume(answer))
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    # AMQP

    def _is_encrypted_enough(self) -> bool:
        if self.tunnel is None and self.listener.requires_encryption:
            self.fail(
                Condition(name=_POLICY, description="Client connection unencrypted - forbidden"), "encryption_required"
            )
            return False
        return True

    def _may_skip_sasl(self) -> bool:
        """Checks an AMQP header without SASL before it. The checks of policy §8.3 run in their order."""
        if self.listener.authenticates_peer:
            self.fail(
                Condition(name=_POLICY, description="Client skipped authentication - forbidden"),
                "authentication_required",
            )
            return False
        return self._is_encrypted_enough()

    def _begin_amqp(self) -> bool:
        if not self._is_encrypted_enough():
            return False
        self._make_peer(self._identity or self._identity_without_sasl(), PeerOpens())
        self._start_amqp()
        self._hold()
        return self.stage is Stage.AMQP

    def _identity_without_sasl(self) -> Identity:
        if self.tunnel is None:
            return Identity(user="anonymous")
        certificate, tls = self.tunnel.peer_certificate, self.listener.tls
        if certificate is None or tls is None:
            return Identity(user=None)
        return Identity(user=tls.subject_of(certificate, self.tunnel.chosen))

    # Failures

    def fail(self, condition: Condition, reason: RouterReason, *lines: Log) -> None:
        if reason != "handshake_timeout":  # a long queue of waiting logins is not the peer's fault
            self._break_off()
        else:
            self._count_handshake()
        super().fail(condition, reason, *lines)

    def shut(self) -> None:
        super().shut()
        if self._give_up is not None:
            self._give_up()

    def on_lost(self) -> None:
        super().on_lost()
        if self._give_up is not None:
            self._give_up()

    def _record_lost(self) -> None:
        """Records a peer that leaves during its login. A TCP connect without data is a probe and is not recorded."""
        if self.is_open:
            self.report(ABORTED)
            return
        lines, what = (self._line(ABORTED),), "more connections lost before their Open"
        self.gate.gate.folding.record(Refused(stage=self.audit_stage, facts=self.facts(), lines=lines, what=what))
        if self.stage is Stage.SNIFF:
            return
        if self.stage in (Stage.SASL, Stage.HEADER):
            # The user, or the name that the peer claimed during the verification.
            self.gate.identity = self._identity or Identity(user=self._claimed_user)
            self._break_off()
        self._count_handshake()
        self.gate.gate.breakoffs.record(self.audit_stage, self.facts())


_RESULTS: Final[Mapping[RouterReason, Result]] = {
    "verifier_unavailable": "unavailable",
    "too_many_guesses": "unavailable",
}


def _reason_of(rejected: Rejected) -> RouterReason:
    """Returns the reason code. Only `sasl_failed` says that the peer's credentials are wrong."""
    if rejected.detail == TOO_MUCH:
        return "preauth_buffer_exceeded"
    if rejected.condition == FRAMING:
        return "sasl_malformed"
    if not rejected.is_compared:
        return "too_many_guesses" if rejected.detail == TOO_MANY_GUESSES else "verifier_unavailable"
    return "sasl_mechanism" if rejected.detail == NOT_OFFERED else "sasl_failed"
