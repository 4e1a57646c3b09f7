"""Logins of accepted peers: what all kinds of login share, and the login at a remote authentication service.

Source: docs/spec/policy-and-auth.md §9.2, §9.5.
"""

from collections.abc import Callable
from dataclasses import replace

from auth.credentials import Answer, VerifyResult
from auth.negotiation import Authenticated, Rejected
from auth.relay import Forward, RelayedNegotiation, ServiceFailed
from auth.session_ends import session_end
from router.admission.connection_gate import CONNECTION_REFUSED
from router.connection.inspection import condition_of
from router.connection.pace import TOO_MANY_GUESSES, Pace, is_wrong
from router.connection.recorded import Recorded
from router.connection.relay import Relay, RelayEnd, RelayTerms
from router.connection.stack import Stage
from router.effects import Log, Refused, log


class Relaying(Recorded):
    """A connection whose peer's credentials a verifier or a remote service checks."""

    _claimed_user: str | None = None
    # Gives up the verification of the password. None while no answer is wanted.
    _give_up: Callable[[], None] | None = None
    _relay: Relay | None = None  # the login at a remote service
    _max_session_s = 0  # maximum session time for users that the service accepts
    _pace: Pace
    _has_waited = False  # the service's first answer has been delayed, or did not need a delay
    _held_step: Callable[[], bytes] | None = None  # the delayed step of the service
    _let_go: Callable[[], None] | None = None  # gives the delayed step up

    def _expel_where_banned(self) -> bool:
        """Expels the peer if its host is banned now. Returns True if it is banned.

        Attack: many logins at once; all have been accepted before the first one fails. After the ban no password is
        verified any more, and a peer does not learn the result of a running verification.
        """
        bans = self.gate.gate.bans
        ban = bans.ban_of(self.gate.remote_host)
        if ban is None:
            return False
        bans.record_refusal(ban, {**self.facts(), "user": self._claimed_user}, stage=self.audit_stage)
        self.expel(condition_of(CONNECTION_REFUSED))
        return True

    def begins_turn(self) -> bool:
        """Called when the turn of the connection has come. Returns True if the connection still needs it."""
        if self.is_closed:
            return False
        try:
            if not self._expel_where_banned():
                return True
        except Exception as error:
            self.crash(error)
        self.core.work.finish()
        return False

    # A remote service instead of a verifier

    def _start_relay(self, terms: RelayTerms) -> None:
        where = f"[C{self.connection_id}] Enabling remote authentication service {terms.place}"
        self.gate.gate.folding.report_accepted(Log(module="SERVER", level="info", text=where), self.facts())
        negotiation = RelayedNegotiation(allowed=terms.allowed, without=terms.without, realm=terms.realm)
        end = RelayEnd(negotiation, self.layers.write, self._on_relay, self._hold, self._on_service)
        self._end = end
        self.stage = Stage.SASL
        self._max_session_s = terms.max_session_s
        self._relay = terms.begin(self.gate.remote_host, end)

    def _on_relay(self, effect: Forward | Authenticated | Rejected | ServiceFailed) -> None:
        """Carries out what the relayed negotiation asks for."""
        match effect:
            case Forward(frame=frame) if self._relay is not None and isinstance(self._end, RelayEnd):
                self._claimed_user = self._end.claimed_user
                if self._end.can_be_guessed:
                    self._pace.begin_as(self._claimed_user)
                if not self._expel_where_banned():
                    if self._pace.may_ask():
                        self._give_up = self._relay.close
                        self._relay.send(frame)
                    else:
                        self._pass_up(self._end.decline(TOO_MANY_GUESSES))
            case ServiceFailed(why=why):
                self._report_service(why)
            case Authenticated(identity=identity):
                log(self.emit, "AUTHSERVICE", "info", f"authenticated as {identity.user}")
                self._end_relay()
                ends_at_s = session_end(self._max_session_s, wall_clock=self.surroundings.wall_clock)
                self._on_sasl(Authenticated(identity=replace(identity, ends_at_s=ends_at_s)))
            case Rejected():
                self._on_sasl(effect)
            case Forward():
                pass  # the service has gone in the meantime

    def _on_service(self, step: Callable[[], bytes], said: VerifyResult | None) -> None:
        """Handles a message of the service, perhaps after the router has closed the connection."""
        if self.stage is not Stage.SASL:
            # Attack: a peer sends passwords just before the deadline of the login, so that the router closes first.
            if said is not None and is_wrong(said):
                self._pace.fail()
            self._pace.leave()
            return
        self._give_up = None  # an answer to the last response
        try:
            if not self._expel_where_banned():
                # An unexpected message does not wait, but the delayed message goes before it.
                if (held := self._held_step) is not None:
                    self._stop_holding()
                    self._pass_up(held())
                if said is None or self._has_waited or self.is_closed:
                    self._pass_up(step())
                else:
                    self._hold_back(step, said)
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    def _hold_back(self, step: Callable[[], bytes], said: VerifyResult) -> None:
        """Delays the service's first answer to the peer's credentials if many logins have failed.

        Later answers of the exchange are not delayed. So SCRAM waits before anything has been compared, as with
        verifiers.
        """
        self._has_waited = True
        if is_wrong(said):
            self._pace.fail()
        self._held_step = step
        give_up = self._pace.hold(said, lambda answer: self._hand_over(step, said, answer))
        if give_up is not None:
            self._let_go, self._give_up = give_up, give_up

    def _hand_over(self, step: Callable[[], bytes], said: VerifyResult, answer: Answer) -> None:
        """Passes the service's answer on when its delay has passed, or declines the login."""
        was_held, self._give_up = self._give_up is not None, None
        self._stop_holding()
        if self.stage is not Stage.SASL or not isinstance(self._end, RelayEnd):
            return
        try:
            # A wrong password has been counted and may have caused the ban. The records still say that it was wrong.
            if was_held and not is_wrong(said) and self._expel_where_banned():
                pass
            elif answer is said:
                self._pass_up(step())
            else:
                self._pass_up(self._end.decline(TOO_MANY_GUESSES))
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    def _stop_holding(self) -> None:
        let_go, self._let_go, self._held_step = self._let_go, None, None
        if let_go is not None:
            let_go()

    def _report_service(self, why: str) -> None:
        """Records that the service is not reachable. Attack: without folding, each login would write a log line."""
        line = Log(module="AUTHSERVICE", level="warning", text=f"Downstream disconnected: {why}")
        what = "logins that the authentication service did not answer"
        self.gate.gate.folding.record(Refused(stage="sasl", facts=self.facts(), lines=(line,), what=what))

    def _end_relay(self) -> None:
        self._stop_holding()
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.close()
            self._pace.leave()

    def shut(self) -> None:
        super().shut()
        self._end_relay()

    def on_lost(self) -> None:
        super().on_lost()
        self._end_relay()
