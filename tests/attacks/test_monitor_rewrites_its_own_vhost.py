"""Attack: a group for monitoring reaches $management, and gives itself every right with one UPDATE of its vhost."""

from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from governed_router import GROUP, governed, login, recorded

from router.management.client import BadRequestStatus, ForbiddenStatus

MINE = {"monitor": {**GROUP, "users": "monitor", "management": "administrator"}}


@pytest.mark.parametrize("role", ["observer", "operator", ["read *"], ["create listener", "read *"], "none"])
def test_a_monitor_cannot_rewrite_its_own_vhost(tmp_path: Path, role: Any) -> None:
    with governed(tmp_path, {"monitor": {"management": role}, "chief": {"management": "administrator"}}) as router:
        with login(router, "monitor") as monitor:
            with pytest.raises(ForbiddenStatus, match=r"it takes the right 'update vhost'|no rights of management"):
                monitor.update({"groups": MINE}, type="vhost", name="vhost/$default")
            with pytest.raises(ForbiddenStatus):
                monitor.update({"groups": MINE}, identity="vhost/$default")
            with pytest.raises(ForbiddenStatus):
                monitor.create({"hostname": "mine", "groups": MINE}, type="vhost", name="mine")
            with pytest.raises(ForbiddenStatus):
                monitor.delete(type="vhost", name="vhost/$default")
        with login(router, "chief") as chief:
            groups = chief.read(type="vhost", name="vhost/$default")["groups"]
            assert groups["monitor"]["management"] == role
        event = recorded(router, operation="UPDATE", decision="deny", reason="management_not_allowed")
        assert (event["user"], event["remote_host"], event["management"]["status"]) == ("monitor", "127.0.0.1", 403)


def test_a_new_way_in_gives_no_other_rights(tmp_path: Path) -> None:
    """Who may make connectors cannot make one whose peer reaches $management."""
    rights = {"management": ["create, delete connector", "read *"]}
    with governed(tmp_path, {"linker": rights}) as router, login(router, "linker") as linker:
        given = {"host": "127.0.0.1", "port": str(free_port()), "allowManagement": True}
        with pytest.raises(BadRequestStatus, match="Cannot set attribute 'allowManagement' in CREATE"):
            linker.create(given, type="connector", name="back door")
        assert [row["name"] for row in linker.query(type="connector").entities()] == []


def test_the_next_request_is_judged_by_the_rules_as_they_are_then(tmp_path: Path) -> None:
    groups: dict[str, Any] = {"clerk": {"management": "administrator"}, "chief": {"management": "administrator"}}
    with governed(tmp_path, groups, policy="onPolicyChange: enforce") as router, login(router, "clerk") as clerk:
        clerk.create({"user": "eve"}, type="ban", name="one")
        with login(router, "chief") as chief:
            written = chief.read(type="vhost", name="vhost/$default")["groups"]
            less = {**written, "clerk": {**written["clerk"], "management": "observer"}}
            chief.update({"groups": less}, type="vhost", name="vhost/$default")
        with pytest.raises(ForbiddenStatus, match="it takes the right 'create ban'"):
            clerk.create({"user": "mallory"}, type="ban", name="two")
        assert [row["name"] for row in clerk.query(type="ban").entities()] == ["one"]
