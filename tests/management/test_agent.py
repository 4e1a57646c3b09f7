"""Checklist items management 38 to 54, 62, 64, 67 to 72: what requests are answered."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from agent_bench import ANYBODY, SCHEMA, Bench, LiveRows, bench
from hypothesis import given
from hypothesis import strategies as st

from router.amqp.codec import encode_message
from router.effects import Effect
from router.management.agent import Agent, Request
from router.management.entities import EntityStore
from router.management.logrules import LogEntry, LogRing
from router.management.node_operations import node_owner
from router.management.owners import DUMMY
from router.management.requests import ManagementError
from router.values import Array, int_, long, symbol, uint, ulong

PREFIX = "org.apache.qpid.dispatch"
ROUTER = "router {\n id: R\n metadata: m\n}\n"


def connection(identity: str, role: str = "normal") -> dict[str, object]:
    name = f"connection/127.0.0.1:{identity}"
    return {"name": name, "identity": identity, "host": f"127.0.0.1:{identity}", "role": role, "properties": {"a": 1}}


def links(count: int) -> Iterator[Mapping[str, object]]:
    for number in range(count):
        yield {"name": f"link{number}", "identity": str(number), "capacity": 250, "ingressHistogram": [number]}


@pytest.fixture
def router() -> Bench:
    text = ROUTER + "listener {\n name: l\n host: 0.0.0.0\n port: 5672\n}\naddress {\n prefix: a\n}\n"
    text += "sslProfile {\n name: s\n password: hunter2\n}\nconnector {\n name: c\n saslPassword: hunter2\n}\n"
    live: dict[str, Any] = {
        "router": lambda: iter(
            [{"linkCount": 7, "addrCount": 5, "linksBlocked": 1, "memoryUsage": 10**6, "version": "1"}]
        ),
        "policy": lambda: iter([{"connectionsDenied": 3, "totalDenials": 4}]),
        "connection": lambda: iter([connection("5"), connection("6", "inter-router"), connection("8", "edge")]),
        "vhostStats": lambda: iter([{"name": "vhostStats/h", "identity": "vhostStats/h", "hostname": "h", "id": "h"}]),
        "router.link": lambda: links(3),
        "router.address": lambda: iter([{"name": "M0a", "identity": "M0a", "key": "M0a", "remoteHostRouters": ["B"]}]),
    }
    return bench(text, live, node=node_owner(SCHEMA, management_nodes=lambda: ["amqp:/_topo/0/R/$management"]))


# The node's own operations


@pytest.mark.parametrize("operation", ["GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "get-types"])
def test_the_schema_in_parts_has_29_types(router: Bench, operation: str) -> None:
    """management 38"""
    body = router.body(operation)
    assert len(body) == 29
    assert all(name.startswith(f"{PREFIX}.") for name in body)


def test_there_are_no_annotations(router: Bench) -> None:
    """management 38"""
    assert router.body("GET-ANNOTATIONS") == router.body("GET-ANNOTATIONS", entityType="listener") == {}


def test_the_schema_of_one_type(router: Bench) -> None:
    """management 39"""
    long_name = f"{PREFIX}.sslProfile"
    assert router.body("GET-TYPES", entityType="sslProfile", type="org.amqp.management", name="self") == {
        long_name: [f"{PREFIX}.configurationEntity", f"{PREFIX}.entity"]
    }
    attributes = router.body("GET-ATTRIBUTES", entityType=long_name)
    assert len(attributes[long_name]) == 12
    assert attributes[long_name][-3:] == ["name", "identity", "type"]
    assert router.body("GET-OPERATIONS", entityType=long_name) == {long_name: ["CREATE", "DELETE", "READ"]}


def test_types_below_a_base_type_are_listed_with_it(router: Bench) -> None:
    body = router.body("GET-TYPES", entityType="operationalEntity")
    assert f"{PREFIX}.router.link" in body
    assert f"{PREFIX}.listener" not in body
    assert len(router.body("GET-ATTRIBUTES", entityType="operationalEntity")) == 1


@pytest.mark.parametrize(
    ("name", "operations"),
    [("dummy", ["CREATE", "READ", "UPDATE", "DELETE", "CALLME"]), ("router.link", ["UPDATE", "READ"])],
)
def test_operations_have_their_order(router: Bench, name: str, operations: list[str]) -> None:
    assert list(router.body("GET-OPERATIONS", entityType=name).values()) == [operations]


def test_the_whole_schema_is_the_same_in_json(router: Bench) -> None:
    """management 40"""
    schema = router.body("GET-SCHEMA")
    text = router.body("GET-JSON-SCHEMA")
    assert json.loads(text) == schema == SCHEMA.dump()
    assert "\n" not in text
    assert json.loads(router.body("GET-SCHEMA-JSON", indent="2")) == schema


def test_the_whole_schema_leaves_out_what_says_nothing(router: Bench) -> None:
    """management 40"""

    def check(value: object) -> None:
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            assert each not in (False, None, 0, "", [], {})
            check(each)

    schema = router.body("GET-SCHEMA")
    check(schema["entityTypes"]["listener"])
    assert {"create", "update", "secret", "wire", "columns"}.isdisjoint(
        json.loads(json.dumps(schema["entityTypes"]["connector"]))
    )
    assert list(schema["entityTypes"]["listener"]["attributes"])[-2:] == ["name", "identity"]
    assert schema["entityTypes"]["vhostUserGroupSettings"]["attributes"]["maxSenders"]["default"] == 2**31 - 1


def test_a_huge_indent_does_not_make_a_huge_reply(router: Bench) -> None:
    """Attack: GET-JSON-SCHEMA with indent 10**9."""
    assert len(router.body("GET-JSON-SCHEMA", indent=10**9)) < 2_000_000


def test_operations_must_be_named_and_known(router: Bench) -> None:
    """management 41"""
    assert router.refusal(None) == (400, "No 'operation' property: {}")
    for properties in (None, "text", 5, {"operation": 5}, {"operation": ""}):
        assert router.agent.handle(Request(properties=properties, requester=ANYBODY)).status == 400
    status, text = router.refusal("nosuch", type="org.amqp.management")
    assert (
        status,
        text.startswith(f"Operation 'NOSUCH' not implemented for '{PREFIX}.management' ['GET-SCHEMA', "),
    ) == (501, True)
    assert router.refusal("get_types")[0] == router.refusal("REGISTER")[0] == router.refusal("PROFILE")[0] == 501


def test_other_routers_come_from_the_network(router: Bench) -> None:
    """management 64"""
    assert router.body("GET-MGMT-NODES") == router.body("DISCOVER-MGMT-NODES") == ["amqp:/_topo/0/R/$management"]
    assert bench().body("GET-MGMT-NODES") == []


# QUERY


def test_a_typed_query_keeps_the_order_of_the_attributes(router: Bench) -> None:
    """management 44"""
    body = router.body("QUERY", {"attributeNames": ["port", "type", "name"]}, entityType="listener")
    assert body == {"attributeNames": ["port", "type", "name"], "results": [["5672", f"{PREFIX}.listener", "l"]]}


def test_an_untyped_query_sees_the_agents_entities(router: Bench) -> None:
    """management 45"""
    body = router.body("QUERY", {"attributeNames": ["type", "name", "identity", "port"]})
    rows = {row[1]: row for row in body["results"]}
    assert {"self", "router/R", "log/DEFAULT", "l", "address/0", "policy/None", "vhostStats/h"} <= rows.keys()
    for long_name, name, identity, _ in body["results"]:
        assert identity == "self" or identity.startswith(
            long_name.removeprefix(f"{PREFIX}.").removeprefix("router.config.")
        )
        assert name
    assert not any(row[0] == f"{PREFIX}.connection" for row in body["results"])


def test_an_untyped_query_of_all_attributes_has_every_row_typed_and_named(router: Bench) -> None:
    """management 45"""
    body = router.body("QUERY")
    names = body["attributeNames"]
    assert all(row[names.index("type")] and row[names.index("name")] for row in body["results"])


def test_rows_without_any_of_the_attributes_are_left_out(router: Bench) -> None:
    body = router.body("QUERY", {"attributeNames": ["uidFormat", "password"]})
    assert body["results"] == [[None, "*******"]]


def test_a_page_makes_no_more_rows_than_it_holds() -> None:
    """management 46; attack: a small request that has the router build a row per link."""
    rows = LiveRows("router.link", lambda: links(10_000))
    store = EntityStore(SCHEMA, lambda _: None)
    store.own(rows.owner())
    agent = Agent(SCHEMA, store, lambda _: None)
    query = {"operation": "QUERY", "entityType": "router.link", "offset": uint(20), "count": int_(10)}
    body: Any = agent.handle(Request(properties=query, body={"attributeNames": ["identity"]}, requester=ANYBODY)).body
    assert body["results"] == [[str(number)] for number in range(20, 30)]
    assert rows.made == 30


def test_ten_thousand_links_arrive_in_pages() -> None:
    """management 46"""
    made = bench(live={"router.link": lambda: links(10_000)})
    names = {"attributeNames": ["identity"]}
    pages = [made.body("QUERY", names, entityType="router.link", offset=at, count=500) for at in range(0, 10_500, 500)]
    assert [len(page["results"]) for page in pages] == [500] * 20 + [0]
    assert len({row[0] for page in pages for row in page["results"]}) == 10_000


def test_agent_queries_have_pages_too(router: Bench) -> None:
    """management 46 (Build)"""
    names = {"attributeNames": ["name"]}
    whole = router.body("QUERY", names)["results"]
    assert router.body("QUERY", names, offset=2, count=3)["results"] == whole[2:5]
    assert router.body("QUERY", names, offset=1000, count=3)["results"] == []
    assert router.body("QUERY", names, offset=-5, count=-1)["results"] == whole


def test_a_query_may_name_only_a_type(router: Bench) -> None:
    """management 47"""
    assert len(router.body("QUERY", type=f"{PREFIX}.connection")["results"]) == 3
    assert len(router.body("QUERY", None, type="listener")["results"]) == 1


def test_numbers_may_be_text(router: Bench) -> None:
    """management 48"""
    assert len(router.body("QUERY", entityType="connection", count="2")["results"]) == 2
    assert router.refusal("QUERY", entityType="connection", count="two")[0] == 400


def test_values_have_the_types_of_the_wire(router: Bench) -> None:
    """management 56, 69, 70"""
    (link, *_) = router.body(
        "QUERY", {"attributeNames": ["capacity", "ingressHistogram", "peer"]}, entityType="router.link"
    )["results"]
    assert [type(link[0]), type(link[1][0]), link[2]] == [uint, ulong, None]
    row = router.body("READ", type="router", identity="1")
    assert [type(row["linkCount"]), type(row["linksBlocked"]), type(row["workerThreads"])] == [ulong, uint, int_]
    (address,) = router.body(
        "QUERY", {"attributeNames": ["remoteHostRouters", "priority"]}, entityType="router.address"
    )["results"]
    assert address == [["B"], None]


def test_a_counter_out_of_range_spoils_no_query() -> None:
    rows = [{"name": "l", "identity": "1", "capacity": -1, "undeliveredCount": 2**70, "trackedDeliveries": 1}]
    (row,) = bench(live={"router.link": lambda: rows}).body(
        "QUERY", {"attributeNames": ["capacity", "undeliveredCount"]}, entityType="router.link"
    )["results"]
    assert row == [0, 2**64 - 1]


def test_unknown_attribute_names(router: Bench) -> None:
    names = {"attributeNames": ["x"]}
    assert router.refusal("QUERY", names, entityType="listener") == (
        404,
        f"Unknown attributes ['x'] for type {PREFIX}.listener.",
    )
    assert router.refusal("QUERY", names) == (404, "Unknown attributes ['x'].")
    assert router.body("QUERY", names, entityType="connection") == {"attributeNames": ["x"], "results": [[None]] * 3}
    assert router.refusal("QUERY", {"attributeNames": [1]}, entityType="connection")[0] == 400
    assert router.refusal("QUERY", {"attributeNames": ["name"] * 1001})[0] == 400


def test_names_may_come_as_an_amqp_array(router: Bench) -> None:
    names = {"attributeNames": Array(symbol, (symbol("name"),))}
    assert router.body("QUERY", names, entityType="listener")["results"] == [["l"]]


def test_64_names_or_more_of_a_core_type_mean_all(router: Bench) -> None:
    body = router.body("QUERY", {"attributeNames": ["name"] * 64}, entityType="connection")
    assert body["attributeNames"] == list(SCHEMA.types["connection"].columns)


def test_unknown_types_are_refused_and_logged(router: Bench) -> None:
    assert router.refusal("QUERY", entityType="ghost") == (400, "No such entity type 'ghost'")
    assert router.refusal("GET-TYPES", entityType="ghost") == (400, "No such entity type 'ghost'")
    assert "Error performing QUERY: No such entity type 'ghost'" in router.logged("error")


def test_the_console_is_forbidden(router: Bench) -> None:
    response = router.ask("QUERY", entityType="console")
    assert (response.status, response.description) == (403, "Forbidden")
    assert response.body == {"attributeNames": [], "results": []}
    assert router.refusal("CREATE", {}, type="console") == (403, "Forbidden")


# READ


def test_entities_are_read_by_name_or_identity(router: Bench) -> None:
    """management 49"""
    identity = "listener/0.0.0.0:5672:l"
    found = router.body("READ", identity=identity)
    assert found == router.body("READ", name="l", type="listener") == router.body("READ", name="l", identity=identity)
    assert (found["host"], found["role"], found["type"]) == ("0.0.0.0", "normal", f"{PREFIX}.listener")
    assert "sslProfile" not in found


@pytest.mark.parametrize(
    ("properties", "answer"),
    [
        ({"name": "nobody"}, (404, "No entity with name=nobody")),
        ({"identity": "i"}, (404, "No entity with identity=i")),
        ({"name": "nobody", "identity": "i"}, (404, "No entity with name=nobody identity=i")),
        ({"name": "l", "identity": "i"}, (400, "Conflicting name=l identity=i")),
        (
            {"name": "l", "type": "sslProfile"},
            (400, f"Entity type '{PREFIX}.listener' does not extend requested type '{PREFIX}.sslProfile'"),
        ),
        (
            {"name": "l", "type": "entity"},
            (404, f"Entity type '{PREFIX}.listener' does match requested type '{PREFIX}.entity'"),
        ),
        ({"name": "l", "type": "ghost"}, (400, "No such entity type 'ghost'")),
        ({"type": "listener"}, (400, f"{PREFIX}.listener: No name or identity provided")),
        ({"type": "connection", "name": "x"}, (400, "Name not supported. Identity required")),
        ({"type": "router.link", "identity": "99"}, (404, "Not Found")),
        ({"type": "router.address"}, (400, "No name or identity provided")),
    ],
)
def test_what_cannot_be_read(router: Bench, properties: dict[str, object], answer: tuple[int, str]) -> None:
    """management 49"""
    assert router.refusal("READ", **properties) == answer


def test_two_entities_of_one_name_are_an_error() -> None:
    rows = [{"name": "twin", "identity": f"logStats/{number}"} for number in range(2)]
    made = bench(live={"logStats": lambda: rows})
    assert made.refusal("READ", name="twin") == (500, "Duplicate (2) entities with name=twin")


def test_the_router_has_two_faces(router: Bench) -> None:
    """management 69"""
    seen_by_agent = router.body("READ", identity="router/R")
    assert (seen_by_agent["linkCount"], seen_by_agent["blockedLinkCount"], seen_by_agent["metadata"]) == (0, 1, "m")
    assert router.body("READ", type="router", name="router/R") == seen_by_agent
    seen_by_core = router.body("READ", type="router", name="R")
    assert (seen_by_core["identity"], seen_by_core["linkCount"], seen_by_core["memoryUsage"]) == ("1", 7, 10**6)
    assert seen_by_core["workerThreads"] == 4
    assert router.refusal("CREATE", {}, type="router") == router.refusal("DELETE", type="router") == (403, "Forbidden")
    assert router.refusal("UPDATE", {}, type="router", identity="1")[0] == 501


def test_the_policy_shows_its_counters(router: Bench) -> None:
    """management 68"""
    body = router.body(
        "QUERY",
        {"attributeNames": ["identity", "connectionsDenied", "totalDenials", "defaultVhost"]},
        entityType="policy",
    )
    assert body["results"] == [["policy/None", 3, 4, "$default"]]


def test_log_counts_have_seven_columns() -> None:
    """management 67"""
    ring = LogRing()
    ring.append(LogEntry(module="AGENT", level="debug", text="x", time_s=0))
    made = bench(live={"logStats": ring.rows})
    body = made.body("READ", name="AGENT", type="logStats")
    assert (body["debugCount"], body["criticalCount"], body["identity"]) == (1, 0, "logStats/AGENT")
    counts = [name for name in made.body("QUERY", entityType="logStats")["attributeNames"] if name.endswith("Count")]
    assert len(counts) == 7


def test_connections_show_their_properties_and_idle_time() -> None:
    """management 70, 71"""
    rows = [connection("5") | {"uptimeSeconds": 3, "lastDlvSeconds": None}]
    found = bench(live={"connection": lambda: rows}).body("READ", type="connection", identity="5")
    assert (found["properties"], found["lastDlvSeconds"], found["uptimeSeconds"]) == ({"a": 1}, None, 3)
    assert list(found) == list(SCHEMA.types["connection"].columns)


def test_get_log_gives_the_last_entries() -> None:
    """management 32"""
    ring = LogRing()
    for number in range(1500):
        ring.append(LogEntry(module="AGENT", level="info", text=str(number), time_s=number, file="a.py", line=1))
    made = bench(node=node_owner(SCHEMA, log_entries=ring.entries))
    entries = made.body("GET-LOG")
    assert (len(entries), entries[0]) == (1000, ["AGENT", "info", "500", "a.py", 1, 500])
    assert [entry[2] for entry in made.body("GET-LOG", limit="2")] == ["1498", "1499"]
    assert len(made.body("GET-LOG", limit=0)) == 1000


# CREATE, UPDATE, DELETE


def test_a_dummy_lives_and_dies(router: Bench) -> None:
    """management 51"""
    created = router.ask("CREATE", {"arg1": "a", "num1": "5", "arg2": None}, type="dummy", name="d")
    assert (created.status, created.description) == (201, "Created")
    whole = {"name": "d", "identity": "dummy/0", "type": f"{PREFIX}.dummy", "arg1": "a", "num1": 5}
    assert created.body == whole == router.body("READ", name="d")
    assert router.body("UPDATE", {"num1": None, "arg2": "b"}, identity="dummy/0")["arg2"] == "b"
    assert "num1" not in router.body("READ", name="d")
    deleted = router.ask("DELETE", name="d", type="dummy")
    assert (deleted.status, deleted.description, deleted.body) == (204, "No Content", {})
    assert router.refusal("DELETE", name="d") == (404, "No entity with name=d")
    assert router.body("CREATE", {}, type="dummy")["identity"] == "dummy/1"


def test_callme_echoes_its_properties(router: Bench) -> None:
    """management 51"""
    router.body("CREATE", {}, type="dummy", name="d")
    echo = router.body("CALLME", name="d", big=long(2**62), raw=b"\x00\xff", small=ulong(1))
    assert echo == {"operation": "CALLME", "name": "d", "big": 2**62, "raw": b"\x00\xff", "small": 1}
    assert [type(echo["big"]), type(echo["small"])] == [long, ulong]


def test_an_unmodified_map_may_be_sent_back(router: Bench) -> None:
    """management 50"""
    whole = router.body("CREATE", {"arg1": "a"}, type="dummy", name="d")
    assert router.body("UPDATE", whole, name="d") == whole
    assert router.body("UPDATE", {**whole, "type": "dummy"}, name="d") == whole
    assert router.refusal("UPDATE", {"name": "e"}, name="d") == (400, "Cannot update attribute 'name' in UPDATE")
    assert router.refusal("UPDATE", {"argh": "e"}, name="d")[1].startswith(f"{PREFIX}.dummy: Unknown attribute 'argh'")
    assert router.refusal("UPDATE", ["e"], name="d")[0] == 400


def test_a_listener_cannot_be_updated(router: Bench) -> None:
    """management 50"""
    assert router.refusal("UPDATE", {"port": "1"}, name="l") == (
        501,
        f"Operation 'UPDATE' not implemented for '{PREFIX}.listener' ['CREATE', 'DELETE', 'READ']",
    )


@pytest.mark.parametrize(
    ("body", "properties", "text"),
    [
        ({"type": "listener"}, {"type": "dummy"}, "Conflicting values for 'type'"),
        ({"name": "a"}, {"type": "dummy", "name": "b"}, "Conflicting values for 'name'"),
        ({}, {"name": "b"}, "No 'type' attribute in {'name': 'b'}"),
        ({"identity": "x"}, {"type": "dummy"}, "'identity' attribute cannot be specified"),
        ({}, {"type": "dummy", "identity": "x"}, "'identity' attribute cannot be specified"),
        ({"connectionStatus": "x"}, {"type": "connector"}, "Cannot set attribute 'connectionStatus' in CREATE"),
        ({"maxMessageSize": 1, "hostname": "v"}, {"type": "vhost"}, "Cannot set attribute 'maxMessageSize' in CREATE"),
        ({"arg3": 1}, {"type": "dummy"}, f"{PREFIX}.dummy: Unknown attribute 'arg3'"),
        ({"name": "l"}, {"type": "dummy"}, "adding DummyEntity(identity=dummy/0, name=l, "),
        ({"name": "address/0"}, {"type": "dummy"}, "adding DummyEntity("),
        ({"role": "inter-router"}, {"type": "listener"}, "role='standalone' not allowed to connect to or accept"),
        ({"role": "edge"}, {"type": "connector"}, "role='standalone' not allowed to connect to or accept"),
        ({"openProperties": {"port": 1}}, {"type": "listener"}, "Reserved key 'port' not allowed in openProperties"),
        ({}, {"type": "sslProfile"}, f"{PREFIX}.sslProfile: Missing required attribute 'name'"),
        ([1], {"type": "dummy"}, "Body of request must be a map"),
    ],
)
def test_creates_that_are_refused(router: Bench, body: object, properties: dict[str, object], text: str) -> None:
    """management 52, 54, 62"""
    router.calls.clear()
    status, description = router.refusal("CREATE", body, **properties)
    assert (status, description.startswith(text)) == (400, True)
    assert router.calls == []


def test_a_create_without_a_body_names_or_type_elsewhere(router: Bench) -> None:
    """management 52 (Build): name and type from either place"""
    assert router.body("CREATE", {"type": "dummy", "name": "n"})["name"] == "n"
    assert router.body("CREATE", {"type": f"{PREFIX}.dummy"}, type="dummy")["identity"] == "dummy/1"
    assert router.body("CREATE", {"type": "address", "prefix": "zz"})["prefix"] == "zz"


def test_a_created_listener_shows_all_defaults_and_can_be_deleted(router: Bench) -> None:
    """management 53"""
    body = router.body("CREATE", {"port": 0, "requireSsl": "yes"}, type="listener", name="new")
    expected = {"host": "", "port": "0", "role": "normal", "maxFrameSize": 16384, "requireSsl": True}
    assert body.items() >= expected.items()
    assert body["identity"] == "listener/:0:new"
    assert router.calls[-1] == ("create", "listener", body)
    router.body("DELETE", name="new")
    assert router.calls[-1][:2] == ("delete", "listener")
    assert router.body("QUERY", {"attributeNames": ["name"]}, entityType="listener")["results"] == [["l"]]


def test_a_failing_handler_changes_nothing(router: Bench) -> None:
    def fail(*_: object) -> None:
        raise ManagementError(500, "PolicyError: Policy 'v' is invalid: x")

    router.own("vhost", create=fail, delete=fail)
    assert router.refusal("CREATE", {"hostname": "v"}, type="vhost") == (500, "PolicyError: Policy 'v' is invalid: x")
    assert router.body("QUERY", entityType="vhost")["results"] == []
    router.own("vhost", create=lambda _: None)
    before = router.body("CREATE", {"hostname": "v"}, type="vhost")
    router.own("vhost", update=fail)
    assert router.refusal("UPDATE", {"maxConnections": 1}, name="vhost/v")[0] == 500
    assert router.refusal("DELETE", name="vhost/v")[0] == 500
    assert router.body("READ", name="vhost/v") == before


def test_vhosts_come_change_and_go(router: Bench) -> None:
    """management 62, policy 6"""
    groups = {"g": {"users": "*", "maxMessageSize": 5}}
    made = router.body("CREATE", {"id": "v", "groups": groups}, type="vhost", name="mine")
    assert (made["hostname"], made["name"], made["groups"], made["maxConnections"]) == ("v", "mine", groups, 65535)
    assert router.body("UPDATE", {"groups": {}, "aliases": "w"}, name="mine")["aliases"] == "w"
    assert router.calls[-1][3]["groups"] == {}
    assert router.body("UPDATE", {"hostname": "v", "maxConnections": 7}, name="mine")["maxConnections"] == 7
    assert router.refusal("UPDATE", {"id": "v"}, name="mine") == (400, "Cannot update attribute 'id' in UPDATE")
    assert router.refusal("UPDATE", {"hostname": "w"}, name="mine")[0] == 400
    router.body("DELETE", name="mine")
    assert router.body("QUERY", entityType="vhost")["results"] == []


def test_a_log_entity_changes_but_neither_comes_nor_goes(router: Bench) -> None:
    """management 29 and §4.4"""
    assert set(router.body("READ", name="log/AGENT")) == {"identity", "module", "name", "type"}
    default = {"identity", "enable", "module", "name", "outputFile", "includeSource", "includeTimestamp", "type"}
    assert set(router.body("READ", name="log/DEFAULT")) == default
    assert router.body("UPDATE", {"output": "A.log", "enable": "trace+"}, name="log/DEFAULT")["outputFile"] == "A.log"
    assert router.body("UPDATE", {"enable": None}, name="log/DEFAULT")["enable"] == "info+"
    assert (
        router.refusal("CREATE", {"module": "AGENT"}, type="log")[0]
        == router.refusal("DELETE", name="log/AGENT")[0]
        == 501
    )
    status, text = router.refusal("UPDATE", {"enable": "foo"}, name="log/AGENT")
    assert (status, text.startswith("CError: Configuration: 'foo' is not a valid log level.")) == (500, True)
    assert router.refusal("UPDATE", {"outputFile": ""}, name="log/AGENT") == (
        500,
        "CError: Configuration: Failed to open log file ''",
    )
    assert "enable" not in router.body("READ", name="log/AGENT")


def test_a_type_without_a_handler_is_not_implemented() -> None:
    store = EntityStore(SCHEMA, lambda _: None)
    agent = Agent(SCHEMA, store, lambda _: None)
    for name, body in (("listener", {}), ("address", {"prefix": "a"})):
        response = agent.handle(Request(properties={"operation": "CREATE", "type": name}, body=body, requester=ANYBODY))
        assert (response.status, response.description) == (
            501,
            f"Operation 'CREATE' not implemented on {SCHEMA.types[name].long_name}",
        )


# Connections and links


def test_a_connection_is_closed_by_an_update() -> None:
    """management 60"""
    asked: list[object] = []
    rows = [connection("5"), connection("6", "inter-router"), connection("8", "edge")]
    made = bench(live={"connection": lambda: rows}, change=lambda *what: asked.append(what))
    gone = {"adminStatus": "deleted"}
    assert made.body("UPDATE", gone, type="connection", identity="5")["adminStatus"] == "deleted"
    assert asked == [("5", gone, 7)]
    denied = (403, "You are not allowed to perform this operation.")
    assert made.refusal("UPDATE", gone, type="connection", identity="5", allowed=False) == denied
    assert made.refusal("UPDATE", gone, type="connection", identity="6") == denied
    assert made.refusal("UPDATE", gone, type="connection", identity="8") == denied
    assert made.refusal("DELETE", type="connection", identity="5") == (403, "Forbidden")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("body", "identity"),
    [
        ({"adminStatus": "deleted"}, "99"),
        ({}, "5"),
        (None, "5"),
        ({"adminStatus": "x"}, "5"),
        ({"adminStatus": "deleted"}, None),
    ],
)
def test_connection_updates_that_make_no_sense(router: Bench, body: object, identity: str | None) -> None:
    """management 60"""
    assert router.refusal("UPDATE", body, type="connection", identity=identity) == (400, "Bad Request")


def test_frames_of_one_connection_are_traced_on_request() -> None:
    asked: list[object] = []
    made = bench(
        live={"connection": lambda: [connection("6", "inter-router")]},
        change=lambda *what: asked.append(what),
    )
    body = made.body("UPDATE", {"enableProtocolTrace": "yes"}, type="connection", identity=uint(6))
    assert body["enableProtocolTrace"] is True
    assert asked == [("6", {"enableProtocolTrace": True}, 7)]


def test_links_can_be_read_and_hardly_changed(router: Bench) -> None:
    assert router.body("READ", type="router.link", name="link1")["identity"] == "1"
    assert router.body("UPDATE", {"adminStatus": "disabled"}, type="router.link", identity="1")["name"] == "link1"
    assert router.refusal("UPDATE", {}, type="router.link", identity="1")[0] == 400
    assert router.refusal("DELETE", type="router.link", identity="1")[0] == 501
    assert router.refusal("CREATE", {}, type="router.address")[0] == 501


# Logs and secrets


def test_requests_and_responses_are_logged_as_received(router: Bench) -> None:
    router.body("get-log", limit=1)
    assert any(text.startswith("Agent request get-log") for text in router.logged("debug"))
    assert any(text.startswith("Agent response:") for text in router.logged("debug"))
    router.body("CREATE", {"prefix": "q"}, type="address")
    router.refusal("CREATE", {"prefix": "q"}, type="address")
    assert f"Error performing CREATE of {PREFIX}.router.config.address: Already exists" in router.logged("error")
    assert any(text.startswith("Add entity: ListenerEntity(") for text in router.logged("debug"))
    router.body("DELETE", name="l")
    assert "Remove listener entity: listener/0.0.0.0:5672:l" in router.logged("debug")


def test_passwords_are_neither_returned_nor_logged(router: Bench) -> None:
    """management 72"""
    assert router.body("READ", name="s")["password"] == "*******"
    assert router.body("READ", name="c")["saslPassword"] == "*******"
    everything = [router.body("QUERY"), router.body("QUERY", entityType="connector")]
    everything.append(router.body("CREATE", {"password": "hunter3"}, type="sslProfile", name="t"))
    assert router.calls[-1][2]["password"] == "hunter3"
    for body in ({"password": "hunter3", "x": 1}, {"saslPasswort": "hunter3"}, {"name": "s", "password": "hunter3"}):
        everything.append(router.refusal("CREATE", body, type="sslProfile"))
    everything.append(router.refusal("CREATE", {"identity": "i", "saslPassword": "hunter3"}, type="connector"))
    everything.append(router.refusal("CREATE", {"saslPassword": "hunter3"}))
    everything += [log.text for log in router.logs]
    everything += [repr(entity) for name in SCHEMA.types for entity in router.store.entities(name)]
    assert "hunter" not in str(everything)


def test_an_unforeseen_error_tells_the_client_nothing(router: Bench) -> None:
    def break_down(_attributes: Mapping[str, object]) -> None:
        raise RuntimeError("secret state")

    router.own("vhost", create=break_down)
    status, text = router.refusal("CREATE", {"hostname": "v"}, type="vhost")
    assert (status, text) == (500, "InternalError: the request could not be carried out")
    (logged,) = [each for each in router.logged("error") if each.startswith("Unexpected ")]
    assert re.fullmatch(r"Unexpected RuntimeError at /\S+/test_agent\.py:\d+", logged)
    assert "secret state" not in str(router.logs)


KEYS = st.sampled_from(
    [
        *(
            "operation",
            "type",
            "entityType",
            "name",
            "identity",
            "offset",
            "count",
            "limit",
            "indent",
            "attributeNames",
        ),
        *("arg1", "num1", "prefix", "port", "host", "adminStatus", "groups", "module", "enable", "openProperties"),
    ]
)
WORDS = st.sampled_from(
    [
        *("CREATE", "READ", "UPDATE", "DELETE", "QUERY", "CALLME", "GET-SCHEMA", "GET-LOG", "GET-JSON-SCHEMA", "self"),
        *(*SCHEMA.types, "log/AGENT", "5", "l", "router/R", "1", "in", "deleted", ""),
    ]
)
SCALARS = st.one_of(
    WORDS,
    st.text(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.binary(),
    st.booleans(),
    st.none(),
    st.uuids(),
    WORDS.map(str),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(KEYS, WORDS, st.integers(0, 9)), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(
    properties=st.one_of(
        VALUES, st.dictionaries(KEYS, SCALARS), st.fixed_dictionaries({"operation": WORDS, "type": WORDS})
    ),
    body=VALUES,
)
def test_every_request_has_an_answer_that_can_be_sent(properties: object, body: object) -> None:
    made = FUZZED
    response = made.agent.handle(Request(properties=properties, body=body, requester=ANYBODY))
    assert response.status in (200, 201, 204, 400, 403, 404, 500, 501)
    assert isinstance(response.description, str)
    assert "InternalError" not in response.description, made.logged("error")[-2:]
    assert encode_message(to="x", application_properties={"d": response.description}, body=response.body)


def _ignore(_: Effect) -> None:
    return


FUZZED = bench(
    ROUTER + "listener {\n name: l\n}\n",
    {"connection": lambda: [connection("5")], "router.link": lambda: links(2)},
    change=lambda *_: None,
)


def test_a_deeply_nested_request_is_answered() -> None:
    """Attack: exhaust the stack of whoever logs the request."""
    body: object = "x"
    for _ in range(100_000):
        body = [body]
    store = EntityStore(SCHEMA, _ignore)
    store.own(DUMMY)
    agent = Agent(SCHEMA, store, _ignore)
    for name in ("dummy", "address", "vhost"):
        properties = {"operation": "CREATE", "type": name}
        given = {"arg1": body, "prefix": body, "groups": body}
        assert agent.handle(Request(properties=properties, body=given, requester=ANYBODY)).status >= 200
