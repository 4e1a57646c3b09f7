"""What a real router recorded is decided again as it was, by its own configuration (issue 15, replay)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, audit_events

import schemas
from policy.cli.sources import ruleset_of
from spark.replaying.decisions import Replay

pytestmark = pytest.mark.interop

GROUP = {"remoteHosts": '"*"', "sources": '"*"', "targets": '"*"', "allowDynamicSource": "true"}
VHOST = """vhost {{
 hostname: $default
 allowUnknownUser: yes
 groups: {{
  "$default": {{{group}}}
 }}
}}
"""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"remoteHosts": '"192.0.2.1"'}, "host_not_allowed"),
        ({"allowDynamicSource": "false"}, "dynamic_source"),
        ({"targets": '"a"'}, "target_not_allowed"),
        ({"maxSenders": "0"}, "sender_limit"),
        ({"maxConnectionsPerHost": "0"}, "host_connection_limit"),
    ],
)
def test_the_same_ruleset_decides_as_the_router_did(
    daemon: Callable[..., Daemon], tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    audit = tmp_path / "audit"
    group = ", ".join(f'"{name}": {value}' for name, value in {**GROUP, **changes}.items())
    head = f"router {{\n auditDir: {audit}\n}}\npolicy {{\n enableVhostPolicy: yes\n}}\n"
    text = head + VHOST.format(group=group) + LISTENER
    router = daemon(text)
    for _ in range(2):
        assert router.tool("qdmanage", "query", "--type", "router").status != 0
    router.end()
    configuration = tmp_path / "router.conf"
    configuration.write_text(text)
    rules = ruleset_of(configuration)
    events = [event for event in audit_events(audit) if event["reason"] == reason]
    assert len(events) == 2
    for event in events:
        assert event["ruleset_digest"] == rules.digest
        again = Replay(rules).decide({**event, "time_s": 1_763_647_506.0}).decision
        assert again is not None
        rule = again.rule
        assert (again.is_allowed, again.reason.value) == (False, event["reason"])
        assert rule is not None
        assert {name: getattr(rule, name) for name in ("vhost", "group", "item")} == {
            name: event["rule"][name] for name in ("vhost", "group", "item")
        }


HAS_ALLOWS = "auditAllows" in json.dumps(schemas.load("management"))


@pytest.mark.skipif(not HAS_ALLOWS, reason="this router records no allows")
def test_allows_and_denials_are_decided_again_as_they_were(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    group = ", ".join(f'"{name}": {value}' for name, value in GROUP.items())
    head = f"router {{\n auditDir: {audit}\n auditAllows: link\n}}\npolicy {{\n enableVhostPolicy: yes\n}}\n"
    limits = " maxConnectionsPerHost: 1\n groups: {"
    text = head + VHOST.format(group=group).replace(" groups: {", limits) + LISTENER
    router = daemon(text)
    with router.client() as client:
        client.query("router")
        assert router.tool("qdmanage", "query", "--type", "router").status != 0
    router.end()
    configuration = tmp_path / "router.conf"
    configuration.write_text(text)
    asked = Replay(ruleset_of(configuration))
    seen = set()
    for event in audit_events(audit):
        if event["stage"] not in ("open", "attach"):
            continue
        decision = asked.decide({**event, "time_s": 1_763_647_506.0}).decision
        assert decision is not None, event
        assert (decision.is_allowed, decision.reason.value) == (event["decision"] == "allow", event["reason"])
        seen.add((event["stage"], event["reason"], bool(event.get("asked"))))
    assert seen == {
        ("open", "allowed", False), ("open", "host_connection_limit", False), ("attach", "allowed", False),
        ("attach", "allowed", True),
    }  # fmt: skip
