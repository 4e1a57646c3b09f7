"""Decides which accepted sockets may begin a handshake, and records the refused ones.

Pure. Sources: docs/spec/policy-and-auth.md §8.9.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from policy.failures import counted_as
from router.admission.denials import Recorder
from router.admission.handshakes import Excess, Handshakes, HostKey
from router.admission.repeats import Repeats
from router.effects import (
    Audit,
    AuditStage,
    ConnectionMembers,
    Emit,
    RequestMembers,
    RouterReason,
    audit_event,
    log,
)

# Attack: connections that are refused repeatedly, from many addresses, to fill the disk with the refusals. Above this
# number of hosts at a time, further hosts are reported as a number, without their names.
MAX_HOSTS: Final = 1000

_Key = tuple[HostKey | None, AuditStage, RouterReason]


class Entrance:
    """The limits for connections before their Open, and the records of refusals.

    handshakes  the connections that are not yet open
    """

    def __init__(self, recorder: Recorder, emit: Emit) -> None:
        self.handshakes = Handshakes()
        self._recorder = recorder
        self._emit = emit
        self._repeats: Repeats[_Key] = Repeats(MAX_HOSTS)

    def limit_by(self, attributes: Mapping[str, object], choose: Callable[[int], int] = lambda _count: 0) -> None:
        """Sets the limits.

        attributes  of the `router` entity
        choose      as in Handshakes
        """
        self.handshakes.choose = choose
        self.handshakes.max_of_host = int(str(attributes["maxHandshakesPerHost"]))
        self.handshakes.max_of_all = int(str(attributes["maxHandshakes"]))

    def refuse_for_descriptors(self, connection: ConnectionMembers, limit: int) -> None:
        """Records a socket that is closed at once, because it would take one of the router's own descriptors.

        limit  the number of descriptors for peers
        """
        detail = f"all {limit} file descriptors for connections are in use"
        self._recorder.count("accept")
        self._record("accept", "descriptor_limit", connection, {"detail": detail, "limit": limit})

    def refuse_unrecorded(self, connection: ConnectionMembers) -> None:
        """Records a socket that is closed at once, because the audit log could not record denials of its peer."""
        self._recorder.count("accept")
        detail = "the audit log cannot be written, so that no connection is accepted (onAuditFailure)"
        self._record("accept", "audit_unavailable", connection, {"detail": detail})

    def record(self, excess: Excess, stage: AuditStage, reason: RouterReason, connection: ConnectionMembers) -> None:
        """Records a connection that must be closed before it is open.

        stage  how far the connection had come; `accept`: it is refused
        """
        whose = "of this host" if excess.scope == "host" else "of all hosts"
        what = "bytes are held for connections" if reason == "preauth_buffer_exceeded" else "connections"
        detail = f"{excess.limit} {what} {whose} that are not open yet, which is the limit"
        if stage == "accept":
            self._recorder.count("accept")
        self._record(stage, reason, connection, {"detail": detail, "limit": excess.limit})

    def reports(self) -> Iterator[None]:
        """Reports the refusals that have no event yet, one event in each step. Call at equal intervals."""
        for (host, stage, reason), attempts in self._repeats.take():
            whose = "of this host" if host is not None else "of hosts that were too many to be named"
            detail = f"{attempts} more connections {whose} since the last event"
            remote_host = str(host.network_address) if host is not None else None
            self._tell(stage, reason, {"remote_host": remote_host}, {"attempts": attempts, "detail": detail})
            yield

    def _record(
        self, stage: AuditStage, reason: RouterReason, connection: ConnectionMembers, request: RequestMembers
    ) -> None:
        host = connection["remote_host"]
        key = counted_as(host) if host is not None else None
        if self._repeats.count((key, stage, reason), (None, stage, reason)):
            self._tell(stage, reason, connection, request)

    def _tell(
        self, stage: AuditStage, reason: RouterReason, connection: ConnectionMembers, request: RequestMembers
    ) -> None:
        host = connection["remote_host"] or "many hosts"
        text = f"DENY Connection '{host}' before its Open: {request['detail']} [{reason}]"
        log(self._emit, "POLICY", "info", text)
        self._emit(Audit(event=audit_event(stage, "deny", reason, connection, request)))
