"""What lint writes for people and pipelines, what a project may decide about it, and what it mends."""

import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

import schemas
from policy.cli.main import main
from policy.cli.rule_pages import pages
from policy.lint.pages import HOME
from policy.lint.rules import RULES
from schemas.versions import product_version

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
    assert main(["lint", "policy.json", "--fix"]) == 1
    assert [rule for rule, *_ in found(capsys)] == ["PAL010", "PAL013"]
    assert main(["diff", "before.json", "policy.json", "--fail-on", "any"]) == 0


def test_unsafe_fixes_are_made_when_asked_for(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.with_name("before.json").write_text(POLICY)
    assert main(["lint", "policy.json", "--fix", "--unsafe"]) == 1
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


# What people see


def test_why_is_said_once_for_each_rule(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "policy.json"])
    output = capsys.readouterr().out
    assert output.count("warning PAL005") == 2
    assert output.count("why: ") == output.count("    see: ") == 4
    main(["lint", "policy.json", "--explain"])
    assert capsys.readouterr().out.count("why: ") == 5


def test_the_last_line_counts_what_was_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "policy.json"])
    fixes = "(3 fixable with --fix, 1 more with --fix --unsafe)"
    assert capsys.readouterr().out.endswith(f"\n5 warnings in 1 file {fixes}\n")
    main(["lint", "policy.json", "missing.json"])
    assert capsys.readouterr().out.endswith(f"\n5 warnings, 1 unreadable file in 1 file {fixes}\n")


def test_concise_is_one_line_for_each_finding(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "policy.json", "--format", "concise"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [f"policy.json:{line}:{column}:" for _, _, line, column in ALL]
    file.write_text("[]")
    assert main(["lint", "policy.json", "--format", "concise"]) == 0
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
@pytest.mark.parametrize("form", ["text", "concise"])
def test_a_terminal_gets_colours_unless_they_are_declined(
    environment: dict[str, str], is_colored: bool, form: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file.write_text(POLICY.replace('"h"', '"h\\u001b[31m"'))
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    main(["lint", "policy.json", "--format", form])
    shown = terminal.getvalue()
    assert ("\x1b[33mwarning PAL010:\x1b[0m" in shown) == is_colored
    # That of the policy's text is spelled out.
    assert "h\\x1b[31m" in shown
    assert "h\x1b" not in shown


def test_what_goes_elsewhere_has_no_colours(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    main(["lint", "policy.json", "--output", "report.txt"])
    main(["lint", "policy.json", "--format", "sarif"])
    assert "\x1b" not in terminal.getvalue() + file.with_name("report.txt").read_text()


def test_progress_is_shown_on_a_terminal_after_a_second(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for is_slow in (True, False):
        monkeypatch.setattr("policy.cli.progress.DELAY_S", 0.0 if is_slow else 60.0)
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        assert main(["lint", "policy.json"]) == 1
        assert ("\rreading files: 0 of 1\x1b[K" in terminal.getvalue()) == is_slow
        assert terminal.getvalue().endswith("\r\x1b[K" if is_slow else "")
    monkeypatch.setattr("policy.cli.progress.DELAY_S", 0.0)
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    main(["lint", "policy.json"])
    assert stream.getvalue() == ""


# What programs see


def test_every_rule_has_a_page_and_its_address(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "policy.json", "--format", "sarif"])
    driver = json.loads(capsys.readouterr().out)["runs"][0]["tool"]["driver"]
    assert driver["version"] == product_version()
    # As long as the project has no place on the web, nothing links to it.
    assert HOME == ""
    assert not any("helpUri" in rule for rule in driver["rules"])
    assert "informationUri" not in driver
    file.with_name("qdpolicy.toml").write_text('docs-url = "https://docs.example.com/qdpolicy"\n')
    main(["lint", "policy.json", "--format", "json"])
    urls = {finding["url"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert "https://docs.example.com/qdpolicy/PAL005.md" in urls


def test_the_pages_of_the_rules_are_current() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "rules"
    written = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert written == pages(), "run python -m policy.cli.rule_pages"


@pytest.mark.parametrize("name", ["policy", "audit_event"])
def test_schemas_have_an_id(name: str) -> None:
    assert schemas.load(name)["$id"] == f"urn:palisade-router:schemas:{name}"


# What a project has decided


def test_notes_about_other_routers_can_be_silenced(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(POLICY.replace('"10.0.0.1"', '"10.0.0.0/8", "denySources": "in.b"'))
    assert {"PAL055", "PAL045"} <= {rule for rule, *_ in found(capsys)}
    file.with_name("qdpolicy.toml").write_text("only-this-router = true\n")
    assert {rule for rule, *_ in found(capsys)} == {"PAL005", "PAL010", "PAL013"}
    file.with_name("qdpolicy.toml").write_text("only-this-router = false\n")
    assert "PAL055" in {rule for rule, *_ in found(capsys)}


@pytest.mark.parametrize("text", ['only-this-router = "yes"', 'docs-url = "javascript:alert(1)"', "docs-url = 1"])
def test_a_wrong_setting_is_status_2(file: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.with_name("qdpolicy.toml").write_text(text)
    assert main(["lint", "policy.json"]) == 2
    assert text.partition(" ")[0] in capsys.readouterr().err


def test_fixes_are_told_with_what_is_left(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "policy.json", "--fix", "--format", "concise"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "policy.json:2:13: mended PAL005: 'id' is 'hostname' now",
        "policy.json:6:28: mended PAL045: 'TRUE' is 'true' now",
        "policy.json:7:32: mended PAL005: 'in.{user}' is 'in.${user}' now",
    ]
    assert [line.split()[2] for line in lines[3:]] == ["PAL010:", "PAL013:"]
    assert main(["lint", "policy.json", "--fix", "--fail-level", "error"]) == 0
    assert capsys.readouterr().out.endswith("\n2 warnings in 1 file (1 with --fix --unsafe)\n")


def test_a_program_reads_only_the_report_of_what_is_left(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "policy.json", "--fix", "--format", "json"]) == 1
    output = capsys.readouterr()
    assert [finding["rule"] for finding in json.loads(output.out)["findings"]] == ["PAL010", "PAL013"]
    assert output.err.count("mended") == 3


def test_nothing_left_is_success(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(POLICY.replace('"allowUserIdProxy": "TRUE",', "").replace("in.${user}*, ", ""))
    assert main(["lint", "policy.json", "--fix"]) == 0
    assert capsys.readouterr().out.endswith("now\nNo findings\n")
