"""A management request, its requester, its plan and its answer.

Source: docs/spec/management.md §7.1, §7.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from policy.configuration.request_errors import CHANGE_NOT_ALLOWED as CHANGE_NOT_ALLOWED
from policy.configuration.request_errors import ManagementError as ManagementError
from policy.configuration.schema import EntityType
from policy.decision import Reason, Rule
from policy.facts import ManagementFacts
from policy.rights import READ, ManagementRights
from router.effects import ConnectionMembers
from router.management.query import Row

# The status of a request that is refused because a right is missing, as in the AMQP management draft.
FORBIDDEN: Final = 403
CHANGES: Final = frozenset({"CREATE", "UPDATE", "DELETE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The connection or client that makes a request.

    connection_id  of the connection that the request came on; None if it came on none
    rights         by the connection's settings when the request is performed
    rule           the place where the rights are written
    facts          of the connection, as in an audit event
    is_direct      the request is the peer's own, not one that a router passes on
    """

    connection_id: int | None
    rights: ManagementRights
    rule: Rule | None = None
    facts: ConnectionMembers = field(default_factory=ConnectionMembers)
    is_admin_update_allowed: bool = True
    is_direct: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    properties     the application-properties; anything else counts as none
    body           of the amqp-value section
    """

    properties: object = field(repr=False)
    requester: Requester
    body: object = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """statusCode, statusDescription and body of the reply.

    count  of the results of a QUERY, after they are made; None for anything else
    """

    status: int
    description: str
    body: object = field(repr=False)
    count: int | None = None


class NotAllowedError(ManagementError):
    """A request that policy refuses.

    reason  as in audit events
    """

    def __init__(self, description: str, reason: Reason = Reason.MANAGEMENT_NOT_ALLOWED) -> None:
        super().__init__(FORBIDDEN, f"Forbidden: {description}")
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class Plan:
    """The plan of a request, before any part of it is done.

    facts       the rights decide by these; None: a QUERY of several types, which shows the types that may be read
    operation   in upper case, as in the request
    entity_type None for a QUERY of all types, and if the requested type is not known
    perform     performs it: returns status and body of the reply. Errors: ManagementError, ValidationError
    given       what a CREATE or UPDATE sets, by the names that the request uses
    find        returns the present entity of an UPDATE or DELETE; None if there is none. Raises nothing
    error_body  of a reply that says that nothing was done
    is_core     the type's entities are in the routing core
    """

    facts: ManagementFacts | None
    operation: str
    entity_type: EntityType | None
    perform: Callable[[], tuple[int, object]]
    given: dict[str, object] = field(default_factory=dict, repr=False)
    find: Callable[[], Row | None] = lambda: None
    error_body: object = field(default_factory=dict)
    is_core: bool = False

    @property
    def is_change(self) -> bool:
        """Returns True if the request would change something."""
        return self.operation in CHANGES or (self.facts is not None and self.facts.operation != READ)
