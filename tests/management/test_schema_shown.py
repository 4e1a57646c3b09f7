"""What management shows of the schema: 1.20's types and attributes, and those of the extensions in use.

Source: docs/spec/management.md §6.1.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_bench import SCHEMA, Bench, bench

from policy.configuration.schema import load_schema
from policy.rights import read_rights
from router.management.extensions import Extensions

PREFIX = "org.apache.qpid.dispatch"
# As docs/spec/management.md §6 has them. A new attribute or type of ours is marked `extension` in the schema, not
# listed here.
KNOWN: dict[str, Any] = json.loads((Path(__file__).parent / "schema_1_20.json").read_text("utf-8"))
VHOST = 'vhost {{\n hostname: h\n groups: {{ "$default": {{ "users": "*", "remoteHosts": "*", {} }} }}\n}}\n'


@pytest.fixture
def router() -> Bench:
    live: dict[str, Any] = {
        "budget": lambda: iter([{"name": "budget/router", "identity": "budget/router", "kind": "router", "held": 1}]),
    }
    return bench(live=live, schema=load_schema())


def without_descriptions(types: Any) -> Any:
    return {
        name: {
            key: {attribute: {k: v for k, v in each.items() if k != "description"} for attribute, each in value.items()}
            if key == "attributes"
            else value
            for key, value in entry.items()
            if key not in ("description", "fullyQualifiedType")
        }
        for name, entry in types.items()
    }


def test_the_schema_shown_is_that_of_1_20(router: Bench) -> None:
    """Issue 12, point 12: GET-SCHEMA, but for our own words; in this order."""
    common = {"name": {"type": "string", "unique": True}, "identity": {"type": "string", "unique": True}}
    expected = {}
    for name, entry in KNOWN.items():
        shown = {key: value for key, value in entry.items() if key != "bases" and value != []}
        expected[name] = {**shown, "attributes": {**entry["attributes"], **common}}
    found = without_descriptions(router.body("GET-SCHEMA")["entityTypes"])
    assert found == expected
    assert list(found) == list(expected)
    assert {name: list(entry["attributes"]) for name, entry in found.items()} == {
        name: list(entry["attributes"]) for name, entry in expected.items()
    }


def test_the_schema_shown_in_parts_is_that_of_1_20(router: Bench) -> None:
    """Issue 12, point 12: GET-TYPES, GET-ATTRIBUTES, GET-OPERATIONS."""
    long = {name: SCHEMA.types[name].long_name for name in KNOWN}
    assert router.body("GET-TYPES") == {
        long[name]: [long[base] for base in entry["bases"]] for name, entry in KNOWN.items()
    }
    assert router.body("GET-ATTRIBUTES") == {
        long[name]: [*entry["attributes"], "name", "identity", "type"] for name, entry in KNOWN.items()
    }
    assert router.body("GET-OPERATIONS") == {long[name]: entry["operations"] for name, entry in KNOWN.items()}
    below = set(router.body("GET-TYPES", entityType="entity"))
    assert below == set(long.values())
    for name in KNOWN:  # asked for by name an attribute is not
        assert router.body("GET-ATTRIBUTES", entityType=name)[long[name]][:-3] == list(KNOWN[name]["attributes"])


@pytest.mark.parametrize("name", ["ban", "budget"])
def test_a_type_of_ours_is_shown_to_who_asks_for_it_by_name(router: Bench, name: str) -> None:
    kind = load_schema().types[name]
    assert router.body("GET-TYPES", entityType=name).keys() == {kind.long_name}
    assert router.body("GET-ATTRIBUTES", entityType=name) == {kind.long_name: list(kind.attributes)}
    assert router.body("GET-OPERATIONS", entityType=name) == {kind.long_name: list(kind.operations)}
    assert router.body("QUERY", entityType=name)["attributeNames"] == list(kind.attributes)


def test_a_query_shows_what_is_asked_for_by_name(router: Bench) -> None:
    assert "maxConnectionAgeSeconds" not in router.body("QUERY", entityType="listener")["attributeNames"]
    router.body("CREATE", {"port": "0"}, type="listener", name="one")
    found = router.body("QUERY", {"attributeNames": ["name", "maxConnectionAgeSeconds"]}, entityType="listener")
    assert found["results"] == [["one", 0]]
    columns = router.body("QUERY", entityType="router")["attributeNames"]
    assert columns[:3] == ["name", "identity", "id"]
    assert columns[-1] == "workerThreads"


def test_a_query_of_several_types_leaves_out_those_of_ours_that_are_not_used(router: Bench) -> None:
    identities = {row[0] for row in router.body("QUERY", {"attributeNames": ["identity"]})["results"]}
    assert "budget/router" not in identities
    below = router.body("QUERY", {"attributeNames": ["identity"]}, entityType="operationalEntity")["results"]
    assert ["budget/router"] not in below
    assert router.body("QUERY", {"attributeNames": ["held"]}, entityType="budget")["results"] == [[1]]
    assert router.body("READ", type="budget", name="budget/router")["held"] == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("router {\n maxHandshakes: 5\n}\n", ("router", "handshakeCount")),
        ("router {\n auditDir: /a\n}\n", ("router", "auditMaxFiles")),
        ("listener {\n maxConnectionAgeSeconds: 5\n}\n", ("listener", "maxConnectionAgeSeconds")),
        ("connector {\n allowManagement: yes\n}\n", ("connector", "allowManagement")),
        ("policy {\n banAfterFailures: 3\n}\n", ("ban", "remoteHost")),
        ("policy {\n onPolicyChange: enforce\n}\n", ("policy", "policyChanges")),
        (VHOST.format('"denyTargets": "secret*"'), ("vhostUserGroupSettings", "denyTargets")),
        (VHOST.format('"management": "observer"'), ("vhostUserGroupSettings", "management")),
        (VHOST.format('"maxMessageRate": 5'), ("connection", "heldBackCount")),
        ("router {\n userByteBudget: 1000000\n}\n", ("budget", "held")),
    ],
)
def test_what_a_configuration_uses_is_shown(text: str, shown: tuple[str, str]) -> None:
    made = bench(text, schema=load_schema())
    kind, attribute = shown
    assert attribute in made.body("GET-SCHEMA")["entityTypes"][kind]["attributes"]
    assert attribute in made.body("GET-ATTRIBUTES")[load_schema().types[kind].long_name]
    assert "busyPollMicroseconds" not in made.body("GET-SCHEMA")["entityTypes"]["router"]["attributes"]


def test_what_management_makes_is_shown_from_then_on(router: Bench) -> None:
    long_name = f"{PREFIX}.ban"
    router.own("ban", create=lambda attributes: None, delete=lambda attributes: None)
    assert long_name not in router.body("GET-TYPES")
    router.body("CREATE", {"user": "mallory"}, type="ban", name="b")
    assert "banAfterFailures" in router.body("GET-SCHEMA")["entityTypes"]["policy"]["attributes"]
    router.body("DELETE", type="ban", name="b")
    assert long_name in router.body("GET-TYPES")
    groups = {"$default": {"users": "*", "remoteHosts": "*"}}
    router.own("vhost", update=lambda before, after: None)
    router.body("CREATE", {"hostname": "h", "groups": groups}, type="vhost", name="v")
    assert "validUntil" not in router.body("GET-ATTRIBUTES")[f"{PREFIX}.vhostUserGroupSettings"]
    groups["$default"]["validUntil"] = "2030-01-01T00:00:00Z"
    router.body("UPDATE", {"groups": groups}, type="vhost", name="v")
    assert "validUntil" in router.body("GET-ATTRIBUTES")[f"{PREFIX}.vhostUserGroupSettings"]


def test_a_refused_request_uses_nothing(router: Bench) -> None:
    assert router.ask("CREATE", {"remoteHost": "not an address"}, type="ban").status >= 400
    assert f"{PREFIX}.ban" not in router.body("GET-TYPES")


def test_odd_groups_are_no_trouble() -> None:
    """Attack: groups of management that are no maps."""
    extensions, vhost = Extensions(SCHEMA), SCHEMA.types["vhost"]
    odd: tuple[object, ...] = (None, 5, [], {"g": None}, {"g": [1]}, {"g": {"management": None}}, {5: {7: 8}})
    for groups in odd:
        extensions.note(vhost, {"groups": groups})
    assert extensions.dump() == SCHEMA.dump()


@pytest.mark.parametrize("grants", ["read listener", "read management", "observer", "read *, create, delete ban"])
def test_rights_hold_for_types_that_are_not_shown(router: Bench, grants: str) -> None:
    """Attack: a type that nobody sees is asked for by its name, without the right to it."""
    router.rights = read_rights(grants)
    may_read = grants not in ("read listener", "read management")
    assert router.ask("QUERY", entityType="budget").status == (200 if may_read else 403)
    assert router.ask("QUERY", type="budget").status == (200 if may_read else 403)
    assert router.ask("READ", type="budget", name="budget/router").status == (200 if may_read else 403)
    # No look at what there is, where the type is not named.
    assert router.ask("READ", name="budget/router").status == (200 if may_read else 403)
    may_ban = grants.endswith("delete ban")
    response = router.ask("CREATE", {"user": "mallory"}, type="ban", name="b")
    assert (response.status == 403) != may_ban
    assert router.events[-1]["management"]["entity_type"] == f"{PREFIX}.ban"
    assert router.events[-1]["decision"] == ("allow" if may_ban else "deny")


def test_who_may_read_what_is_not_shown_reads_nothing_else(router: Bench) -> None:
    """A QUERY of all types shows those that may be read, and asks for the right to all where there is none."""
    router.rights = read_rights("read budget")
    assert router.refusal("QUERY")[0] == 403
    assert router.body("QUERY", {"attributeNames": ["name"]}, entityType="budget")["results"] == [["budget/router"]]
