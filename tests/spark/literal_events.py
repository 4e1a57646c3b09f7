"""A valid audit event in literal form, to be varied by the tests."""

import json
from typing import Any

EVENT: dict[str, Any] = {
    "schema_version": 1,
    "event_id": "0" * 32,
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


def line(**changes: Any) -> str:
    return json.dumps({**EVENT, **changes})


def line_without(name: str) -> str:
    return json.dumps({member: value for member, value in EVENT.items() if member != name})
