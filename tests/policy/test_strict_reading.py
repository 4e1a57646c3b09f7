"""What the reader of a policy takes, joins or refuses: numbers out of range, nulls, lists of names, blanks and tabs."""

import json
from collections.abc import Mapping

import pytest
from rulesets import at, connect, group_ruleset, resolve, ruleset, settings

from policy.addressing.address import Address
from policy.decision import Reason
from policy.files.loader import PolicyFileError, read_sections
from policy.files.validation import load_sections
from policy.groups import BOOLEAN_KEYS, NUMBER_KEYS
from policy.lint.rules import check_all
from policy.ruleset import PolicyError, Ruleset, compile_ruleset

RANGES = {
    **dict.fromkeys(NUMBER_KEYS, (0, 2**63 - 1)),
    **dict.fromkeys(("maxConnectionsPerUser", "maxConnectionsPerHost"), (0, 65535)),
    "maxFrameSize": (0, 2**32 - 1),
    "replyWindow": (1, 86_400),
}
EDGES = sorted(
    {edge + step for bits in (16, 31, 32, 63, 64) for edge in (2**bits,) for step in (-2, -1, 0, 1)} | {-1, 0, 1}
)
GROUP_KEYS = sorted(
    (
        *(NUMBER_KEYS | BOOLEAN_KEYS),
        *("users", "remoteHosts", "authenticatorGroups", "management", "validFrom", "validUntil"),
        *("sources", "targets", "sourcePattern", "targetPattern", "denySources", "denyTargets"),
    )
)
VHOST_KEYS = (
    *("aliases", "maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost", "maxMessageSize"),
    *("maxMessageRate", "maxByteRate", "allowUnknownUser", "groups", "hostname"),
)


def from_file(vhost: Mapping[str, object]) -> Ruleset:
    """The ruleset of one policy file, each attribute on a line of its own."""
    sections = read_sections(json.dumps([["vhost", vhost]], indent=1), "p.json")
    assert sections is not None
    written = [(section.attributes, section.source) for section in sections]
    return compile_ruleset({"enableVhostPolicy": True}, written, resolve=resolve)


def line_of(vhost: Mapping[str, object], text: str) -> int:
    lines = json.dumps([["vhost", vhost]], indent=1).splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# Numbers


@pytest.mark.parametrize("key", sorted(RANGES))
@pytest.mark.parametrize("number", EDGES)
def test_a_number_out_of_range_is_refused_with_its_place_and_range(key: str, number: int) -> None:
    low, high = RANGES[key]
    vhost = {"hostname": "h", "groups": {"g": {"users": "*", "remoteHosts": "*", key: number}}}
    if low <= number <= high:
        assert from_file(vhost).vhosts["h"].groups["g"].canonical[4] == [(key, number)] or key == "replyWindow"
        return
    with pytest.raises(PolicyError) as refused:
        from_file(vhost)
    limit = f"below minimum '{low}'" if number < low else f"above maximum '{high}'"
    text = f"Policy vhost 'h' user group 'g' option '{key}' has error 'Value '{number}' is {limit}.'."
    assert str(refused.value) == f"Policy 'h' is invalid: {text}"
    assert (refused.value.file, refused.value.line) == ("p.json", line_of(vhost, f'"{key}"'))
    with pytest.raises(PolicyFileError, match=key):
        load_sections(json.dumps([["vhost", vhost]]), "p.json")


@pytest.mark.parametrize("key", ["maxConnections", "maxMessageSize"])
def test_a_number_of_the_policy_has_a_range(key: str) -> None:
    def of(number: int) -> object:
        return compile_ruleset({"enableVhostPolicy": True, key: number}, [], resolve=resolve)

    of(2**63 - 1)
    with pytest.raises(PolicyError, match=f"policy {key}: Value '{2**63}' is above maximum '{2**63 - 1}'"):
        of(2**63)


# Nulls


@pytest.mark.parametrize("key", GROUP_KEYS)
def test_a_null_in_a_group_is_refused_and_stands_for_no_default(key: str) -> None:
    vhost = {"hostname": "h", "groups": {"g": {"users": "bob", "remoteHosts": "*", key: None}}}
    with pytest.raises(PolicyError) as refused:
        from_file(vhost)
    text = f"Policy vhost 'h' user group 'g' option '{key}' is null: give it a value, or leave it out."
    assert str(refused.value) == f"Policy 'h' is invalid: {text}"
    assert (refused.value.file, refused.value.line) == ("p.json", line_of(vhost, f'"{key}"'))
    with pytest.raises(PolicyFileError, match=f"'{key}'.* is null"):
        load_sections(json.dumps([["vhost", vhost]]), "p.json")


@pytest.mark.parametrize("key", VHOST_KEYS)
def test_a_null_in_a_vhost_is_refused_and_stands_for_no_default(key: str) -> None:
    vhost: dict[str, object] = {"hostname": "h", "groups": {}, "name": "n", key: None}
    with pytest.raises(PolicyError, match=f"'{key}' is null: give it a value, or leave it out") as refused:
        from_file(vhost)
    assert (refused.value.file, refused.value.line) == ("p.json", line_of(vhost, f'"{key}"'))


def test_a_null_for_a_group_or_an_item_is_refused() -> None:
    with pytest.raises(PolicyError, match="user group 'g' must be of type 'dict'"):
        ruleset({"hostname": "h", "groups": {"g": None}})
    with pytest.raises(PolicyError, match="option 'users' has illegal value 'None'"):
        group_ruleset(users=["bob", None])


# Lists of names


@pytest.mark.parametrize(
    ("users", "found"),
    [
        (["a,b", " bob ", "x"], ("a", "b", "bob", "x")),
        (["a, b", "b,a"], ("a", "b")),
        (["", " ", ","], ()),
        (["*,bob"], ("*", "bob")),
        (["\tbob\n"], ("bob",)),
        ("a,\tb ,c\t", ("a", "b", "c")),
        ("a b", ("a b",)),
        ("\r\na,b\n", ("a", "b")),
        ("\u00a0a, b\u2003,\x0bc", ("\u00a0a", "b\u2003", "\x0bc")),
        (["\u00a0*"], ("\u00a0*",)),
    ],
)
def test_a_list_of_users_is_joined_split_at_commas_and_stripped(users: object, found: tuple[str, ...]) -> None:
    assert group_ruleset(users=users).vhosts["h"].groups["g"].users == found


def test_nobody_falls_into_a_laxer_group_for_a_comma_or_a_blank_in_a_list() -> None:
    """Attack: `" bob "` and `"a,b"` were names that nobody has, so that bob, a and b were in the group of `*`."""
    strict = {"users": ["a,b", " bob "], "remoteHosts": "*", "targets": "a"}
    lax = {"users": "*", "remoteHosts": "*", "targets": "*"}
    rules = ruleset({"hostname": "h", "groups": {"strict": strict, "lax": lax}})
    assert [connect(rules, user).group for user in ("a", "b", "bob", "a,b", " bob ")] == [*["strict"] * 3, *["lax"] * 2]


def test_an_item_that_is_several_users_is_warned_about() -> None:
    """A certificate's whole subject is one name to people, and two to routers."""
    rules = group_ruleset(users=["CN=bob,O=x", " carl "])
    warning = "option 'users' item 'CN=bob,O=x' is the users 'CN=bob', 'O=x': commas separate in a list too"
    assert rules.warnings == (f"Policy vhost 'h' user group 'g' {warning}",)


def test_a_user_in_two_groups_is_found_inside_the_items_of_a_list() -> None:
    groups = {"g": {"users": ["a,b"]}, "k": {"users": [" b"]}}
    with pytest.raises(PolicyError, match="user 'b' is in multiple user groups 'g' and 'k'"):
        ruleset({"hostname": "h", "groups": groups})


def test_items_of_other_lists_are_taken_as_they_are() -> None:
    """Addresses and names of LDAP may have commas and blanks."""
    joined = {"authenticatorGroups": ["cn=ops,ou=groups", " x"], "remoteHosts": "*", "sources": ["a,b", " c"]}
    group = ruleset({"hostname": "h", "groups": {"g": joined}}).vhosts["h"].groups["g"]
    assert (group.authenticator_groups, group.sources.items) == (("cn=ops,ou=groups", " x"), (" c", "a,b"))


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\x0b", "\x1f", "\x85"])
def test_other_blanks_than_those_of_the_books_belong_to_the_item(blank: str) -> None:
    """policy 21, 30. Attack: a no-break space before `*` was stripped, and the group was for everybody."""
    rules = group_ruleset(users=f"{blank}*", targets=f"{blank}*")
    assert connect(rules).decision.reason is Reason.UNKNOWN_USER
    allowed = settings(targets=f"a,{blank}*").targets
    found = [allowed.judge(address).item for text in ("x", f"{blank}x") if isinstance(address := at(text), Address)]
    assert found == [None, f"{blank}*"]


@pytest.mark.parametrize("key", ["sources", "targets", "denySources", "sourcePattern"])
def test_tabs_around_the_items_of_a_text_are_stripped(key: str) -> None:
    """Attack: `"a,\tb"` denied an address that begins with a tab, and not b."""
    granted = group_ruleset(**{key: "a,\tb\t"}).vhosts["h"].groups["g"]
    rules = {"denySources": granted.denied_sources, "targets": granted.targets}.get(key, granted.sources)
    assert rules.items == ("a", "b")


# Aliases and names


@pytest.mark.parametrize("aliases", ["", " ", "\t", ",", "a,,b", "a, ", ",a"])
def test_a_blank_alias_is_refused_with_a_reason(aliases: str) -> None:
    vhost = {"hostname": "h", "aliases": aliases}
    with pytest.raises(PolicyError) as refused:
        from_file(vhost)
    text = "has a blank item: give it a name, remove the comma too many, or leave the attribute out."
    assert str(refused.value) == f"Policy 'h' is invalid: Policy vhost 'h' option 'aliases' {text}"
    assert (refused.value.file, refused.value.line) == ("p.json", line_of(vhost, '"aliases"'))


@pytest.mark.parametrize("aliases", [[], ["a"], ["a,b", " c "], [True]])
def test_a_list_of_aliases_is_refused_by_name(aliases: object) -> None:
    with pytest.raises(
        PolicyError, match="option 'aliases' must be one text with commas between the names, not a list"
    ):
        ruleset({"hostname": "h", "aliases": aliases})


def test_tabs_around_an_alias_are_stripped() -> None:
    assert ruleset({"hostname": "h", "aliases": "a,\tb"}).vhosts["h"].aliases == ("a", "b")


@pytest.mark.parametrize("key", sorted({*GROUP_KEYS} - BOOLEAN_KEYS))
def test_true_is_refused_by_name_where_no_switch_is(key: str) -> None:
    for value in (True, [True]):
        with pytest.raises(PolicyError, match=rf"option '{key}' .*'?\[?True"):
            ruleset({"hostname": "h", "groups": {"g": {key: value}}})


@pytest.mark.parametrize("key", [key for key in VHOST_KEYS if key != "allowUnknownUser"])
def test_true_is_refused_by_name_for_an_attribute_of_a_vhost(key: str) -> None:
    with pytest.raises(PolicyError, match=f"'{key}'"):
        ruleset({"hostname": "h", key: True})


@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128])
def test_a_group_name_over_255_bytes_is_refused_by_name(name: str) -> None:
    vhost = {"hostname": "h", "groups": {name: {}, "g": {}}}
    with pytest.raises(
        PolicyError, match=f"user group '{name}': the name must be a text of at most 255 bytes"
    ) as refused:
        from_file(vhost)
    assert refused.value.line == line_of(vhost, f'"{json.dumps(name)[1:-1]}"')
    text = json.dumps([["vhost", vhost]])
    try:  # the schema counts characters, the rule bytes
        assert [finding.rule for finding in check_all(load_sections(text, "p.json")) if "255" in finding.text] == [
            "PAL001"
        ]
    except PolicyFileError as error:
        assert "at most 255 characters" in str(error) and name[:32] in str(error)  # noqa: PT017, PT018
    assert ruleset({"hostname": "h", "groups": {name[:127]: {}}}).vhosts["h"].groups


# Patterns of separators


@pytest.mark.parametrize("pattern", ["/", ".", "//", "./.", "..."])
@pytest.mark.parametrize("address", ["/", ".", "//", "..", "a", "/a", "a."])
def test_a_pattern_of_separators_matches_no_address(pattern: str, address: str) -> None:
    rules = group_ruleset(sourcePattern=[pattern]).vhosts["h"].groups["g"].sources
    assert rules.bind("bob").match(address) is None
    assert settings(sourcePattern=[pattern, "a"]).sources is not None


@pytest.mark.parametrize("name", ["/", ".", "//"])
def test_a_vhost_name_of_separators_matches_no_name_as_a_pattern(name: str) -> None:
    rules = ruleset({"hostname": name}, {"hostname": "$default"}, enableVhostNamePatterns=True)
    assert {rules.select_vhost(each).name for each in ("", "/", ".", "//", "a", name)} == {"$default"}  # type: ignore[union-attr]


def test_a_blank_vhost_name_matches_what_is_blank_and_no_separators() -> None:
    rules = ruleset({"hostname": ""}, {"hostname": "#"}, {"hostname": "$default"}, enableVhostNamePatterns=True)
    found = [vhost.name for name in ("", "/", "a") if (vhost := rules.select_vhost(name)) is not None]
    assert found == ["", "#", "#"]
