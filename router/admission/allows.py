"""Records what policy admits, if auditAllows asks for that.

Pure. Attack: a client with a valid password connects, or attaches and detaches, endlessly to fill the disk. So allows
are summed up like refusals, but with separate budgets: they do not cause denials to be summed up.
"""

from collections.abc import Callable
from typing import Final

from policy.facts import Usage
from router.admission.folding import Folding
from router.effects import ConnectionMembers, Emit, Refused, RequestMembers, audit_event

ALLOWED: Final = "allowed"


class Allows:
    """Records allowed connections, and allowed links if wanted.

    has_links  True to record links as well
    """

    def __init__(
        self, emit: Emit, clock: Callable[[], float], wall_clock: Callable[[], float], *, has_links: bool
    ) -> None:
        self.has_links = has_links
        self.folding = Folding(emit, clock, wall_clock)

    def opened(self, connection: ConnectionMembers, usage: Usage | None, now: float) -> None:
        """Records an allowed Open.

        usage  that the decision used; None: policy was not asked
        now    the time of the decision, seconds since 1970 UTC
        """
        request: RequestMembers = {"detail": "policy was not asked"}
        if usage is not None:
            request = {"usage": {"total": usage.total, "of_user": usage.of_user, "of_host": usage.of_host}}
        event = audit_event("open", "allow", ALLOWED, connection, request)
        self.folding.record(Refused(stage="open", facts=connection, event=event, time_s=now))

    def attached(self, connection: ConnectionMembers, request: RequestMembers) -> None:
        if self.has_links:
            event = audit_event("attach", "allow", ALLOWED, connection, request)
            self.folding.record(Refused(stage="attach", facts=connection, event=event))
