"""An explanation tells of the decision that is made, step by step, with the places."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulesets import at, connect, group_ruleset, ruleset

from policy.analysis.explain import Step, explain_connection, explain_link, explain_management
from policy.cli.main import main
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, ManagementFacts, Usage

POLICY = """[
["vhost", {"hostname": "shop", "aliases": "store",
  "maxConnections": 2,
  "groups": {
    "clerks": {"users": "anna",
      "remoteHosts": "10.0.0.0-10.0.0.9",
      "maxSenders": 1,
      "targets": "orders.*, ${user}"},
    "guests": {"users": "bob, bob.smith", "remoteHosts": "10.0.0.1", "targets": "in.${user:escaped}.*"}}}]
]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(POLICY)
    return path


def facts(user: str | None, host: str, vhost: str) -> ConnectionFacts:
    return ConnectionFacts(user=user, remote_host=host, requested_vhost=vhost, connection_name="c")


@pytest.mark.parametrize(
    ("arguments", "status", "texts"),
    [
        (
            ["--user", "anna", "--host", "10.0.0.1", "--vhost", "store", "--send", "orders.x"],
            0,
            [
                "ALLOWED: allowed",
                "+ vhost: 'store' is vhost 'shop', by an alias",
                "+ group: group 'clerks' lists 'anna'",
                "it matches targets: orders.*",
                "policy.json:8]",
            ],
        ),
        (
            ["--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--send", "Orders.x"],
            1,
            ["DENIED: target_not_allowed", "targets of group 'clerks' admits '${user}', 'orders.*'"],
        ),
        (
            ["--user", "bob.smith", "--host", "10.0.0.1", "--vhost", "shop", "--send", "in.bob%2Esmith.x"],
            0,
            ["ALLOWED: allowed", "it matches targets: in.${user:escaped}.*"],
        ),
        (
            ["--user", "bob", "--host", "10.0.0.1", "--vhost", "shop", "--send", "in.bob%2Esmith.x"],
            1,
            ["DENIED: target_not_allowed", "targets of group 'guests' admits 'in.${user:escaped}.*'"],
        ),
        (["--user", "anna", "--host", "10.9.0.1", "--vhost", "shop"], 1, ["- host", "10.0.0.0-10.0.0.9", ":6]"]),
        (["--user", "ben", "--host", "10.0.0.1", "--vhost", "shop"], 1, ["no group of vhost 'shop' lists 'ben'"]),
        (["--host", "10.0.0.1", "--vhost", "x"], 1, ["no vhost is called 'x'"]),
        (
            ["--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--connections", "2"],
            1,
            ["vhost_connection_limit", "- limit: connections to the vhost: 2 open, at most 2"],
        ),
        (
            ["--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--send", "anna", "--links", "1"],
            1,
            ["sender_limit", "senders: 1 open, at most 1"],
        ),
        (["--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--send", ""], 1, ["anonymous_sender"]),
        (["--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--receive-dynamic"], 1, ["dynamic_source"]),
        (["--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--receive", "a"], 1, ["admits nothing"]),
    ],
)
def test_explain(
    arguments: list[str], status: int, texts: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(file), *arguments]) == status
    output = capsys.readouterr().out
    assert [text for text in texts if text not in output] == []


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(file), "--user", "anna", "--host", "10.0.0.1", "--vhost", "shop", "--send", "anna", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["version"], report["decision"]["is_allowed"], report["group"]) == (1, True, "clerks")
    assert report["steps"][-1]["rule"]["line"] == 8


def test_a_configuration_is_explained_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Vhost policy that is switched off governs nobody; a policyDir beside the file is read."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.json").write_text(POLICY)
    conf = tmp_path / "r.conf"
    conf.write_text("policy {\n  policyDir: rules\n}\n")
    assert main(["explain", str(conf), "--host", "10.0.0.1"]) == 0
    assert "enableVhostPolicy is off" in capsys.readouterr().out
    conf.write_text("policy {\n  enableVhostPolicy: yes\n  policyDir: rules\n}\n")
    assert main(["explain", str(conf), "--host", "10.0.0.1", "--user", "anna", "--vhost", "shop"]) == 0


def test_a_wrong_address_or_policy_is_refused(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(file), "--host", "localhost"])
    assert ended.value.code == 2
    bad = tmp_path / "bad.json"
    bad.write_text('[["vhost", {"hostname": "h", "groups": {"g": {"users": "a", "remoteHosts": "h.example"}}}]]')
    assert main(["explain", str(bad), "--host", "::1"]) == 3
    assert "give --resolve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--send", "amqp:/orders.x"], 1, "'amqp:/orders.x' is understood as 'orders.x', which must be allowed"),
        (["--send", "amqp:/$management"], 1, "denyTargets: $management overrides"),
        (["--send", "_local/$management"], 1, "'_local/$management' reaches the management of a router"),
        (["--send", "free/x:/orders/y:/secret"], 1, "DENIED: unclear_address"),
        (["--send", "_topo/0/R/free"], 0, "ALLOWED"),
        (["--send", "_topo/0/R/x"], 0, "ALLOWED"),
        (["--send", "_topo/0/R/x", "--router-id", "R"], 1, "denyTargets: _local/x overrides"),
        (["--send", "free", "--multi-tenant"], 1, "denyTargets: shop/free overrides"),
        (["--send", "/free/", "--multi-tenant"], 1, "denyTargets: shop/free overrides"),
        (["--send", "free"], 0, "ALLOWED"),
    ],
)
def test_an_address_is_judged_as_the_router_does(
    arguments: list[str], status: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """policy 29"""
    group = {"users": "anna", "remoteHosts": "*", "targets": "free*, _topo/*, _local/*, /free/*, $*"}
    group |= {"denyTargets": "$management, _local/x, shop/free"}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps([["vhost", {"hostname": "shop", "groups": {"g": group}}]]))
    assert main(["explain", str(path), "--user", "anna", "--host", "::1", "--vhost", "shop", *arguments]) == status
    assert text in capsys.readouterr().out


def test_the_id_of_the_router_is_that_of_the_configuration(tmp_path: Path) -> None:
    group = {"users": "anna", "remoteHosts": "*", "targets": "*", "denyTargets": "_local/x"}
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.json").write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))
    path = tmp_path / "r.conf"
    path.write_text("router {\n  id: R\n}\npolicy {\n  enableVhostPolicy: yes\n  policyDir: rules\n}\n")
    asked = ["explain", str(path), "--user", "anna", "--host", "::1", "--vhost", "h", "--send", "_topo/0/R/x"]
    assert main(asked) == 1
    assert main([*asked, "--router-id", "S"]) == 0


limits = st.integers(0, 1)
groups = st.fixed_dictionaries(
    {},
    optional={
        "users": st.sampled_from(["bob", "*", "x"]),
        "remoteHosts": st.sampled_from(["*", "10.0.0.1", "::1"]),
        "maxConnectionsPerUser": limits,
        "maxSenders": limits,
        "targets": st.sampled_from(["*", "q", "${user}"]),
        "sourcePattern": st.sampled_from(["#", "q"]),
        "allowAnonymousSender": st.booleans(),
        "allowWaypointLinks": st.booleans(),
    },
)


@given(
    group=groups,
    is_open=st.booleans(),
    user=st.sampled_from(["bob", "", "*"]),
    host=st.sampled_from(["10.0.0.1", "::1"]),
    vhost=st.sampled_from(["h", "y"]),
    total=st.integers(0, 1),
    link=st.builds(
        LinkFacts,
        direction=st.sampled_from(["send", "receive"]),
        address=st.sampled_from([at("q"), at("bob"), at("x:/q"), at("x:/y:/q"), None]),
        is_dynamic=st.booleans(),
        capabilities=st.sampled_from([(), ("qd.waypoint",)]),
        open_links=st.integers(0, 1),
    ),
)
def test_the_steps_lead_to_the_decision(
    group: dict[str, Any], is_open: bool, user: str, host: str, vhost: str, total: int, link: LinkFacts
) -> None:
    """Allowed: no step failed. Denied: one did, and but for limits it is the last."""
    rules = ruleset({"hostname": "h", "allowUnknownUser": is_open, "groups": {"$default": group}})
    explained = explain_connection(rules, facts(user, host, vhost), Usage(total=total, of_user=total))
    found = [explained]
    if explained.settings is not None:
        found.append(explain_link(explained.settings, link))
    for explanation in found:
        failed = [step for step in explanation.steps if step.is_passed is False]
        assert explanation.decision.is_allowed == (not failed)
        if failed and "limit" not in explanation.decision.reason:
            assert failed == [explanation.steps[-1]]


def test_what_cannot_be_judged_is_denied_and_says_so() -> None:
    explained = explain_connection(group_ruleset(), facts("bob", "nowhere", "h"))
    assert explained.decision.reason is Reason.INTERNAL_ERROR
    assert "no numeric address" in explained.steps[-1].text


def test_an_ungoverned_link_is_allowed() -> None:
    assert explain_link(None, LinkFacts(direction="send", address=at("a"))).decision.is_allowed
    assert connect(ruleset(enableVhostPolicy=False)).settings is None


def test_an_explanation_is_told_whole() -> None:
    rules = ruleset(
        {"hostname": "h", "aliases": "i", "groups": {"g": {"users": "bob", "remoteHosts": "*", "targets": "a"}}}
    )
    connected = explain_connection(rules, facts("bob", "::1", "i"))
    assert (connected.vhost, connected.group, connected.steps[0].rule) == (
        "h",
        "g",
        Rule(vhost="h", item="aliases: i"),
    )
    by_name = explain_connection(rules, facts("bob", "::1", "h"))
    assert by_name.steps[0].rule == Rule(vhost="h", item="hostname: h")
    link = explain_link(connected.settings, LinkFacts(direction="send", address=at("a")))
    assert (link.vhost, link.group, link.settings) == ("h", "g", connected.settings)
    asked = explain_management(connected.settings, ManagementFacts(operation="read", entity_type="vhost"))
    assert (asked.vhost, asked.group, asked.settings) == ("h", "g", connected.settings)
    free = explain_management(None, ManagementFacts(operation="read", entity_type="vhost"))
    assert (free.vhost, free.group, free.settings, free.steps[0].rule) == (None, None, None, None)
    unclear = explain_link(connected.settings, LinkFacts(direction="send", address=at("x:/y:/a")))
    assert unclear.decision == Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS, address="x:/y:/a")
    default = explain_connection(rules, facts("bob", "::1", "elsewhere"))
    assert default.steps == (
        Step(
            about="vhost",
            text="no vhost is called 'elsewhere', and there is no default vhost '$default'",
            is_passed=False,
            rule=Rule(item="defaultVhost: $default"),
        ),
    )
    nobody = explain_connection(ruleset({"hostname": "h"}, defaultVhost=""), facts(None, "::1", "elsewhere"))
    assert nobody.steps[0].text == "no vhost is called 'elsewhere', and none is default"
    refused = explain_connection(rules, facts("ann", "::1", "h"))
    assert refused.steps[-1] == Step(
        about="group",
        text="no group of vhost 'h' lists 'ann' or '*', and allowUnknownUser is false",
        is_passed=False,
        rule=Rule(vhost="h", item="allowUnknownUser: false"),
    )
    nowhere = explain_connection(rules, facts("bob", "nowhere", "h"))
    assert nowhere.steps == (
        Step(
            about="facts",
            text="'nowhere' is no numeric address, and what cannot be judged is denied",
            is_passed=False,
        ),
    )
