"""Which files `qdpolicy lint` takes for what, which rules it asks, and where. Issue 37, point 1."""

import json
from pathlib import Path

import pytest

from policy.cli.main import main

ROUTER = "router {\n    id: A\n}\nlistener {\n    host: 127.0.0.1\n    prt: 1\n}\n"
SASL = "pwcheck_method: auxprop\nauxprop_plugin: userfile\nuserfile_path: users\nmech_list: PLAIN\n"
GROUP = {"users": "a", "remoteHosts": "::1", "sources": "a b"}
VHOST = ["vhost", {"hostname": "h", "groups": {"g": GROUP}}]


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    """Exit status; `file:line rule` of each finding; standard error."""
    capsys.readouterr()
    status = main(["lint", "--format", "concise", *arguments])
    found = capsys.readouterr()
    lines = [line.split(": ", 2) for line in found.out.splitlines()]
    return status, [f"{place.rpartition(':')[0]} {level.split()[-1]}" for place, level, *_ in lines], found.err


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("etc/sasl", "etc/policy", "lone", ".hidden"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/qdrouterd.conf").write_text(f"{ROUTER}policy {{\n    policyDir: policy\n}}\n")
    (tmp_path / "etc/sasl/qdrouterd.conf").write_text(SASL)
    (tmp_path / "etc/policy/p.json").write_text(json.dumps([VHOST]))
    (tmp_path / "lone/p.json").write_text(json.dumps([VHOST]))
    (tmp_path / "lone/r.json").write_text(json.dumps([["router", {"id": "B"}], ["listener", {"port": 99999}]]))
    (tmp_path / ".hidden/p.json").write_text(json.dumps([VHOST]))
    (tmp_path / "package.json").write_text('{"name": "x"}')
    return tmp_path


def test_a_folder_is_walked_and_each_file_is_what_its_content_says(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once: a policyDir with its router. Hidden folders, other JSON and SASL's configuration are left alone."""
    status, found, err = lint(capsys, ".", "--select", "PAL042", "--select", "pal043", "--select", "PAL150")
    assert (status, err) == (1, "")
    assert sorted(found) == [
        "etc/policy/p.json:1 PAL043",
        "etc/qdrouterd.conf:6 PAL042",
        "lone/p.json:1 PAL043",
        "lone/r.json:1 PAL150",
    ]


def test_a_fleet_has_the_routers_of_both_forms_and_no_configuration_of_sasl(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "lone/r.json").write_text(json.dumps([["router", {"id": "A"}], ["listener", {"port": 1}]]))
    status, found, _ = lint(capsys, "--fleet", ".", "--select", "PAL110")
    assert (status, found) == (1, ["lone/r.json:1 PAL110"])


def test_a_configuration_of_sasl_is_no_fault(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hook of pre-commit names each qdrouterd.conf there is."""
    status, found, err = lint(capsys, "etc/sasl/qdrouterd.conf")
    assert (status, found) == (0, [])
    assert "this is a configuration of SASL" in err


def test_a_family_is_selected(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = {each.split()[-1] for each in lint(capsys, "etc", "--select", "correctness")[1]}
    assert rules == {"PAL042", "PAL043"}


def test_rules_are_ignored_by_path(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "qdpolicy.toml").write_text('[per-path-ignores]\n"etc/*" = ["PAL042"]\n"lone/*" = ["PAL043"]\n')
    found = lint(capsys, ".", "--select", "PAL042", "--select", "PAL043")[1]
    assert found == ["etc/policy/p.json:1 PAL043"]


def test_a_name_that_was_meant_is_an_unsafe_fix(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tree / "etc/qdrouterd.conf"
    file.write_text("listener {\n    prt: 1\n    role: nromal\n}\n")
    assert lint(capsys, "--fix", "etc/qdrouterd.conf", "--select", "correctness")[0] == 1
    _, _, err = lint(capsys, "--diff", "etc/qdrouterd.conf", "--select", "correctness")
    assert "no fix is safe (2 with --fix --unsafe)" in err
    assert lint(capsys, "--fix", "--unsafe", "etc/qdrouterd.conf", "--select", "correctness")[0] == 0
    assert file.read_text() == "listener {\n    port: 1\n    role: normal\n}\n"


@pytest.mark.parametrize(
    ("section", "rule"),
    [
        (["policyRuleset", {"applicationName": "v"}], "PAL042"),
        (["listener", {"prt": 5672}], "PAL042"),
        (["listener", {"port": 99999}], "PAL014"),
        (["listener", {"role": "nromal"}], "PAL150"),
    ],
)
def test_other_sections_in_a_policy_dir_are_judged_as_the_router_judges_them(
    section: list[object], rule: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PAL014, passed over, only where it really is."""
    (tree / "etc/policy/p.json").write_text(json.dumps([section, VHOST]))
    found = lint(capsys, "etc/qdrouterd.conf", "--ignore", "PAL043")[1]
    assert [each for each in found if each.startswith("etc/policy")] == [f"etc/policy/p.json:1 {rule}"]


def test_a_json_configuration_is_explained_as_the_router_takes_it(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a `policy` section vhosts restrict nobody."""
    (tree / "r.json").write_text(json.dumps([["router", {"id": "B"}], ["listener", {"port": 1}], VHOST]))
    asked = ["explain", "r.json", "--user", "eve", "--host", "::1", "--vhost", "h", "--receive", "x"]
    assert main(asked) == 0
    assert capsys.readouterr().out.startswith("ALLOWED")
    (tree / "r.json").write_text(
        json.dumps([["router", {"id": "B"}], ["listener", {"port": 1}], ["policy", {"enableVhostPolicy": True}], VHOST])
    )
    assert main(asked) == 1
