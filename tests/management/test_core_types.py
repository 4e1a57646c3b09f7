"""Checklist items management 55 to 59, 93, 94: addresses, link routes, auto-links, exchanges, bindings by request."""

import pytest
from agent_bench import Bench, bench, configured

from router.management.requests import ManagementError
from router.values import int_

PREFIX = "org.apache.qpid.dispatch.router.config"


@pytest.fixture
def router() -> Bench:
    return bench("router {\n id: R\n}\n")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "Body of request must be a map"),
        (
            {"prefix": "a", "connection": "c", "containerId": "d"},
            "Both connection and containerId cannot be specified. Specify only one",
        ),
        ({"prefix": "a"}, "No 'direction' attribute provided - it is mandatory"),
        ({"direction": "in"}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        (
            {"direction": "in", "prefix": "a", "pattern": "b"},
            "Cannot specify both a 'prefix' and a 'pattern' attribute",
        ),
        ({"direction": "in", "prefix": 5}, "Prefix must be a non-empty string type"),
        ({"direction": "in", "pattern": ""}, "Pattern must be a non-empty string type"),
        ({"direction": "in", "pattern": "./."}, "Pattern invalid - no tokens"),
        ({"direction": "sideways", "prefix": "a"}, "Invalid value for 'direction'"),
        ({"direction": "in", "prefix": "a", "distribution": "closest"}, "Invalid value for 'distribution'"),
    ],
)
def test_bad_link_routes(router: Bench, body: object, text: str) -> None:
    """management 55"""
    response = router.ask("CREATE", body, type=f"{PREFIX}.linkRoute")
    assert (response.status, response.description, response.body) == (400, text, None)
    assert router.calls == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "Body of request must be a map"),
        ({}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        ({"prefix": "a", "pattern": "b"}, "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        (
            {"fallback": True, "waypoint": True},
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
        (
            {"prefix": "a", "enableFallback": "yes", "ingressPhase": 0, "egressPhase": 2},
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
        ({"prefix": ["a"]}, "Prefix must be a non-empty string type"),
        ({"prefix": "/"}, "Prefix invalid - no tokens"),
        ({"prefix": "a", "ingressPhase": 1}, "Phase values must be between 0 and 9"),
        ({"prefix": "a", "ingressPhase": 1, "egressPhase": 10}, "Phase values must be between 0 and 9"),
        ({"prefix": "a", "ingressPhase": "x", "egressPhase": 1}, "Phase values must be between 0 and 9"),
        ({"prefix": "a", "priority": 10}, "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"),
    ],
)
def test_bad_addresses(router: Bench, body: object, text: str) -> None:
    """routing 43, 44"""
    response = router.ask("CREATE", body, type="address")
    assert (response.status, response.description, response.body) == (400, text, None)


def test_an_address_without_a_name_has_none(router: Bench) -> None:
    """management 56"""
    made = router.body("CREATE", {"prefix": "/a.b/", "waypoint": True, "unknown": 1}, type="address")
    assert (made["name"], made["identity"].isdecimal(), made["prefix"], made["pattern"]) == (None, True, "a.b", None)
    assert (made["ingressPhase"], made["egressPhase"], made["waypoint"]) == (0, 1, True)
    assert {type(made["ingressPhase"]), type(made["egressPhase"])} == {int_}
    pattern = router.body("CREATE", {"pattern": "a.*", "distribution": "whatever", "priority": "4"}, type="address")
    assert (pattern["prefix"], pattern["pattern"], pattern["distribution"], pattern["priority"]) == (
        None,
        "a.*",
        "balanced",
        4,
    )
    assert router.body("READ", type="address", identity=pattern["identity"]) == pattern


def test_a_prefix_is_the_pattern_of_all_below_it(router: Bench) -> None:
    router.body("CREATE", {"prefix": "a/b"}, type="address")
    for again in ({"prefix": "a.b."}, {"pattern": "a.b.#"}, {"pattern": "a/b/#"}):
        assert router.refusal("CREATE", again, type="address") == (400, "Already exists")
    assert router.body("CREATE", {"pattern": "a.b.*"}, type="address")


def test_names_are_unique_within_a_core_type_only(router: Bench) -> None:
    """management 57"""
    bodies = {
        "address": {"prefix": "a"},
        "linkRoute": {"prefix": "a", "dir": "in"},
        "autoLink": {"addr": "a", "dir": "in"},
    }
    for kind, body in bodies.items():
        assert router.body("CREATE", body, type=kind, name="n")["name"] == "n"
    for kind, body in bodies.items():
        text = "Name conflicts with an existing entity"
        assert router.refusal("CREATE", body, type=kind, name="n") == (400, text)


def test_link_routes_are_deleted_by_the_second_column(router: Bench) -> None:
    """management 58"""
    router.body("CREATE", {"prefix": "a", "direction": "out", "containerId": "B"}, type="linkRoute")
    (row,) = router.body("QUERY", type=f"{PREFIX}.linkRoute")["results"]
    assert router.ask("DELETE", type=f"{PREFIX}.linkRoute", identity=row[1]).status == 204
    assert router.body("QUERY", type=f"{PREFIX}.linkRoute")["results"] == []
    assert router.refusal("DELETE", type="linkRoute", identity=row[1]) == (404, "Not Found")
    assert router.refusal("DELETE", type="linkRoute") == (400, "No name or identity provided")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"direction": "in", "address": "a", "connection": "c", "containerId": "d"},
            "Both connection and containerId cannot be specified. Specify only one",
        ),
        ({"direction": "in"}, "address and direction fields are mandatory"),
        ({"address": "a"}, "address and direction fields are mandatory"),
        ({"address": "a", "direction": "up"}, "Invalid value for 'direction'"),
        ({"address": "a", "direction": "in", "phase": 10}, "autoLink phase must be between 0 and 9"),
    ],
)
def test_bad_auto_links(router: Bench, body: object, text: str) -> None:
    """management 94, routing 112"""
    assert router.refusal("CREATE", body, type="autoLink") == (400, text)


@pytest.mark.parametrize(
    ("body", "phase"),
    [({"dir": "in"}, 1), ({"dir": "out"}, 0), ({"dir": "in", "fallback": True}, 0), ({"dir": "in", "phase": "3"}, 3)],
)
def test_auto_links_have_a_phase_and_both_spellings(router: Bench, body: dict[str, object], phase: int) -> None:
    """management 93"""
    made = router.body("CREATE", {"addr": "a", "externalAddr": "b", **body}, type="autoLink")
    assert (made["address"], made["addr"], made["externalAddress"], made["phase"]) == ("a", "a", "b", phase)
    assert made["dir"] == made["direction"] == body["dir"]
    assert "The 'addr' attribute of autoLink has been deprecated. Use 'address' instead" in router.logged("warning")


def test_exchanges_and_their_bindings(router: Bench) -> None:
    """management 59"""
    exchange = {"address": "in", "alternateAddress": "rest", "phase": "2"}
    made = router.body("CREATE", exchange, type="exchange", name="x")
    assert (made["phase"], made["alternatePhase"], made["bindingCount"], made["type"]) == (
        2,
        0,
        0,
        f"{PREFIX}.exchange",
    )
    refusals = {
        "exchange requires a unique name": ({"address": "b"}, None),
        "exchange address is mandatory": ({}, "y"),
        "duplicate exchange address": ({"address": "in"}, "y"),
        "duplicate exchange name": ({"address": "b"}, "x"),
        "Exchange matchMethod must be either 'amqp' or 'mqtt'": ({"address": "b", "matchMethod": "z"}, "y"),
        "phase must be in the range 0-9": ({"address": "b", "phase": 10}, "y"),
    }
    for text, (body, name) in refusals.items():
        assert router.refusal("CREATE", body, type="exchange", name=name) == (400, text)
    binding = {"exchangeName": "x", "nextHopAddress": "out"}
    assert router.body("CREATE", binding, type="binding", name="b")["bindingKey"] == "#"
    refusals = {
        "Binding configuration requires an exchange": ({}, None),
        "Named exchange does not exist": ({"exchangeName": "y"}, None),
        "No next hop specified": ({"exchangeName": "x"}, None),
        "The binding key pattern is invalid": ({**binding, "bindingKey": ""}, None),
        "phase must be in the range 0-9": ({**binding, "nextHopPhase": -1}, None),
        "Duplicate next hop name": ({**binding, "bindingKey": "k"}, "b"),
        "Next hop for key already exists": (binding, None),
    }
    for text, (body, name) in refusals.items():
        assert router.refusal("CREATE", body, type="binding", name=name) == (400, text)
    router.body("DELETE", type="exchange", name="x")
    assert router.body("QUERY", type="binding")["results"] == []
    assert [call[:2] for call in router.calls[-2:]] == [("delete", "exchange"), ("delete", "binding")]


def test_addresses_of_the_file_are_one_entity_in_two_views() -> None:
    made = bench("address {\n prefix: a\n}\naddress {\n prefix: b\n name: n\n}\n")
    assert made.body("READ", name="address/0")["prefix"] == "a"
    assert made.body("READ", identity="address/1")["name"] == "n"
    assert made.body("READ", type="address", name="address/0")["identity"] == "1"
    made.body("DELETE", identity="address/1")
    assert [row[0] for row in made.body("QUERY", type="address")["results"]] == ["address/0"]
    made.body("DELETE", type="address", identity="1")
    assert made.refusal("READ", name="address/0")[0] == 404


def test_a_failing_address_of_the_file_is_logged_and_left_out() -> None:
    made = bench()

    def fail(_: object) -> None:
        raise ManagementError(400, "no room")

    made.own("autoLink", create=fail)
    text = "address {\n prefix: a\n ingressPhase: 1\n}\nautoLink {\n addr: a\n dir: in\n}\n"
    made.store.load([each for each in configured(text).entities if each.type in ("address", "autoLink")])
    assert made.body("QUERY", type="address")["results"] == made.body("QUERY", type="autoLink")["results"] == []
    assert made.logged("error") == [
        f"Error performing CREATE of {PREFIX}.address: Phase values must be between 0 and 9",
        f"Error performing CREATE of {PREFIX}.autoLink: no room",
    ]
    assert made.logged("error", "ROUTER_CORE") == ["Error configuring linkRoute: no room"]
