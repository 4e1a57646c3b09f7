"""Expectations beside a policy: met or not, with the place, and which rules they put to use."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from rulesets import ruleset

from policy.analysis.expectations import Expectation, ExpectationFile, coverage_of, read_expectations
from policy.cli.main import main
from policy.decision import Reason
from policy.facts import ConnectionFacts, LinkFacts
from policy.files.loader import PolicyFileError

POLICY = """[["vhost", {"hostname": "h", "groups": {
  "g": {"users": "a", "remoteHosts": "10.0.0.1", "targets": "x, y"},
  "k": {"users": "b", "remoteHosts": "10.0.0.1"}}}]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.json").write_text(POLICY)
    return tmp_path


def expect(folder: Path, *entries: str) -> str:
    path = folder / "expect.json"
    path.write_text('{"policy": "policy.json",\n"expect": [\n' + ",\n".join(entries) + "]}")
    return str(path)


def test_met(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = expect(
        folder,
        '{"user": "a", "host": "10.0.0.1", "vhost": "h", "send": "x", "is": "allow"}',
        '{"user": "a", "host": "10.0.0.1", "vhost": "h", "send": ["z", "$management"], "is": "deny"}',
        '{"host": "10.0.0.1", "vhost": "h", "is": "deny", "reason": "unknown_user"}',
    )
    assert main(["test", file]) == 0
    output = capsys.readouterr().out
    assert output.startswith("4 of 4 expectations met\n2 of 4 rules put to use (50 %)\n")
    assert f"never: vhost 'h', group 'g', targets: y [{folder / 'policy.json'}:2]" in output
    assert "never: vhost 'h', group 'k' [" in output
    assert main(["test", file, "--min-coverage", "50"]) == 0
    assert main(["test", file, "--min-coverage", "51"]) == 1


def test_expectations_of_a_tenant_and_of_a_router(folder: Path) -> None:
    """A denial may be written with the tenant and the id."""
    policy = """[["vhost", {"hostname": "h", "groups": {
      "g": {"users": "a", "remoteHosts": "*", "targets": "*", "denyTargets": "h/x, _local/y"}}}]]"""
    (folder / "policy.json").write_text(policy)
    asked = '"user": "a", "host": "10.0.0.1", "vhost": "h"'
    file = expect(
        folder,
        f'{{{asked}, "send": ["x", "_topo/0/S/y"], "is": "allow"}}',
        f'{{{asked}, "send": ["x", "amqp:/x", "_local/y"], "multiTenant": true, "is": "deny"}}',
        f'{{{asked}, "send": ["_topo/0/R/y", "_edge/R/y"], "is": "deny"}}',
    )
    assert main(["test", file, "--router-id", "R"]) == 0
    assert main(["test", file]) == 1


def test_not_met(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = expect(
        folder,
        '{"user": "a", "host": "10.0.0.1", "vhost": "h", "send": "z", "is": "allow"}',
        '{"name": "wrong reason", "user": "a", "host": "10.0.0.2", "vhost": "h", "is": "deny", "reason": "no_vhost"}',
    )
    junit = folder / "junit.xml"
    assert main(["test", file, "--junit", str(junit)]) == 1
    output = capsys.readouterr().out
    assert f"{file}:3: 'a' from 10.0.0.1: send 'z' is allow\n    found: denied: target_not_allowed, by" in output
    assert f"{file}:4: wrong reason\n    found: denied: host_not_allowed" in output
    assert len(ElementTree.parse(junit).findall(".//failure")) == 2


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ('{"host": "x", "is": "deny"}', "1:37: 'x' is no numeric address"),
        ('{"host": "::1", "is": "maybe"}', '"is" is "allow" or "deny"'),
        ('{"host": "::1", "is": "deny", "reason": "no_vhst"}', "did you mean 'no_vhost'?"),
        ('{"host": "::1", "is": "deny", "adress": "x"}', "unknown member 'adress'"),
        ('{"host": "::1", "is": "deny", "send": []}', "'send' is an address, or a list of them"),
        ('{"host": "::1", "is": "deny", "send": "a", "receive": "a"}', "one of send"),
        ('{"is": "deny"}', '"host" is missing'),
        ("1", "an expectation is a map"),
        ('{"host": 1, "is": "deny"}', "'host' is a text"),
    ],
)
def test_a_wrong_expectation_is_refused_with_its_place(entry: str, text: str) -> None:
    with pytest.raises(PolicyFileError) as refused:
        read_expectations('{"policy": "p", "expect": [        ' + entry + "]}", "f")
    assert text in str(refused.value)


def test_what_cannot_be_used_is_status_3(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "policy.json").write_text("[[")
    assert main(["test", expect(folder), str(folder / "missing.json")]) == 3
    output = capsys.readouterr().out
    assert "policy.json:1:3: a value is missing" in output
    assert "missing.json: cannot be read: No such file or directory" in output


def test_the_quick_start_does_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    file = resources.files("policies") / "quickstart" / "tests" / "expectations.json"
    assert main(["test", str(file), "--min-coverage", "100"]) == 0, capsys.readouterr().out


def test_expectations_are_read_whole() -> None:
    text = """{"policy": "p", "expect": [
      {"host": "::1", "is": "deny"},
      {"name": "n", "user": "u", "host": "10.0.0.1", "vhost": "h", "mechanism": "PLAIN", "tls": true, "groups": ["a"],
       "at": "1970-01-01T00:00:09Z", "send": ["x", "y"], "receive": "z", "replyAge": 0, "multiTenant": true,
       "is": "allow", "reason": "allowed"},
      {"user": "u", "host": "::1", "dynamic": true, "is": "deny"}]}"""
    with pytest.raises(PolicyFileError, match="f:3:7: one of send"):
        read_expectations(text, "f")
    read = read_expectations(text.replace(', "receive": "z"', ""), "f")
    plain = ConnectionFacts(user=None, remote_host="::1", requested_vhost="", connection_name="expected")
    full = ConnectionFacts(
        user="u",
        remote_host="10.0.0.1",
        requested_vhost="h",
        connection_name="expected",
        mechanism="PLAIN",
        is_encrypted=True,
        groups=("a",),
        now=9.0,
    )
    nothing = Expectation(
        name="a peer without a name from ::1: connecting is deny",
        line=2,
        connection=plain,
        asked=None,
        address=None,
        is_multi_tenant=False,
        is_allowed=False,
        reason=None,
    )
    sent = Expectation(
        name="n",
        line=3,
        connection=full,
        asked=LinkFacts(direction="send", address=None, reply_age_s=0),
        address="x",
        is_multi_tenant=True,
        is_allowed=True,
        reason=Reason.ALLOWED,
    )
    dynamic = replace(
        nothing,
        name="'u' from ::1: a dynamic receiver is deny",
        line=6,
        connection=replace(plain, user="u"),
        asked=LinkFacts(direction="receive", address=None, is_dynamic=True),
    )
    assert read == ExpectationFile(policy="p", expectations=(nothing, sent, replace(sent, address="y"), dynamic))
    (received,) = read_expectations(
        '{"policy": "p", "expect": [{"host": "::1", "receive": "a", "is": "deny"}]}', "f"
    ).expectations
    assert received.asked == LinkFacts(direction="receive", address=None)


def test_rules_of_connectors_are_no_expectations_business() -> None:
    groups = {
        "$connector": {"targets": "c"},
        "g": {"users": "u", "remoteHosts": "*", "sources": "a"},
        "k": {"users": "*", "remoteHosts": "*"},
    }
    rules = ruleset({"hostname": "h", "groups": groups})
    unused = coverage_of(rules, ()).unused
    assert [(rule.group, rule.item) for rule in unused] == [
        ("g", "remoteHosts"),
        ("g", "sources: a"),
        ("k", "remoteHosts"),
    ]
    named = ruleset({"hostname": "h", "groups": {"$connector": {"users": "c", "remoteHosts": "*", "targets": "c"}}})
    assert [(rule.group, rule.item) for rule in coverage_of(named, ()).unused] == [
        ("$connector", "remoteHosts"),
        ("$connector", "targets: c"),
    ]
