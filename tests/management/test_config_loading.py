"""Checklist items management 1, 2, 5 to 13 and 16, as far as they need no running router."""

import contextlib
import json
import re

import pytest
from agent_bench import configured
from config_texts import OLD_BOOK_GROUPS, TEXTS
from hypothesis import given

from policy.configuration.kinds.router import NETWORK_LIMITS
from policy.configuration.log_levels import MODULES
from policy.configuration.schema import load_schema
from router.linkstate.limits import Limits
from router.management.config import ConfigError, load_config
from router.network.host import limits_of

PREFIX = "org.apache.qpid.dispatch"
CANNOT_LOAD = "Python: Exception: Cannot load configuration file X.conf: "


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(text)
    return str(caught.value)


def listener(line: str) -> str:
    return f"listener {{\n    {line}\n}}\n"


def test_comments_alone_make_a_standalone_router_with_a_random_id() -> None:
    """management 1"""
    first, second = configured("# a\n"), configured("# a\n")
    assert re.fullmatch(r"Standalone_[A-Za-z0-9+_]{15}", str(first.router["id"]))
    assert first.router["id"] != second.router["id"]
    assert [each.type for each in first.entities] == ["log"] * len(MODULES) + ["router", "policy"]


def test_an_empty_file_and_a_missing_one_have_their_own_texts() -> None:
    """management 2"""
    assert refused("") == "Configuration: Configuration file was empty"
    with pytest.raises(ConfigError, match=r"^Not found: Configuration file could not be opened: "):
        load_config("/nonexistent/q.conf", load_schema())


def test_a_file_that_is_not_text_is_refused() -> None:
    def read_text(_: str) -> str:
        return b"\xff\xfe".decode()

    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config("X.conf", load_schema(), read_text=read_text)


@pytest.mark.parametrize("value", ["abc\\bdef", "abc def", "a\\u200bb", "a\\u2028b"])
def test_router_ids_hold_no_blanks_and_controls(value: str) -> None:
    """management 5"""
    assert "AttributeError: Router id attribute containing character" in refused(f"router {{\n id: {value}\n}}\n")


def test_router_ids_have_at_most_127_characters() -> None:
    """management 6"""
    assert configured(f"router {{\n id: {'x' * 127}\n}}\n").router["id"] == "x" * 127
    assert "exceeds the maximum allowed length (127 characters)" in refused(f"router {{\n id: {'x' * 128}\n}}\n")


def test_an_alias_works_with_a_warning_but_not_beside_its_successor() -> None:
    """management 7"""
    text = "autoLink {\n addr: a\n dir: in\n externalAddr: b\n}\n"
    made = configured(text)
    assert made.of_type("autoLink")[0].attributes["externalAddress"] == "b"
    warning = "Attribute 'externalAddr' of entity 'autoLink' has been deprecated. Use 'externalAddress' instead ("
    assert any(log.text.startswith(warning) for log in made.early_logs)
    reason = f"{PREFIX}.router.config.linkRoute: Both 'dir' and 'direction' cannot be specified for entity 'linkRoute'"
    assert refused("linkRoute {\n prefix: a\n dir: in\n direction: in\n}\n").startswith(CANNOT_LOAD + reason)


@pytest.mark.parametrize(
    ("mode", "section", "text"),
    [
        (
            "standalone",
            "listener",
            "role='standalone' not allowed to connect to or accept connections from other routers.",
        ),
        (
            "standalone",
            "connector",
            "role='standalone' not allowed to connect to or accept connections from other routers.",
        ),
        ("edge", "listener", "role='inter-router' only allowed with router mode='interior' for listener :amqp"),
        (
            "edge",
            "connector",
            "role='inter-router' only allowed with router mode='interior' for connector 127.0.0.1:amqp",
        ),
    ],
)
def test_inter_router_connections_need_an_interior_router(mode: str, section: str, text: str) -> None:
    """management 9; the router section may come last."""
    refusal = refused(f"{section} {{\n role: inter-router\n}}\nrouter {{\n mode: {mode}\n}}\n")
    assert refusal.startswith(f"{CANNOT_LOAD}{text}")
    assert refusal.endswith("(X.conf:2)")


def test_an_edge_listener_needs_an_interior_router_and_an_edge_connector_does_not() -> None:
    """management 9; network 100"""
    router = "router {\n mode: edge\n}\n"
    assert "role='edge' only allowed with router mode='interior' for listener :amqp" in refused(
        router + listener("role: edge")
    )
    assert configured(router + "connector {\n role: edge\n}\n").of_type("connector")
    assert configured("router {\n mode: interior\n}\n" + listener("role: edge")).of_type("listener")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("routerIds: ${user}", "Configuration: routerIds is for the roles inter-router and edge, not for role normal"),
        (
            "role: inter-router\n routerIds: ${usr}",
            "Configuration: routerIds '${usr}': the only word to be replaced is ${user}, in an id",
        ),
        ("role: edge\n routerIds: B*C*", "Configuration: routerIds 'B*C*' has more than one *"),
        ("role: edge\n routerIds: =B", "Configuration: routerIds '=B' is no item: expected ID or USER=ID"),
        ('role: edge\n routerIds: ","', "Configuration: routerIds is empty: expected router ids, such as ${user}"),
    ],
)
def test_router_ids_that_cannot_be_read_stop_the_start(settings: str, text: str) -> None:
    """network 18.1: and name the line."""
    refusal = refused("router {\n mode: interior\n}\n" + listener(settings))
    assert refusal.startswith(text)


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_router_ids_load_on_both_roles_between_routers(role: str) -> None:
    """network 18.1"""
    settings = f"role: {role}\n routerIds: ${{user}}, b.example.com=B"
    made = configured("router {\n mode: interior\n}\n" + listener(settings)).of_type("listener")
    assert made[0].attributes["routerIds"] == "${user}, b.example.com=B"


def test_the_deprecated_names_of_the_protocols_timers_load() -> None:
    """network 105"""
    names = ("helloInterval", "helloMaxAge", "raInterval", "raIntervalFlux", "remoteLsMaxAge")
    text = "".join(f" {name}: {seconds}\n" for seconds, name in enumerate(names, 2))
    router = configured("router {\n mode: interior\n" + text + "}\n").router
    assert [router[f"{name}Seconds"] for name in names] == [2, 3, 4, 5, 6]


def test_the_protocols_timers_have_the_defaults_of_1_20() -> None:
    """network 7.1"""
    router = configured("router {\n mode: interior\n}\n").router
    names = ("helloInterval", "helloMaxAge", "raInterval", "raIntervalFlux", "remoteLsMaxAge")
    assert [router[f"{name}Seconds"] for name in names] == [1, 3, 30, 4, 60]


def test_what_a_neighbour_may_use_up_has_the_protocols_defaults() -> None:
    """Attack: as many as a neighbour likes. Every one of them is finite."""
    assert limits_of(configured("router {\n mode: interior\n}\n").router) == Limits()


@pytest.mark.parametrize("name", NETWORK_LIMITS)
def test_what_a_neighbour_may_use_up_has_a_range(name: str) -> None:
    least, most = NETWORK_LIMITS[name]
    for value in (0, least - 1, most + 1):
        text = f"Configuration: {name} is {least} to {most}, not {value}"
        assert refused(f"router {{\n {name}: {value}\n}}\n").startswith(text)
    assert configured(f"router {{\n {name}: {most}\n}}\n").router[name] == most


@pytest.mark.parametrize("text", ["everything", "none, observer", "read"])
def test_rights_of_the_network_that_are_none_stop_the_start(text: str) -> None:
    assert refused(f"policy {{\n networkManagement: {text}\n}}\n").startswith("Configuration: networkManagement ")


@pytest.mark.parametrize("cost", [0, -1, 2**31])
def test_a_cost_is_a_number_from_one(cost: int) -> None:
    """network 3.3: the wire has an int."""
    assert "'cost' is 1 to 2147483647" in refused(listener(f"cost: {cost}"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[1, 2]", "Properties must be a map"),
        ("text", "Properties must be a map"),
        ('{\n "é": 1\n}', "Property keys must be ASCII encoded"),
        ('{\n "product": 1\n}', "ValidationError: Reserved key 'product' not allowed in openProperties"),
        ('{\n "hostname": 1\n}', "ValidationError: Reserved key 'hostname' not allowed in openProperties"),
        ('{\n "qd.x": 1\n}', "ValidationError: Reserved key 'qd.x' not allowed in openProperties"),
        ('{\n "x-opt-qd.y": 1\n}', "ValidationError: Reserved key 'x-opt-qd.y' not allowed in openProperties"),
    ],
)
def test_open_properties_are_a_map_of_free_names(value: str, text: str) -> None:
    """management 10"""
    assert text in refused(listener(f"openProperties: {value}"))


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_open_properties_are_not_for_routers(role: str) -> None:
    """management 10"""
    text = f'router {{\n mode: interior\n}}\nlistener {{\n role: {role}\n openProperties: {{\n "a": 1\n }}\n}}\n'
    assert f"ValidationError: openProperties not allowed for role {role}" in refused(text)


def test_the_older_books_vhost_loads_with_the_line_of_every_rule() -> None:
    """management 11"""
    (vhost,) = configured(OLD_BOOK_GROUPS).of_type("vhost")
    assert (vhost.attributes["hostname"], vhost.attributes["name"]) == ("example.com", "vhost/example.com")
    assert vhost.source.places["groups", "admin", "users"][0] == 5


@pytest.mark.parametrize(
    "text",
    [
        "listener {\n name: n\n}\nsslProfile {\n name: n\n}\n",
        "address {\n prefix: a\n name: n\n}\nconnector {\n name: n\n}\n",
        "log {\n module: AGENT\n}\nlog {\n module: AGENT\n}\n",
        "listener {\n}\nlistener {\n}\n",
        "listener {\n name: self\n}\n",
    ],
)
def test_names_are_unique_across_types(text: str) -> None:
    """management 12"""
    assert "duplicates unique attribute 'name' from existing" in refused(text)


def test_there_is_one_router_and_one_policy() -> None:
    for name in ("router", "policy"):
        text = refused(f"{name} {{\n}}\n{name} {{\n}}\n")
        assert re.search(rf"Adding {name} singleton .* when .* already exists \(X\.conf:3\)", text)


def test_json_files_load_and_policy_dir_gives_vhosts_only() -> None:
    """management 13, policy 4"""
    files = {
        "pol/b.json": '# two\n[["vhost", {"hostname": "b"}], ["listener", {"port": 1}]]',
        "pol/a.json": '[["vhost",\n {"hostname": "a"}]]',
        "pol/c.txt": "not looked at",
    }
    made = configured('[["router", {"id": "J"}],\n["policy", {"policyDir": "pol"}]]', "x.json", files)
    assert made.router["id"] == "J"
    assert [(each.attributes["hostname"], each.source.file, each.source.line) for each in made.of_type("vhost")] == [
        ("a", "pol/a.json", 1),
        ("b", "pol/b.json", 2),
    ]
    assert made.of_type("listener") == ()


def test_a_bad_or_unreadable_policy_dir_stops_the_start() -> None:
    """management 13"""
    policy = "policy {\n policyDir: pol\n}\n"
    with pytest.raises(ConfigError, match=r"Unknown attribute 'hostnme'.*did you mean 'hostname'\? \(pol/a\.json:1\)"):
        configured(policy, files={"pol/a.json": '[["vhost", {"hostname": "h", "hostnme": 1}]]'})
    with pytest.raises(ConfigError, match="'/nonexistent/pol' cannot be read: No such file"):
        load_config("X.conf", load_schema(), read_text=lambda _: "policy {\n policyDir: /nonexistent/pol\n}\n")


def test_listeners_come_last() -> None:
    """management 16"""
    sections = ("listener", "connector", "vhost", "policy", "address", "log", "sslProfile", "dummy", "router")
    values = {"vhost": " id: h\n", "address": " prefix: a\n", "log": " module: AGENT\n", "sslProfile": " name: s\n"}
    text = "".join(f"{name} {{\n{values.get(name, '')}}}\n" for name in sections)
    order = list(dict.fromkeys(each.type for each in configured(text).entities))
    assert order == ["log", "router", "policy", "sslProfile", "address", "vhost", "dummy", "connector", "listener"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            listener("prot: 1"),
            f"{PREFIX}.listener: Unknown attribute 'prot' for '{PREFIX}.listener'; did you mean 'port'?",
        ),
        (listener("host-name: x"), f"{PREFIX}.listener: Unknown attribute 'hostName' for '{PREFIX}.listener'"),
        ("vhost {\n}\n", f"{PREFIX}.vhost: Missing required attribute 'hostname'"),
        ("sslProfile {\n}\n", f"{PREFIX}.sslProfile: Missing required attribute 'name'"),
        ("ghost {\n}\n", f"No such entity type '{PREFIX}.ghost'"),
        ("connection {\n}\n", f"Can't find implementation 'ConnectionEntity' for '{PREFIX}.connection'"),
        ("vhostUserGroupSettings {\n}\n", "Can't find implementation 'VhostUserGroupSettingsEntity'"),
        (listener("cost: much"), f"{PREFIX}.listener: invalid literal for int() with base 10: 'much'"),
        (listener("requireSsl: perhaps"), f"{PREFIX}.listener: Invalid Boolean value ''perhaps''"),
        (listener("role: Normal"), f"{PREFIX}.listener: Invalid value for enum['normal', 'inter-router', "),
    ],
)
def test_what_the_schema_does_not_know_is_refused_with_file_and_line(text: str, reason: str) -> None:
    refusal = refused(text)
    assert refusal.startswith(CANNOT_LOAD + reason)
    assert re.search(r"\(X\.conf:[12]\)$", refusal)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("policy {\n maxConnections: -1\n}\n", "Configuration: maxConnections must be >= 0"),
        ("log {\n module: AGENT\n enable: foo\n}\n", "Configuration: 'foo' is not a valid log level."),
        ("router {\n id: a/b\n}\n", "Configuration: Router id 'a/b' is disallowed: it stands in addresses"),
        ("router {\n busyPollMicroseconds: 1001\n}\n", "Configuration: busyPollMicroseconds is 0 to 1000, not 1001"),
        ("router {\n busyPollMicroseconds: -1\n}\n", "Configuration: busyPollMicroseconds is 0 to 1000, not -1"),
        ("router {\n id: all\n}\n", "Configuration: Router id 'all' is disallowed: it stands in addresses"),
        (listener("failoverUrls: a, amqp://:5"), "Value: No network host in failover item"),
        (listener("identity: x"), "Python: ValidationError: 'identity' attribute cannot be specified"),
    ],
)
def test_values_that_cannot_be_applied_are_refused(text: str, reason: str) -> None:
    assert refused(text).startswith(reason)


def test_an_address_without_prefix_or_pattern_costs_only_itself() -> None:
    """routing 43"""
    made = configured("address {\n}\naddress {\n prefix: a\n pattern: b\n}\nlinkRoute {\n dir: in\n}\n")
    assert made.of_type("address") == made.of_type("linkRoute") == ()
    assert [log.text for log in made.late_logs] == [
        "Must set either 'prefix' or 'pattern' attribute: ignoring configured address",
        "Cannot set both 'prefix' and 'pattern': ignoring configured address a, b",
        "Must set either 'prefix' or 'pattern' attribute: ignoring link route address",
    ]


def test_a_vhost_may_be_named_by_its_name() -> None:
    (vhost,) = configured("vhost {\n name: h\n maxConnectionsPerRemoteHost: 5\n}\n").of_type("vhost")
    assert (vhost.attributes["hostname"], vhost.attributes["maxConnectionsPerHost"]) == ("h", 5)
    assert vhost.source.places["maxConnectionsPerHost",][0] == 3


def test_passwords_show_in_no_text() -> None:
    """management 72"""
    text = "connector {\n saslPassword: hunter2\n password: hunter2\n}\n"
    assert "hunter2" not in refused(text)
    made = configured("connector {\n name: c\n saslPassword: hunter2\n}\n")
    assert made.of_type("connector")[0].attributes["saslPassword"] == "hunter2"
    assert "hunter2" not in repr(made)
    twice = "connector {\n saslPassword: hunter2\n}\nconnector {\n saslPassword: hunter2\n}\n"
    assert "hunter2" not in refused(twice)


@given(text=TEXTS)
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert configured(text).router["id"]


def test_a_group_name_with_dots_keeps_its_lines() -> None:
    text = 'vhost {\n hostname: h\n groups: {\n  "a.b": {\n   "users": "u",\n   "remoteHosts": "*"\n  }\n }\n}\n'
    (vhost,) = configured(text).of_type("vhost")
    assert vhost.source.places["groups", "a.b", "remoteHosts"][0] == 6


JSON_SECTIONS = [
    ("listener", {"port": 5672, "authenticatePeer": None}, "authenticatePeer"),
    ("policy", {"enableVhostPolicy": None}, "enableVhostPolicy"),
    ("vhost", {"hostname": "h", "maxConnections": None}, "maxConnections"),
    ("vhost", {"hostname": None, "name": "h"}, "hostname"),
]


@pytest.mark.parametrize(("kind", "attributes", "name"), JSON_SECTIONS)
def test_a_null_in_a_json_configuration_is_refused_and_stands_for_no_default(
    kind: str, attributes: dict[str, object], name: str
) -> None:
    """Attack: the default of `authenticatePeer`, for which a null stood, lets everybody in."""
    text = json.dumps([[kind, attributes]], indent=1)
    with pytest.raises(ConfigError, match=f"{kind}: '{name}' is null: give it a value, or leave it out") as caught:
        load_config("X.json", load_schema(), read_text=lambda _: text)
    assert caught.value.line == text.splitlines().index(f'   "{name}": null' + "," * ("name" in attributes)) + 1


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"hostname": True}, "'hostname' must not be true"),
        ({"hostname": "h", "aliases": True}, "'aliases' must not be true"),
        ({"hostname": "h", "aliases": ["x"]}, "'aliases' must be text, not a list"),
        ({"hostname": "h", "maxConnections": True}, "'maxConnections' must not be true"),
        ({"hostname": "h", "allowUnknownUser": []}, "'allowUnknownUser' is yes or no"),
        ({"hostname": "h", "maxMessageSize": 2**63}, "'maxMessageSize' is a decimal number of at most 64 bits"),
    ],
)
def test_a_vhost_with_another_type_of_value_is_refused_by_name(attributes: dict[str, object], text: str) -> None:
    written = json.dumps([["vhost", attributes]])
    with pytest.raises(ConfigError, match=text):
        load_config("X.json", load_schema(), read_text=lambda _: written)
