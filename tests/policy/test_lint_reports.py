"""What lint writes for people and pipelines, what a project may decide about it, and what it mends."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

from policy.cli.main import main
from policy.lint.rules import RULES

CASES = Path(__file__).resolve().parent.parent / "lint_cases"
SARIF_SCHEMA = Path(__file__).parent / "sarif" / "sarif-schema-2.1.0.json"
SARIF = Draft4Validator(json.loads(SARIF_SCHEMA.read_text("utf-8")))

POLICY = """[
["vhost", {"id": "h",
  "groups": {
    "g": {"users": "a",
      "remoteHosts": "10.0.0.1",
      "allowUserIdProxy": "TRUE",
      "sources": "in.${user}*, in.{user}"}}}]
]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy with five findings; lint runs beside it."""
    path = tmp_path / "policy.json"
    path.write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return path


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str, int, int]]:
    capsys.readouterr()
    main(["lint", "policy.json", "--format", "json", *arguments])
    report = json.loads(capsys.readouterr().out)
    return [(each["rule"], each["level"], each["line"], each["column"]) for each in report["findings"]]


ALL = [
    ("PAL005", "warning", 2, 13),
    ("PAL010", "warning", 6, 7),
    ("PAL045", "warning", 6, 28),
    ("PAL013", "warning", 7, 19),
    ("PAL005", "warning", 7, 32),
]


def test_findings_point_at_the_item(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys) == ALL


def test_text_shows_the_line_and_what_to_write(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "policy.json"])
    output = capsys.readouterr().out
    assert '    6 |       "allowUserIdProxy": "TRUE",\n      |                            ^^^^\n' in output
    assert "    why: qdrouterd 1.20 takes everything" in output
    assert "    instead: true\n" in output


@pytest.mark.parametrize("name", ["policy.json", "missing.json"])
def test_sarif_is_sarif(file: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", name, "--format", "sarif"])
    report = json.loads(capsys.readouterr().out)
    SARIF.validate(report)
    (run,) = report["runs"]
    assert run["invocations"][0]["executionSuccessful"] == (name == "policy.json")
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(CASES.glob("*.bad.*")), ids=lambda path: path.stem)
def test_every_bad_case_is_reported_in_every_form(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("text", "json", "sarif", "github", "junit"):
        main(["lint", str(case), "--format", form])
        output = capsys.readouterr().out
        assert case.stem.partition(".")[0] in output
        assert "swordfish" not in output
        if form == "sarif":
            SARIF.validate(json.loads(output))
        if form == "junit":
            suites = ElementTree.fromstring(output)
            assert int(suites.get("failures", "0")) == len(suites.findall(".//failure")) > 0


def test_github_annotations_cannot_be_forged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name with a line break in it would begin a workflow command of its own."""
    path = tmp_path / "a,b.json"
    path.write_text('[["vhost", {"hostname": "x\\n::error::%0Aforged", "groups": {"g": {"users": "a"}}}]]')
    main(["lint", str(path), "--format", "github"])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("::warning file=", "::notice file=")) for line in lines)
    assert "a%2Cb.json,line=1,col=" in lines[0]
    assert "%250Aforged" in lines[0]


def test_a_comment_answers_for_what_begins_below_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comment = "# qdpolicy: ignore[PAL010, PAL045] a gateway\n"
    file.write_text(POLICY.replace('      "allowUserIdProxy"', comment + '      "allowUserIdProxy"'))
    assert [rule for rule, *_ in found(capsys)] == ["PAL005", "PAL013", "PAL005"]
    file.write_text(POLICY.replace('["vhost"', "# qdpolicy: ignore[PAL005,PAL010,PAL013,PAL045] old\n" + '["vhost"'))
    assert found(capsys) == []
    file.write_text(POLICY.replace('["vhost"', "# qdpolicy: ignore[PAL010]\n" + '["vhost"'))
    assert [rule for rule, *_ in found(capsys)].count("PAL010") == 1


def test_an_unused_comment_is_found_unless_its_rule_is_left_out(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(POLICY.replace('["vhost"', "# qdpolicy: ignore[PAL016] names move\n" + '["vhost"'))
    assert ("PAL054", "note", 2, 1) in found(capsys)
    assert "PAL054" not in [rule for rule, *_ in found(capsys, "--ignore", "PAL016")]


def test_a_comment_behind_a_line_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "r.conf"
    conf.write_text("listener {\n host: 0.0.0.0\n authenticatePeer: no # qdpolicy: ignore[PAL032] behind a proxy\n}\n")
    assert main(["lint", str(conf), "--fail-level", "note"]) == 0


def test_a_baseline_leaves_only_what_is_new(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "policy.json", "--write-baseline", "known.json"]) == 0
    assert found(capsys, "--baseline", "known.json") == []
    file.write_text("# another line\n" + POLICY.replace('"a"', '"a b"'))
    assert [rule for rule, *_ in found(capsys, "--baseline", "known.json")] == ["PAL043"]
    assert main(["lint", "policy.json", "--baseline", "policy.json"]) == 2


def test_a_configuration_file_is_followed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = file.with_name("qdpolicy.toml")
    config.write_text('fail-level = "error"\nignore = ["PAL005"]\n[levels]\nPAL013 = "note"\n')
    assert main(["lint", "policy.json"]) == 0
    assert [(rule, level) for rule, level, *_ in found(capsys)] == [
        ("PAL010", "warning"),
        ("PAL045", "warning"),
        ("PAL013", "note"),
    ]
    config.write_text('[levels]\nPAL013 = "error"\n')
    assert main(["lint", "policy.json", "--fail-level", "error"]) == 1


@pytest.mark.parametrize(
    "text",
    ["x = 1", 'ignore = ["PAL999"]', 'ignore = "PAL001"', 'levels = {PAL001 = "bad"}', "[", 'fail-level = "all"'],
)
def test_a_wrong_configuration_file_is_status_2(file: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.with_name("qdpolicy.toml").write_text(text)
    assert main(["lint", "policy.json"]) == 2
    assert "qdpolicy.toml" in capsys.readouterr().err


def test_safe_fixes_keep_what_the_policy_means(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.with_name("before.json")
    before.write_text(POLICY)
    assert main(["lint", "policy.json", "--diff"]) == 1
    assert '+["vhost", {"hostname": "h",' in capsys.readouterr().out
    assert file.read_text() == POLICY
    assert main(["lint", "policy.json", "--fix"]) == 0
    assert [rule for rule, *_ in found(capsys)] == ["PAL010", "PAL013"]
    assert main(["diff", "before.json", "policy.json", "--fail-on", "any"]) == 0


def test_unsafe_fixes_are_made_when_asked_for(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.with_name("before.json").write_text(POLICY)
    assert main(["lint", "policy.json", "--fix", "--unsafe"]) == 0
    assert [rule for rule, *_ in found(capsys)] == ["PAL010"]
    assert main(["diff", "before.json", "policy.json", "--fail-on", "widening"]) == 0
    assert main(["diff", "before.json", "policy.json", "--fail-on", "narrowing"]) == 1


def test_a_difference_shows_no_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "r.conf"
    conf.write_text("sslProfile {\n name: t\n password: swordfish\n protocols: TLSv1 TLSv1.2\n}\n")
    assert main(["lint", str(conf), "--diff", "--unsafe"]) == 1
    output = capsys.readouterr().out
    assert "+ protocols: TLSv1.2" in output
    assert "swordfish" not in output


def test_one_rule_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for rule in RULES:
        assert main(["rule", rule.ID]) == 0
        assert capsys.readouterr().out.startswith(f"{rule.ID}: {rule.TITLE} ({rule.FAMILY})\n\n")
