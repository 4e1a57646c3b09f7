"""The record of an accepted connection: what failed, and at which stage. Source: docs/audit.md."""

from collections.abc import Callable, Mapping
from typing import Final

from router.amqp.terminus import Condition
from router.connection.stack import Stack, Stage
from router.effects import (
    AuditEvent,
    AuditStage,
    ConnectionMembers,
    Log,
    Refused,
    RequestMembers,
    RouterReason,
    audit_event,
)

_AUDIT_STAGE: Final[Mapping[Stage, AuditStage]] = {
    Stage.SNIFF: "header",
    Stage.TLS: "tls",
    Stage.SASL: "sasl",
    Stage.HEADER: "header",
    Stage.AMQP: "engine",
    Stage.CLOSED: "engine",
}


class Recorded(Stack):
    """A connection whose failures are logged and audited; in a flood, only their number."""

    @property
    def audit_stage(self) -> AuditStage:
        """The progress of the connection, in the words of an audit event."""
        return _AUDIT_STAGE[self.stage]

    unsent_bytes: Callable[[], int] = staticmethod(lambda: 0)  # written to the socket's buffer, and not sent

    @property
    def tells_why(self) -> bool:
        """Returns True if the peer has been sent something that it is to read before its socket is closed."""
        return self.peer is not None and self.peer.engine.tells_why

    def report(self, condition: Condition) -> None:
        self.emit(self._line(condition))

    def _line(self, condition: Condition) -> Log:
        where = f"Connection from {self.remote_name} (to {self.terms.place})"
        return Log(module="SERVER", level="info", text=f"[C{self.connection_id}] {where} failed: {condition}")

    def _failure(self, condition: Condition, reason: RouterReason) -> AuditEvent:
        told: RequestMembers = {"condition": condition.name, "detail": condition.description}
        return audit_event(self.audit_stage, "deny", reason, self.facts(), told)

    def _record(self, condition: Condition, reason: RouterReason, lines: tuple[Log, ...]) -> None:
        lines = (*lines, self._line(condition))
        event = self._failure(condition, reason)
        self.gate.gate.folding.record(Refused(stage=event["stage"], facts=self.facts(), lines=lines, event=event))

    def facts(self) -> ConnectionMembers:
        """Returns the members of an audit event that describe the connection."""
        return {**self.gate.facts(), "is_encrypted": self.tunnel is not None and self.tunnel.is_established}
