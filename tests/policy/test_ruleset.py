"""What a ruleset accepts, refuses and selects. Texts: docs/spec/policy-and-auth.md §2.2."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from rulesets import resolve, ruleset

from policy.decide import decide_connection
from policy.facts import ConnectionFacts, Usage
from policy.ruleset import PolicyError, SourceLocation, compile_ruleset

GROUP = {"users": "alice", "remoteHosts": "10.0.0.1"}


def refusal(vhost: Mapping[str, object]) -> str:
    with pytest.raises(PolicyError) as refused:
        ruleset(vhost)
    return str(refused.value)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"maxConnections": "x"}, "option 'maxConnections' has error 'Value 'x' does not resolve to an integer.'."),
        ({"maxConnections": True}, "option 'maxConnections' has error 'Value 'True' does not resolve to an integer.'."),
        ({"maxConnections": -1}, "option 'maxConnections' has error 'Value '-1' is below minimum '0'.'."),
        (
            {"maxConnectionsPerUser": 65536},
            "option 'maxConnectionsPerUser' has error 'Value '65536' is above maximum '65535'.'.",
        ),
        ({"maxMessageSize": -5}, "option 'maxMessageSize' has error 'Value '-5' is below minimum '0'.'."),
        ({"allowUnknownUser": "yes"}, "option 'allowUnknownUser' must be of type 'bool' but is '<class 'str'>'"),
        ({"groups": []}, "option 'groups' must be of type 'dict' but is '<class 'list'>'"),
        ({"aliases": "a, V"}, "option 'aliases' value 'V' duplicates vhost name"),
        ({"aliases": "a,b, a"}, "option 'aliases' value 'a' is duplicated"),
        (
            {"groups": {"g": GROUP, "h": GROUP}},
            "user 'alice' is in multiple user groups 'g' and 'h'",
        ),
        (
            {"groups": {"g": {"users": "*"}, "h": {"users": "a,*"}}},
            "user '*' is in multiple user groups 'g' and 'h'",
        ),
        ({"allowUnknownUser": True}, "allows connections by default but default settings are not defined"),
    ],
)
def test_a_vhost_is_refused(attributes: Mapping[str, object], text: str) -> None:
    """policy 10, 11, 12"""
    assert refusal({"hostname": "V", **attributes}) == f"Policy 'V' is invalid: Policy vhost 'V' {text}"


HOST_ERROR = "HostStruct: 'x' failed to resolve: '[Errno -2] Name or service not known'"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"maxSenders": "1.5"}, "option 'maxSenders' has error 'Value '1.5' does not resolve to an integer.'."),
        ({"maxFrameSize": -1}, "option 'maxFrameSize' has error 'Value '-1' is below minimum '0'.'."),
        (
            {"maxConnectionsPerHost": 70000},
            "option 'maxConnectionsPerHost' has error 'Value '70000' is above maximum '65535'.'.",
        ),
        ({"allowDynamicSource": "yes"}, "option 'allowDynamicSource' has illegal boolean value 'yes'."),
        ({"allowDynamicSource": 1}, "option 'allowDynamicSource' has illegal boolean value '1'."),
        (
            {"remoteHosts": 5},
            "option 'remoteHosts' has illegal value '5'. Type must be 'str' or 'list' but is '<class 'int'>;",
        ),
        ({"targets": 5}, "option 'targets' has illegal value '5'. Type must be 'str' or 'list' but is '<class 'int'>;"),
        ({"users": {}}, "option 'users' has illegal value '{}'. Type must be 'str' or 'list' but is '<class 'dict'>;"),
        (
            {"remoteHosts": "x"},
            f"option 'remoteHosts' connectionOption 'x' failed to translate: '{HOST_ERROR}'.",
        ),
        (
            {"sources": "${user}.${user}"},
            "policy key 'sources' item '${user}.${user}' contains multiple user subtitution tokens",
        ),
        (
            {"sources": "${user}.{user}"},
            "policy key 'sources' item '${user}.{user}' contains multiple user subtitution tokens",
        ),
        (
            {"targets": "${user:escaped}.${user}"},
            "policy key 'targets' item '${user:escaped}.${user}' contains multiple user subtitution tokens",
        ),
        (
            {"targetPattern": "a.${user:escaped}.b"},
            "policy key 'targetPattern' item 'a.${user:escaped}.b' may contain match pattern '${user:escaped}' as a "
            "prefix or a suffix only.",
        ),
        (
            {"targets": "a, {user}{user}"},
            "policy key 'targets' item '{user}{user}' contains multiple user subtitution tokens",
        ),
        (
            {"targetPattern": "a.${user}.b"},
            "policy key 'targetPattern' item 'a.${user}.b' may contain match pattern '${user}' as a prefix or a suffix "
            "only.",
        ),
        (
            {"sources": "a", "sourcePattern": ""},
            "specifies conflicting 'sources' and 'sourcePattern' attributes. Use only one or the other.",
        ),
        (
            {"targetPattern": "a", "targets": "a"},
            "specifies conflicting 'targets' and 'targetPattern' attributes. Use only one or the other.",
        ),
    ],
)
def test_a_group_is_refused(settings: Mapping[str, object], text: str) -> None:
    """policy 8, 10"""
    found = refusal({"hostname": "V", "groups": {"G": {**GROUP, **settings}}})
    assert found == f"Policy 'V' is invalid: Policy vhost 'V' user group 'G' {text}"


@pytest.mark.parametrize("settings", [[], "x", None])
def test_a_group_must_be_a_map(settings: object) -> None:
    assert "user group 'G' must be of type 'dict'" in refusal({"hostname": "V", "groups": {"G": settings}})


def test_a_group_name_that_cannot_be_used_at_run_time_is_refused() -> None:
    ruleset({"hostname": "V", "groups": {"g" * 255: GROUP}})
    assert "at most 255 bytes" in refusal({"hostname": "V", "groups": {"é" * 128: GROUP}})


def test_a_number_of_endless_digits_is_refused() -> None:
    """Attack: converting a million digits takes quadratic time."""
    assert "does not resolve to an integer" in refusal({"hostname": "V", "maxConnections": "9" * 10**6})


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, "org.apache.qpid.dispatch.vhost: Missing required attribute 'hostname'"),
        (
            {"id": "a", "hostname": "a"},
            "org.apache.qpid.dispatch.vhost: Both 'id' and 'hostname' cannot be specified for entity 'vhost'",
        ),
        (
            {"hostname": "a", "maxConnectionsPerHost": 1, "maxConnectionsPerRemoteHost": 1},
            "org.apache.qpid.dispatch.vhost: Both 'maxConnectionsPerRemoteHost' and 'maxConnectionsPerHost' cannot be "
            "specified for entity 'vhost'",
        ),
    ],
)
def test_names_of_attributes(attributes: Mapping[str, object], text: str) -> None:
    """policy 6"""
    assert refusal(attributes) == text


def test_unknown_keys_are_ignored_with_a_warning() -> None:
    """policy 9"""
    rules = ruleset({"hostname": "V", "speed": 1, "groups": {"G": {**GROUP, "maxConnections": 1}}})
    assert rules.warnings == (
        "Policy vhost 'V' option 'speed' is ignored.",
        "Policy vhost 'V' user group 'G' option 'maxConnections' is ignored.",
    )


@pytest.mark.parametrize("key", ["id", "name"])
def test_old_names_work_with_a_warning(key: str) -> None:
    rules = ruleset({key: "V", "maxConnectionsPerRemoteHost": 3, "groups": {"G": {**GROUP, "sources": "{user}.x"}}})
    assert rules.vhosts["V"].max_connections_per_host == 3
    assert set(rules.warnings) == {
        f"Attribute '{key}' of entity 'vhost' has been deprecated. Use 'hostname' instead",
        "Attribute 'maxConnectionsPerRemoteHost' of entity 'vhost' has been deprecated. "
        "Use 'maxConnectionsPerHost' instead",
        "Policy vhost 'V' user group 'G' policy key 'sources' item '{user}.x': the token '{user}' has been deprecated. "
        "Use '${user}' instead",
    }
    assert rules.vhosts["V"].groups["G"].sources.bind("bob").match("bob.x") == "${user}.x"


def test_what_management_adds_to_an_entity_is_no_unknown_key() -> None:
    rules = ruleset({"hostname": "V", "name": "vhost/V", "identity": "vhost/V", "type": "x"})
    assert rules.warnings == ()


@pytest.mark.parametrize("value", ["true", "True", "TRUE", True])
def test_a_boolean_may_be_a_word_in_any_case(value: object) -> None:
    rules = ruleset({"hostname": "V", "groups": {"G": {**GROUP, "allowUserIdProxy": value}}})
    assert rules.vhosts["V"].groups["G"].allow_user_id_proxy


@pytest.mark.parametrize("value", [3, "3", " 3 ", 3.9])
def test_a_number_may_be_a_text_or_have_a_fraction(value: object) -> None:
    rules = ruleset({"hostname": "V", "groups": {"G": {**GROUP, "maxSessions": value}}})
    assert rules.vhosts["V"].groups["G"].max_sessions == 3


def test_only_commas_separate_and_lists_of_users_are_joined_and_split() -> None:
    """As 1.20 does it: "a,b" in a list is two users, and " c" is c."""
    group = {"users": "a b, c ,,c", "remoteHosts": ""}
    assert ruleset({"hostname": "V", "groups": {"G": group}}).vhosts["V"].groups["G"].users == ("a b", "c")
    listed = {"users": ["a,b", " c"]}
    assert ruleset({"hostname": "V", "groups": {"G": listed}}).vhosts["V"].groups["G"].users == ("a", "b", "c")


def test_two_groups_without_users_are_fine() -> None:
    """§2.4: 1.20 refuses them."""
    groups = {"$default": {"remoteHosts": "*"}, "$connector": {"users": ""}, "x": {"users": ["", ""]}}
    assert ruleset({"hostname": "V", "groups": groups}).vhosts["V"].group_of("") is None


def test_policy_has_its_defaults_without_a_section() -> None:
    """policy 1"""
    rules = compile_ruleset({}, [], resolve=resolve)
    assert (rules.max_connections, rules.max_message_size, rules.is_enabled) == (65535, 0, False)
    assert (rules.default_vhost, rules.uses_name_patterns, rules.warnings) == ("$default", False, ())


@pytest.mark.parametrize("word", ["yes", "true", "on", "Yes", "TRUE", "oN", True])
@pytest.mark.parametrize("key", ["enableVhostPolicy", "enableVhostNamePatterns"])
def test_a_switch_is_on(key: str, word: object) -> None:
    """Attack: a word that is read as its contrary, and the policy is off."""
    rules = compile_ruleset({key: word}, [], resolve=resolve)
    assert (rules.is_enabled, rules.uses_name_patterns) == (key == "enableVhostPolicy", key != "enableVhostPolicy")


@pytest.mark.parametrize("word", ["no", "false", "off", "No", "FALSE", "oFF", False])
def test_a_switch_is_off(word: object) -> None:
    rules = compile_ruleset({"enableVhostPolicy": word, "enableVhostNamePatterns": word}, [], resolve=resolve)
    assert (rules.is_enabled, rules.uses_name_patterns) == (False, False)


@pytest.mark.parametrize("value", ["", "enabled", "1", 1, 0, None, [], ["yes"]])
def test_a_switch_that_is_neither_on_nor_off_is_refused(value: object) -> None:
    with pytest.raises(PolicyError) as refused:
        compile_ruleset({"enableVhostPolicy": value}, [], resolve=resolve)
    assert str(refused.value) == f"policy enableVhostPolicy: Invalid Boolean value {value!r}"


def test_a_limit_of_the_router_that_is_no_number_is_refused() -> None:
    with pytest.raises(PolicyError) as refused:
        compile_ruleset({"maxMessageSize": "much"}, [], resolve=resolve)
    assert str(refused.value) == "policy maxMessageSize: Value 'much' does not resolve to an integer."


def test_a_negative_limit_of_the_router_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"^maxConnections must be >= 0$"):
        compile_ruleset({"maxConnections": -1}, [], resolve=resolve)


def test_a_size_limit_that_cannot_work_is_warned_of() -> None:
    rules = compile_ruleset({"maxMessageSize": 5}, [], resolve=resolve)
    assert rules.warnings == ("Policy maxMessageSize has no effect because enableVhostPolicy is false",)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            {"hostname": "W", "aliases": "V"},
            {"hostname": "V"},
            "Policy is creating vhost 'V' but that name is already an alias for vhost 'W'",
        ),
        (
            {"hostname": "A"},
            {"hostname": "V", "aliases": "A"},
            "Policy for vhost 'V' defines alias 'A' which conflicts with an existing vhost named 'A'",
        ),
        (
            {"hostname": "W", "aliases": "A"},
            {"hostname": "V", "aliases": "A"},
            "Policy for vhost 'V' alias 'A' conflicts with existing alias for vhost 'W'",
        ),
        ({"hostname": "V"}, {"hostname": "V"}, "Policy 'V' is defined more than once"),
    ],
)
def test_one_name_for_two_vhosts(first: Mapping[str, object], second: Mapping[str, object], text: str) -> None:
    """policy 12"""
    with pytest.raises(PolicyError) as refused:
        ruleset(first, second)
    assert str(refused.value) == text


def test_equal_name_patterns_conflict() -> None:
    """policy 13"""
    with pytest.raises(PolicyError, match=r"^Policy for vhost '#.#.0.0' alias '#.#.0.0' optimized pattern conflicts"):
        ruleset({"hostname": "#.0.0"}, {"hostname": "#.#.0.0"}, enableVhostNamePatterns=True)
    with pytest.raises(PolicyError, match=r"pattern conflicts with existing pattern$"):
        ruleset({"hostname": "a", "aliases": "b/c, b.c"}, enableVhostNamePatterns=True)
    assert len(ruleset({"hostname": "#.0.0"}, {"hostname": "#.#.0.0"}).vhosts) == 2


def test_an_error_knows_its_file_and_line() -> None:
    source = SourceLocation(
        file="p.json", line=3, places={("groups", "G"): (7, 1), ("groups", "G", "maxSenders"): (9, 1)}
    )
    vhost = {"hostname": "V", "groups": {"G": {**GROUP, "maxSenders": -1}}}
    with pytest.raises(PolicyError) as refused:
        ruleset(vhost, source=source)
    assert (refused.value.file, refused.value.line) == ("p.json", 9)


def selected(*vhosts: Mapping[str, object], requested: str, **policy: Any) -> str | None:
    vhost = ruleset(*vhosts, **policy).select_vhost(requested)
    return vhost.name if vhost is not None else None


@pytest.mark.parametrize(
    ("requested", "name"),
    [("a", "a"), ("alias", "a"), ("A", "$default"), ("x", "$default"), ("", "$default"), ("$default", "$default")],
)
def test_names_aliases_and_the_default(requested: str, name: str) -> None:
    """policy 19, 20"""
    assert selected({"hostname": "a", "aliases": "alias"}, {"hostname": "$default"}, requested=requested) == name


def test_without_a_default_an_unknown_name_has_no_policy() -> None:
    """policy 18"""
    assert selected({"hostname": "a"}, requested="x") is None
    assert selected({"hostname": "a"}, {"hostname": "$default"}, requested="x", defaultVhost="") is None
    assert selected({"hostname": "a"}, requested="x", defaultVhost="a") == "a"
    assert selected({"hostname": "a", "aliases": "b"}, requested="x", defaultVhost="b") is None
    # "" is no default, not the name of the vhost for clients that name none.
    assert selected({"hostname": "a"}, {"hostname": ""}, requested="x", defaultVhost="") is None


def test_a_vhost_without_a_name_is_for_clients_that_name_none() -> None:
    """§2.7; 1.20 denies them."""
    vhosts = ({"hostname": ""}, {"hostname": "$default"})
    assert selected(*vhosts, requested="") == ""
    assert selected(*vhosts, requested="", enableVhostNamePatterns=True) == ""
    assert selected(*vhosts, requested="x") == "$default"


@pytest.mark.parametrize(
    ("requested", "name"),
    [
        ("www.example.com", "*.example.com"),
        ("www/example/com", "*.example.com"),
        ("example.com", "#.example.com"),
        ("a.b.example.com", "#.example.com"),
        ("mail.example.com", "mail.example.com"),
        ("shop.example.net", "mail.example.com"),
        ("example.org", "$default"),
    ],
)
def test_name_patterns(requested: str, name: str) -> None:
    """policy 14, 20"""
    vhosts = (
        {"hostname": "#.example.com"},
        {"hostname": "*.example.com"},
        {"hostname": "mail.example.com", "aliases": "*.example.net"},
        {"hostname": "$default"},
    )
    assert selected(*vhosts, requested=requested, enableVhostNamePatterns=True) == name
    assert selected(*vhosts[::-1], requested=requested, enableVhostNamePatterns=True) == name
    assert selected(*vhosts, requested="#.example.com") == "#.example.com"


@pytest.mark.parametrize("uses_patterns", [False, True])
def test_a_vhost_can_be_created_changed_and_deleted_again_and_again(uses_patterns: bool) -> None:
    """policy 7, 27: names, limits and patterns of what was there before leave no trace."""
    rules = start = ruleset({"hostname": "other"}, enableVhostNamePatterns=uses_patterns)
    for limit in range(10):
        rules = rules.with_vhost({"hostname": "V", "aliases": "a, b", "maxConnections": limit}, resolve=resolve)
        assert rules.select_vhost("b") is rules.vhosts["V"]
        rules = rules.with_vhost({"hostname": "V", "aliases": "a", "maxConnections": limit + 1}, resolve=resolve)
        assert rules.vhosts["V"].max_connections == limit + 1
        assert rules.select_vhost("b") is None
        rules = rules.with_vhost({"hostname": "W", "aliases": "b"}, resolve=resolve).without_vhost("W")
        rules = rules.without_vhost("V")
        assert rules.select_vhost("a") is None
        assert rules.digest == start.digest


def test_a_failed_change_changes_nothing() -> None:
    rules = ruleset({"hostname": "V", "aliases": "a"}, {"hostname": "W"})
    with pytest.raises(PolicyError):
        rules.with_vhost({"hostname": "W", "aliases": "a"}, resolve=resolve)
    with pytest.raises(PolicyError, match=r"^Policy 'X' does not exist$"):
        rules.without_vhost("X")
    assert rules.select_vhost("a") is rules.vhosts["V"]
    assert rules.with_vhost({"hostname": "V", "aliases": "a"}, resolve=resolve).digest == rules.digest


def test_an_added_vhost_is_read_as_those_that_were_loaded() -> None:
    """Its place, its host names, and the patterns it may not repeat."""
    rules = ruleset({"hostname": "#.0.0"}, enableVhostNamePatterns=True)
    source = SourceLocation(file="p.json", line=4)
    more = rules.with_vhost(
        {"hostname": "V", "groups": {"g": {"users": "*", "remoteHosts": "one.example"}}}, source, resolve=resolve
    )
    assert more.vhosts["V"].source is source
    assert more.vhosts["V"].groups["g"].hosts.contains("192.0.2.1")
    with pytest.raises(PolicyError, match=r"^Policy for vhost '#.#.0.0' alias '#.#.0.0' optimized pattern conflicts"):
        more.with_vhost({"hostname": "#.#.0.0"}, resolve=resolve)
    assert (rules.find_pattern("a.0.0"), ruleset({"hostname": "#"}).find_pattern("a")) == ("#.0.0", None)


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        ({"hostname": "V"}, {"hostname": "V"}, ()),
        ({"hostname": "W", "aliases": "V"}, {"hostname": "V"}, ()),
        ({"hostname": "A"}, {"hostname": "V", "aliases": "A"}, ("aliases",)),
        ({"hostname": "W", "aliases": "A"}, {"hostname": "V", "aliases": "A"}, ("aliases",)),
        ({"hostname": "#.0"}, {"hostname": "#.#.0"}, ()),
    ],
)
def test_one_name_for_two_vhosts_is_found_at_its_line(
    first: Mapping[str, object], second: Mapping[str, object], path: tuple[str | int, ...]
) -> None:
    places = {path: (9, 1)} if path else {}
    source = SourceLocation(file="p.json", line=9 if not path else 1, places=places)
    with pytest.raises(PolicyError, match=r"^Policy ") as refused:
        compile_ruleset({"enableVhostNamePatterns": True}, [(first, None), (second, source)], resolve=resolve)
    assert (refused.value.file, refused.value.line) == ("p.json", 9)


def test_warnings_go_with_their_vhost() -> None:
    rules = ruleset({"hostname": "V", "x": 1})
    assert rules.with_vhost({"hostname": "V"}, resolve=resolve).warnings == ()
    assert rules.without_vhost("V").warnings == ()


VHOSTS = (
    {
        "hostname": "a",
        "aliases": "x, y, z",
        "groups": {
            "g": {"users": ["u1", "u2", "u3"], "remoteHosts": "10.0.0.1, 10.0.0.7", "sources": "a, b*, ${user}"},
            "h": {"users": "*", "remoteHosts": "*", "targetPattern": "a.#, b/*", "maxSenders": 3},
        },
    },
    {"hostname": "b", "maxConnections": 3, "groups": {"g": {"users": "u1"}}},
    {"hostname": "c"},
)


def shuffled(value: object, chance: random.Random) -> object:
    if isinstance(value, dict):
        keys = chance.sample(list(value), len(value))
        return {key: shuffled(value[key], chance) for key in keys}
    if isinstance(value, str) and "," in value:
        items = value.split(",")
        return ",".join(chance.sample(items, len(items)))
    return chance.sample(value, len(value)) if isinstance(value, list) else value


def test_order_changes_neither_digest_nor_decision() -> None:
    chance = random.Random(1)
    expected = ruleset(*VHOSTS)
    for _ in range(20):
        vhosts = [shuffled(vhost, chance) for vhost in chance.sample(VHOSTS, len(VHOSTS))]
        rules = ruleset(*(vhost for vhost in vhosts if isinstance(vhost, dict)))
        assert rules.digest == expected.digest
        for user in ("u1", "u9"):
            facts = ConnectionFacts(user=user, remote_host="10.0.0.7", requested_vhost="y", connection_name="n")
            assert decide_connection(rules, facts, Usage()).group == decide_connection(expected, facts, Usage()).group


def test_every_rule_counts_for_the_digest() -> None:
    changes: list[dict[str, object]] = [
        {"hostname": "V2"},
        {"aliases": "x"},
        {"maxConnections": 7},
        {"maxMessageSize": 0},
        {"groups": {"G": {**GROUP, "users": "bob"}}},
        {"groups": {"G": {**GROUP, "remoteHosts": "10.0.0.2"}}},
        {"groups": {"G": {**GROUP, "remoteHosts": "*"}}},
        {"groups": {"G": {**GROUP, "sources": "a"}}},
        {"groups": {"G": {**GROUP, "sourcePattern": "a"}}},
        {"groups": {"G": {**GROUP, "targets": "a"}}},
        {"groups": {"G": {**GROUP, "maxSenders": 1}}},
        {"groups": {"G": {**GROUP, "allowFallbackLinks": False}}},
        {"groups": {"G2": GROUP}},
    ]
    base = {"hostname": "V", "groups": {"G": GROUP}}
    digests = [ruleset({**base, **change}).digest for change in ({}, *changes)]
    policies: list[dict[str, Any]] = [
        {"defaultVhost": ""},
        {"maxConnections": 5},
        {"maxMessageSize": 5},
        {"enableVhostNamePatterns": True},
    ]
    digests += [ruleset(base, **policy).digest for policy in policies]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 64 for digest in digests)
