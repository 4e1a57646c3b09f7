"""shadowPolicyDir on a real router: asked, counted, audited, never enforced (issue 5, Shadow)."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, audit_events

from router.management.client import BadRequestStatus, ManagementClient

pytestmark = pytest.mark.interop

LOADED = r"POLICY \(info\) Candidate policy of shadowPolicyDir"
ROUTER = "router {{\n auditDir: {audit}\n}}\n"
POLICY = "policy {{\n enableVhostPolicy: {enabled}\n shadowPolicyDir: {folder}\n policyDirWatchSeconds: 0\n}}\n"
OWN = """vhost {
 hostname: $default
 allowUnknownUser: yes
 groups: {
  "$default": {"remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": true}
 }
}
"""


def vhost(hostname: str = "$default", **group: Any) -> list[Any]:
    default = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
    return ["vhost", {"hostname": hostname, "allowUnknownUser": True, "groups": {"$default": {**default, **group}}}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "candidate"
    folder.mkdir()
    write(folder, vhost(targets="a"))
    return folder


def write(folder: Path, *vhosts: list[Any]) -> None:
    (folder / "a.json").write_text(json.dumps(list(vhosts)))


def reload(router: Daemon, pattern: str) -> None:
    since = router.mark()
    router.signal(signal.SIGHUP)
    router.wait_for_log(pattern, since)


def state(client: ManagementClient) -> dict[str, Any]:
    (row,) = client.query("shadowPolicy").entities()
    return dict(row)


@pytest.mark.parametrize("enabled", ["yes", "no"])
def test_disagreements_are_counted_and_audited_and_change_nothing(
    daemon: Callable[..., Daemon], folder: Path, tmp_path: Path, enabled: str
) -> None:
    audit = tmp_path / "audit"
    text = ROUTER.format(audit=audit) + POLICY.format(enabled=enabled, folder=folder) + OWN + LISTENER
    router = daemon(text)
    router.wait_for_log(LOADED)
    for _ in range(3):
        done = router.tool("qdmanage", "query", "--type", "shadowDisagreement")
        assert done.status == 0, done.err
    (row,) = json.loads(done.out)
    assert row["outcome"] == "would_deny"
    assert row["candidateReason"] == "target_not_allowed"
    assert (row["vhost"], row["reason"], row["count"]) == ("$default", "allowed", 3)
    with router.client() as client:
        shown = state(client)
    assert (shown["state"], shown["wouldDeny"], shown["wouldAllow"], shown["errors"]) == ("active", 4, 0, 0)
    assert shown["decisions"] > 4
    router.end()
    events = audit_events(audit)
    assert {(event["decision"], event["address"]) for event in events} == {("shadow_deny", "$management")}
    assert sum(event["shadow"]["count"] for event in events) == 4
    assert len(events) == 2  # the first, and the rest when the router stopped
    assert events[0]["shadow"]["ruleset_digest"] == shown["digest"]
    assert events[0]["shadow"]["file"] == str(folder / "a.json")


def test_the_folder_is_read_anew_on_sighup(daemon: Callable[..., Daemon], folder: Path) -> None:
    router = daemon(POLICY.format(enabled="yes", folder=folder) + OWN + LISTENER)
    router.wait_for_log(LOADED)
    with router.client() as client:
        before = state(client)
        write(folder, vhost())
        reload(router, LOADED)
        after = state(client)
        assert after["digest"] != before["digest"]
        assert (before["wouldDeny"], after["wouldDeny"], after["connectionCount"]) == (1, 0, 1)
        reload(router, r"Candidate policy: no rule has changed")
        assert state(client)["digest"] == after["digest"]


def test_a_changed_file_is_noticed(daemon: Callable[..., Daemon], folder: Path) -> None:
    watched = POLICY.format(enabled="yes", folder=folder).replace("Seconds: 0", "Seconds: 1")
    router = daemon(watched + OWN + LISTENER)
    router.wait_for_log(LOADED)
    since = router.mark()
    write(folder, vhost())
    router.wait_for_log(LOADED, since)


def test_a_folder_that_becomes_broken_changes_nothing(
    daemon: Callable[..., Daemon], folder: Path, tmp_path: Path
) -> None:
    audit = tmp_path / "audit"
    router = daemon(ROUTER.format(audit=audit) + POLICY.format(enabled="yes", folder=folder) + OWN + LISTENER)
    router.wait_for_log(LOADED)
    with router.client() as client:
        before = state(client)
        (folder / "z.json").write_text("[")
        reload(router, r"POLICY \(error\) Candidate policy of shadowPolicyDir cannot be used, the last that could")
        after = state(client)
        assert (after["state"], after["digest"]) == ("stale", before["digest"])
        assert "z.json:1" in after["error"]
        (folder / "z.json").unlink()
        reload(router, r"Candidate policy: no rule has changed")
        assert (state(client)["state"], state(client).get("error")) == ("active", None)
    router.end()
    (event,) = [event for event in audit_events(audit) if event["decision"] == "shadow_error"]
    assert (event["stage"], event["reason"]) == ("policy", "invalid_policy")
    assert event["shadow"]["file"] == str(folder / "z.json")


def test_a_candidate_that_never_could_be_used_costs_the_router_nothing(
    daemon: Callable[..., Daemon], folder: Path
) -> None:
    write(folder, vhost(maxSenders="many"))
    router = daemon(POLICY.format(enabled="yes", folder=folder) + OWN + LISTENER)
    router.wait_for_log(r"POLICY \(error\) Candidate policy of shadowPolicyDir cannot be used, none is asked")
    with router.client() as client:
        shown = state(client)
        assert (shown["state"], shown["decisions"]) == ("unusable", 0)
        write(folder, vhost("other"))
        reload(router, LOADED)
        (row,) = client.query("shadowDisagreement").entities()  # of the connection that was open already
        assert (row["candidateReason"], row["vhost"], row["count"]) == ("no_vhost", "$default", 1)


def test_a_missing_folder_is_said_with_its_attribute(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    router = daemon(POLICY.format(enabled="no", folder=tmp_path / "none") + LISTENER)
    router.wait_for_log(r"none is asked: shadowPolicyDir: '\S+/none' cannot be read: No such file or directory")


def test_without_a_candidate_nobody_speaks_of_one(daemon: Callable[..., Daemon]) -> None:
    """management 38: GET-TYPES has 29 keys"""
    router = daemon(LISTENER)
    with router.client() as client:
        assert not [name for name in client.node("GET-TYPES") if "shadow" in name]
        with pytest.raises(BadRequestStatus, match="No such entity type"):
            client.query("shadowPolicy")
