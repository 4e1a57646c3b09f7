"""The lines of one start of an audit log, with their numbers and times."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from router.audit import event as audit_event
from router.audit import plain
from router.audit.chain import Rest, Signed, Signer
from router.audit.files import Deletion
from router.effects import AuditEvent


class Lines:
    """Makes the lines. `next_number` and `event` may be called on any thread.

    clock   seconds since 1970 UTC
    signer  None: no line will be signed
    """

    def __init__(self, router_id: str, clock: Callable[[], float], signer: Signer | None) -> None:
        self._router_id = router_id
        self._start = uuid4().hex
        self._sequence = count()
        self._clock = clock
        self._signer_name = signer.name if signer is not None else None

    def next_number(self) -> int:
        return next(self._sequence)

    def event(self, event: AuditEvent, sequence: int, time_s: float | None) -> bytes | None:
        """Returns the line of an event. None if even the fact that it is unreadable cannot be written."""
        try:
            stamp = self._stamp(sequence, time_s)
            return plain.line(event, stamp) or audit_event.encode(audit_event.complete(event, stamp))
        except Exception as error:  # an emitter's mistake must not raise in the event loop
            try:
                found = {"detail": f"an audit event could not be read: {type(error).__name__}"}
                return audit_event.encode(audit_event.complete(found, self._stamp(sequence)))
            except Exception:
                return None

    def gap(self, lost: int) -> bytes:
        return _own(audit_event.lost_marker(lost, self._stamp()))

    def end(self) -> bytes:
        return Signed(_own(audit_event.end_marker(self._stamp(), self._signer_name)))

    def checkpoint(self) -> bytes:
        return Signed(_own(audit_event.checkpoint_marker(self._signer_name or "", self._stamp())))

    def rest(self, rest: Rest) -> bytes:
        return _own(audit_event.recovered_marker(rest.file, rest.size, rest.sha256, self._stamp()))

    def deletion(self, path: Path, file: audit_event.DeletedFile) -> bytes:
        line = Deletion(_own(audit_event.deleted_marker(file, self._stamp())))
        line.path = path
        return line

    def _stamp(self, sequence: int | None = None, time_s: float | None = None) -> audit_event.Stamp:
        return audit_event.Stamp(
            event_id=os.urandom(16).hex(),
            start=self._start,
            sequence=self.next_number() if sequence is None else sequence,
            time_s=self.now_s() if time_s is None else time_s,
            router_id=self._router_id,
        )

    def now_s(self) -> float:
        try:
            now_s = self._clock()
            datetime.fromtimestamp(now_s, UTC)
        except Exception:  # an event with the machine's own time is better than no event
            return time.time()
        return now_s


def _own(whole: dict[str, Any]) -> bytes:
    """Returns a line of the log's own.

    Only such lines contain a tab, so a verifier finds them without parsing the others.
    """
    return audit_event.encode(whole)[:-2] + b"\t}\n"
