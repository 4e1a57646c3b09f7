"""Management as 1.20 and its books have it, over the wire of a real router (docs/spec/management.md §6, §7, §10)."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, start
from management_peer import LINK, PREFIX, raw_peer

from router.values import int_

pytestmark = pytest.mark.interop

NODE = "org.amqp.management"


def ask(router: Daemon, body: object = None, /, **properties: Any) -> Any:
    with raw_peer(router) as raw:
        return raw.ask(application_properties=properties, body=body)


def status(reply: Any) -> tuple[int, str]:
    return reply.application_properties["statusCode"], reply.application_properties["statusDescription"]


def test_the_schema_has_the_29_types_of_1_20_until_an_extension_is_used(router: Daemon) -> None:
    with router.client() as client:
        for operation in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS"):
            found = client.node(operation)
            assert len(found) == 29
            assert not {f"{PREFIX}ban", f"{PREFIX}budget"} & found.keys()
        attributes = client.node("GET-ATTRIBUTES")
        assert not {"active", "heldBackCount"} & set(attributes[f"{PREFIX}connection"])
        schema = client.node("GET-SCHEMA")["entityTypes"]
        assert "default" not in schema["router"]["attributes"]["area"]
        assert schema["connection"]["attributes"]["role"]["type"] == "string"
        assert schema["router.node"]["attributes"]["routerLink"]["type"] == "entityId"
        assert client.node("GET-TYPES", entityType="ban").keys() == {f"{PREFIX}ban"}
        (row,) = client.query(f"{PREFIX}router", ["area", "handshakeCount"]).rows
        assert row[0] == "0"
        assert isinstance(row[1], int)
        identities = [row[0] for row in client.query(None, ["identity"]).rows]
        assert not [each for each in identities if each.startswith("budget/")]
    assert "budget" in router.tool("qdstat", "--budgets").out.lower()
    assert router.tool("qdstat", "--bans").status == 0
    assert router.tool("qdstat", "--edge").status == 0


def test_a_configuration_with_an_extension_shows_it(daemon: Callable[..., Daemon]) -> None:
    router = daemon("router {\n id: used\n maxHandshakes: 50\n}\nban {\n user: mallory\n}\n" + LISTENER)
    with router.client() as client:
        assert f"{PREFIX}ban" in client.node("GET-TYPES")
        assert "handshakeCount" in client.node("GET-ATTRIBUTES")[f"{PREFIX}router"]
        assert f"{PREFIX}budget" not in client.node("GET-TYPES")


def test_query_answers_carry_count_and_identity(router: Daemon) -> None:
    for given in ({"entityType": LINK}, {"entityType": f"{PREFIX}listener"}, {}, {"entityType": LINK, "count": 1}):
        reply = ask(router, {"attributeNames": ["name"]}, operation="QUERY", **given)
        properties = reply.application_properties
        assert (properties["statusCode"], properties["identity"]) == (200, "self")
        assert properties["count"] == len(reply.body["results"]) > 0
        assert type(properties["count"]) is int_
    others = ({"operation": "GET-LOG"}, {"operation": "QUERY", "entityType": "nosuch"}, {"operation": "GET-TYPES"})
    for given in others:
        assert set(ask(router, **given).application_properties) == {"statusCode", "statusDescription"}


def test_read_of_the_management_node_by_the_name_of_the_standard(router: Daemon) -> None:
    for given in ({"identity": "self"}, {"name": "self"}, {"name": "self", "identity": "self"}, {}):
        for kind in (NODE, PREFIX + NODE, f"{PREFIX}management"):
            reply = ask(router, operation="READ", type=kind, **given)
            assert status(reply)[0] == 200
            assert (reply.body["identity"], reply.body["type"]) == ("self", f"{PREFIX}management")
    assert status(ask(router, operation="READ", type="operationalEntity", identity="self"))[0] == 404
    assert status(ask(router, operation="READ", type=NODE, identity="log/DEFAULT"))[0] == 400


def test_update_with_the_identity_in_the_body_alone(router: Daemon) -> None:
    reply = ask(router, {"identity": "log/POLICY", "enable": "debug+"}, operation="UPDATE", type="log")
    assert (status(reply)[0], reply.body["identity"], reply.body["enable"]) == (200, "log/POLICY", "debug+")
    reply = ask(router, {"name": "log/POLICY", "enable": "info+"}, operation="UPDATE")
    assert (status(reply)[0], reply.body["enable"]) == (200, "info+")
    both = {"identity": "log/POLICY", "name": "log/AGENT", "enable": "info+"}
    assert status(ask(router, both, operation="UPDATE", type="log"))[0] == 400
    assert status(ask(router, {"identity": "log/NOSUCH"}, operation="UPDATE", type="log"))[0] == 404
    with router.client() as client:  # its own connection, in the core
        identity = client.query("connection", ["identity"]).rows[0][0]
        body = {"identity": identity, "enableProtocolTrace": False}
        assert client.call("UPDATE", type=f"{PREFIX}connection", body=body)["identity"] == identity


def test_profile_is_served(router: Daemon) -> None:
    assert "PROFILE" in ask(router, operation="GET-OPERATIONS", entityType="management").body[f"{PREFIX}management"]
    assert status(ask(router, operation="PROFILE", stop=True)) == (400, "Profiler not started")
    assert status(ask(router, operation="PROFILE"))[0] == 400
    reply = ask(router, operation="PROFILE", start=True)
    assert (status(reply)[0], reply.body) == (200, {})
    assert status(ask(router, operation="PROFILE", start=True))[0] == 200  # anew
    ask(router, operation="QUERY")
    reply = ask(router, operation="PROFILE", stop=True)
    assert status(reply)[0] == 200
    assert "function calls" in reply.body
    assert "cumtime" in reply.body
    assert "/" not in reply.body.partition("cumtime")[2].replace("/1", "").split("\n", 2)[1]
    assert status(ask(router, operation="PROFILE", stop=True))[0] == 400


def test_every_operation_that_is_named_is_known(router: Daemon) -> None:
    """None of the management node's own is answered 501."""
    named = ask(router, operation="GET-OPERATIONS", entityType="management").body[f"{PREFIX}management"]
    for operation in named:
        assert status(ask(router, operation=operation, type="management", identity="self"))[0] != 501


def test_create_of_a_vhost_without_hostname_is_refused(router: Daemon) -> None:
    for given in ({}, {"name": "v"}):
        code, text = status(ask(router, {"maxConnections": 5}, operation="CREATE", type="vhost", **given))
        assert (code, text) == (400, f"{PREFIX}vhost: Missing required attribute 'hostname'")
    assert ask(router, operation="QUERY", entityType="vhost").body["results"] == []
    assert status(ask(router, {"id": "old"}, operation="CREATE", type="vhost"))[0] == 201


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("listener", {"port": "abc"}, "port"),
        ("listener", {"port": ""}, "port"),
        ("listener", {"port": "70000"}, "port"),
        ("listener", {"port": "-1"}, "port"),
        ("listener", {"port": "\0"}, "port"),
        ("connector", {"port": "abc"}, "port"),
        ("connector", {"port": "0"}, "port"),
        ("listener", {"port": "0", "linkCapacity": -5}, "linkCapacity"),
        ("listener", {"port": "0", "cost": 0}, "cost"),
        ("listener", {"port": "0", "maxFrameSize": 2**32}, "maxFrameSize"),
        ("listener", {"port": "0", "idleTimeoutSeconds": -1}, "idleTimeoutSeconds"),
        ("connector", {"port": "1", "idleTimeoutSeconds": 2**32 // 1000 + 1}, "idleTimeoutSeconds"),
        ("listener", {"port": "0", "maxSessionFrames": 2**31}, "maxSessionFrames"),
        ("listener", {"port": "0", "authenticatePeer": "perhaps"}, "authenticatePeer"),
        ("listener", {"port": "0", "role": "any"}, "role"),
        ("listener", {"port": "0", "cost": "cheap"}, "cost"),
    ],
)
def test_values_that_do_not_fit_are_errors_of_the_request(
    router: Daemon, kind: str, given: dict[str, object], named: str
) -> None:
    code, text = status(ask(router, given, operation="CREATE", type=kind, name="bad"))
    assert code == 400
    assert named in text
    assert status(ask(router, operation="READ", type=kind, name="bad"))[0] == 404
    assert router.log("Listener error|Configured Listener: .*:abc") == []


@pytest.mark.parametrize("line", ["port: abc", "linkCapacity: -1"])
def test_a_value_that_does_not_fit_ends_the_start(tmp_path: Path, line: str) -> None:
    router = start(tmp_path, f"listener {{\n name: a\n {line}\n}}\n")
    assert router.wait() == 1
    (said,) = router.log(r"^\S+: (Configuration|Python): ")
    assert re.search(r"'abc' is no port: a number from 0 to 65535.*conf:3\)|'linkCapacity' is 0 to .*, not -1", said)


def test_qdmanage_takes_dotted_short_types(router: Daemon) -> None:
    links = router.tool("qdmanage", "query", "--type", "router.link", "name", "type")
    assert {each["type"] for each in json.loads(links.out)} == {LINK}
    made = router.tool("qdmanage", "create", "--type", "router.config.address", "prefix=dotted", "ingressPhase=0",
                       "egressPhase=0", "--name", "dotted")  # fmt: skip
    assert (made.status, json.loads(made.out)["prefix"]) == (0, "dotted")
    by_attribute = router.tool("qdmanage", "create", "type=router.config.address", "prefix=second", "name=second")
    assert by_attribute.status == 0
    assert router.tool("qdmanage", "delete", "--type", "router.config.address", "--name", "dotted").status == 0
    node = router.tool("qdmanage", "read", "--type", NODE, "--identity", "self")
    assert json.loads(node.out)["identity"] == "self"


def test_the_tools_take_empty_arguments(router: Daemon) -> None:
    """As scripts write them: `qdmanage query --type "$TYPE" "$MORE"`."""
    assert "Router Statistics" in router.tool("qdstat", "").out
    empty = ("--sasl-username", "", "--sasl-password", "", "--sasl-mechanisms", "", "--ssl-certificate", "")
    assert "Connections" in router.tool("qdstat", "-c", "", "-r", "", "--ssl-trustfile", "", *empty).out
    found = router.tool("qdmanage", "query", "", "--type", "log", "name", "", *empty)
    assert {"name"} == {key for each in json.loads(found.out) for key in each}
    assert len(json.loads(router.tool("qdmanage", "query", "--type", "", "--name", "", "name").out)) > 20
    read = router.tool("qdmanage", "read", "", "--identity", "", "--name", "log/AGENT", "--type", "")
    assert json.loads(read.out)["name"] == "log/AGENT"
    assert router.tool("qdmanage", "callme", "--type", "dummy", "--body", "", "--properties", "").status == 1
    assert router.tool("qdmanage", "").status == 2
    assert router.tool("qdmanage", "query", "--indent", "").status == 2
    gone = router.tool("qdmanage", "delete", "--type", "listener", "--name", "")
    assert (gone.status, gone.out) == (1, f"BadRequestStatus: {PREFIX}listener: No name or identity provided\n")


def test_a_request_is_recorded_by_the_entity_that_its_body_names(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Attack: a change of an entity that only the body names, so that the record says nothing of it."""
    audit = tmp_path / "records"
    router = daemon(f"router {{\n id: r\n auditDir: {audit}\n}}\n" + LISTENER)
    ask(router, {"identity": "log/POLICY", "enable": "debug+"}, operation="UPDATE")
    ask(router, operation="PROFILE", start=True)
    router.end()
    events = [json.loads(line) for path in sorted(audit.iterdir()) for line in path.read_text().splitlines()]
    told = [event["management"] for event in events if event.get("management")]
    assert (told[0]["entity_identity"], told[0]["operation"]) == ("log/POLICY", "UPDATE")
    assert told[1]["operation"] == "PROFILE"
