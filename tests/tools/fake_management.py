"""A management node in memory, in the place of the transport."""

from collections.abc import Mapping
from typing import Any

from router.management.client import ManagementClient, Reply
from router.tools.connection_options import ConnectionOptions

PREFIX = "org.apache.qpid.dispatch."


class FakeTransport:
    """Answers QUERY from `tables` (long type -> list of entities) and anything else from `answers`.

    answers  operation -> body, or a function of (properties, body) giving (status, description, body)
    """

    def __init__(
        self, tables: Mapping[str, list[dict[str, Any]]] | None = None, answers: Mapping[str, Any] | None = None
    ) -> None:
        self.tables = {PREFIX + name: rows for name, rows in (tables or {}).items()}
        self.answers = {"GET-MGMT-NODES": [], **(answers or {})}
        self.requests: list[tuple[str, dict[str, Any], Any]] = []
        self.is_closed = False

    def request(self, address: str, application_properties: Mapping[str, Any], body: Any) -> Reply:
        assert not self.is_closed
        self.requests.append((address, dict(application_properties), body))
        operation = application_properties["operation"]
        if operation == "QUERY":
            return self.reply(200, "OK", self.query(application_properties, body))
        answer = self.answers[operation]
        if callable(answer):
            return self.reply(*answer(application_properties, body))
        return self.reply(200, "OK", answer)

    def query(self, properties: Mapping[str, Any], body: Any) -> Any:
        entity_type = properties.get("entityType")
        rows = self.tables.get(entity_type, []) if entity_type else [row for t in self.tables.values() for row in t]
        rows = rows[properties["offset"] :]
        rows = rows[: properties["count"]] if properties["count"] else rows
        names = body.get("attributeNames") or list(dict.fromkeys(name for row in rows for name in row))
        return {"attributeNames": names, "results": [[row.get(name) for name in names] for row in rows]}

    def reply(self, status: int | None, description: str, body: Any) -> Reply:
        return Reply(application_properties={"statusCode": status, "statusDescription": description}, body=body)

    def close(self) -> None:
        self.is_closed = True

    def connect(self, options: ConnectionOptions, address: str) -> ManagementClient:
        """Takes the place of router.tools.transport.connect."""
        self.options, self.is_closed = options, False
        return ManagementClient(self, options.address or address)
