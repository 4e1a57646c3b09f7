"""Rights of management (issue 9): what grants mean, what is decided by them, how two are compared."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from rulesets import group_ruleset, settings

import schemas
from policy.attributes import InvalidValue
from policy.cli.main import main
from policy.decision import Reason, Rule
from policy.facts import ManagementFacts
from policy.rights import (
    NOTHING,
    OPERATIONS,
    ROLES,
    UNRESTRICTED,
    UNSET,
    ManagementRights,
    decide_management,
    exists,
    holds,
    lacking,
    read_request,
    read_rights,
    shown_difference,
    some_difference,
)

KNOWN = (
    "operations are read, create, update, delete and *, roles observer, operator, administrator, none, "
    "and there is 'host'"
)
TYPES = {name: entry for name, entry in schemas.load("management")["entityTypes"].items() if entry["operations"]}
CONCRETE = [name for name in TYPES if exists("read", name)]
# What would give its holder more: the rules, ways in, and what the router reads and writes.
POWERFUL = [(operation, kind) for operation in ("create", "update", "delete") for kind in CONCRETE]


def asked(text: str) -> ManagementFacts:
    return read_request(text)


def may(rights: ManagementRights, text: str) -> bool:
    return decide_management(rights, asked(text)).is_allowed


# Roles


def test_an_observer_reads_everything_and_changes_nothing() -> None:
    observer = read_rights("observer")
    assert all(observer.may("read", kind) for kind in CONCRETE)
    assert [pair for pair in POWERFUL if observer.may(*pair)] == []


def test_an_operator_bans_closes_connections_and_sets_levels_and_nothing_else() -> None:
    operator = read_rights("operator")
    granted = {pair: operator.allowed[pair] for pair in POWERFUL if operator.may(*pair)}
    assert granted == {
        ("update", "connection"): frozenset({"adminStatus"}),
        ("update", "log"): frozenset({"enable"}),
        ("create", "ban"): None,
        ("delete", "ban"): None,
    }


def test_an_administrator_has_everything_but_what_is_on_the_host() -> None:
    administrator = read_rights("administrator")
    assert all(administrator.may(*pair) for pair in POWERFUL if exists(*pair))
    assert not administrator.has_host
    assert shown_difference(administrator, UNSET) == shown_difference(UNSET, administrator) == ()
    assert read_rights("administrator, host").has_host
    assert shown_difference(UNRESTRICTED, UNSET) == ("host",)


@pytest.mark.parametrize("written", ["none", [], "", ["none"], ["", " , "]])
def test_nothing_is_nothing(written: object) -> None:
    rights = read_rights(written)
    assert rights.is_nothing
    assert rights.is_set
    assert str(rights) in ("none", "nothing")
    assert not any(rights.may(operation, kind) for operation in OPERATIONS for kind in CONCRETE)


@pytest.mark.parametrize("role", [role for role in ROLES if role != "administrator"])
def test_only_an_administrator_may_change_the_rules(role: str) -> None:
    rights = read_rights(role)
    assert not any(rights.may(operation, "vhost") for operation in ("create", "update", "delete"))


# Grammar


@pytest.mark.parametrize(
    "written",
    [
        ["read connection", "create, delete ban", "update connection(adminStatus, enableProtocolTrace)"],
        "read connection, create, delete ban, update connection(adminStatus, enableProtocolTrace)",
        "  create,delete   ban ,read connection,update connection( enableProtocolTrace ,adminStatus)",
        ["create ban", "delete ban, read connection", "update connection(adminStatus)"
         ", update connection(enableProtocolTrace)"],
        ["create, delete org.apache.qpid.dispatch.ban", "read connection",
         "update connection(adminStatus, enableProtocolTrace)"],
    ],
)  # fmt: skip
def test_a_list_and_a_text_say_the_same(written: object) -> None:
    first = read_rights(
        ["read connection", "create, delete ban", "update connection(adminStatus, enableProtocolTrace)"]
    )
    assert read_rights(written).allowed == first.allowed
    assert read_rights(written).canonical == first.canonical


def test_several_types_stand_behind_the_operations() -> None:
    rights = read_rights("create, delete address ban, update log(enable) connection")
    assert {*rights.allowed} == {
        ("create", "address"), ("delete", "address"), ("create", "ban"), ("delete", "ban"),
        ("update", "log"), ("update", "connection"),
    }  # fmt: skip
    assert rights.allowed["update", "log"] == frozenset({"enable"})
    assert rights.allowed["update", "connection"] is None


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("craete ban", "item 'craete ban': 'craete' is no operation and no role: did you mean 'create'?"),
        ("Read *", "item 'Read *': 'Read' is no operation and no role: did you mean 'read'?"),
        ("admin", f"item 'admin': 'admin' is no operation and no role: {KNOWN}"),
        (f"{'z' * 65} ban", f"item '{'z' * 65} ban': '{'z' * 65}' is no operation and no role: {KNOWN}"),
        (f"{'read' * 16} ban", f"item '{'read' * 16} ban': '{'read' * 16}' is no operation and no role: {KNOWN}"),
        ("update conection", "item 'update conection': 'conection' is no entity type: did you mean 'connection'?"),
        ("read entity", "item 'read entity': 'entity' is no entity type: docs/management.md lists the types"),
        (
            "update connection(adminstatus)",
            "item 'update connection(adminstatus)': no update of 'connection' can give 'adminstatus': "
            "did you mean 'adminStatus'?",
        ),
        ("update vhost(hostname)", "item 'update vhost(hostname)': no update of 'vhost' can give 'hostname'"),
        (
            "read connection(host)",
            "item 'read connection(host)': attributes go with create and update, not with read",
        ),
        (
            "update *(enable)",
            "item 'update *(enable)': attributes go with create or update of one type, not with *",
        ),
        ("* log(enable)", "item '* log(enable)': attributes go with create or update of one type, not with *"),
        ("create connection", "item 'create connection': there is no create of 'connection', only read, update"),
        ("delete log", "item 'delete log': there is no delete of 'log', only read, update"),
        ("create", "item 'create' names no entity type: write 'create *', or a type in place of *"),
        (
            "create, delete, observer",
            "item 'create, delete' names no entity type: write 'create, delete *', or a type in place of *",
        ),
        (["create", "delete ban"], "item 'create' names no entity type: write 'create *', or a type in place of *"),
        ("create, observer", "item 'create' names no entity type: write 'create *', or a type in place of *"),
        ("none, observer", "has 'none' beside other grants"),
        ("update connection(adminStatus", "item 'update connection(adminStatus' has parentheses that do not match"),
        ("update connection)", "item 'update connection)' has parentheses that do not match"),
        ("read ban)(", "item 'read ban)(' has parentheses that do not match"),
        (f"{'x' * 300}(", f"item '{'x' * 200}' has parentheses that do not match"),
        (
            "update connection((adminStatus))",
            "item 'update connection((adminStatus))' has parentheses that do not match",
        ),
        (
            "update connection()",
            "item 'update connection()': an attribute is missing in the parentheses behind 'connection'",
        ),
        (
            "update connection(adminStatus)log",
            "item 'update connection(adminStatus)log': a blank is missing before 'log'",
        ),
        (
            "update connection (adminStatus)",
            "item 'update connection (adminStatus)': '(adminStatus)' is no entity type",
        ),
        (5, 'has illegal value \'5\': grants are texts, such as "observer" or "read *"'),
        (["read *", 5], "has illegal value '['read *', 5]': grants are texts, such as \"observer\" or \"read *\""),
        ({"read": "*"}, "has illegal value '{'read': '*'}': grants are texts, such as \"observer\" or \"read *\""),
        (["read *"] * 257, "has more than 256 grants"),
        ("x" * 4001, "has a text of more than 4000 characters"),
    ],
)
def test_what_is_wrong_is_named(written: object, text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_rights(written)
    assert str(refused.value) == text


def test_attack_a_long_word_is_not_compared_with_all_others() -> None:
    with pytest.raises(InvalidValue, match="is no operation and no role: operations are"):
        read_rights("z" * 3000 + " ban")


def test_as_many_and_as_long_grants_as_there_may_be() -> None:
    assert len(read_rights(["read *"] * 256).grants) == 256
    assert read_rights("read ban" + " " * 3992).grants == ("read ban",)


@pytest.mark.parametrize(
    ("text", "grants"),
    [
        ("read ban,, create ban", ("read ban", "create ban")),
        ("  read   ban , , ", ("read ban",)),
        ("create,read,  delete ban", ("create, read, delete ban",)),
        ("*, read ban", ("*, read ban",)),
        ("update log(enable, outputFile) connection, host", ("update log(enable, outputFile) connection", "host")),
    ],
)
def test_grants_are_shown_as_they_are_written_but_for_blanks(text: str, grants: tuple[str, ...]) -> None:
    assert read_rights(text).grants == grants


def test_rights_are_shown_as_texts() -> None:
    assert str(read_rights("observer, create ban")) == "observer; create ban"
    assert str(NOTHING) == "nothing"
    assert str(UNSET) == "everything but host: 'management' is not set"
    assert str(UNRESTRICTED) == "everything: no policy is in force"


def test_rights_that_nobody_wrote() -> None:
    """Where a group says nothing it has all rights but those on the host; where no policy is in force, those too."""
    administrator = read_rights("administrator")
    assert UNSET.allowed == UNRESTRICTED.allowed == administrator.allowed
    assert (UNSET.has_host, UNRESTRICTED.has_host) == (False, True)
    assert (UNSET.is_set, UNRESTRICTED.is_set, administrator.is_set, NOTHING.is_set) == (False, False, True, True)


def test_a_wider_grant_of_the_same_right_holds_in_any_order() -> None:
    for text in ("update log(enable), update log", "update log, update log(enable)"):
        assert read_rights(text).allowed == {("update", "log"): None}
    parts = read_rights("update log(enable), update log(outputFile)")
    assert parts.allowed == {("update", "log"): frozenset({"enable", "outputFile"})}


def test_the_digest_covers_the_meaning_of_rights() -> None:
    assert read_rights("update log(outputFile, enable), read ban, host").canonical == (
        *(True,),
        [("read", "ban", None), ("update", "log", ["enable", "outputFile"])],
    )
    assert read_rights("read ban").canonical == (False, [("read", "ban", None)])


@pytest.mark.parametrize(
    "text",
    ["read *", "observer", "read ban, read log", "", "host", "none", "create, delete ban", "* ban", "read ban log"],
)
def test_a_request_is_one_operation_on_one_type(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^a request is one operation and one type, such as 'create ban'$"):
        read_request(text)


def test_a_request_is_shown_as_it_is_written() -> None:
    facts = read_request("update connection(enableProtocolTrace, adminStatus)")
    assert facts == ManagementFacts(
        operation="update", entity_type="connection", attributes=("adminStatus", "enableProtocolTrace")
    )
    assert str(facts) == "update connection(adminStatus, enableProtocolTrace)"
    assert read_request("read ban") == ManagementFacts(operation="read", entity_type="ban")
    assert str(read_request("read ban")) == "read ban"


@pytest.mark.parametrize(
    ("kind", "operations"),
    [
        ("log", ["read", "update"]),
        ("ban", ["read", "create", "delete"]),
        ("router", ["read", "update"]),  # DRAIN
        ("vhost", ["read", "create", "update", "delete"]),
        ("entity", []),
        ("nonsense", []),
    ],
)
def test_the_operations_of_a_type(kind: str, operations: list[str]) -> None:
    assert [operation for operation in OPERATIONS if exists(operation, kind)] == operations


def test_attributes_are_those_that_an_operation_can_give() -> None:
    given = read_rights("create vhost(hostname, groups), update vhost(groups)")
    assert lacking(given, asked("create vhost(hostname)")) == ""
    assert lacking(given, asked("create vhost(aliases, groups, maxConnections)")) == (
        "create vhost(aliases, maxConnections)"
    )
    assert lacking(given, asked("delete vhost")) == "delete vhost"
    with pytest.raises(
        InvalidValue, match=r"^item 'create log\(enable\)': there is no create of 'log', only read, update$"
    ):
        read_rights("create log(enable)")


PATTERN = Draft202012Validator({**schemas.load("policy")["$defs"]["managementRights"]})


@pytest.mark.parametrize("role", [*ROLES, "host"])
def test_the_schema_knows_every_role_and_operation(role: str) -> None:
    for written in (role, [role], f"{role}, read *" if role != "none" else role):
        assert PATTERN.is_valid(written)
    for operation in (*OPERATIONS, "*"):
        assert PATTERN.is_valid([f"{operation} ban"])
        assert not PATTERN.is_valid([operation])
    assert not PATTERN.is_valid(["admin"])
    assert not PATTERN.is_valid("craete ban")


WORDS = st.sampled_from(
    [
        *OPERATIONS,
        "*",
        *ROLES,
        "host",
        "ban",
        "log",
        "connection",
        "(enable)",
        "(adminStatus)",
        ",",
        ", ",
        " ",
        "router.link",
    ]
)


@given(st.lists(WORDS, max_size=8).map("".join))
def test_what_the_reader_takes_the_schema_takes(text: str) -> None:
    try:
        read_rights(text)
    except InvalidValue:
        return
    assert PATTERN.is_valid(text), text


# Decisions


def test_attributes_limit_what_may_be_given_and_names_are_always_allowed() -> None:
    rights = read_rights("update connection(adminStatus)")
    allowed = ManagementFacts(
        operation="update", entity_type="connection", attributes=("adminStatus", "name", "identity", "type")
    )
    assert decide_management(rights, allowed).reason is Reason.ALLOWED
    more = ManagementFacts(
        operation="update", entity_type="connection", attributes=("adminStatus", "enableProtocolTrace")
    )
    refused = decide_management(rights, more)
    assert (refused.is_allowed, refused.reason) == (False, Reason.MANAGEMENT_NOT_ALLOWED)
    assert lacking(rights, more) == "update connection(enableProtocolTrace)"


def test_an_error_inside_a_decision_is_a_denial() -> None:
    broken: Any = None
    decision = decide_management(broken, asked("read ban"))
    assert (decision.is_allowed, decision.reason) == (False, Reason.INTERNAL_ERROR)


@pytest.mark.parametrize(("text", "is_allowed"), [("read ban", True), ("create ban", False)])
def test_a_decision_names_the_place_of_the_rights(text: str, is_allowed: bool) -> None:
    rule = Rule(vhost="h", group="g", item="management")
    decision = decide_management(read_rights("observer"), asked(text), rule)
    assert (decision.is_allowed, decision.rule) == (is_allowed, rule)


GRANTS = st.lists(
    st.sampled_from(
        [
            *(role for role in ROLES if role != "none"),
            *("host", "read ban", "* ban", "create, delete address ban", "update log", "update log(enable)"),
            *("update log(outputFile, includeSource)", "update connection(adminStatus)", "read *", "* *", "delete *"),
        ]
    ),
    max_size=5,
).map(read_rights)
ATOMS = [
    ManagementFacts(operation=operation, entity_type=kind, attributes=attributes)
    for operation in OPERATIONS
    for kind in ("ban", "log", "connection", "address", "vhost", "router")
    for attributes in ((), ("enable",), ("outputFile",), ("adminStatus",), ("name", "enableProtocolTrace"))
]


@given(GRANTS, GRANTS)
def test_a_difference_is_exactly_what_one_allows_and_the_other_does_not(one: Any, other: Any) -> None:
    only = read_rights(list(shown_difference(one, other)))
    for facts in ATOMS:
        if decide_management(only, facts).is_allowed:
            assert decide_management(one, facts).is_allowed
        if decide_management(one, facts).is_allowed and facts.attributes in ((), ("name",)):
            both = decide_management(other, facts).is_allowed or decide_management(only, facts).is_allowed
            assert both, facts
    assert (only.has_host) == (one.has_host and not other.has_host)
    right = some_difference(one, other)
    assert bool(right) == bool(shown_difference(one, other))
    if right:
        assert holds(one, right)
        assert not holds(other, right)


@given(GRANTS)
def test_rights_travel_between_processes(rights: Any) -> None:
    again = pickle.loads(pickle.dumps(rights))
    assert again == rights
    with pytest.raises(TypeError):
        again.allowed["create", "vhost"] = None


def test_rights_that_nobody_wrote_travel_as_such() -> None:
    for rights in (UNSET, UNRESTRICTED, NOTHING):
        assert pickle.loads(pickle.dumps(rights)) == rights


# Groups, and the command line


def test_settings_have_the_rights_of_the_group() -> None:
    assert settings().management is UNSET
    assert str(settings(management="operator").management) == "operator"
    assert settings(management=[]).management.is_nothing


def test_the_digest_is_what_it_was_without_rights_and_follows_them() -> None:
    def digest(**group: object) -> str:
        return group_ruleset(**group).digest

    assert digest() != digest(management="administrator")
    assert digest(management="create, delete ban") == digest(management=["delete ban", "create ban"])
    assert digest(management="observer") == digest(management="read *")
    assert digest(management="observer") != digest(management="operator")


def policy_file(folder: Path, name: str, **group: object) -> str:
    given = {"users": "u", "remoteHosts": "10.0.0.1", "targets": "$management", **group}
    (folder / name).write_text(json.dumps([["vhost", {"hostname": "h", "groups": {"g": given}}]]))
    return str(folder / name)


def test_explain_shows_the_rights_and_judges_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = policy_file(tmp_path, "p.json", management="operator")
    ask = ["explain", file, "--vhost", "h", "--user", "u", "--host", "10.0.0.1"]
    assert main(ask) == 0
    assert (
        f"management: group 'g', where its targets reach $management: operator  [{file}:1]" in capsys.readouterr().out
    )
    assert main([*ask, "--manage", "create ban"]) == 0
    assert "+ management: may create ban; the rights are: operator" in capsys.readouterr().out
    assert main([*ask, "--manage", "update log(outputFile)"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("DENIED: management_not_allowed")
    assert "- management: may not update log(outputFile): 'update log(outputFile)' is missing" in out
    with pytest.raises(SystemExit):
        main([*ask, "--manage", "create"])
    assert "names no entity type" in capsys.readouterr().err


def test_explain_says_when_nothing_is_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = policy_file(tmp_path, "p.json")
    main(["explain", file, "--vhost", "h", "--user", "u", "--host", "10.0.0.1", "--manage", "update vhost"])
    assert "everything but host: 'management' is not set" in capsys.readouterr().out


def test_diff_shows_what_is_granted_and_what_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = policy_file(tmp_path, "old.json", management=["observer", "update log(enable)"])
    new = policy_file(tmp_path, "new.json", management=["read ban connection", "update log", "create, delete ban"])
    assert main(["diff", old, new, "--fail-on", "widening"]) == 1
    out = capsys.readouterr().out
    assert "widening: management: update log(includeSource, includeTimestamp, outputFile); create, delete ban" in out
    assert "example: 'u' from 10.0.0.1 at vhost 'h', by management: update log(includeSource)" in out
    assert "narrowing: management: read management router sslProfile" in out
    assert main(["diff", old, old, "--fail-on", "any"]) == 0


def test_taking_the_rights_out_of_a_policy_widens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = policy_file(tmp_path, "old.json", management="observer"), policy_file(tmp_path, "new.json")
    assert main(["diff", old, new, "--fail-on", "widening"]) == 1
    assert "widening: management: create *; update *; delete *" in capsys.readouterr().out


@pytest.mark.parametrize(("management", "status"), [("observer", 1), ("none", 1), ("administrator", 0), ("* *", 0)])
def test_what_1_20_would_lose_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], management: str, status: int
) -> None:
    file = policy_file(tmp_path, "p.json", management=management)
    assert main(["convert", file, "--form", "compatible"]) == status
    captured = capsys.readouterr()
    if status:
        assert "'management' would be lost: in 1.20 who reaches $management may do everything" in captured.err
    else:
        assert '"management"' not in captured.out
    assert main(["convert", file, "--form", "compatible", "--narrow"]) == status


def test_lint_names_types_that_do_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", policy_file(tmp_path, "p.json", management="create bann")]) == 1
    assert "error PAL001" in (out := capsys.readouterr().out)
    assert "'bann' is no entity type: did you mean 'ban'?" in out
    assert main(["lint", policy_file(tmp_path, "q.json", management="craete ban")]) == 3
    assert '"craete ban". Expected: What may be done by management: a role' in capsys.readouterr().out


def test_expectations_ask_about_management(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file(tmp_path, "p.json", management="operator")
    who = {"user": "u", "host": "10.0.0.1", "vhost": "h"}
    expect = [
        {**who, "manage": ["create ban", "read vhost"], "is": "allow"},
        {**who, "manage": "update vhost", "is": "deny", "reason": "management_not_allowed"},
    ]
    (tmp_path / "e.json").write_text(json.dumps({"policy": "p.json", "expect": expect}))
    assert main(["test", str(tmp_path / "e.json")]) == 0
    expect.append({**who, "manage": "craete ban", "is": "deny"})
    (tmp_path / "e.json").write_text(json.dumps({"policy": "p.json", "expect": expect}))
    capsys.readouterr()
    assert main(["test", str(tmp_path / "e.json")]) == 3
    assert "'manage' 'craete ban'" in capsys.readouterr().out


def test_nothing_is_less_than_anything() -> None:
    assert shown_difference(NOTHING, read_rights("observer")) == ()
    assert shown_difference(read_rights("observer"), NOTHING) == ("read *",)
    assert some_difference(NOTHING, read_rights("observer")) == ""


@pytest.mark.parametrize(
    ("more", "less", "shown"),
    [
        ("read ban, create, delete ban, host", "read log", ("read, create, delete ban", "host")),
        (
            "read ban log, create, delete ban address, update log(enable, outputFile) connection",
            "update log(enable), update connection(adminStatus)",
            (
                *("read, create, delete ban", "read log", "create, delete address"),
                "update log(outputFile) connection(enableProtocolTrace)",
            ),
        ),
        ("update connection", "", ("update connection",)),
        ("update connection(adminStatus)", "", ("update connection(adminStatus)",)),
        ("update connection(adminStatus)", "update connection", ()),
        ("update connection(adminStatus)", "update connection(adminStatus, enableProtocolTrace)", ()),
        ("host, read ban", "host", ("read ban",)),
        ("host", "host", ()),
        ("host", "", ("host",)),
        ("delete *, create vhost", "create ban", ("delete *", "create vhost")),
        ("* *", "* *", ()),
        ("* *", "", ("read *", "create *", "update *", "delete *")),
        ("update *", "update *", ()),
    ],
)
def test_a_difference_is_shown_as_the_grants_that_make_it(more: str, less: str, shown: tuple[str, ...]) -> None:
    assert shown_difference(read_rights(more), read_rights(less)) == shown


@pytest.mark.parametrize(
    ("more", "less", "shown"),
    [
        ("update log", "update log(enable, includeSource, includeTimestamp)", "update log(outputFile)"),
        ("update log", "", "update log"),
        ("read log, create ban", "read log", "create ban"),
        ("host", "", "host"),
        ("host", "host", ""),
        ("read ban", "host, read ban", ""),
    ],
)
def test_one_right_is_named_where_some_are_more(more: str, less: str, shown: str) -> None:
    assert some_difference(read_rights(more), read_rights(less)) == shown
