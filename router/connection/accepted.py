"""One accepted connection before AMQP: first bytes, TLS, SASL, the AMQP header.

Everything before the Open is bounded in bytes and in time; every failure is logged and audited.
Sources: docs/spec/policy-and-auth.md §6, §8; docs/spec/routing.md §1.7.
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
        # How many bytes are held before the Open, besides those of any connection. Its owner may close the connection.
        self.on_held: Callable[[int], None] = lambda _size: None
        self._held = 0  # as it was told last
        self.elsewhere: Elsewhere | None = None  # makes the steps of the TLS handshake; None: they are made at once
        self.tenure = Tenure(self.connection_id, self.core.clock(), listener.max_connection_age_s)

    # Time

    def on_timer(self, now: float) -> float | None:
        following = super().on_timer(now)
        if not self.is_open or self.end_if_over(now):
            return following
        limits = (following, self.tenure.look_at(now, self.surroundings.wall_clock()))
        return min((limit for limit in limits if limit is not None), default=None)

    def end_if_over(self, now: float = 0.0) -> bool:
        """End an open connection whose credentials are worth nothing any more, or that is too old. Has it ended?

        now  monotonic seconds; the age is not looked at without
        """
        ending = self.tenure.ending(now, self.surroundings.wall_clock()) if self.is_open else None
        if ending is not None:
            self._end_for(ending)
        return ending is not None

    def revoke(self) -> None:
        """The verifier vouches for the user no more: end the connection."""
        if self.is_open:
            self._end_for(REVOKED)

    def end_for_revoked_certificate(self) -> None:
        """However far it has come."""
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
        """Name the header that the router would have taken, as AMQP 1.0 §2.2 asks, and close."""
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
        """Tell how many bytes are held.

        pending  of SASL, which wait for the verifier
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
        """A step of the handshake was made elsewhere."""
        self.receive(b"")
        self.core.work.finish()

    @property
    def is_waiting(self) -> bool:
        """Is a step of the handshake made elsewhere? The socket is not read meanwhile."""
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
        """The peer has begun a handshake and does not finish it: that counts towards a ban.

        Attack: ClientHellos without end, each of which costs a signature.
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
            # Certificate and binding are those of the router that asks, and would make its client the router's user.
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
        """Its turn has come. Returns whether the verifier is to be asked."""
        if not self.begins_turn():
            return False
        if self._pace.may_ask():
            return True
        self._give_up = self._pace.decline(self._hand_on)
        return False

    def _break_off(self) -> None:
        """The peer ends the connection, by leaving or by a fault, before it has an answer to its password.

        Attack: passwords tried, or processor time taken, without being banned for it. So it counts as a wrong one.
        """
        give_up, self._give_up = self._give_up, None
        if give_up is not None:
            give_up()
            self._pace.fail()

    def _on_verified(self, result: Answer) -> None:
        """The verifier answered, perhaps after the router has closed the connection."""
        has_left, self._give_up = self._give_up is None, None
        if has_left or self.stage is not Stage.SASL:
            # Attack: passwords sent just before the deadline of the login, in whose stead the router closes.
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
        """The time of the verifier's answer has come."""
        was_held, self._give_up = self._give_up is not None, None
        try:
            # A wrong password has been counted, and may have brought the ban: that it was wrong stands in the records.
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
        """An AMQP header without SASL before it: the checks of policy §8.3, in their order."""
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
        if reason != "handshake_timeout":  # that many wait is no fault of the peer's
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
        """Record a peer that leaves during its login. A bare TCP connect is a probe; it is not recorded."""
        if self.is_open:
            self.report(ABORTED)
            return
        lines, what = (self._line(ABORTED),), "more connections lost before their Open"
        self.gate.gate.folding.record(Refused(stage=self.audit_stage, facts=self.facts(), lines=lines, what=what))
        if self.stage is Stage.SNIFF:
            return
        if self.stage in (Stage.SASL, Stage.HEADER):
            # The user, or the name that the peer claimed while it was being verified.
            self.gate.identity = self._identity or Identity(user=self._claimed_user)
            self._break_off()
        self._count_handshake()
        self.gate.gate.breakoffs.record(self.audit_stage, self.facts())


_RESULTS: Final[Mapping[RouterReason, Result]] = {
    "verifier_unavailable": "unavailable",
    "too_many_guesses": "unavailable",
}


def _reason_of(rejected: Rejected) -> RouterReason:
    """The reason code; all but `sasl_failed` say nothing about the peer's credentials."""
    if rejected.detail == TOO_MUCH:
        return "preauth_buffer_exceeded"
    if rejected.condition == FRAMING:
        return "sasl_malformed"
    if not rejected.is_compared:
        return "too_many_guesses" if rejected.detail == TOO_MANY_GUESSES else "verifier_unavailable"
    return "sasl_mechanism" if rejected.detail == NOT_OFFERED else "sasl_failed"
