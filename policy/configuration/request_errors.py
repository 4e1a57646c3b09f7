"""Management requests that fail. Pure. Source: docs/spec/management.md §7.2."""

from typing import Final

CHANGE_NOT_ALLOWED: Final = "You are not allowed to perform this operation."


class ManagementError(Exception):
    """A request that fails. Owners raise it too.

    status       statusCode of docs/spec/management.md §7.2
    description  statusDescription; it is sent to the client and logged, so it contains no secret
    attribute    of the entity, the one at fault, by its canonical name; "" if no attribute is at fault
    """

    def __init__(self, status: int, description: str, attribute: str = "") -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.attribute = attribute
