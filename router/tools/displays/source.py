"""Where a display gets its rows from."""

from dataclasses import dataclass
from typing import Any

from router.management.client import ManagementClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """client      of the router to show
    limit       at most so many rows, 0 for all; only the displays that use `limited` honour it
    is_verbose  more columns
    """

    client: ManagementClient
    limit: int = 0
    is_verbose: bool = False

    def all(self, entity_type: str) -> list[dict[str, Any]]:
        """All entities of a short type name, in the router's order."""
        return list(self.client.query(f"org.apache.qpid.dispatch.{entity_type}").entities())

    def limited(self, entity_type: str) -> list[dict[str, Any]]:
        found = self.client.query(f"org.apache.qpid.dispatch.{entity_type}", count=self.limit).entities()
        return list(found)
