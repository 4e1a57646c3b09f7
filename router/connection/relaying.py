"""Logins of accepted peers that are answered elsewhere: what all ways have in common, and that by a remote service.

Source: docs/spec/policy-and-auth.md §9.2, §9.5.
"""

from collections.abc import Callable

from auth.negotiation import Authenticated, Rejected
from auth.relay import Forward, RelayedNegotiation, ServiceFailed
from router.admission.connection_gate import CONNECTION_REFUSED
from router.connection.inspection import condition_of
from router.connection.recorded import Recorded
from router.connection.relay import Relay, RelayEnd, RelayTerms
from router.connection.stack import Stage
from router.effects import Log, Refused, log


class Relaying(Recorded):
    """A connection whose peer's credentials somebody else looks at."""

    _claimed_user: str | None = None
    # Gives up the verification of the password; None while there is none whose answer counts.
    _give_up: Callable[[], None] | None = None
    _relay: Relay | None = None  # the login with a remote service

    def _expel_where_banned(self) -> bool:
        """Expel the peer where its host is banned by now. Returns whether it is.

        Attack: many logins at once, so that all have been accepted when the first have failed. After the ban none is
        verified any more, and the peer does not learn the result of one that was under way.
        """
        bans = self.gate.gate.bans
        ban = bans.ban_of(self.gate.remote_host)
        if ban is None:
            return False
        bans.record_refusal(ban, {**self.facts(), "user": self._claimed_user}, stage=self.audit_stage)
        self.expel(condition_of(CONNECTION_REFUSED))
        return True

    def _begins_verification(self) -> bool:
        """The verification's turn has come. Returns whether it is still wanted."""
        try:
            if not self._expel_where_banned():
                return True
        except Exception as error:
            self.crash(error)
        self.core.work.finish()
        return False

    # A remote service in the place of a verifier

    def _start_relay(self, terms: RelayTerms) -> None:
        where = f"[C{self.connection_id}] Enabling remote authentication service {terms.place}"
        self.gate.gate.folding.report_accepted(Log(module="SERVER", level="info", text=where), self.facts())
        negotiation = RelayedNegotiation(allowed=terms.allowed, without=terms.without, realm=terms.realm)
        end = RelayEnd(negotiation, self.layers.write, self._on_relay, self._hold, self._on_service)
        self._end = end
        self.stage = Stage.SASL
        self._relay = terms.begin(self.gate.remote_host, end)

    def _on_relay(self, effect: Forward | Authenticated | Rejected | ServiceFailed) -> None:
        """Carry out what the relayed negotiation asks for."""
        match effect:
            case Forward(frame=frame) if self._relay is not None and isinstance(self._end, RelayEnd):
                self._claimed_user = self._end.claimed_user
                if not self._expel_where_banned():
                    self._give_up = self._relay.close
                    self._relay.send(frame)
            case ServiceFailed(why=why):
                self._report_service(why)
            case Authenticated(identity=identity):
                log(self.emit, "AUTHSERVICE", "info", f"authenticated as {identity.user}")
                self._end_relay()
                self._on_sasl(effect)
            case Rejected():
                self._on_sasl(effect)

    def _on_service(self, step: Callable[[], bytes]) -> None:
        """The service has said something, perhaps after the router has closed the connection."""
        if self.stage is not Stage.SASL:
            return
        self._give_up = None  # an answer to the last response
        try:
            if not self._expel_where_banned():
                self._pass_up(step())
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    def _report_service(self, why: str) -> None:
        """Attack: while the service cannot be reached each login is a line."""
        line = Log(module="AUTHSERVICE", level="warning", text=f"Downstream disconnected: {why}")
        what = "logins that the authentication service did not answer"
        self.gate.gate.folding.record(Refused(stage="sasl", facts=self.facts(), lines=(line,), what=what))

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.close()

    def shut(self) -> None:
        super().shut()
        self._end_relay()

    def on_lost(self) -> None:
        super().on_lost()
        self._end_relay()
