"""The rows for a display."""

from dataclasses import dataclass
from typing import Any

from router.management.client import ManagementClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The router to show.

    client      of the router
    limit       the maximum of rows, 0 for all; only the displays that use `limited` apply it
    is_verbose  True for more columns
    """

    client: ManagementClient
    limit: int = 0
    is_verbose: bool = False

    def all(self, entity_type: str) -> list[dict[str, Any]]:
        """Returns all entities of a short type name, in the router's order."""
        return list(self.client.query(f"org.apache.qpid.dispatch.{entity_type}").entities())

    def limited(self, entity_type: str) -> list[dict[str, Any]]:
        found = self.client.query(f"org.apache.qpid.dispatch.{entity_type}", count=self.limit).entities()
        return list(found)
