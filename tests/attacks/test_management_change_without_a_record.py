"""Attack: a user who reaches $management changes the router, and no record says who did it, or what was before."""

import json
from pathlib import Path

import pytest
from daemon_process import LISTENER, audit_events, eventually, start
from governed_router import governed, login, recorded

from router.management.client import BadRequestStatus, ForbiddenStatus, NotFoundStatus

PREFIX = "org.apache.qpid.dispatch"


def test_whatever_changes_is_on_record(tmp_path: Path) -> None:
    """management 100"""
    with (
        governed(tmp_path, {"chief": {"management": "administrator"}}) as router,
        login(router, "chief") as chief,
        login(router, "chief") as other,
    ):
        chief.create({"user": "eve", "reason": "asked too often"}, type="ban", name="no eve")
        made = recorded(router, operation="CREATE")
        assert (made["decision"], made["reason"], made["stage"]) == ("allow", "allowed", "management")
        assert (made["user"], made["remote_host"], made["mechanism"]) == ("chief", "127.0.0.1", "PLAIN")
        assert made["connection"] is not None
        asked = made["management"]
        assert (asked["entity_type"], asked["entity_name"]) == (f"{PREFIX}.ban", "no eve")
        assert (asked["entity_identity"], asked["status"], asked["before"]) == ("ban/no eve", 201, None)
        assert json.loads(asked["after"])["user"] == "eve"

        chief.update({"enable": "debug+"}, type="log", name="log/POLICY")
        asked = recorded(router, operation="UPDATE", entity_type=f"{PREFIX}.log")["management"]
        assert json.loads(asked["after"]) == {"enable": "debug+"}
        assert json.loads(asked["before"]) == {}

        groups = chief.read(type="vhost", name="vhost/$default")["groups"]
        changed = {**groups, "chief": {**groups["chief"], "maxSessions": 7}}
        chief.update({"groups": changed}, type="vhost", name="vhost/$default")
        asked = recorded(router, operation="UPDATE", entity_type=f"{PREFIX}.vhost")["management"]
        assert (json.loads(asked["before"]), json.loads(asked["after"])) == ({}, {"groups.chief.maxSessions": 7})

        number = max((row["identity"] for row in chief.query(type="connection").entities()), key=int)
        chief.update({"adminStatus": "deleted"}, type="connection", identity=number)
        asked = recorded(router, operation="UPDATE", entity_type=f"{PREFIX}.connection")["management"]
        assert json.loads(asked["before"])["adminStatus"] == "enabled"
        assert json.loads(asked["after"])["adminStatus"] == "deleted"
        del other

        chief.delete(type="ban", name="no eve")
        asked = recorded(router, operation="DELETE")["management"]
        assert json.loads(asked["before"])["reason"] == "asked too often"
        assert (asked["after"], asked["status"]) == (None, 204)
        router.wait_for_log(r"AGENT \(info\) \[C\d+\] DELETE of ban 'no eve' by user 'chief' at '127.0.0.1': 204")


def test_what_was_refused_or_failed_is_on_record_as_well(tmp_path: Path) -> None:
    with governed(tmp_path, {"monitor": {"management": "observer"}, "chief": {}}) as router:
        with login(router, "monitor") as monitor, pytest.raises(ForbiddenStatus):
            monitor.create({"user": "chief", "reason": "x" * 100_000}, type="ban", name="no chief")
        event = recorded(router, decision="deny", operation="CREATE")
        assert (event["reason"], event["user"]) == ("management_not_allowed", "monitor")
        assert event["rule"]["item"] == "management: observer"
        assert event["rule"]["file"].endswith("policy.json")
        asked = event["management"]
        assert asked["status"] == 403
        assert len(asked["after"]) <= 1000  # what is refused costs nothing, and may not fill the disk
        assert json.loads(asked["after"])["reason"]["characters"] == 100_002
        with login(router, "chief") as chief:
            with pytest.raises(NotFoundStatus):
                chief.delete(type="ban", name="nobody")
            with pytest.raises(BadRequestStatus):
                chief.create({"host": "127.0.0.1", "nosuch": 1, "pasword": "hidden"}, type="listener", name="l")
        assert recorded(router, operation="DELETE")["management"]["status"] == 404
        asked = recorded(router, operation="CREATE", entity_type=f"{PREFIX}.listener")["management"]
        assert asked["status"] == 400
        assert "hidden" not in str(asked)


def test_reading_leaves_no_record(tmp_path: Path) -> None:
    with governed(tmp_path, {"chief": {}}) as router, login(router, "chief") as chief:
        chief.query(type="connection")
        chief.read(type="router", name="router/governed")
        chief.node("GET-LOG")
        chief.create({"user": "eve"}, type="ban", name="last")
        recorded(router, operation="CREATE")
        assert len(audit_events(tmp_path / "audit")) == 1


def test_a_reload_of_the_rules_is_on_record(tmp_path: Path) -> None:
    with governed(tmp_path, {"clerk": {}}) as router:
        file = tmp_path / "policy" / "policy.json"
        file.write_text(file.read_text().replace('"sources": "*"', '"sources": "orders.*"'))
        router.wait_for_log("Reload of policyDir: 0 vhosts created, 1 updated, 0 deleted")
        event = recorded(router, stage="policy", decision="allow")
        assert "$default" in event["detail"]
        assert event["ruleset_digest"]


def test_without_policy_a_change_is_on_record_too(tmp_path: Path) -> None:
    router = start(tmp_path, f"router {{\n id: r\n auditDir: {tmp_path}/audit\n}}\n{LISTENER}")
    try:
        with router.client() as anybody:
            anybody.create({"arg1": "x"}, type="dummy", name="d")
        assert eventually(lambda: audit_events(tmp_path / "audit"))
        (event,) = audit_events(tmp_path / "audit")
        assert event["management"]["operation"] == "CREATE"
    finally:
        router.end()
