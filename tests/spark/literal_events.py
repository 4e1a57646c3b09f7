"""A valid audit event in literal form, to be varied by the tests."""

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT: dict[str, Any] = {
    "schema_version": 4,
    "event_id": "0" * 32,
    "start": "1" * 32,
    "sequence": 0,
    "time": "2026-11-20T14:05:06.000007Z",
    "router": "R1",
    "connection": 3,
    "connection_name": "192.0.2.7:40000",
    "listener": "0.0.0.0:5671",
    "stage": "attach",
    "decision": "deny",
    "reason": "target_not_allowed",
    "detail": "",
    "rule": {"vhost": "acme", "group": "staff", "item": "targets: a.*", "file": "acme.json", "line": 12},
    "user": "eve",
    "mechanism": "PLAIN",
    "is_encrypted": True,
    "remote_host": "192.0.2.7",
    "requested_vhost": "acme",
    "vhost": "acme",
    "group": "staff",
    "direction": "send",
    "address": "b.c",
    "link_name": "l",
    "usage": None,
    "limit": None,
    "ruleset_digest": "ab" * 32,
    "condition": "amqp:unauthorized-access",
    "truncated": False,
}

SHADOW: dict[str, Any] = {
    "reason": "target_not_allowed", "vhost": "acme", "group": "staff", "item": "targets", "file": "next.json",
    "line": 7, "total": None, "of_user": None, "of_host": None, "limit": None, "ruleset_digest": "cd" * 32, "count": 1,
}  # fmt: skip


FOLDED: dict[str, Any] = {
    "first": "2026-11-20T14:05:01.000000Z", "last": "2026-11-20T14:05:05.500000Z", "owner": "connection",
    "samples": '["a", "b"]',
}  # fmt: skip

DELETED: dict[str, Any] = {
    "file": "denials-20261120T140506.000007Z-R1-77.jsonl", "bytes": 67108864, "start": "1" * 32, "first": 0, "last": 9,
    "limit": "auditMaxBytes", "digest": None,
}  # fmt: skip

MANAGEMENT: dict[str, Any] = {
    "operation": "CREATE", "entity_type": "org.apache.qpid.dispatch.ban", "entity_name": "b",
    "entity_identity": "ban/b", "before": None, "after": '{"name": "b", "user": "eve"}', "status": 201,
}  # fmt: skip


def change_line(*, management: dict[str, Any] | None = None, **changes: Any) -> str:
    """A change by management: members of `management` stand in for those of MANAGEMENT."""
    asked = {**MANAGEMENT, **(management or {})}
    allowed = {"stage": "management", "decision": "allow", "reason": "allowed", "rule": None}
    return line(**{**allowed, **changes}, management=asked)


def shadow_line(
    *, decision: str = "shadow_deny", reason: str = "allowed", shadow: dict[str, Any] | None = None, **changes: Any
) -> str:
    """A decision of a candidate policy: members of `shadow` stand in for those of SHADOW."""
    return line(decision=decision, reason=reason, rule=None, shadow={**SHADOW, **(shadow or {})}, **changes)


def line(**changes: Any) -> str:
    return json.dumps({**EVENT, **changes})


def line_without(name: str) -> str:
    return json.dumps({member: value for member, value in EVENT.items() if member != name})


def frame(session: "SparkSession", *lines: str) -> "DataFrame":
    """An event table of valid lines, as spark.event_table.read_events gives it: for tests of transforms."""
    from spark.event_table import router_dir
    from spark.schemas import event_table

    rows = []
    for offset, text in enumerate(lines):
        event = json.loads(text)
        # Spark takes a datetime without a zone for one of the machine's zone.
        event["time"] = datetime.strptime(event["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        event |= {"source": "palisade", "file": "denials-1.jsonl", "offset": offset}
        rows.append({**event, "day": event["time"].date(), "router_dir": router_dir(event["router"])})
    return session.createDataFrame(rows, event_table())


def table_of(session: "SparkSession", *files: Path) -> Path:
    """An event table of these files alone."""
    from spark import ingest

    work = Path(tempfile.mkdtemp(prefix="table-", dir=files[0].parent.parent if files else None))
    (work / "audit").mkdir()
    for file in files:
        (work / "audit" / file.name).write_bytes(file.read_bytes())
    ingest.once(session, work / "audit", work / "table")
    return work / "table"
