"""Every attribute of a vhost and its groups arrives where decisions look for it, counts for the digest, names its line.

What a mutant of policy.groups, policy.vhosts, policy.settings and policy.ruleset would change.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from rulesets import at, connect, present, resolve, ruleset, settings

from policy.addressing.address import Address
from policy.addressing.lists import Verdict
from policy.decide import decide_connector
from policy.decision import Rule
from policy.hosts import HostRanges, parse_hosts
from policy.ruleset import PolicyError, SourceLocation
from policy.settings import Settings, make_settings
from policy.vhosts import check_vhost, hostname_of
from policy.windows import Window

DEFAULTS: Mapping[str, object] = {
    "is_of_vhost": True,
    "vhost": "h",
    "group": "g",
    "user": "bob",
    "max_frame_size": 0,
    "max_message_size": 0,
    "max_session_window": 0,
    "max_sessions": 0,
    "max_senders": 2147483647,
    "max_receivers": 2147483647,
    "max_message_rate": None,
    "max_byte_rate": None,
    "allow_dynamic_source": False,
    "allow_anonymous_sender": False,
    "allow_user_id_proxy": False,
    "allow_waypoint_links": True,
    "allow_fallback_links": True,
    "allow_dynamic_link_routes": True,
    "allow_admin_status_update": True,
    "allow_replies": False,
    "reply_window_s": 300,
}
# Attribute, the field of the settings, a value that is not the default.
GRANTED = [
    ("maxFrameSize", "max_frame_size", 512),
    ("maxMessageSize", "max_message_size", 7),
    ("maxSessionWindow", "max_session_window", 8),
    ("maxSessions", "max_sessions", 9),
    ("maxSenders", "max_senders", 0),
    ("maxReceivers", "max_receivers", 0),
    ("maxMessageRate", "max_message_rate", 10),
    ("maxByteRate", "max_byte_rate", 11),
    ("allowDynamicSource", "allow_dynamic_source", True),
    ("allowAnonymousSender", "allow_anonymous_sender", True),
    ("allowUserIdProxy", "allow_user_id_proxy", True),
    ("allowWaypointLinks", "allow_waypoint_links", False),
    ("allowFallbackLinks", "allow_fallback_links", False),
    ("allowDynamicLinkRoutes", "allow_dynamic_link_routes", False),
    ("allowAdminStatusUpdate", "allow_admin_status_update", False),
    ("allowReplies", "allow_replies", True),
    ("replyWindow", "reply_window_s", 86_400),
]
LARGEST = {"maxFrameSize": 2**32 - 1, "replyWindow": 86_400}


def granted(found: Settings) -> dict[str, object]:
    """Its plain fields."""
    left_out = ("management", "sources", "targets", "origin")
    return {each.name: getattr(found, each.name) for each in fields(found) if each.name not in left_out}


def settings_with(key: str, value: object) -> Settings:
    attributes: dict[str, Any] = {key: value}
    return settings(**attributes)


def test_a_group_that_says_nothing_has_the_defaults() -> None:
    """The effective defaults of policy §1.3."""
    assert granted(settings()) == DEFAULTS


@pytest.mark.parametrize(("key", "field", "value"), GRANTED)
def test_an_attribute_of_a_group_is_granted_and_changes_nothing_else(key: str, field: str, value: object) -> None:
    assert granted(settings_with(key, value)) == {**DEFAULTS, field: value}


@pytest.mark.parametrize(
    ("key", "largest"),
    [
        *((key, 65535) for key in ("maxConnectionsPerUser", "maxConnectionsPerHost")),
        *((key, LARGEST.get(key, 2**63 - 1)) for key, _, value in GRANTED if type(value) is int),
    ],
)
def test_a_number_has_its_largest_value(key: str, largest: int) -> None:
    settings_with(key, largest)
    with pytest.raises(PolicyError, match=rf"option '{key}' has error .* is above maximum '{largest}'"):
        settings_with(key, largest + 1)


def test_a_reply_window_is_at_least_a_second() -> None:
    assert settings(replyWindow=1).reply_window_s == 1
    with pytest.raises(PolicyError, match=r"option 'replyWindow' has error .* is below minimum '1'"):
        settings(replyWindow=0)


def test_the_name_of_the_user_is_put_into_both_lists_and_the_rights_are_those_of_the_group() -> None:
    found = settings(sources="in.${user}", targetPattern="out/${user}", management="read ban")
    assert found.management.grants == ("read ban",)
    for permission, address, verdict in (
        (found.sources, "in.bob", Verdict("in.${user}", None, "in.bob")),
        (found.targets, "out/bob", Verdict("out/${user}", None, "out/bob")),
        (found.targets, "out/None", Verdict(None, None, "out/None")),
        (found.sources, "in.None", Verdict(None, None, "in.None")),
    ):
        resolved = at(address)
        assert isinstance(resolved, Address)
        assert permission.judge(resolved) == verdict


@pytest.mark.parametrize(
    ("of_policy", "of_vhost", "of_group", "found"),
    [
        (3, None, None, 3),
        (3, 2, None, 2),
        (3, 2, 1, 1),
        (3, 0, None, 0),
        (3, 2, 0, 0),
        (0, 2, None, 2),
        (3, None, 1, 1),
    ],
)
def test_the_nearest_size_limit_holds_also_where_it_is_none(
    of_policy: int, of_vhost: int | None, of_group: int | None, found: int
) -> None:
    """policy §1.3: an explicit 0 at a nearer level removes a limit of an outer one."""
    group = present({"users": "*", "remoteHosts": "*", "maxMessageSize": of_group})
    vhost = present({"hostname": "h", "maxMessageSize": of_vhost, "groups": {"g": group}})
    rules = ruleset(vhost, maxMessageSize=of_policy)
    decided = connect(rules).settings
    assert decided is not None
    assert decided.max_message_size == found


def test_on_a_connector_frames_and_window_stay_the_connectors() -> None:
    """policy §3.5"""
    group = {"maxFrameSize": 512, "maxSessionWindow": 1024, "maxSessions": 3, "maxSenders": 4}
    rules = ruleset({"hostname": "h", "groups": {"$connector": group}})
    decided = decide_connector(rules, "h", "bob", None).settings
    assert decided is not None
    assert granted(decided) == {**DEFAULTS, "group": "$connector", "max_sessions": 3, "max_senders": 4}


# What is compiled

EVERYTHING: Mapping[str, object] = {
    "hostname": "h",
    "aliases": "k, i",
    "maxConnections": 5,
    "maxConnectionsPerUser": 4,
    "maxConnectionsPerHost": 3,
    "maxMessageSize": 2,
    "maxMessageRate": 20,
    "maxByteRate": 21,
    "allowUnknownUser": True,
    "groups": {
        "g": {
            "users": "b, a",
            "remoteHosts": "10.0.0.1, 2001:db8::/64",
            "maxConnectionsPerUser": 12,
            "maxConnectionsPerHost": 13,
            **{key: value for key, _, value in GRANTED},
            "sources": "a, b*, ${user}",
            "targetPattern": "a.#",
            "denySources": "b1",
            "denyTargets": "a.b",
            "authenticatorGroups": "y, x",
            "validFrom": "2027-01-15T08:00:00Z",
            "validUntil": "2027-01-15T10:00:00Z",
            "management": "read ban, update connection(adminStatus), host",
        },
        "$default": {"remoteHosts": "*"},
    },
}
PLAIN: Mapping[str, object] = {
    "hostname": "h",
    "groups": {"g": {"users": "*", "remoteHosts": "*", "sourcePattern": "a.#", "targets": "b*", "maxSenders": 3}},
}


def test_every_attribute_of_a_vhost_and_of_a_group_is_compiled() -> None:
    source = SourceLocation(file="p.json", line=1)
    vhost = ruleset(EVERYTHING, source=source).vhosts["h"]
    begin, end = 1_800_000_000.0, 1_800_007_200.0
    assert (vhost.name, vhost.aliases, vhost.source, vhost.allow_unknown_user) == ("h", ("k", "i"), source, True)
    assert (vhost.max_connections, vhost.max_connections_per_user, vhost.max_connections_per_host) == (5, 4, 3)
    assert (vhost.max_message_size, vhost.max_message_rate, vhost.max_byte_rate) == (2, 20, 21)
    assert ruleset(EVERYTHING).boundaries == (begin, end)
    assert (vhost.boundaries, [*vhost.groups]) == ((begin, end), ["g", "$default"])
    group = vhost.groups["g"]
    assert vhost.user_groups == {"a": group, "b": group}
    assert vhost.joined_groups == {"x": group, "y": group}
    assert vhost.any_user_group is None
    assert (group.name, group.vhost, group.source, group.users) == ("g", "h", source, ("b", "a"))
    assert (group.authenticator_groups, group.window) == (("y", "x"), Window(begin_s=begin, end_s=end))
    assert (group.max_connections_per_user, group.max_connections_per_host) == (12, 13)
    assert (group.source_key, group.target_key) == ("sources", "targetPattern")
    assert (group.sources.items, group.targets.items) == (("${user}", "a", "b*"), ("a.#",))
    assert (group.denied_sources.items, group.denied_targets.items) == (("b1",), ("a.b",))
    assert group.hosts == parse_hosts(["10.0.0.1", "2001:db8::/64"], resolve)


def test_a_user_is_in_the_group_that_names_him_then_in_one_of_the_authenticators_then_in_that_for_all() -> None:
    """policy §2.4"""
    groups = {
        "named": {"users": "anna"},
        "b": {"authenticatorGroups": "ops"},
        "a": {"authenticatorGroups": "dev"},
        "$default": {},
    }
    known = ruleset({"hostname": "h", "groups": groups}).vhosts["h"]
    unknown = ruleset({"hostname": "h", "allowUnknownUser": True, "groups": groups}).vhosts["h"]
    for vhost, otherwise in ((known, None), (unknown, unknown.groups["$default"])):
        assert vhost.group_of("anna", ("ops", "dev")) is vhost.groups["named"]
        assert vhost.group_of("ben", ("x", "ops", "dev")) is vhost.groups["a"]
        assert vhost.group_of("ben", ("ops",)) is vhost.groups["b"]
        assert vhost.group_of("ben", ("x",)) is otherwise
        assert vhost.group_of("ben") is otherwise
    everybody = ruleset({"hostname": "h", "groups": {**groups, "all": {"users": "*"}}}).vhosts["h"]
    assert everybody.group_of("ben", ("ops",)) is everybody.groups["b"]
    assert everybody.group_of("ben", ("x",)) is everybody.groups["all"]
    assert everybody.group_of("*") is everybody.groups["all"]


@pytest.mark.parametrize(
    ("attributes", "name"),
    [({"hostname": "a"}, "a"), ({"id": "a"}, "a"), ({"name": "a"}, "a"), ({"hostname": "", "name": "b"}, "")],
)
def test_a_vhost_has_its_name(attributes: Mapping[str, object], name: str) -> None:
    assert hostname_of(attributes) == name


def test_a_vhost_has_one_name() -> None:
    with pytest.raises(PolicyError, match=r": Both 'id' and 'hostname' cannot be specified for entity 'vhost'$"):
        hostname_of({"hostname": "a", "id": "a"})


def test_a_vhost_can_be_checked_without_compiling_it() -> None:
    source = SourceLocation(file="p.json", line=1, places={("groups", "g", "remoteHosts"): (5, 1)})
    check_vhost({**EVERYTHING, "speed": 1}, source, resolve=resolve)
    check_vhost({"hostname": "h", "groups": {"g": {"remoteHosts": "one.example"}}}, source, resolve=resolve)
    with pytest.raises(PolicyError, match=r"^Policy 'h' is invalid: Policy vhost 'h' user group 'g' option ") as raised:
        check_vhost({"hostname": "h", "groups": {"g": {"remoteHosts": "no.example"}}}, source, resolve=resolve)
    assert (raised.value.file, raised.value.line) == ("p.json", 5)


def test_a_vhost_that_says_nothing_has_the_defaults() -> None:
    """policy §1.2"""
    vhost = ruleset({"hostname": "h"}).vhosts["h"]
    assert (vhost.aliases, vhost.source, vhost.allow_unknown_user) == ((), None, False)
    assert (vhost.max_connections, vhost.max_connections_per_user, vhost.max_connections_per_host) == (65535,) * 3
    assert (vhost.max_message_size, vhost.max_message_rate, vhost.max_byte_rate) == (None, None, None)
    assert (vhost.groups, vhost.user_groups, vhost.joined_groups, vhost.boundaries) == ({}, {}, {}, ())
    group = ruleset({"hostname": "h", "groups": {"g": {"users": "*"}}}).vhosts["h"].any_user_group
    assert group is not None
    assert (group.max_connections_per_user, group.max_connections_per_host) == (None, None)
    assert (group.authenticator_groups, group.hosts, group.window) == ((), HostRanges(), Window())
    assert (group.source_key, group.target_key) == ("sources", "targets")
    assert (group.sources.items, group.targets.items) == ((), ())
    assert (group.denied_sources.items, group.denied_targets.items) == ((), ())


def test_digests_stay_what_they_are() -> None:
    """Recorded denials name the digest of the rules they were decided by: it is the same in every version."""
    both = ruleset(PLAIN, {**EVERYTHING, "hostname": "j"}, maxConnections=7, defaultVhost="")
    assert ruleset(PLAIN).digest == "758d936dcee57824382a954bf04280216d47f3a109b68a47d713890ff3d3aadb"
    assert ruleset(EVERYTHING).digest == "89cb17a72724c03b3cfa4c0d78a551d14f37ded723c9318d22cc1efb9336ff8c"
    assert both.digest == "d3dd7bee1144764556a53dfa1461c6b7973981710286020a77fb52591137ee7c"


# Places


def refused(vhost: Mapping[str, object], *path: str | int) -> tuple[str | None, int | None]:
    """Where a vhost is refused that has this place at line 5 and is itself at line 1."""
    source = SourceLocation(file="p.json", line=1, places={path: (5, 1)})
    with pytest.raises(PolicyError) as raised:
        ruleset(vhost, source=source)
    return raised.value.file, raised.value.line


GROUP: Mapping[str, object] = {"users": "alice", "remoteHosts": "*"}


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        ({"maxConnections": -1}, ("maxConnections",)),
        ({"maxByteRate": -1}, ("maxByteRate",)),
        ({"allowUnknownUser": "x"}, ("allowUnknownUser",)),
        ({"allowUnknownUser": True}, ("allowUnknownUser",)),
        ({"groups": []}, ("groups",)),
        ({"aliases": 5}, ("aliases",)),
        ({"aliases": "a, h"}, ("aliases", 1)),
        ({"aliases": "a, b, a"}, ("aliases", 2)),
        ({"aliases": "a, , a"}, ("aliases", 1)),
        ({"groups": {"g": GROUP, "k": GROUP}}, ("groups", "k", "users")),
        (
            {"groups": {"g": {"authenticatorGroups": "x"}, "k": {"authenticatorGroups": "x"}}},
            ("groups", "k", "authenticatorGroups"),
        ),
        ({"groups": {"g" * 256: GROUP}}, ("groups",)),
        ({"groups": {"g": 5}}, ("groups", "g")),
        ({"groups": {"g": {"maxSenders": -1}}}, ("groups", "g", "maxSenders")),
        (
            {"groups": {"g": {"validFrom": "2027-01-15T08:00:00Z", "validUntil": "2027-01-15T08:00:00Z"}}},
            ("groups", "g", "validUntil"),
        ),
        ({"groups": {"g": {"remoteHosts": "x"}}}, ("groups", "g", "remoteHosts")),
        ({"groups": {"g": {"sources": "{user}{user}"}}}, ("groups", "g", "sources")),
        ({"groups": {"g": {"sourcePattern": "a.{user}.b"}}}, ("groups", "g", "sourcePattern")),
        ({"groups": {"g": {"denySources": "{user}"}}}, ("groups", "g", "denySources")),
        ({"groups": {"g": {"sources": "a", "sourcePattern": "a"}}}, ("groups", "g", "sourcePattern")),
        ({"groups": {"g": {"targets": "a", "targetPattern": "a"}}}, ("groups", "g", "targetPattern")),
    ],
)
def test_what_is_refused_is_found_at_its_line(attributes: Mapping[str, object], path: tuple[str | int, ...]) -> None:
    assert refused({"hostname": "h", **attributes}, *path) == ("p.json", 5)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("groups", "g", "targets", 0), (8, 9)),
        (("groups", "g", "targets"), (8, 9)),
        (("groups", "g", "sources"), (5, 6)),
        (("groups", "g"), (5, 6)),
        (("groups",), (5, 6)),
        (("aliases",), (3, 2)),
        ((), (3, 2)),
    ],
)
def test_the_nearest_place_that_is_known_is_named(path: tuple[str | int, ...], place: tuple[int, int]) -> None:
    places: Mapping[tuple[str | int, ...], tuple[int, int]] = {
        ("groups",): (5, 6),
        ("groups", "g", "targets"): (8, 9),
    }
    source = SourceLocation(file="p.json", line=3, column=2, places=places)
    assert (source.line_of(path), source.column_of(path)) == place
    nowhere = SourceLocation()
    assert (nowhere.line_of(path), nowhere.column_of(path)) == (None, 1)


def test_a_rule_names_where_it_is_written() -> None:
    vhost = {"hostname": "h", "maxConnections": 5, "groups": {"g": {**GROUP, "targets": "a"}}}
    places: Mapping[tuple[str | int, ...], tuple[int, int]] = {
        ("maxConnections",): (3, 1),
        ("groups", "g", "targets"): (7, 1),
    }
    source = SourceLocation(file="p.json", line=1, places=places)
    written, told = ruleset(vhost, source=source).vhosts["h"], ruleset(vhost).vhosts["h"]
    group = written.groups["g"]
    assert group.rule("targets", "a") == Rule(vhost="h", group="g", item="targets: a", file="p.json", line=7)
    assert group.rule("targets") == Rule(vhost="h", group="g", item="targets", file="p.json", line=7)
    assert written.rule("maxConnections", 5) == Rule(vhost="h", item="maxConnections: 5", file="p.json", line=3)
    assert written.rule("maxConnections") == Rule(vhost="h", item="maxConnections", file="p.json", line=3)
    granted_by = make_settings(written, group, "bob", policy_max_message_size=0)
    assert granted_by.rule("targets", "a") == group.rule("targets", "a")
    assert granted_by.rule("targets") == group.rule("targets")
    assert told.groups["g"].rule("targets", "a") == Rule(vhost="h", group="g", item="targets: a")
    assert told.rule("maxConnections", 5) == Rule(vhost="h", item="maxConnections: 5")


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (5, " must be of type 'dict' but is '<class 'int'>'"),
        ({"denySources": "in.${user}"}, " policy key 'denySources' item 'in.${user}' must not contain '${user}'"),
        (
            {"denySources": "in.${user:escaped}"},
            " policy key 'denySources' item 'in.${user:escaped}' must not contain '${user}'",
        ),
        ({"denyTargets": "{user}"}, " policy key 'denyTargets' item '{user}' must not contain '${user}'"),
        ({"replyWindow": 0}, " option 'replyWindow' has error 'Value '0' is below minimum '1'.'."),
        (
            {"validFrom": "2027-01-15T08:00:00Z", "validUntil": "2027-01-15T07:00:00Z"},
            " option 'validUntil' 2027-01-15T07:00:00Z is not after validFrom 2027-01-15T08:00:00Z: "
            "the group would never be valid.",
        ),
        ({"management": "none, observer"}, " option 'management' has 'none' beside other grants"),
    ],
)
def test_a_refused_group_is_named(group: object, text: str) -> None:
    with pytest.raises(PolicyError) as raised:
        ruleset({"hostname": "h", "groups": {"g": group}})
    assert str(raised.value) == f"Policy 'h' is invalid: Policy vhost 'h' user group 'g'{text}"


@pytest.mark.parametrize(
    ("vhost", "text"),
    [
        (
            {"hostname": 5},
            "Policy '5' is invalid: Policy vhost '5' option 'hostname' must be of type 'str' but is '<class 'int'>'",
        ),
        (
            {"id": ["a"]},
            "Policy '['a']' is invalid: Policy vhost '['a']' option 'id' must be of type 'str' but is '<class 'list'>'",
        ),
        (
            {"hostname": "h", "aliases": 5},
            "Policy 'h' is invalid: Policy vhost 'h' option 'aliases' has illegal value '5'. "
            "Type must be 'str' or 'list' but is '<class 'int'>;",
        ),
        (
            {"hostname": "h", "groups": {"g" * 256: {}}},
            f"Policy 'h' is invalid: Policy vhost 'h' user group '{'g' * 256}': "
            "the name must be a text of at most 255 bytes",
        ),
        (
            {"hostname": "h", "groups": {5: {}}},
            "Policy 'h' is invalid: Policy vhost 'h' user group '5': the name must be a text of at most 255 bytes",
        ),
        (
            {"hostname": "h", "groups": {"g": {"authenticatorGroups": "x"}, "k": {"authenticatorGroups": "y, x"}}},
            "Policy 'h' is invalid: Policy vhost 'h' authenticator group 'x' is in multiple user groups 'g' and 'k'",
        ),
    ],
)
def test_a_refused_vhost_is_named(vhost: Mapping[str, object], text: str) -> None:
    with pytest.raises(PolicyError) as raised:
        ruleset(vhost)
    assert str(raised.value) == text
