"""Records peers that leave before their Open: during TLS, during SASL, or after the login.

Nothing was refused, but such peers are worth a record: a client that tries passwords leaves when it has the answer.
Pure. Source: docs/spec/policy-and-auth.md §8.6.
"""

from collections.abc import Iterator
from typing import Final

from router.admission.repeats import Repeats
from router.effects import Audit, AuditStage, ConnectionMembers, Emit, RequestMembers, audit_event

# Attack: a peer connects and leaves repeatedly, from many addresses, to fill the disk, the audit log's queue or the
# memory. Above this number of hosts at a time, further hosts are reported as a number, without their names.
MAX_HOSTS: Final = 1000


class Breakoffs:
    """Reports the first break-off of each host and stage, and later ones as numbers."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._repeats: Repeats[tuple[str | None, AuditStage]] = Repeats(MAX_HOSTS)

    def record(self, stage: AuditStage, connection: ConnectionMembers) -> None:
        """Records that the peer of a connection left.

        stage  how far the connection had come
        """
        if self._repeats.count((connection["remote_host"], stage), (None, stage)):
            self._tell(stage, connection, {"detail": "the peer left before its Open"})

    def reports(self) -> Iterator[None]:
        """Reports repeated break-offs, one event in each step. Call at equal intervals."""
        for (host, stage), attempts in self._repeats.take():
            whose = "of this host" if host is not None else "of hosts that were too many to be named"
            detail = f"{whose}, at this stage, since the last event"
            self._tell(stage, {"remote_host": host}, {"attempts": attempts, "detail": detail})
            yield

    def _tell(self, stage: AuditStage, connection: ConnectionMembers, request: RequestMembers) -> None:
        self._emit(Audit(event=audit_event(stage, "deny", "handshake_aborted", connection, request)))
