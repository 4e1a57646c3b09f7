"""Live entities that requests can change, and entities that requests cannot see.

Sources: docs/spec/management.md §7.3, §8.8, §8.9; docs/spec/routing.md §1.10.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from policy.configuration.kinds.kind import Kind, Row
from policy.configuration.request_errors import CHANGE_NOT_ALLOWED, ManagementError
from policy.configuration.schema import EntityType, ValidationError

# Connections between routers belong to the network. The operator of one router does not manage them.
_ROUTER_ROLES: Final = ("inter-router", "edge")


class NodeKind(Kind):
    """`management`: the management node itself, called `self`."""

    def may_have(self, attribute: str, value: str) -> bool:
        return value == "self"


class ConsoleKind(Kind):
    """`console` is accepted in a configuration file, without any effect."""

    is_passive_in_file = True
    deprecation = "Console entity is deprecated: Use http:yes on listener entity instead"
    is_hidden = True
    forbidden = frozenset({"QUERY", "CREATE", "READ", "UPDATE", "DELETE"})
    refused_query: ClassVar[Mapping[str, object]] = {"attributeNames": [], "results": []}


class ConnectionKind(Kind):
    """`connection`: an UPDATE closes it, or switches its frame trace on or off."""

    forbidden = frozenset({"DELETE"})

    def selector(self, properties: Row) -> tuple[str, object]:
        if properties.get("identity") is None:
            raise ValidationError("Name not supported. Identity required")
        return super().selector(properties)

    def wanted(self, entity_type: EntityType, find: Callable[[], Row], body: object) -> tuple[Row, dict[str, object]]:
        given = body if isinstance(body, Mapping) else {}
        status, trace = given.get("adminStatus"), given.get("enableProtocolTrace")
        try:
            row = find()
        except (ManagementError, ValidationError):
            row = None
        if row is None or (status is None and trace is None) or status not in (None, "enabled", "deleted"):
            raise ValidationError("Bad Request")
        changes: dict[str, object] = {}
        if trace is not None:
            attribute = entity_type.attributes["enableProtocolTrace"]
            changes["enableProtocolTrace"] = attribute.convert(trace, entity_type.long_name)
        if status == "deleted":
            if row.get("role") in _ROUTER_ROLES:
                raise ManagementError(403, CHANGE_NOT_ALLOWED)
            changes["adminStatus"] = "deleted"
        return row, changes


class LinkKind(Kind):
    """`router.link`: an UPDATE of its adminStatus is accepted but changes nothing."""

    def wanted(self, entity_type: EntityType, find: Callable[[], Row], body: object) -> tuple[Row, dict[str, object]]:
        row = find()
        if not isinstance(body, Mapping) or body.get("adminStatus") is None:
            raise ValidationError("Bad Request")
        return row, {}
