"""The agent holds every request against the rights of whoever makes it, and records what would change something."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_bench import SCHEMA, Bench, bench
from hypothesis import given
from hypothesis import strategies as st

from policy.configuration.schema import load_schema
from policy.rights import OPERATIONS, UNRESTRICTED, UNSET, ManagementRights, exists, read_rights
from router.management.host_values import HostValues
from router.management.journal import MAX_REFUSED_CHARACTERS, MAX_TEXT_CHARACTERS
from router.management.node_operations import node_owner
from router.management.requests import NotAllowedError

CONFIGURATION = (
    "router {\n id: R\n}\nlistener {\n name: l\n host: 0.0.0.0\n port: 5672\n}\naddress {\n name: a\n prefix: a\n}\n"
    "sslProfile {\n name: s\n password: hunter2\n}\ndummy {\n name: d\n}\n"
)
CONNECTION = {
    "name": "connection/1",
    "identity": "1",
    "host": "127.0.0.1:1",
    "role": "normal",
    "adminStatus": "enabled",
}
CLOSED = {"adminStatus": "deleted"}
PREFIX = "org.apache.qpid.dispatch"


def made(rights: ManagementRights | str | list[Any] = UNRESTRICTED, **options: Any) -> Bench:
    found = bench(
        CONFIGURATION,
        {"connection": lambda: [dict(CONNECTION)], "router.link": lambda: iter(())},
        change=lambda *_: None,
        **options,
    )
    found.store.own(node_owner(SCHEMA, found.store.extensions, profile=lambda properties: {}))
    found.rights = rights if not isinstance(rights, str | list) else read_rights(rights)
    return found


def wanted(bench: Bench) -> list[Mapping[str, Any]]:
    return [event["management"] for event in bench.events]


# One check before everything


REQUESTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("create listener", {"operation": "CREATE", "type": "listener", "name": "n"}, {"port": "1"}),
    ("create listener", {"operation": "create", "name": "n"}, {"type": f"{PREFIX}.listener", "port": "1"}),
    ("create address", {"operation": "CREATE", "type": "address", "name": "n"}, {"prefix": "b"}),
    ("create address", {"operation": "CREATE", "name": "n"}, {"type": "router.config.address", "prefix": "b"}),
    ("create vhost", {"operation": "CREATE", "type": "vhost", "name": "v"}, {"hostname": "v"}),
    ("update log", {"operation": "UPDATE", "type": "log", "name": "log/AGENT"}, {"enable": "debug+"}),
    ("update log", {"operation": "UPDATE", "identity": "log/AGENT"}, {"enable": "debug+"}),
    ("update log", {"operation": "UPDATE"}, {"identity": "log/AGENT", "enable": "debug+"}),
    ("update log", {"operation": "UPDATE", "type": "log"}, {"name": "log/AGENT", "enable": "debug+"}),
    ("update dummy", {"operation": "UPDATE", "name": "d"}, {"arg1": "x"}),
    ("update dummy", {"operation": "CALLME", "type": "dummy", "name": "d"}, {}),
    ("update management", {"operation": "PROFILE", "start": True}, {}),
    ("update connection", {"operation": "UPDATE", "type": "connection", "identity": "1"}, CLOSED),
    (
        "update connection",
        {"operation": "UPDATE", "entityType": "connection", "identity": "1"},
        {"adminStatus": "deleted"},
    ),
    ("update connection", {"operation": "UPDATE", "type": "connection"}, {**CLOSED, "identity": "1"}),
    ("delete listener", {"operation": "DELETE", "type": "listener", "name": "l"}, {}),
    ("delete listener", {"operation": "DELETE", "name": "l"}, {}),
    ("delete address", {"operation": "DELETE", "type": "address", "name": "a"}, {}),
    ("read listener", {"operation": "READ", "name": "l"}, {}),
    ("read listener", {"operation": "READ", "type": "listener", "name": "l"}, {}),
    ("read listener", {"operation": "QUERY", "entityType": "listener"}, {}),
    ("read listener", {"operation": "QUERY", "type": "listener"}, {}),
    ("read connection", {"operation": "QUERY", "entityType": "connection"}, {}),
    ("read connection", {"operation": "READ", "type": "connection", "identity": "1"}, {}),
    ("read router", {"operation": "READ", "type": "router", "identity": "1"}, {}),
    ("read management", {"operation": "GET-TYPES"}, {}),
    ("read management", {"operation": "GET-SCHEMA"}, {}),
    ("read management", {"operation": "GET-MGMT-NODES"}, {}),
    ("read management", {"operation": "READ"}, {}),
    ("read management", {"operation": "READ", "type": "org.amqp.management", "identity": "self"}, {}),
    ("read log", {"operation": "GET-LOG"}, {}),
]


@pytest.mark.parametrize(("right", "properties", "body"), REQUESTS, ids=lambda each: str(each)[:40])
def test_a_request_takes_its_right_and_no_other(right: str, properties: dict[str, Any], body: dict[str, Any]) -> None:
    """management 99"""
    asked = dict(properties)
    operation = asked.pop("operation")
    alone = made([right])
    response = alone.ask(operation, body, **asked)
    assert response.status < 300, response.description
    verb, kind = right.split()
    others = [
        f"{each} {name}"
        for each in OPERATIONS
        for name in SCHEMA.types
        if exists(each, name) and (each, name) != (verb, kind)
    ]
    refused = made([*others, "host"])
    before = [entity.attributes for name in SCHEMA.types for entity in refused.store.entities(name)]
    response = refused.ask(operation, body, **asked)
    assert (response.status, response.description.partition(":")[0]) == (403, "Forbidden")
    assert response.description == f"Forbidden: it takes the right '{right}'"
    assert refused.calls == [call for call in refused.calls if call[0] == "create" and call[2].get("name") != "n"]
    assert [entity.attributes for name in SCHEMA.types for entity in refused.store.entities(name)] == before
    if verb == "read":
        assert refused.events == []
    else:
        (event,) = refused.events
        assert (event["decision"], event["reason"], event["management"]["status"]) == (
            "deny", "management_not_allowed", 403,
        )  # fmt: skip


@pytest.mark.parametrize(("right", "properties", "body"), REQUESTS, ids=lambda each: str(each)[:40])
def test_who_has_no_right_learns_nothing(right: str, properties: dict[str, Any], body: dict[str, Any]) -> None:
    asked = dict(properties)
    nobody = made("none")
    response = nobody.ask(asked.pop("operation"), body, **asked)
    assert (response.status, response.description) == (403, "Forbidden: no rights of management")
    assert response.body in ({}, None)


def test_a_typed_request_is_refused_whether_or_not_there_is_such_an_entity() -> None:
    monitor = made("read connection")
    answers = {monitor.ask("READ", type="listener", name=name).description for name in ("l", "nosuch")}
    assert answers == {"Forbidden: it takes the right 'read listener'"}
    answers = {monitor.ask("DELETE", type="listener", name=name).description for name in ("l", "nosuch")}
    assert answers == {"Forbidden: it takes the right 'delete listener'"}


def test_a_query_of_all_types_shows_those_that_may_be_read() -> None:
    """management 99"""
    names = {"attributeNames": ["type", "name"]}
    clerk = made("read listener dummy")
    rows = clerk.body("QUERY", names)["results"]
    assert {row[0].removeprefix(f"{PREFIX}.") for row in rows} == {"listener", "dummy"}
    rows = clerk.body("QUERY", names, entityType="configurationEntity")["results"]
    assert {row[0].removeprefix(f"{PREFIX}.") for row in rows} == {"listener"}
    assert made("create ban").ask("QUERY", names).status == 403
    whole = {row[0] for row in made("observer").body("QUERY", names)["results"]}
    assert whole == {row[0] for row in made().body("QUERY", names)["results"]}


def test_attributes_are_judged_by_their_canonical_name() -> None:
    clerk = made("update log(includeTimestamp)")
    assert clerk.ask("UPDATE", {"timestamp": True}, name="log/AGENT").status == 200
    status, text = clerk.refusal("UPDATE", {"timestamp": True, "output": "stderr"}, name="log/AGENT")
    assert (status, text) == (403, "Forbidden: it takes the right 'update log(outputFile)'")


def test_what_a_request_sends_back_unchanged_takes_its_right_all_the_same() -> None:
    clerk = made("update connection(adminStatus)")
    status, text = clerk.refusal(
        "UPDATE", {"adminStatus": "deleted", "enableProtocolTrace": False}, type="connection", identity="1"
    )
    assert (status, text) == (403, "Forbidden: it takes the right 'update connection(enableProtocolTrace)'")


def test_operations_that_do_not_exist_are_answered_so_to_who_may_read_the_type() -> None:
    assert made("observer").refusal("UPDATE", {}, type="listener", name="l")[0] == 501
    assert made("observer").refusal("NOSUCH")[0] == 501
    assert made("create ban").refusal("UPDATE", {}, type="listener", name="l")[0] == 403
    assert made("observer").refusal("DELETE", type="connection", identity="1") == (403, "Forbidden")


def test_the_right_to_close_connections_and_allow_admin_status_update_are_both_wanted() -> None:
    clerk = made("operator")
    deleted = {"adminStatus": "deleted"}
    assert clerk.ask("UPDATE", deleted, type="connection", identity="1").status == 200
    response = clerk.ask("UPDATE", deleted, allowed=False, type="connection", identity="1")
    assert response.status == 403
    assert [event["reason"] for event in clerk.events] == ["allowed", "forbidden_operation"]


def test_a_group_without_rights_set_has_all_but_host() -> None:
    assert made(UNSET).ask("CREATE", {"hostname": "v"}, type="vhost", name="v").status == 201


# Records


def test_a_change_that_cannot_be_recorded_is_not_made() -> None:
    """Attack: fill the audit log's queue first, then change something."""
    has_room = False
    bench = made(may_record=lambda: has_room)
    status, text = bench.refusal("CREATE", {"port": "1"}, type="listener", name="n")
    assert (status, "the audit log can take no record" in text) == (500, True)
    assert bench.store.find(name="n") is None
    assert bench.ask("READ", name="l").status == 200
    has_room = True
    assert bench.ask("CREATE", {"port": "1"}, type="listener", name="n").status == 201


def test_secrets_are_hidden_also_under_names_that_nobody_knows() -> None:
    bench = made()
    bench.ask("CREATE", {"password": "hunter2", "ciphers": "HIGH"}, type="sslProfile", name="p")
    bench.ask("CREATE", {"pasword": "hunter2", "caCertFile": "ca"}, type="sslProfile", name="q")
    bench.ask("CREATE", {"password": "hunter2"}, type="nosuch", name="r")
    bench.ask("CREATE", {"port": "1", "openProperties": {"deep": {"token": "hunter2"}}}, type="listener", name="t")
    bench.ask("DELETE", type="sslProfile", name="s")
    assert "hunter2" not in json.dumps([dict(event) for event in bench.events])
    after = json.loads(wanted(bench)[0]["after"])
    assert (after["password"], after["ciphers"]) == ("*******", "HIGH")


def test_attack_a_group_called_tokens_does_not_hide_its_change() -> None:
    bench = made()
    groups = {"tokens": {"users": "eve", "password": "x"}}
    bench.ask("CREATE", {"hostname": "v", "groups": groups}, type="vhost", name="v")
    after = json.loads(wanted(bench)[0]["after"])
    assert after["groups.tokens.users"] == "eve"


def test_an_update_shows_what_changed_within_maps() -> None:
    bench = made()
    before = {name: {"users": name, "sources": "a"} for name in ("one", "two")}
    bench.ask("CREATE", {"hostname": "v", "groups": before}, type="vhost", name="v")
    after = {"one": before["one"], "two": {"users": "two", "sources": "b"}, "three": {"users": "eve"}}
    bench.ask("UPDATE", {"groups": after}, type="vhost", name="v")
    shown = wanted(bench)[-1]
    assert json.loads(shown["before"]) == {"groups.two.sources": "a"}
    assert json.loads(shown["after"]) == {"groups.two.sources": "b", "groups.three.users": "eve"}


HUGE = {f"key{number}" * 50: "x" * 10_000 for number in range(500)}


def test_attack_huge_values_make_no_huge_record_and_are_known_by_their_digest() -> None:
    bench = made()
    bench.ask("CREATE", {"hostname": "v", "groups": {"g": HUGE}}, type="vhost", name="v")
    bench.rights = read_rights("observer")
    bench.ask("CREATE", {"hostname": "w", "groups": {"g": HUGE}}, type="vhost", name="w")
    allowed, refused = wanted(bench)
    assert len(allowed["after"]) <= MAX_TEXT_CHARACTERS
    assert len(refused["after"]) <= MAX_REFUSED_CHARACTERS
    for shown in (allowed, refused):
        mark = json.loads(shown["after"])["..."]
        assert mark["more"] > 400
        assert len(mark["sha256"]) == 64


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(max_size=30),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=900) | st.binary(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=40,
    ),
    st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
    st.sampled_from(["vhost", "listener", "connection", "address", "nosuch", "dummy"]),
)
def test_every_record_is_bounded_ascii_json(body: dict[str, Any], operation: str, kind: str) -> None:
    bench = made()
    bench.ask(operation, body, type=kind, name="d", identity=None)
    (shown,) = wanted(bench)
    for text in (shown.get("before"), shown.get("after")):
        if text is not None:
            assert text.isascii()
            assert len(text) <= MAX_TEXT_CHARACTERS
            assert isinstance(json.loads(text), dict)


def test_what_cannot_be_described_is_recorded_all_the_same() -> None:
    body: object = "x"
    for _ in range(100_000):
        body = [body]
    bench = made()
    bench.ask("CREATE", {"hostname": "v", "groups": {"g": {"users": body}}}, type="vhost", name="v")
    (event,) = bench.events
    assert event["management"]["operation"] == "CREATE"
    assert "could not be described: RecursionError" in event["detail"]


def test_reading_is_not_recorded() -> None:
    """management 100"""
    bench = made()
    for operation in ("QUERY", "GET-TYPES", "GET-LOG", "GET-SCHEMA"):
        bench.body(operation)
    bench.body("READ", name="l")
    assert bench.events == []


# Values that name what is on the host


def test_every_attribute_that_names_something_is_marked() -> None:
    named = {
        (kind.short_name, name)
        for kind in load_schema().types.values()
        for name, attribute in kind.attributes.items()
        if attribute.kind == "path" or (name.endswith(("File", "Dir", "Dirs")) and name != "linkDir")
    }
    marked = {
        (kind.short_name, name): attribute
        for kind in load_schema().types.values()
        for name, attribute in kind.attributes.items()
        if attribute.names is not None
    }
    secrets = {(kind.short_name, name) for kind in load_schema().types.values() for name in kind.secrets}
    assert named | secrets <= marked.keys()
    changeable = {
        key for key, attribute in marked.items()
        if (attribute.is_creatable and "CREATE" in load_schema().types[key[0]].operations) or attribute.is_updatable
    }  # fmt: skip
    assert not any(load_schema().types[kind].is_core for kind, _ in changeable)
    assert changeable == {
        *(("sslProfile", name) for name in ("caCertFile", "certFile", "privateKeyFile", "passwordFile", "password")),
        *(("listener", name) for name in ("trustedCertsFile", "httpRootDir")),
        *(
            ("connector", "saslPassword"),
            ("connector", "saslToken"),
            ("log", "outputFile"),
            ("fileAuthenticator", "path"),
            *(("ldapAuthenticator", name) for name in ("caCertFile", "certFile", "privateKeyFile", "bindPassword")),
            *(("tokenAuthenticator", name) for name in ("keysFile", "keysCaFile")),
            ("sasldbAuthenticator", "path"),
            ("saslauthdAuthenticator", "path"),
            ("kerberosAuthenticator", "keytab"),
            ("sslProfile", "uidNameMappingFile"),
            ("sslProfile", "crlFile"),
        ),
    }


GIVEN: list[tuple[str, str, str]] = [
    ("sslProfile", "caCertFile", "{}/x"), ("sslProfile", "certDb", "{}/x"), ("sslProfile", "certFile", "{}/x"),
    ("sslProfile", "keyFile", "{}/x"), ("sslProfile", "passwordFile", "{}/x"), ("sslProfile", "password", "file:{}/x"),
    ("sslProfile", "displayNameFile", "{}/x"), ("listener", "httpRoot", "{}/x"), ("listener", "trustedCerts", "{}/x"),
    ("connector", "saslPassword", "file:{}/x"), ("log", "output", "{}/x"), ("log", "outputFile", "{}/x"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "value"), GIVEN)
def test_it_takes_the_right_host_and_a_directory(tmp_path: Path, kind: str, name: str, value: str) -> None:
    """management 101"""
    values = HostValues([str(tmp_path)], is_governed=True)
    entity_type = SCHEMA.types[kind]
    given = {name: value.format(tmp_path)}
    with pytest.raises(NotAllowedError, match="wants the right 'host'"):
        values.judged(entity_type, given, None, read_rights("administrator"))
    host = read_rights("administrator, host")
    assert values.judged(entity_type, given, None, host) == given
    for outside in ("/etc", f"{tmp_path}/..", f"{tmp_path}/../{tmp_path.name}-other", "", "."):
        with pytest.raises(NotAllowedError, match="not below a directory"):
            values.judged(entity_type, {name: value.format(outside)}, None, host)
    with pytest.raises(NotAllowedError, match="not below a directory"):
        HostValues(is_governed=True).judged(entity_type, given, None, host)


def test_the_path_that_was_judged_is_the_one_that_is_used(tmp_path: Path) -> None:
    """Attack: change the symbolic link between the look and the use."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open/real").write_text("")
    (tmp_path / "open/link").symlink_to(tmp_path / "open/real")
    values = HostValues([f"{tmp_path}/open"], is_governed=True)
    given = {"password": f"file:{tmp_path}/open/link", "certFile": f"{tmp_path}/open/../open/link"}
    judged = values.judged(SCHEMA.types["sslProfile"], given, None, UNRESTRICTED)
    assert judged == {"password": f"file:{tmp_path}/open/real", "certFile": f"{tmp_path}/open/real"}
    bench = made(UNRESTRICTED, host_values=values)
    assert bench.body("CREATE", given, type="sslProfile", name="p")["certFile"] == f"{tmp_path}/open/real"


def test_a_null_byte_names_no_file(tmp_path: Path) -> None:
    values = HostValues([str(tmp_path)], is_governed=True)
    with pytest.raises(NotAllowedError):
        values.judged(SCHEMA.types["sslProfile"], {"certFile": f"{tmp_path}/a\0b"}, None, UNRESTRICTED)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("log", {"outputFile": "stderr"}), ("log", {"outputFile": "syslog"}), ("log", {"outputFile": None}),
        ("sslProfile", {"password": "pass:word"}), ("sslProfile", {"password": "literal:file:/x"}),
        ("sslProfile", {"password": "word", "ciphers": "HIGH"}), ("connector", {"saslPassword": "FILE:/x"}),
        ("listener", {"httpRootDir": ""}), ("sslProfile", {"certFile": {"not": "a text"}}),
    ],
)  # fmt: skip
def test_what_names_nothing_takes_no_right(kind: str, given: dict[str, Any]) -> None:
    values = HostValues(is_governed=True)
    assert values.judged(SCHEMA.types[kind], given, None, read_rights("administrator")) == given


def test_a_value_that_is_there_already_names_nothing_new() -> None:
    values = HostValues(is_governed=True)
    before = {"outputFile": "/var/log/router.log"}
    rights = read_rights("administrator")
    assert values.judged(SCHEMA.types["log"], dict(before), before, rights) == before
    with pytest.raises(NotAllowedError):
        values.judged(SCHEMA.types["log"], {"outputFile": "/var/log/other.log"}, before, rights)


def test_where_no_policy_is_in_force_directories_hold_only_where_they_are_set(tmp_path: Path) -> None:
    given = {"certFile": "relative"}
    assert HostValues().judged(SCHEMA.types["sslProfile"], given, None, UNRESTRICTED) == given
    with pytest.raises(NotAllowedError):
        HostValues([str(tmp_path)]).judged(SCHEMA.types["sslProfile"], given, None, UNRESTRICTED)


def test_the_rules_of_the_router_are_out_of_reach_wherever_they_are(tmp_path: Path) -> None:
    values = HostValues([str(tmp_path)], [f"{tmp_path}/policy", f"{tmp_path}/router.conf"], is_governed=True)
    for path in ("policy/new.json", "policy", "router.conf", "x/../policy/a"):
        with pytest.raises(NotAllowedError, match="rules and records"):
            values.judged(SCHEMA.types["log"], {"outputFile": f"{tmp_path}/{path}"}, None, UNRESTRICTED)


def test_who_may_change_vhosts_cannot_give_the_right_host() -> None:
    """Attack: an administrator adds it to his own group, or his own name to the group that has it."""
    bench = made()
    groups = {"chiefs": {"users": "root", "management": "administrator, host"}, "clerks": {"users": "anna"}}
    bench.body("CREATE", {"hostname": "v", "groups": groups}, type="vhost", name="v")
    bench.rights = read_rights("administrator")
    for change in (
        {"clerks": {"users": "anna", "management": ["administrator", "host"]}},
        {"chiefs": {**groups["chiefs"], "users": "root, anna"}},
        {"more": {"users": "eve", "management": "host"}},
    ):
        status, text = bench.refusal("UPDATE", {"groups": {**groups, **change}}, type="vhost", name="v")
        assert (status, "has the right 'host'" in text) == (403, True)
    assert bench.refusal("CREATE", {"hostname": "w", "groups": groups}, type="vhost", name="w")[0] == 403
    assert bench.refusal("UPDATE", {"allowUnknownUser": True}, type="vhost", name="v")[0] == 403
    assert bench.refusal("DELETE", type="vhost", name="v")[0] == 403
    without = {"hostname": "x", "groups": {"clerks": {"users": "anna", "management": "observer"}}}
    assert bench.ask("CREATE", without, type="vhost", name="x").status == 201
    bench.rights = read_rights("administrator, host")
    assert bench.ask("CREATE", {"hostname": "w", "groups": groups}, type="vhost", name="w").status == 201


def test_a_refusal_for_a_value_is_on_record_with_its_reason() -> None:
    bench = made("administrator", host_values=HostValues(is_governed=True))
    status, _ = bench.refusal("UPDATE", {"outputFile": "/tmp/x"}, name="log/AGENT")
    assert status == 403
    (event,) = bench.events
    assert (event["decision"], event["reason"]) == ("deny", "host_value_not_allowed")
    bench.rights = replace(read_rights("administrator"), has_host=False)
    assert bench.ask("UPDATE", {"enable": "info+"}, name="log/AGENT").status == 200
