"""Every rule finds its bad case, and only it; nothing finds anything in a good case."""

import json
import time
from importlib import resources
from pathlib import Path

import pytest

from policy.attributes import SourceLocation
from policy.cli.main import main
from policy.cli.sasl import sasl_text
from policy.files.sections import Section
from policy.files.validation import load_sections
from policy.lint import mute_responder
from policy.lint.findings import Level, LintRule, PolicyText
from policy.lint.rules import FLEET_RULES, RULES, check_all, check_fleet

CASES = Path(__file__).resolve().parent.parent / "lint_cases"
# A case of a rule that looks at several routers is a folder of configurations.
FLEET_CASES = CASES.parent / "fleet_cases"
OF_ONE_ROUTER = [rule for rule in RULES if rule not in FLEET_RULES]
NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
EXAMPLES = ("quickstart", "tenants")


def findings_of(path: Path) -> list[tuple[str, int]]:
    text = path.read_text("utf-8")
    sections = load_sections(text, str(path))
    found = check_all(sections, texts={str(path): text}, now=NOW, sasl=sasl_text(sections, str(path)))
    return [(finding.rule, finding.line) for finding in found]


def case(rule: LintRule, kind: str) -> Path:
    (path,) = CASES.glob(f"{rule.ID}.{kind}.*")
    return path


def fleet_findings_of(folder: Path) -> list[tuple[str, str]]:
    """(rule, file) of each."""
    files = sorted(folder.glob("*.conf"))
    routers = tuple(PolicyText(entities=load_sections(file.read_text("utf-8"), str(file))) for file in files)
    found = check_fleet(routers, texts={str(file): file.read_text("utf-8") for file in files})
    return [(finding.rule, Path(finding.file).name) for finding in found]


@pytest.mark.parametrize("rule", OF_ONE_ROUTER, ids=lambda rule: rule.ID)
def test_a_rule_finds_its_bad_case_and_nothing_else_does(rule: LintRule) -> None:
    found = findings_of(case(rule, "bad"))
    assert {id_ for id_, _ in found} == {rule.ID}


@pytest.mark.parametrize("rule", FLEET_RULES, ids=lambda rule: rule.ID)
def test_a_rule_of_a_fleet_finds_its_bad_case_and_nothing_else_does(rule: LintRule) -> None:
    assert {id_ for id_, _ in fleet_findings_of(FLEET_CASES / f"{rule.ID}.bad")} == {rule.ID}
    assert fleet_findings_of(FLEET_CASES / f"{rule.ID}.good") == []


def test_a_folder_of_routers_is_checked_as_a_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where each router has a folder of its own. Without --fleet nothing is said of the fleet."""
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "qdrouterd.conf").write_text("router {\n    id: same\n}\n")
    arguments = ["lint", str(tmp_path), "--fleet", "--format", "concise"]
    assert main(arguments) == 1
    place = tmp_path / "B" / "qdrouterd.conf"
    text = f"the id 'same' is also that of {tmp_path / 'A' / 'qdrouterd.conf'}"
    assert f"{place}:2:5: error PAL110: router: {text}" in capsys.readouterr().out
    assert main([*arguments, "--ignore", "PAL110"]) == 0
    assert main(["lint", str(tmp_path / "A" / "qdrouterd.conf"), str(place)]) == 0
    place.write_text("router {\n    # qdpolicy: ignore[PAL110] a test\n    id: same\n}\n")
    assert main(arguments) == 0
    place.write_text("router {\n    # qdpolicy: ignore[PAL110] once it was\n    id: other\n}\n")
    capsys.readouterr()
    main(arguments)
    assert "there is no finding of PAL110 to ignore here" in capsys.readouterr().out


def test_an_empty_fleet_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--fleet", str(tmp_path)]) == 3
    assert "there is no configuration of a router in this folder or below it" in capsys.readouterr().out


def test_rules_of_a_fleet_say_nothing_about_one_router() -> None:
    for folder in FLEET_CASES.iterdir():
        for file in folder.iterdir():
            entities = load_sections(file.read_text("utf-8"), str(file))
            assert not any(list(rule.check(PolicyText(entities=entities))) for rule in FLEET_RULES)


@pytest.mark.parametrize("rule", OF_ONE_ROUTER, ids=lambda rule: rule.ID)
def test_a_good_case_is_good_for_all_rules(rule: LintRule) -> None:
    assert findings_of(case(rule, "good")) == []


def test_rules_are_ordered_documented_and_all_have_cases() -> None:
    ids = [rule.ID for rule in RULES]
    assert ids == sorted(set(ids))
    assert all(rule.__doc__ and rule.TITLE for rule in RULES)
    assert sorted(path.stem for path in CASES.iterdir()) == sorted(
        f"{rule.ID}.{kind}" for rule in OF_ONE_ROUTER for kind in ("bad", "good")
    )
    assert sorted(path.name for path in FLEET_CASES.iterdir()) == sorted(
        f"{rule.ID}.{kind}" for rule in FLEET_RULES for kind in ("bad", "good")
    )


@pytest.mark.parametrize(
    ("groups", "ids"),
    [
        (
            {"g": {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}},
            {"PAL006", "PAL007", "PAL012", "PAL070"},
        ),
        ({"g": {"users": "a", "remoteHosts": "*", "sourcePattern": "#", "targets": "*"}}, {"PAL007", "PAL070"}),
        ({"g": {"users": "a", "remoteHosts": "*", "sources": "*"}}, set()),
        ({"g": {"users": "a"}}, {"PAL008"}),
        ({"g": {"remoteHosts": "*"}}, {"PAL008", "PAL022", "PAL025"}),
        ({"$connector": {"sources": "a"}}, set()),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "sourcePattern": "a.b*"}}, {"PAL015"}),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "sourcePattern": "/, a"}}, {"PAL015"}),
        ({"g": {"users": "a,\tb", "remoteHosts": "127.0.0.1", "targets": "b"}}, {"PAL080"}),
        ({"g": {"users": "a,\u00a0b", "remoteHosts": "127.0.0.1", "targets": "b"}}, {"PAL080"}),
        ({"g": {"users": ["a", "b\u2003"], "remoteHosts": "127.0.0.1", "targets": "b"}}, {"PAL080"}),
        (
            {"g": {"users": ["a, b"], "remoteHosts": "127.0.0.1", "sources": "a", "denySources": ["b "]}},
            {"PAL055", "PAL065", "PAL080"},
        ),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "targetPattern": "x${user}.b"}}, {"PAL001", "PAL015"}),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "targetPattern": "b.x${user}"}}, {"PAL015"}),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "targets": "#"}}, {"PAL015"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "targets": "${user}.*"}}, {"PAL081"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sources": "in.${user}/x*"}}, {"PAL081"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sourcePattern": "${user}/in/#"}}, {"PAL081"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "targetPattern": "#.${user}"}}, {"PAL081"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "targetPattern": "in/*/${user}"}}, {"PAL081"}),
        ({"g": {"users": "a, b.a", "remoteHosts": "127.0.0.1", "sourcePattern": "#/${user}"}}, {"PAL081"}),
        ({"g": {"users": "a, a.b", "remoteHosts": "127.0.0.1", "sourcePattern": "#/${user}"}}, set()),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sourcePattern": "#.${user:escaped}"}}, {"PAL055"}),
        ({"g": {"users": "a, _local", "remoteHosts": "127.0.0.1", "sources": "x"}}, {"PAL169"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sources": "${user}.in, in.${user}"}}, set()),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "targetPattern": "${user}/in, in/${user}, x/#"}}, set()),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "targets": "${user}.*"}}, set()),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sources": "${user:escaped}.*"}}, {"PAL055"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sources": "${user:escaped}*"}}, {"PAL013", "PAL055"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sourcePattern": "in/${user:escaped}"}}, {"PAL055"}),
        ({"g": {"users": "*", "remoteHosts": "127.0.0.1", "sourcePattern": "x${user:escaped}"}}, {"PAL015", "PAL055"}),
        (
            {"g": {"users": "a", "authenticatorGroups": "x", "remoteHosts": "127.0.0.1", "targets": "${user}.*"}},
            {"PAL055", "PAL081"},
        ),
        ({"g": {"users": "a", "remoteHosts": "127.0.0.1", "maxConnections": 1}}, {"PAL004", "PAL022"}),
        ({"g": {"users": "a", "remoteHosts": "b.example - 10.0.0.1", "maxSessions": 1}}, {"PAL016", "PAL022"}),
        ({"g": {"users": "a", "remoteHosts": "10.0.0.1/8"}}, {"PAL001", "PAL022", "PAL055"}),
        ({"g": {"users": "a", "remoteHosts": "::fffe:0:0-::1:0:0:0", "sources": "a"}}, {"PAL060"}),
        ({"g": {"users": "a", "remoteHosts": "::1-::fffe:0:0", "sources": "a"}}, set()),
        ({"g": {"users": "a", "remoteHosts": "::1", "sources": "a", "maxSessionWindow": 16383}}, {"PAL062"}),
        ({"g": {"users": "a", "remoteHosts": "::1", "sources": "a", "maxSessionWindow": 16384}}, set()),
        (
            {
                "g": {"authenticatorGroups": "ops", "remoteHosts": "::1", "sources": "a"},
                "k": {"users": "a", "authenticatorGroups": ["ops"], "remoteHosts": "::1", "sources": "a"},
            },
            {"PAL003", "PAL055"},
        ),
    ],
)
def test_groups(tmp_path: Path, groups: object, ids: set[str]) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps([["vhost", {"hostname": "h", "groups": groups}]]))
    assert {id_ for id_, _ in findings_of(file)} == ids


def test_an_extension_of_the_policy_section_is_told(tmp_path: Path) -> None:
    file = tmp_path / "router.conf"
    file.write_text("policy {\n enableVhostPolicy: yes\n onPolicyChange: enforce\n shadowPolicyDir: /x\n}\n")
    found = [each for each in check_all(load_sections(file.read_text(), str(file))) if each.rule == "PAL055"]
    assert [each.line for each in found] == [3]  # one note for a file
    assert found[0].text.endswith("1 more in this file (line 4)")


def test_bans_and_the_rule_that_makes_them_are_extensions_and_its_terms_want_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "router.conf"
    file.write_text("policy {\n banSeconds: 60\n}\nban {\n user: eve\n}\n")
    assert set(findings_of(file)) >= {("PAL055", 2), ("PAL057", 2)}
    file.write_text("policy {\n banAfterFailures: 3\n banAllowList: 0.0.0.0/1, 128.0.0.0/1\n}\n")
    assert ("PAL057", 3) in findings_of(file)
    file.write_text("policy {\n banAfterFailures: 3\n banAllowList: ::/0\n}\n")
    assert ("PAL057", 3) in findings_of(file)
    file.write_text("policy {\n banAfterFailures: 3\n banAllowList: 0.0.0.0/1, ::/1\n}\n")
    assert "PAL057" not in dict(findings_of(file))


@pytest.mark.parametrize(
    ("denied", "ids"),
    [
        ("orders.*.secret", {"PAL015"}),
        ("orders.a, orders.*", {"PAL017", "PAL064"}),
        ("orders.a, orders.a", {"PAL018"}),
        ("orders.a orders.b", {"PAL043"}),
        ("stock", {"PAL065"}),
        ("amqp:/orders.a", set()),
        ("orders.a", set()),
    ],
)
def test_denials_are_lists_like_others(tmp_path: Path, denied: str, ids: set[str]) -> None:
    file = tmp_path / "policy.json"
    group = {"users": "a", "remoteHosts": "::1", "targets": "orders.*", "denyTargets": denied}
    file.write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))
    assert {id_ for id_, _ in findings_of(file)} == ids | {"PAL055"}


@pytest.mark.parametrize(
    ("sections", "is_served"),
    [
        (
            "authServicePlugin {\n name: s\n host: ::1\n}\nlistener {\n saslPlugin: s\n saslMechanisms: GSSAPI\n}\n",
            True,
        ),
        (
            "kerberosAuthenticator {\n name: k\n keytab: /k\n}\n"
            "listener {\n authenticators: k\n saslMechanisms: GSSAPI\n}\n",
            True,
        ),
        (
            "fileAuthenticator {\n name: f\n path: /f\n}\nlistener {\n authenticators: f\n saslMechanisms: GSSAPI\n}\n",
            False,
        ),
        ("listener {\n saslMechanisms: GSSAPI\n}\n", False),
    ],
)
def test_a_mechanism_is_unserved_only_where_nobody_can_answer_it(
    sections: str, is_served: bool, tmp_path: Path
) -> None:
    file = tmp_path / "r.conf"
    file.write_text(sections)
    assert ("PAL087" not in dict(findings_of(file))) == is_served


def test_a_name_that_a_certificate_gives_may_have_a_blank(tmp_path: Path) -> None:
    users = {"users": "Example Org;Sensors;http-adapter", "sources": "a"}
    assert "PAL043" not in warnings_of({"g": {**GROUP, **users}}, tmp_path)


def test_old_names_in_a_configuration_are_found_and_understood(tmp_path: Path) -> None:
    """`verifyHostName: no` is as bad as `verifyHostname: no`, and `certDb` is as good as `caCertFile`."""
    file = tmp_path / "r.conf"
    file.write_text(
        "sslProfile {\n name: p\n certDb: a\n}\n"
        "listener {\n host: ::1\n saslMechanisms: EXTERNAL\n sslProfile: p\n}\n"
        "connector {\n sslProfile: p\n verifyHostName: no\n}\n"
    )
    assert findings_of(file) == [("PAL005", 3), ("PAL005", 12), ("PAL036", 12)]


def test_default_behind_a_group_for_everybody_is_unused(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    groups = {
        "all": {"users": "*", "remoteHosts": "10.0.0.1", "sources": "a"},
        "$default": {"remoteHosts": "10.0.0.1", "sources": "a"},
    }
    file.write_text(json.dumps([["vhost", {"hostname": "h", "allowUnknownUser": True, "groups": groups}]]))
    assert {id_ for id_, _ in findings_of(file)} == {"PAL008"}


def test_a_finding_names_the_line_of_the_attribute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.json"
    file.write_text(
        '# a comment\n[["vhost", {\n"hostname": "h",\n"groups": {"g": {"users": "a", "sources": "a",\n'
        '"remoteHosts": "10.0.0.1",\n'
        '"allowUserIdProxy": true}}}]]\n'
    )
    assert main(["lint", str(file)]) == 1
    assert capsys.readouterr().out.startswith(f"{file}:6:1: warning PAL010: vhost 'h' group 'g': ")


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_clean(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = resources.files("policies") / example
    assert main(["lint", str(folder), "--fail-level", "note"]) == 0
    assert capsys.readouterr().out == "No findings\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["PAL010.good.json"], 0),
        (["PAL010.bad.json"], 1),
        (["PAL010.bad.json", "--fail-level", "error"], 0),
        (["PAL010.bad.json", "--ignore", "PAL010"], 0),
        (["PAL018.bad.json"], 0),
        (["PAL018.bad.json", "--fail-level", "note"], 1),
        (["PAL002.bad.json", "--fail-level", "error"], 1),
        (["missing.json", "PAL010.bad.json"], 3),
    ],
)
def test_exit_status(arguments: list[str], status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    assert main(["lint", *arguments]) == status


@pytest.mark.parametrize(
    "arguments", [[], ["lint"], ["lint", ".", "--ignore", "PAL999"], ["rules", "PAL999"], ["unknown"]]
)
def test_a_wrong_command_line_is_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", b"[[", "a.json:1:3: invalid: a value is missing before the end of the file"),
        ("a.json", b'["\xff"]', "not UTF-8, beginning with byte 3"),
        ("a.txt", b"vhost {}", "policy files are JSON and end in .json"),
    ],
)
def test_what_is_no_policy_is_status_3(
    name: str, content: bytes, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["lint", str(tmp_path / name)]) == 3
    assert text in capsys.readouterr().out


def test_a_folder_without_policies_does_not_pass_for_clean(tmp_path: Path) -> None:
    (tmp_path / "policy.conf").write_text("")
    assert main(["lint", str(tmp_path)]) == 3


def test_files_of_a_folder_are_looked_at_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """policy 12: one name for two vhosts, in two files."""
    (tmp_path / "a.json").write_text('[["vhost", {"hostname": "a"}]]')
    (tmp_path / "b.json").write_text('[["vhost", {"hostname": "b",\n"aliases": "c, a"}]]')
    assert main(["lint", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert main(["lint", str(tmp_path)]) == 1
    text = "Policy for vhost 'b' defines alias 'a' which conflicts with an existing vhost named 'a'"
    assert f"{tmp_path / 'b.json'}:2:1: error PAL001: {text}" in capsys.readouterr().out


def test_json_report(capsys: pytest.CaptureFixture[str]) -> None:
    bad = str(CASES / "PAL010.bad.json")
    main(["lint", "--format", "json", bad, "missing.json"])
    report = json.loads(capsys.readouterr().out)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["level"], finding["file"]) == ("PAL010", Level.WARNING.name.lower(), bad)
    (problem,) = report["problems"]
    assert (problem["file"], problem["line"]) == ("missing.json", 1)


def test_a_policy_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.json"
    file.write_text('[["vhost", {"hostname": "\\u001b[2Jh", "groups": {"g": {"users": "a"}}}]]')
    main(["lint", str(file)])
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert r"\x1b[2Jh" in output


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RULES)
    assert main(["rules", "PAL006"]) == 0
    assert capsys.readouterr().out.startswith("PAL006: every address for unnamed users (security)\n\nWhoever is not")


AT = SourceLocation(file="policy.json", line=1)
GROUP = {"users": "a", "remoteHosts": "10.0.0.1"}
ASKER = {"users": "b", "remoteHosts": "10.0.0.1", "allowDynamicSource": True}


def warnings_of(groups: object, tmp_path: Path, **vhost: object) -> set[str]:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps([["vhost", {"hostname": "h", "groups": groups, **vhost}]]))
    found = check_all(load_sections(file.read_text(), str(file)), texts={str(file): file.read_text()}, now=NOW)
    return {finding.rule for finding in found if finding.level >= Level.WARNING}


@pytest.mark.parametrize(
    ("key", "items", "denied", "ids"),
    [
        ("targetPattern", "orders/#", "orders.secret", {"PAL073"}),
        ("targetPattern", "orders.#", "orders/secret.", {"PAL073"}),
        ("targetPattern", "orders/#", "orders.secret*", {"PAL073"}),
        ("targetPattern", "orders/#", "amqp:/orders.secret", {"PAL073"}),
        ("targets", "orders/*", "orders.secret", {"PAL073"}),
        ("targetPattern", "orders.#", "orders.secret", set()),
        ("targetPattern", "orders/#", "orders.secret, orders/*", set()),
        ("targetPattern", "#", "orders.secret", {"PAL070"}),
        ("targets", "*", "orders.secret", {"PAL070"}),
        ("targets", "orders*", "orders.secret", set()),
    ],
)
def test_a_denial_with_the_other_separator_is_a_warning(
    key: str, items: str, denied: str, ids: set[str], tmp_path: Path
) -> None:
    assert warnings_of({"g": {**GROUP, key: items, "denyTargets": denied}}, tmp_path) == ids


@pytest.mark.parametrize(
    ("asker", "responder", "ids"),
    [
        ({"targets": "requests"}, {"sources": "requests"}, {"PAL074"}),
        ({"targetPattern": "rpc/#"}, {"sources": "rpc/stock"}, {"PAL074"}),
        ({"targets": "rpc.stock"}, {"sourcePattern": "rpc.#", "targets": "events"}, {"PAL074"}),
        ({"targets": "rpc.${user}"}, {"sources": "rpc.*"}, {"PAL074"}),
        ({"targets": "requests"}, {"sources": "requests", "allowReplies": True}, set()),
        ({"targets": "requests"}, {"sources": "requests", "targetPattern": "_topo/#"}, {"PAL068", "PAL070", "PAL074"}),
        ({"targets": "requests"}, {"sources": "requests", "targets": "amqp:/_topo/*"}, {"PAL068", "PAL070"}),
        ({"targets": "requests"}, {"sources": "requests", "targets": "_topo/*"}, {"PAL068", "PAL070", "PAL074"}),
        ({"targets": "requests"}, {"sources": "requests", "targets": "amqp:/_topo/0/QDR/*"}, {"PAL068", "PAL070"}),
        ({"targets": "requests"}, {"sources": "events"}, set()),
        ({"targets": "requests"}, {"sources": "*"}, set()),
        ({"targets": "requests", "allowDynamicSource": False}, {"sources": "requests"}, set()),
        ({"targets": "$management", "management": "observer"}, {"sources": "$management*"}, set()),
    ],
)
def test_a_responder_that_may_not_send_to_reply_addresses_is_a_warning(
    asker: dict[str, object], responder: dict[str, object], ids: set[str], tmp_path: Path
) -> None:
    assert warnings_of({"clients": {**ASKER, **asker}, "service": {**GROUP, **responder}}, tmp_path) == ids


@pytest.mark.parametrize("key", ["sources", "targets", "sourcePattern", "targetPattern"])
@pytest.mark.parametrize("item", ["amqp:/_topo/*", "/_topo/*", "amqp://host/_topo/*"])
@pytest.mark.parametrize("is_default", [True, False])
def test_dynamic_addresses_for_everybody_are_a_warning(key: str, item: str, is_default: bool, tmp_path: Path) -> None:
    group = {"remoteHosts": "10.0.0.1", key: item, "denyTargets": "$management"}
    if is_default:
        assert "PAL068" in warnings_of({"$default": group}, tmp_path, allowUnknownUser=True)
    else:
        assert "PAL068" in warnings_of({"g": {**group, "users": "*"}}, tmp_path)


@pytest.mark.parametrize(
    ("item", "ids"),
    [
        ("_topo/*/*/*", {"PAL068"}),
        ("_edge/*", {"PAL068"}),
        ("_topo/0/R/*", {"PAL068"}),
        ("_topo/*/*/temp/*", {"PAL068"}),
        ("_topo/0/R/orders", set()),
        ("_topo/0/R/orders/*", set()),
        ("topo/*", set()),
    ],
)
def test_patterns_written_for_dynamic_addresses(item: str, ids: set[str], tmp_path: Path) -> None:
    group = {**GROUP, "targetPattern": item, "denyTargets": "$management"}
    assert warnings_of({"g": group}, tmp_path) == ids


@pytest.mark.parametrize(
    ("hosts", "is_anywhere"),
    [
        ("*", True),
        ("0.0.0.0/0, ::/0", True),
        ("0.0.0.0/0", True),
        ("0.0.0.0-127.255.255.255, 128.0.0.0-255.255.255.255", True),
        ("10.0.0.0/8, db.example.com", False),
        ("0.0.0.0/1", False),
    ],
)
def test_every_address_is_anywhere_as_a_star_is(hosts: str, is_anywhere: bool, tmp_path: Path) -> None:
    group = {"users": "a", "remoteHosts": hosts, "sources": "*", "targets": "*"}
    assert ("PAL007" in warnings_of({"g": group}, tmp_path)) == is_anywhere


@pytest.mark.parametrize(
    ("group", "vhost", "id_"),
    [
        ({"remoteHosts": "0.0.0.0/0, ::/0"}, {}, "PAL026"),
        ({"remoteHosts": "db.example.com"}, {}, "PAL016"),
        ({"maxConnectionsPerUser": 10}, {"maxConnections": 10}, "PAL021"),
        ({"validUntil": "2020-01-01T00:00:00Z"}, {}, "PAL056"),
        ({"users": "anna, Anna"}, {}, "PAL050"),
    ],
)
def test_what_is_probably_a_mistake_is_a_warning(
    group: dict[str, object], vhost: dict[str, object], id_: str, tmp_path: Path
) -> None:
    assert id_ in warnings_of({"g": {**GROUP, "sources": "a", **group}}, tmp_path, **vhost)


@pytest.mark.parametrize("key", ["sources", "sourcePattern"])
def test_many_groups_that_ask_and_receive_are_not_compared_each_with_each(key: str, tmp_path: Path) -> None:
    group = {"remoteHosts": "10.0.0.1", "allowDynamicSource": True, key: "t.*"}
    groups = {f"g{number}": {**group, "users": f"u{number}", "targets": f"t.{number}"} for number in range(3000)}
    policy = PolicyText(entities=(Section(type="vhost", attributes={"hostname": "h", "groups": groups}, source=AT),))
    began = time.process_time()
    assert len(list(mute_responder.check(policy))) == 3000
    # Each with each is 9 million comparisons, 5 s and more.
    assert time.process_time() - began < 2


def test_a_listener_that_takes_passwords_inside_tls_only_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "qdrouterd.conf"
    for switch, found in (("no", []), ("yes", ["PAL030"])):
        file.write_text(
            "listener {\n host: 0.0.0.0\n port: 5671\n authenticatePeer: yes\n saslMechanisms: PLAIN\n"
            f" allowPlainWithoutTls: {switch}\n}}\n"
        )
        assert [rule for rule, _ in findings_of(file)] == found
