"""Peers that leave on their way in: during TLS, during SASL, or logged in and before an Open.

Nothing was refused, and still it is worth a record: a client that tries passwords leaves once it has the answer.
Pure. Source: docs/spec/policy-and-auth.md §8.6.
"""

from collections.abc import Iterator
from typing import Final

from router.admission.repeats import Repeats
from router.effects import Audit, AuditStage, ConnectionMembers, Emit, RequestMembers, audit_event

# Attack: a peer that connects and leaves, again and again and from many addresses, to fill the disk, the audit log's
# queue or the memory. Beyond so many hosts at a time they are reported as a number, without their names.
MAX_HOSTS: Final = 1000


class Breakoffs:
    """Told once for each host and stage, and from then on by numbers, as long as it goes on."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._repeats: Repeats[tuple[str | None, AuditStage]] = Repeats(MAX_HOSTS)

    def record(self, stage: AuditStage, connection: ConnectionMembers) -> None:
        """The peer of a connection left.

        stage  how far the connection had come
        """
        if self._repeats.count((connection["remote_host"], stage), (None, stage)):
            self._tell(stage, connection, {"detail": "the peer left before its Open"})

    def reports(self) -> Iterator[None]:
        """Tell what repeated, one event for each step. Begin at equal intervals."""
        for (host, stage), attempts in self._repeats.take():
            whose = "of this host" if host is not None else "of hosts that were too many to be named"
            detail = f"{whose}, at this stage, since the last event"
            self._tell(stage, {"remote_host": host}, {"attempts": attempts, "detail": detail})
            yield

    def _tell(self, stage: AuditStage, connection: ConnectionMembers, request: RequestMembers) -> None:
        self._emit(Audit(event=audit_event(stage, "deny", "handshake_aborted", connection, request)))
